"""The report in words: what the last stage changed, and what a reader should doubt.

Generated from the numbers of `summarise`, so that no sentence can say what the tables
do not. Per cent and points throughout; an interval is a 95 % one.
"""

from itertools import pairwise
from typing import Any

from eval.report.compare import headline_mode, official_modes
from eval.report.text import change, interval, metric_name, percent, points

# Above these a score says more about the evaluation than about the model.
MAX_CUT_OFF = MAX_UNCLOSED = MAX_UNREAD = 0.1  # shares
MIN_PROBLEMS = 100
HARNESS_LIMIT = 256  # `eval.harness.stored_lm.HARNESS_MAX_NEW_TOKENS`, which is slow to import
PARTS = ("ability", "format", "truncation")


def summary(report: dict[str, Any]) -> str:
    """One paragraph: the last change of every task with its parts, then the way from the first."""
    names = list(report["checkpoints"])
    if len(names) == 1:
        return " ".join(
            f"{names[0]} on {task}: {_metric(modes, task)} {percent(_main(modes))} %."
            for task, modes in report["scores"][names[0]].items()
        )
    last = len(names) - 2
    sentences = [_sentence(report, task, last) for task in report["changes"]]
    text = f"{names[-1]} over {names[-2]} on {' On '.join(sentences)}"
    if len(names) > 2:
        whole = [
            f"{change(modes[headline_mode(modes)][-1]['score'])} on {task}"
            for task, modes in report["changes"].items()
        ]
        text += f" {names[-1]} over {names[0]}, all in all: {', '.join(whole)}."
    return text


def _sentence(report: dict, task: str, number: int) -> str:
    """One change of one task: the headline metric, its parts, and the official metrics."""
    modes = report["changes"][task]
    headline = headline_mode(modes)
    found = modes[headline][number]
    before, after = (report["scores"][found[side]][task] for side in ("from", "to"))
    score = found["score"]
    text = (
        f"{task}: {points(score['value'])} points {_metric(after, task)}{interval(score)} "
        f"({_main(before)['value'] * 100:.1f} to {_main(after)['value'] * 100:.1f} %"
    )
    if score["low"] is not None and score["low"] <= 0 <= score["high"]:
        text += ", not to be told from chance"
    parts = [f"{part} {points(found[part]['value'])}" for part in PARTS]
    text += f"); of these {', '.join(parts)}"
    for mode in official_modes(modes):
        if mode != headline:
            text += f"; {_metric(after, task, mode)} {change(modes[mode][number]['score'])}"
    return f"{text}."


def _main(modes: dict) -> dict:
    found = modes[headline_mode(modes)]
    return found["metrics"][found["main"]]


def _metric(modes: dict, task: str, mode: str | None = None) -> str:
    mode = mode or headline_mode(modes)
    return metric_name(mode, modes[mode]["main"], task)


def warnings(report: dict[str, Any]) -> list[str]:
    """What a reader should doubt, most serious first; none where all is well."""
    found = [*_twins(report), *_unread(report)]
    limit = report["settings"].get("max_new_tokens")
    found += _high_shares(
        _ours(report["cut_off"]), MAX_CUT_OFF,
        f"Completions were cut off at {limit} tokens; a higher `max_new_tokens` may find them "
        "right",
    )  # fmt: skip
    found += _official_cut_off(report)
    found += _high_shares(
        _ours(report["no_thought"]), MAX_UNCLOSED,  # a few-shot prompt asks for no thought
        "Completions ended without one closed thought (no `</think>`, or several), so that no "
        "answer was read",
    )  # fmt: skip
    return [*found, *_few_problems(report)]


def _twins(report: dict) -> list[str]:
    """Consecutive checkpoints that are the same, or score as if they were."""
    names = list(report["checkpoints"])
    found = []
    for before, after in pairwise(names):
        one, two = (report["fingerprints"][name] or {} for name in (before, after))
        if one.get("checkpoint") and one.get("checkpoint") == two.get("checkpoint"):
            found.append(f"{before} and {after} are the same checkpoint: their files are equal.")
        elif report["scores"][before] == report["scores"][after]:
            found.append(
                f"{before} and {after} have identical scores in every task; was {after} trained, "
                "and is its path its own?"
            )
    return found


def _unread(report: dict) -> list[str]:
    """Official parsers that do not read answers that are right."""
    found = []
    for task, modes in report["outcomes"].items():
        for mode in official_modes(modes):
            shares = []
            for name, rates in modes[mode].items():
                right = rates["right"] + rates["unread"]
                if right and rates["unread"] / right > MAX_UNREAD:
                    shares.append(f"{100 * rates['right'] / right:.0f} % of {name}'s")
            if shares:
                parser = mode.partition(":")[2] or task
                found.append(
                    f"The official {parser} parser reads {', '.join(shares)} answers that are "
                    "right: its score says less about the model than about the parser."
                )
    return found


def _official_cut_off(report: dict) -> list[str]:
    """Official tasks whose own token limit many completions reach."""
    found = []
    for task, modes in report["cut_off"].items():
        for mode in official_modes(modes):
            shares = [
                f"{100 * value:.0f} % of {name}'s"
                for name, value in modes[mode].items()
                if value > MAX_CUT_OFF
            ]
            if shares:
                found.append(
                    f"official {mode.partition(':')[2] or task}: {', '.join(shares)} completions "
                    f"were cut off at the harness's own limit ({HARNESS_LIMIT} tokens unless the "
                    "task sets one); `max_new_tokens` does not change it."
                )
    return found


def _ours(shares: dict) -> dict:
    """The same without the official modes."""
    return {
        task: {mode: rates for mode, rates in modes.items() if mode not in official_modes(modes)}
        for task, modes in shares.items()
    }


def _high_shares(shares: dict, limit: float, text: str) -> list[str]:
    """One warning for all tasks, modes and checkpoints that are above `limit`."""
    found: dict[str, list[str]] = {}
    for task, modes in shares.items():
        for mode, by_name in modes.items():
            for name, value in by_name.items():
                if value > limit:
                    where = f"{task} {mode.replace(':', ' ')}"
                    found.setdefault(name, []).append(f"{where} {100 * value:.0f} %")
    parts = [f"{name} ({', '.join(where)})" for name, where in found.items()]
    return [f"{text}: {'; '.join(parts)}."] if parts else []


def _few_problems(report: dict) -> list[str]:
    counts = {
        task: next(iter(modes.values()))["num_problems"]
        for task, modes in next(iter(report["scores"].values())).items()
    }
    few = [f"{task} has {count}" for task, count in counts.items() if count < MIN_PROBLEMS]
    if not few:
        return []
    return [f"Fewer than {MIN_PROBLEMS} problems, so wide intervals: {', '.join(few)}."]
