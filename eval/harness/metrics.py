"""Metrics: the outcome of each completion, the numbers of one problem, intervals of means.

A record is a graded completion: `completion, verdict, prediction, well_formed, cut_off, num_tokens`
and `lenient`, the verdict on its lenient reading. Pure functions; no model, no harness.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist

from grading.compare import is_same_value
from grading.own_grader import COLUMN
from pipeline.prompts import THINK_CLOSE, THINK_OPEN

# "right": the parser in use counts it. "unread": the correct answer follows a closed thought, but
# not in the form that is read. "unclosed": it is there, but no thought was closed. "no answer":
# even a lenient reader finds none.
OUTCOMES = ("right", "wrong", "unread", "unclosed", "no answer", "cut off")
MAX_CLASSES = 16  # that an incorrect answer is compared with when votes are counted


def outcome(record: dict, is_right: bool) -> str:
    """The outcome of a completion; one of `OUTCOMES`.

    `is_right` is the verdict of the parser in use, ours or an official task's. A completion that it
    counts is "right", even if it was cut off after its answer. What our grader calls wrong is
    "wrong".
    """
    if is_right:
        return "right"
    if record["cut_off"]:
        return "cut off"
    if record["verdict"] == "wrong":
        return "wrong"
    if not is_answer_right(record):
        return "wrong" if record["lenient"] == "wrong" else "no answer"
    text = record["completion"]
    # `<think>` itself may be in the prompt.
    return "unread" if text.rfind(THINK_CLOSE) > text.rfind(THINK_OPEN) else "unclosed"


def is_answer_right(record: dict) -> bool:
    """Whether the correct answer is there, in the asked form or in any other."""
    return record["verdict"] == "right" or record["lenient"] == "right"


# Metrics of one problem.


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k completions, drawn from n without replacement, is correct.

        pass@k = 1 - C(n - c, k) / C(n, k)

    The unbiased estimator of Chen et al. 2021 (arXiv:2107.03374, eq. 1), computed in integers.
    """
    return (math.comb(n, k) - math.comb(n - c, k)) / math.comb(n, k)


def pass_sizes(k: int) -> list[int]:
    """The j of pass@j for k completions: 2, 4, 8, … below k, and k; pass@1 is avg@k."""
    powers = [2**i for i in range(1, k.bit_length()) if 2**i < k]
    return [*powers, k] if k > 1 else []


def majority_at_k(records: Sequence[dict]) -> float:
    """maj@k of one problem: whether the most frequent answer is correct (self-consistency).

    Wang et al. 2022 (arXiv:2203.11171), without weights. A completion votes for its prediction; one
    without a prediction abstains. The correct ones are one class. Incorrect ones are grouped by
    text, then by value: each text, the most frequent first, is compared with the first
    `MAX_CLASSES` classes. They are not compared where they are too few to win. Where classes tie,
    the result is the share of correct ones among them, the expected value of a random tie-break.
    """
    right = sum(record["verdict"] == "right" for record in records)
    wrong = [
        record["prediction"].strip()
        for record in records
        if record["verdict"] != "right" and record["prediction"] is not None
    ]
    if right == 0:
        return 0.0
    if len(wrong) < right:
        return 1.0
    # Answers of other kinds than ours: the texts, as nothing else says which of them are equal.
    has_own_grader = any(record.get(COLUMN) for record in records)
    sizes = list(Counter(wrong).values()) if has_own_grader else _class_sizes(wrong)
    most = max(sizes)
    if right == most:
        return 1.0 / (1 + sizes.count(right))
    return 1.0 if right > most else 0.0


def _class_sizes(votes: Sequence[str]) -> list[int]:
    """How many votes each class of equal answers has."""
    counts = Counter(votes)
    classes: dict[str, int] = {}  # the most frequent text of each, and its votes
    for text in sorted(counts, key=lambda text: (-counts[text], text)):
        known = list(classes)[:MAX_CLASSES]
        same = next((one for one in known if is_same_value(text, one)), text)
        classes[same] = classes.get(same, 0) + counts[text]
    return list(classes.values())


def sampled_metrics(records: Sequence[dict]) -> dict[str, float]:
    """Metrics of the k sampled completions of one problem, named as in "avg@4".

    `avg@k` (mean accuracy), `pass@j` for the j of `pass_sizes(k)`, `maj@k`, and those of
    `greedy_metrics` besides `accuracy`.
    """
    k = len(records)
    right = sum(record["verdict"] == "right" for record in records)
    return {
        f"avg@{k}": right / k,
        **{f"pass@{j}": pass_at_k(k, right, j) for j in pass_sizes(k)},
        f"maj@{k}": majority_at_k(records),
        **_common_metrics(records),
    }


def greedy_metrics(records: Sequence[dict]) -> dict[str, float]:
    """All metrics of the one greedy completion of a problem.

    `accuracy`, 0 or 1, and `format_rate` (one thought, then one answer), `cut_off_rate`,
    `completion_length` (tokens), `answer_right` (by the verdict or by the lenient reading: for
    diagnosis only).
    """
    return {"accuracy": float(records[0]["verdict"] == "right"), **_common_metrics(records)}


def _common_metrics(records: Sequence[dict]) -> dict[str, float]:
    count = len(records)
    return {
        "format_rate": sum(record["well_formed"] for record in records) / count,
        "cut_off_rate": sum(record["cut_off"] for record in records) / count,
        "completion_length": sum(record["num_tokens"] for record in records) / count,
        "answer_right": sum(map(is_answer_right, records)) / count,
    }


# How sure a mean over problems is. The k samples of one problem are not independent, so they are
# averaged first. With problems as clusters of equal size that is the clustered standard error
# (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640).


def student_t(df: int) -> float:
    """The 0.975 quantile of Student's t, to 1 % (Fisher and Cornish 1960)."""
    if df < 5:
        return (12.706, 4.303, 3.182, 2.776)[df - 1]
    z = NormalDist().inv_cdf(0.975)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / df + second / df**2


def unseen_share(n: int, sides: int = 1) -> float:
    """Upper 95 % bound of the share of problems of a kind of which n problems showed none.

    (1 - share)^n = 0.05        3 / n for many (Hanley and Lippman-Hand 1983); sides 2: 97.5 %
    """
    return 1 - (0.05 / sides) ** (1 / n)


def mean_interval(
    values: Sequence[float], bounds: tuple[float, float] | None = (0.0, 1.0)
) -> dict[str, float | int | None]:
    """Mean over problems with its standard error and its 95 % interval within `bounds`, if any.

    The standard error is s / sqrt(n), s with Bessel's n - 1. The interval is Student's t around the
    n values and two more, the least and the greatest of them. This is "plus two" of Agresti and
    Coull 1998 for values of any kind: few values show too little of a skewed or rare one. Where all
    values are equal, it reaches as far as `unseen_share` of problems at a bound would move the
    mean. At n = 30 it covers 88 to 100 % (docs/evaluation.md). One problem has no interval.
    """
    n, mean = len(values), math.fsum(values) / len(values)
    if n == 1:
        return {"value": mean, "stderr": None, "low": None, "high": None, "n": 1}
    stderr = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    least, most = min(values), max(values)
    bounds = bounds or (least, most)
    if least == most:
        share = unseen_share(n, sides=1 if mean in bounds else 2)
        low, high = (mean + share * (bound - mean) for bound in bounds)
    else:
        more = [*values, least, most]
        middle = math.fsum(more) / (n + 2)
        spread = math.fsum((value - middle) ** 2 for value in more) / (n + 1) / (n + 2)
        half = student_t(n - 1) * math.sqrt(spread)
        low, high = max(middle - half, bounds[0]), min(middle + half, bounds[1])
    return {"value": mean, "stderr": stderr, "low": low, "high": high, "n": n}
