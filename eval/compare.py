"""Numbers of the report: paired differences, scores by level, and where the completions went.

Pure functions over the rows of `completions.jsonl`; no model, no harness.
"""

import math
from collections import Counter, defaultdict

HEADLINE = {"greedy": "accuracy", "sampled": "avg@k"}  # the metric that ranks checkpoints, by mode
# Every completion has exactly one outcome, so that a score change splits into them without a rest.
OUTCOMES = ("right", "wrong", "unreadable", "cut off")


def mean_stderr(values: list[float]) -> tuple[float, float | None]:
    """Mean and its standard error, s / sqrt(n) with Bessel's n - 1; None for a single value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return mean, math.sqrt(variance / n)


def problem_scores(rows: list[dict], mode: str) -> dict[tuple, float]:
    """`{(source, id): mean correctness of its completions}` of one mode, "greedy" or "sampled"."""
    correct = defaultdict(list)
    for row in rows:
        if row["mode"] == mode:
            correct[row["source"], row["id"]].append(row["verdict"] == "right")
    return {problem: sum(flags) / len(flags) for problem, flags in correct.items()}


def paired_difference(before: dict[tuple, float], after: dict[tuple, float]) -> dict:
    """Mean over problems of `after - before`, with the standard error of that mean.

    Pairing takes the problems' own difficulty out: the error is that of the differences
    (Miller, "Adding Error Bars to Evals", section 4.2), usually far below the two scores' own.

    Returns:
        `{"value", "stderr", "n"}`; stderr is None for one problem.

    Raises:
        ValueError: the two sides hold different problems.
    """
    if before.keys() != after.keys():
        only = next(iter(before.keys() ^ after.keys()))
        raise ValueError(f"problem {only} was scored on one side only; run `make eval` again")
    value, stderr = mean_stderr([after[problem] - before[problem] for problem in before])
    return {"value": value, "stderr": stderr, "n": len(before)}


def level_scores(rows: list[dict], mode: str) -> dict[int, dict]:
    """`{level: {"value", "stderr", "n"}}` over the problems of each level, levels ascending."""
    level_of = {(row["source"], row["id"]): row["level"] for row in rows}
    by_level = defaultdict(list)
    for problem, score in problem_scores(rows, mode).items():
        if level_of[problem] is not None:
            by_level[level_of[problem]].append(score)
    found = {}
    for level in sorted(by_level):
        value, stderr = mean_stderr(by_level[level])
        found[level] = {"value": value, "stderr": stderr, "n": len(by_level[level])}
    return found


def outcome(row: dict) -> str:
    """What became of a completion: ability (right, wrong), format (unreadable) or truncation."""
    if row["verdict"] == "right":
        return "right"
    if row["cut_off"]:
        return "cut off"
    return "wrong" if row["verdict"] == "wrong" else "unreadable"


def outcome_rates(rows: list[dict], mode: str) -> dict[str, float]:
    """Share of completions per outcome; sums to 1."""
    counts = Counter(outcome(row) for row in rows if row["mode"] == mode)
    return {name: counts[name] / counts.total() for name in OUTCOMES}


def verdict_rates(rows: list[dict], mode: str) -> dict[str, float]:
    """Share of completions per verdict of the grader, most frequent first."""
    counts = Counter(row["verdict"] for row in rows if row["mode"] == mode)
    return {verdict: count / counts.total() for verdict, count in counts.most_common()}
