"""The page of the curriculum's benchmark."""

import math
from typing import Any

from benchmarks.bench_figures import Result, compare, summary

TARGETS = {
    "zero_std": "predictive: zero-std at most 0.25, stock's at least 0.5",
    "useful_ratio": "predictive: useful groups per token at least 1.3 times stock's",
    "tokens_ratio": "predictive: stock's final accuracy for at most 0.6 of its tokens",
    "seconds_ratio": "predictive: stock's final accuracy in at most 0.5 of its time",
    "refill": "predictive+refill: zero-std at most 0.05",
}


def figures_of(runs: dict[tuple[str, int], Result], modes: list[str]) -> dict[str, dict[str, Any]]:
    """`{row of the table: figures}`; offline has a second row in which scoring counts as cost."""
    figures = {mode: compare(runs, mode, with_scoring=False) for mode in modes}
    if "offline" in modes:
        figures["offline, scoring counted"] = compare(runs, "offline", with_scoring=True)
    return figures


def targets(figures: dict[str, dict[str, Any]]) -> dict[str, bool | None]:
    """Which of `TARGETS` are met; None where the modes for it were not run."""
    met: dict[str, bool | None] = dict.fromkeys(TARGETS)
    ours, stock = figures.get("predictive"), figures["stock"]
    if ours:
        met["zero_std"] = ours["zero_std"] <= 0.25 and stock["zero_std"] >= 0.5
        ratio, low, _ = ours["useful_ratio"]
        met["useful_ratio"] = ratio >= 1.3 and low > 1
        for key, most in (("tokens_ratio", 0.6), ("seconds_ratio", 0.5)):
            ratio, _, high = ours[key]
            met[key] = ratio <= most and high < 1
    if "predictive+refill" in figures:
        met["refill"] = figures["predictive+refill"]["zero_std"] <= 0.05
    return met


def _interval(values: tuple[float, float, float], scale: float = 1, digits: int = 2) -> str:
    if not math.isfinite(values[0]):
        return "not reached by all"
    value, low, high = (f"{scale * v:.{digits}f}" for v in values)
    return f"{value} [{low}, {high}]"


def write_page(figures: dict[str, dict[str, Any]], about: dict[str, Any], picture: str) -> str:
    """The page as Markdown: two tables, the picture (by its file's name), targets, versions."""
    lines = [
        "# Curriculum, measured",
        "",
        f"`{about['command']}`",
        "",
        f"Every run generates {about['token_budget']:,} tokens, from one SFT checkpoint, on "
        f"{about['cpu']}. Zero-std: TRL's `frac_reward_zero_std` of the groups trained on, mean "
        "over all steps. Useful: groups that are trained on and are neither all right nor all "
        "wrong. Ratios and differences are paired by seed; [95 % interval].",
        "",
        "| mode | seeds | steps | zero-std | of all generated | useful per 1,000 tokens | "
        "ratio to stock | seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for mode, row in figures.items():
        lines.append(
            f"| {mode} | {row['seeds']} | {row['steps']:.1f} | {row['zero_std']:.3f} | "
            f"{row['generated_zero_std']:.3f} | {row['useful_per_1k']:.2f} | "
            f"{_interval(row['useful_ratio'])} | {row['seconds']:.1f} |"
        )
    lines += [
        "",
        "Held-out accuracy, sampled: at the end of the runs (mean); then what "
        "a mode needs to get to stock's final accuracy, as a share of what stock needs; then the "
        "difference to stock at equal cost, in percentage points.",
        "",
        "| mode | final, % | tokens needed | seconds needed | at equal tokens | at equal seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for mode, row in figures.items():
        if mode == "stock":
            lines.append(f"| stock | {100 * row['final_accuracy']:.1f} | 1 | 1 | 0 | 0 |")
            continue
        lines.append(
            f"| {mode} | {100 * row['final_accuracy']:.1f} | {_interval(row['tokens_ratio'])} | "
            f"{_interval(row['seconds_ratio'])} | {_interval(row['at_tokens'], 100, 1)} | "
            f"{_interval(row['at_seconds'], 100, 1)} |"
        )
    alt = "Held-out accuracy over generated tokens and over time, mean and deviation over the seeds"
    lines += ["", f"![{alt}]({picture})", "", "Targets; the intervals of the ratios exclude 1:", ""]
    words = {True: "met", False: "**missed**", None: "not measured"}
    lines += [f"- {TARGETS[key]}: {words[value]}" for key, value in targets(figures).items()]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines += ["", f"Commit {', '.join(about['commits'])}. Versions: {versions}.", ""]
    return "\n".join(lines)


def short(result: Result) -> dict[str, Any]:
    """A run as it is kept beside the page: its figures and its tests."""
    kept = {key: result[key] for key in ("mode", "seed", "scoring", "tests", "commit")}
    return kept | {"summary": summary(result)}
