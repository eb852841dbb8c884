"""The problems that a GRPO run is evaluated on while it trains: chosen, kept out, averaged over.

Either some of `eval_file`, or some of `train_file`, which are then not trained on.
"""

import hashlib
import math
from typing import Any

from data_prep.decontamination.text import normalise_question
from data_prep.schema import read_problems
from stages.arguments import GrpoArguments

Rows = list[dict[str, Any]]
LEAST_PROBLEMS = 2  # of one alone there is no standard error


def key_of(row: dict[str, Any]) -> str:
    """What two copies of a problem have in common: the normalised question."""
    return normalise_question(row.get("question") or row["prompt"][-1]["content"])


def choose(rows: Rows, num: int | None, seed: int) -> Rows:
    """`num` different problems, the same ones whatever the order of the rows; None for all.

    The choice is by a hash of seed and question, so a greater `num` only adds problems, and
    appending rows to a file changes few of them.
    """
    different = {key_of(row): row for row in reversed(rows)}  # of copies the first

    def rank(key: str) -> bytes:
        return hashlib.sha256(f"{seed} {key}".encode()).digest()

    return [different[key] for key in sorted(different, key=rank)[:num]]


def hold_out(rows: Rows, args: GrpoArguments, seed: int) -> tuple[Rows, Rows]:
    """The rows to train on, and those to evaluate on; of the latter none without evaluation.

    Args:
        rows: of `train_file`.
        seed: the recipe's.
    """
    if args.eval_file:
        return rows, choose(list(read_problems(args.eval_file)), args.eval_problems, seed)
    if not args.eval_problems:
        return rows, []
    held_out = choose(rows, args.eval_problems, seed)
    keys = {key_of(row) for row in held_out}
    return [row for row in rows if key_of(row) not in keys], held_out


def average_at_k(num_right: list[int], k: int) -> tuple[float, float]:
    """avg@k and its standard error over problems, both within 0..1.

        avg@k = mean over problems of s, s = right completions / k
        standard error = standard deviation of s over problems / sqrt(number of problems)

    Args:
        num_right: right completions of each problem, of k; two problems or more.
    """
    shares = [num / k for num in num_right]
    mean = sum(shares) / len(shares)
    variance = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)
    return mean, math.sqrt(variance / len(shares))
