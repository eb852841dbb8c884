"""Metrics: the numbers of one problem, from its graded completions.

A record is a graded completion: `completion, verdict, prediction, well_formed, cut_off, num_tokens`
and `lenient`, the worth of its lenient reading. The score is the strict verdict; `answer_right` is
what a patient human would have counted, and is there for diagnosis only.
"""

import math
from collections.abc import Sequence

from data_prep.grading.answers import is_same_value
from eval.harness.outcomes import is_answer_right

MAX_CLASSES = 16  # that a wrong answer is compared with when votes are counted


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k completions, drawn from n without replacement, is right.

        pass@k = 1 - C(n - c, k) / C(n, k)

    The unbiased estimator of Chen et al. 2021 (arXiv:2107.03374, eq. 1) for one problem, computed
    in integers. It equals c / n for k = 1, and whether any is right for k = n.

    Args:
        n: completions of the problem.
        c: how many of them are right, 0 to n.
        k: completions drawn, 1 to n.

    Raises:
        ValueError: c or k is out of its range.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs {k} completions of a problem, there are {n}")
    if not 0 <= c <= n:
        raise ValueError(f"{c} of {n} completions cannot be right")
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_sizes(k: int) -> list[int]:
    """The j of pass@j for k completions: 2, 4, 8, … below k, and k; pass@1 is avg@k."""
    powers = [2**i for i in range(1, k.bit_length()) if 2**i < k]
    return [*powers, k] if k > 1 else []


def majority_at_k(records: Sequence[dict]) -> float:
    """maj@k of one problem: whether the most frequent answer is right (self-consistency).

    Wang et al. 2022 (arXiv:2203.11171), without weights. A completion votes for its prediction; one
    without abstains. The right ones are one class; wrong ones are grouped by text, then by value.
    Where classes tie, the result is the share of right ones among them: the expected value of a
    tie broken at random. If nobody votes it is 0.

    Cost: nothing is compared unless the wrong votes could reach the right ones. Then the texts, the
    most frequent first, are each compared with the first `MAX_CLASSES` classes only, so with 256
    different wrong answers 4,096 times at most; a later text keeps to itself, which can only
    move how many small classes tie.

    Returns:
        0, 1, or between where classes tie; the order of the records does not matter.
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
    sizes = _class_sizes(wrong)
    most = max(sizes)
    return 1.0 / (1 + sizes.count(right)) if right == most else float(right > most)


def _class_sizes(votes: Sequence[str]) -> list[int]:
    """How many votes each class of equal answers has."""
    counts: dict[str, int] = {}
    for vote in votes:
        counts[vote] = counts.get(vote, 0) + 1
    classes: dict[str, int] = {}  # the most frequent text of each, and its votes
    for text in sorted(counts, key=lambda text: (-counts[text], text)):
        known = list(classes)[:MAX_CLASSES]
        same = next((one for one in known if is_same_value(text, one)), text)
        classes[same] = classes.get(same, 0) + counts[text]
    return list(classes.values())


def sampled_metrics(records: Sequence[dict]) -> dict[str, float]:
    """All metrics of the k sampled completions of one problem.

    Returns:
        `avg@k` (mean correctness), `pass@j` for the j of `pass_sizes(k)`, `maj@k`, and what
        `greedy_metrics` has beside its score; k is the literal number, as in "avg@4".

    Raises:
        ValueError: there are no records.
    """
    k = len(records)
    if k == 0:
        raise ValueError("a problem without completions has no metrics")
    right = sum(record["verdict"] == "right" for record in records)
    return {
        f"avg@{k}": right / k,
        **{f"pass@{j}": pass_at_k(k, right, j) for j in pass_sizes(k)},
        f"maj@{k}": majority_at_k(records),
        **_common(records),
    }


def greedy_metrics(records: Sequence[dict]) -> dict[str, float]:
    """All metrics of the one greedy completion of a problem.

    Returns:
        `accuracy`, 0 or 1, and `format_rate` (one non-empty thought, then text), `cut_off_rate`,
        `completion_length` (tokens), `answer_right` (right by the verdict or by the lenient
        reading).

    Raises:
        ValueError: there is not exactly one record.
    """
    if len(records) != 1:
        raise ValueError(f"a greedy task has one completion of a problem, not {len(records)}")
    return {"accuracy": float(records[0]["verdict"] == "right"), **_common(records)}


def _common(records: Sequence[dict]) -> dict[str, float]:
    count = len(records)
    return {
        "format_rate": sum(record["well_formed"] for record in records) / count,
        "cut_off_rate": sum(record["cut_off"] for record in records) / count,
        "completion_length": sum(record["num_tokens"] for record in records) / count,
        "answer_right": sum(map(is_answer_right, records)) / count,
    }
