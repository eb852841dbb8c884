"""Which problems GRPO trains on. Pure functions, no torch.

A group teaches only where its rollouts differ: with pass rate p, all G rollouts agree with
probability p^G + (1-p)^G. The offline filter keeps problems that the SFT model solves sometimes.
"""

from data_prep.config import UserError
from data_prep.reading import read_rows


def load_pass_rates(path: str) -> dict[str, float]:
    """`{problem id: pass rate}` of a `pass_rates.jsonl` written by `data_prep.difficulty`."""
    rates = {}
    for where, row in read_rows(path):
        try:
            rates[row["id"]] = row["num_right"] / row["num_samples"]
        except (KeyError, TypeError, ZeroDivisionError):
            raise UserError(
                f"{where}: needs id, num_right and num_samples > 0; run `make difficulty` again"
            ) from None
    return rates


def keep_by_pass_rate(
    rows: list[dict], rates: dict[str, float], low: float, high: float
) -> list[dict]:
    """The rows whose pass rate lies in [low, high]; rows without a rate are left out."""
    return [row for row in rows if low <= rates.get(row["id"], -1.0) <= high]
