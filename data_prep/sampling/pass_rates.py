"""Pass rates of a checkpoint over a problem set, as `stages.difficulty` writes them."""

from data_prep.config import UserError
from data_prep.reading.rows import read_rows


def load_pass_counts(path: str) -> dict[str, tuple[int, int]]:
    """`{problem id: (num_right, num_samples)}` of a file written by `stages.difficulty`."""
    counts = {}
    for where, row in read_rows(path):
        try:
            right, samples = row["num_right"], row["num_samples"]
            if not (type(right) is type(samples) is int and 0 <= right <= samples > 0):
                raise ValueError
            counts[row["id"]] = (right, samples)
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{where}: needs id, num_right and num_samples > 0; run `make difficulty` again"
            ) from None
    return counts
