"""Numbers of the report: what each stage changed, where the completions went, scores by level.

Pure functions over the results that `results` reads; no model, no harness, no drawing. The
statistics are `eval.harness.bootstrap`'s, the outcomes `eval.harness.outcomes`'.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from eval.harness.bootstrap import mean_interval
from eval.harness.outcomes import cut_off_right, is_answer_right, outcome_rates, split_change
from eval.report.results import Result, problem_scores

# The mode whose metric stands for a task where one number must do, best first: several samples say
# more than one, and our grader reads what an official parser may not.
HEADLINE = ("sampled", "greedy")
OFFICIAL = "official"  # or "official:<the harness's name>"


def summarise(checkpoints: dict[str, str], results: dict[str, Result]) -> dict[str, Any]:
    """Compute every number of the report.

    Args:
        checkpoints: `{name: path}` in the order of the stages.
        results: `{name: Result}`, checked by `check_comparable`.

    Returns:
        `scores[name][task][mode]` as in `scores.json`; `changes[task][mode]`, a list of
        `{"from", "to", "score", "ability", "format", "truncation"}`; `outcomes[task][mode][name]`,
        `verdicts`, `cut_off` and `no_thought` likewise, shares of the completions; `shapes`
        likewise, of `shape`;
        `levels[task][mode][name][level]`, an interval; `settings`, `fingerprints`, `costs`.
    """
    names = list(checkpoints)
    first = results[names[0]].scores
    kinds = [(task, mode) for task, modes in first["tasks"].items() for mode in order(modes)]

    def per_kind(count) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = defaultdict(dict)
        for task, mode in kinds:
            found[task][mode] = count({n: results[n].rows[task, mode] for n in names})
        return dict(found)

    def each(count) -> dict[str, dict[str, Any]]:
        return per_kind(lambda rows: {name: count(found) for name, found in rows.items()})

    return {
        "checkpoints": checkpoints,
        "settings": first["settings"],
        "scores": {name: results[name].scores["tasks"] for name in names},
        "changes": per_kind(changes),
        "outcomes": each(outcome_rates),
        "shapes": each(shape),
        "verdicts": each(verdict_rates),
        "cut_off": each(cut_off_rate),
        "no_thought": each(no_thought_rate),
        "levels": each(level_scores),
        "fingerprints": {name: results[name].scores.get("fingerprint") for name in names},
        "costs": {
            name: {
                key: results[name].scores.get(key)
                for key in ("num_completions", "num_tokens", "wall_time_s")
            }
            for name in names
        },
    }


def headline_mode(modes: dict[str, Any]) -> str:
    """The mode, of those there are, whose metric stands for the task."""
    return next((mode for mode in HEADLINE if mode in modes), next(iter(modes)))


def order(modes: Iterable[str]) -> list[str]:
    """Greedy, sampled, then the official ones as they come."""
    return sorted(modes, key=lambda mode: (mode.startswith(OFFICIAL), mode == "sampled"))


def official_modes(modes: Iterable[str]) -> list[str]:
    return [mode for mode in modes if mode.startswith(OFFICIAL)]


def pairs(names: list[str]) -> list[tuple[str, str]]:
    """Consecutive checkpoints, then the first and the last where that is another pair."""
    found = list(pairwise(names))
    return [*found, (names[0], names[-1])] if len(names) > 2 else found


def changes(rows: dict[str, list[dict]]) -> list[dict]:
    """Each change of one task and mode, with its parts; `rows` is `{checkpoint: rows}`."""
    return [
        {"from": before, "to": after} | split_change(rows[before], rows[after])
        for before, after in pairs(list(rows))
    ]


def level_scores(rows: list[dict]) -> dict[int, dict]:
    """`{level: {"value", "stderr", "low", "high", "n"}}`, levels ascending; n problems."""
    level_of = {(row["source"], row["id"]): row["level"] for row in rows}
    by_level = defaultdict(list)
    for problem, score in problem_scores(rows).items():
        if level_of[problem] is not None:
            by_level[level_of[problem]].append(score)
    return {level: mean_interval(by_level[level]) for level in sorted(by_level)}


def verdict_rates(rows: list[dict]) -> dict[str, float]:
    """Share of completions per verdict of the grader, most frequent first."""
    counts = Counter(row["verdict"] for row in rows if row["verdict"] is not None)
    return {verdict: count / counts.total() for verdict, count in counts.most_common()}


def shape(rows: list[dict]) -> dict[str, float | None]:
    """What else is known of the completions, those that an official parser counted too.

    Returns:
        `answer_right`, `ours_right` (by our grader), `well_formed`, shares; `num_tokens`, a mean;
        `cut_off_right`, the share of those with the outcome "cut off" that had the right answer
        already. None where nothing was written, or nothing cut off.
    """
    written = [row for row in rows if row["verdict"] is not None]  # no log-likelihoods
    cut_off = [row for row in written if row["outcome"] == "cut off"]
    return {
        "answer_right": _mean(map(is_answer_right, written)),
        "ours_right": _mean(row["verdict"] == "right" for row in written),
        "well_formed": _mean(row["well_formed"] for row in written),
        "num_tokens": _mean(row["num_tokens"] for row in written),
        "cut_off_right": _mean(map(cut_off_right, cut_off)),
    }


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None


def cut_off_rate(rows: list[dict]) -> float:
    """Share of completions that reached the token limit, right ones too."""
    return sum(bool(row["cut_off"]) for row in rows) / len(rows)


def no_thought_rate(rows: list[dict]) -> float:
    """Share of completions that came to an end without one closed thought: no answer is read."""
    verdicts = ("no_think", "unclosed_think")
    return sum(row["verdict"] in verdicts and not row["cut_off"] for row in rows) / len(rows)
