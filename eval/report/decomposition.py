"""The parts of a score and of its change: finished, readable, correct.

A completion is finished if it ends by itself within the token limit, readable if it has an answer
where the grader looks, and correct if that answer is. The score is the product of the three rates.
Each rate gets its Shapley value of the change between two checkpoints. Pure functions over rows of
`completions.parquet`; no model, no harness.
"""

import math
from typing import Any, NamedTuple

import pandas as pd

from eval.harness.metrics import mean_interval

PARTS = ("finished", "readable", "correct")
PROBLEM = ["source", "id"]  # the columns that name a problem
# The outcomes that count for each share; see `eval.harness.metrics.OUTCOMES`. A completion that was
# cut off after its answer and is correct has the outcome "right", and so counts as finished.
COUNTED = {
    "finished": ("right", "wrong", "unread", "unclosed", "no answer"),
    "readable": ("right", "wrong"),
    "correct": ("right",),
}
# Fewer say too little about a rate. In simulated evaluations the intervals of parts hold the truth
# in 41 to 91 % of the cases with 1 to 6 readable completions, and in 90 to 98 % from 20 on.
MIN_READABLE = 20
Pair = tuple[Any, Any]  # of the first checkpoint and of the second: a number, or one a problem


class Rates(NamedTuple):
    """The three rates of one task, in [0, 1]; None without evidence.

    finished:  F = 1 - share(cut off)
    readable:  R = 1 - share(no answer, unread, unclosed) / F      None where F = 0
    correct:   C = share(correct) / (F R)                          None where F R = 0
    """

    finished: float
    readable: float | None
    correct: float | None


def problem_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each problem: the shares of all its completions that are `PARTS`."""
    counted = pd.DataFrame({part: rows["outcome"].isin(COUNTED[part]) for part in PARTS})
    return counted.groupby([rows[key] for key in PROBLEM], sort=False).mean()


def task_rates(shares: pd.DataFrame) -> Rates:
    """The rates of a task from the shares of its problems, which all weigh the same."""
    finished, readable, correct = (math.fsum(shares[part]) / len(shares) for part in PARTS)
    return Rates(
        finished,
        readable / finished if finished else None,
        correct / readable if readable else None,
    )


def fill_missing(before: Rates, after: Rates, constant: float) -> list[Pair]:
    """Each rate of both; a missing one takes the other's value, or `constant` if both miss it."""
    pairs = []
    for first, second in zip(before, after, strict=True):
        known = [rate for rate in (first, second) if rate is not None] or [constant]
        pairs.append((known[0], known[-1]))
    return pairs


def shapley_part(own: Pair, one: Pair, other: Pair) -> float:
    """What the change of one factor adds to the change of a product of three.

        part(x) = (x2 - x1) (2 y1 z1 + y1 z2 + y2 z1 + 2 y2 z2) / 6

    The factors change one after the other. The part of x is the mean, over all 6 orders, of the
    step when x changes. The three parts sum to x2 y2 z2 - x1 y1 z1, and each has the sign of its
    own factor's change. The function is linear in each of the three pairs.

    Shapley 1953, "A Value for n-Person Games". Shorrocks 2013, doi:10.1007/s10888-011-9214-z, uses
    it to split a change. Das Gupta 1993, "Standardization and Decomposition of Rates" (U.S. Census
    Bureau, P23-186), has this form for three rates.
    """
    (x1, x2), (y1, y2), (z1, z2) = own, one, other
    return (x2 - x1) * (2 * y1 * z1 + y1 * z2 + y2 * z1 + 2 * y2 * z2) / 6


def split_rates(before: Rates, after: Rates) -> dict[str, float]:
    """The part of each factor in the change of the score, `{"finished" | "readable" | "correct"}`.

    A rate without evidence takes the other checkpoint's value, so that its own part is 0.
    """
    x, y, z = fill_missing(before, after, 1.0)
    parts = shapley_part(x, y, z), shapley_part(y, x, z), shapley_part(z, x, y)
    return dict(zip(PARTS, parts, strict=True))


def split_change(before_rows: pd.DataFrame, after_rows: pd.DataFrame) -> dict[str, dict]:
    """The change of the score between two checkpoints on the same problems, and its three parts.

    The change is the mean of paired differences over problems, the k samples of a problem averaged
    first. Pairing removes the difficulty of the problems: the error is that of the differences
    (Miller 2024, arXiv:2411.00640, section 4.2).

    A part is not a mean over problems. Its interval is that of its linear approximation (delta
    method): for each problem the part, plus its derivative towards that problem's shares.

    Returns:
        `{"score" | "finished" | "readable" | "correct": mean_interval}`. Where either checkpoint
        has fewer than `MIN_READABLE` readable completions, the parts have no interval.
    """
    before, after = problem_shares(before_rows), problem_shares(after_rows)
    after = after.loc[before.index]
    rates = task_rates(before), task_rates(after)
    found = {"score": mean_interval([*after["correct"] - before["correct"]], bounds=(-1.0, 1.0))}
    readable = [
        rows["outcome"].isin(COUNTED["readable"]).sum() for rows in (before_rows, after_rows)
    ]
    slopes = _slopes(before, after, rates)
    for (name, part), slope in zip(split_rates(*rates).items(), slopes, strict=True):
        found[name] = mean_interval([*part + slope], bounds=(-1.0, 1.0)) | {"value": part}
        if min(readable) < MIN_READABLE:
            found[name] |= dict.fromkeys(("stderr", "low", "high"))
    return found


def _slopes(
    before: pd.DataFrame, after: pd.DataFrame, rates: tuple[Rates, Rates]
) -> tuple[pd.Series, pd.Series, pd.Series]:
    """How much each problem's shares move each part, to first order; their mean is 0."""
    moves = []
    for shares, (f, r, c) in zip((before, after), rates, strict=True):
        finished, readable, correct = (shares[part] for part in PARTS)
        move_r = None if r is None else (readable - r * finished) / f
        move_c = None if r is None or c is None else (correct - c * readable) / (f * r)
        moves.append(Rates(finished - f, move_r, move_c))
    dx, dy, dz = fill_missing(moves[0], moves[1], 0.0)
    x, y, z = fill_missing(*rates, 1.0)

    def slope(own: Pair, d_own: Pair, one: Pair, d_one: Pair, other: Pair, d_other: Pair) -> Any:
        """By the product rule: a part is linear in each of its pairs."""
        return (
            shapley_part(d_own, one, other)
            + shapley_part(own, d_one, other)
            + shapley_part(own, one, d_other)
        )

    return slope(x, dx, y, dy, z, dz), slope(y, dy, x, dx, z, dz), slope(z, dz, x, dx, y, dy)
