"""Figures of the report, drawn from scores, changes and trainer logs. matplotlib is imported late.

Figures are SVGs in which the ink is `currentColor` and the grid a variable of the page, so that
they follow the reader's light or dark.
"""

import html
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eval.report.numbers import headline_mode
from eval.report.page import metric_name

# What a trainer may have logged, and how a reader would name it: key, panel title, y axis. A key
# that ends with @ means every key that begins so.
GRPO_PANELS = [
    ("rollout/rewards", "Reward", "mean reward"),
    ("eval_avg@", "Evaluation while training", "problems solved (%)"),
    ("rollout/response_length", "Completion length", "tokens"),
    ("train/entropy_loss", "Entropy", "nats per token"),
    ("frac_reward_zero_std", "Groups without variance", "fraction of groups"),
    ("rollout/cut_off_rate", "Cut off at the limit", "fraction of completions"),
]
SFT_PANELS = [
    ("loss", "Training loss", "nats per token"),
    ("eval_avg@", "Evaluation while training", "problems solved (%)"),
    ("mean_token_accuracy", "Token accuracy", "fraction of tokens"),
]
FRACTIONS = ("frac_reward_zero_std", "mean_token_accuracy")  # on an axis from 0 to 1
INK, GRID = "#3d4450", "#e3e3e4"  # replaced in SVGs; used for nothing else
LINE = "#3f7fd0"
BARS = ("#9aa5b1", "#3f7fd0", "#e0862f", "#3a9a62", "#9a68c0")
PARTS = {"ability": "#3f7fd0", "format": "#e9a13b", "truncation": "#9a68c0"}
FEW = 40  # points that are drawn one by one rather than smoothed


@dataclass
class Panel:
    """One axis of training curves.

    Args:
        lines: `{label: (steps, values)}`.
        errors: `{label: standard errors}` of the lines that have some.
    """

    key: str
    title: str
    unit: str
    lines: dict[str, tuple[list[int], list[float]]]
    errors: dict[str, list[float]] = field(default_factory=dict)


def read_curve(log_history: list[dict], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of one logged key; both empty where it was never logged."""
    points = [(log["step"], log[key]) for log in log_history if log.get(key) is not None]
    return [step for step, _ in points], [value for _, value in points]


def read_panels(log_history: list[dict]) -> list[Panel]:
    """The panels for which the trainer, of SFT or of GRPO, logged anything."""
    logged = dict.fromkeys(key for log in log_history for key in log)
    found = []
    for wanted, title, unit in GRPO_PANELS if "rollout/rewards" in logged else SFT_PANELS:
        if wanted[-1] == "@":
            lines, errors = _read_evaluation(
                log_history, [key for key in logged if key.startswith(wanted)]
            )
        else:
            lines, errors = {wanted: read_curve(log_history, wanted)}, {}
        lines = {label: line for label, line in lines.items() if line[0]}
        if lines:
            found.append(Panel(wanted, title, unit, lines, errors))
    return found


def _read_evaluation(log_history: list[dict], keys: list[str]) -> tuple[dict, dict]:
    """Lines and standard errors of `eval_avg@4` and the like, in per cent."""
    lines, errors = {}, {}
    for key in keys:
        if key.endswith("_stderr"):
            continue
        label = key.removeprefix("eval_")
        steps, values = read_curve(log_history, key)
        lines[label] = (steps, [100 * value for value in values])
        stderr = read_curve(log_history, f"{key}_stderr")[1]
        if len(stderr) == len(values):
            errors[label] = [100 * value for value in stderr]
    return lines, errors


def moving_average(values: list[float], reach: int) -> list[float]:
    """Mean of each value with `reach` neighbours on either side, fewer (evenly) at the ends.

    Centred: a mean of past values runs next to a steep curve instead of through it.
    """
    means = []
    for place in range(len(values)):
        near = min(reach, place, len(values) - 1 - place)
        around = values[place - near : place + near + 1]
        means.append(sum(around) / len(around))
    return means


def _draw_panel(axis, panel: Panel) -> None:
    for number, (label, (steps, values)) in enumerate(panel.lines.items()):
        color = BARS[1 + number % (len(BARS) - 1)]
        if panel.key[-1] == "@" or len(values) < FEW:
            axis.errorbar(
                steps, values, yerr=panel.errors.get(label), color=color, linewidth=2, marker="o",
                markersize=3, elinewidth=1, capsize=2, label=label,
            )  # fmt: skip
        else:
            axis.plot(steps, values, color=LINE, linewidth=0.8, alpha=0.35)
            axis.plot(steps, moving_average(values, len(values) // 24), color=LINE, linewidth=2)
    axis.set(title=panel.title, xlabel="optimizer step", ylabel=panel.unit)
    axis.margins(y=0.1)
    if panel.key[-1] == "@":
        axis.legend(frameon=False, fontsize=9, labelcolor=INK, loc="lower right")
    if panel.key in FRACTIONS:
        axis.set_ylim(-0.02, 1.02)
    elif min(min(values) for _, values in panel.lines.values()) >= 0:
        axis.set_ylim(bottom=0)


def draw_curves(panels: list[Panel], name: str) -> list[str]:
    """Training curves of the checkpoint `name`, a figure for each panel."""
    return [
        to_svg(lambda axis, panel=panel: _draw_panel(axis, panel), (4.2, 3.1),
               f"{name}_curves-{number}", f"Training: {name}: {panel.title}")
        for number, panel in enumerate(panels)
    ]  # fmt: skip


def draw_scores(scores: dict[str, dict]) -> str:
    """Bars of every task's headline metric per checkpoint, with standard errors, in per cent."""
    first = next(iter(scores.values()))
    kinds = [
        (task, mode)
        for task, modes in first.items()
        for mode in ([m for m in ("greedy", "sampled") if m in modes] if len(first) == 1 else [])
        or [headline_mode(modes)]
    ]
    labels = [
        f"{task}\n{metric_name(mode, first[task][mode]['main'], task)}".replace(" (", "\n(")
        for task, mode in kinds
    ]
    width = 0.84 / len(scores)

    def draw(axis) -> None:
        for index, (name, tasks) in enumerate(scores.items()):
            found = [tasks[task][mode] for task, mode in kinds]
            metrics = [one["metrics"][one["main"]] for one in found]
            shift = (index - (len(scores) - 1) / 2) * width
            bars = axis.barh(
                [group + shift for group in range(len(kinds))],
                [100 * one["value"] for one in metrics], width * 0.9,
                xerr=[100 * (one["stderr"] or 0) for one in metrics], capsize=2, label=name,
                color=BARS[index % len(BARS)], error_kw={"elinewidth": 1, "ecolor": INK},
            )  # fmt: skip
            axis.bar_label(bars, fmt="%.1f", padding=3, fontsize=8, color=INK)
        axis.set_yticks(range(len(kinds)), labels)
        axis.set_ylim(len(kinds) - 0.45, -0.55)
        axis.set_xlim(0, 109)  # room for the number next to a full bar
        axis.set_xticks(range(0, 101, 20))
        axis.set_xlabel("problems solved (%)")
        axis.grid(axis="y", visible=False)
        axis.grid(axis="x", color=GRID)
        axis.figure.legend(loc="outside upper center", ncols=3, frameon=False, labelcolor=INK)

    size = (5.2, 1.2 + 0.21 * len(kinds) * len(scores) + 0.1 * len(kinds))
    return to_svg(draw, size, "scores", "Problems solved, with standard errors")


def draw_changes(changes: dict[str, dict]) -> str:
    """Signed stacked bars: each task's headline changes as the sum of their parts, in points."""
    found = [
        (f"{task}: {one['from']} → {one['to']}", one)
        for task, modes in changes.items()
        for one in modes[headline_mode(modes)]
    ]

    def draw(axis) -> None:
        for place, (_, one) in enumerate(found):
            ends = {True: 0.0, False: 0.0}  # of the bar's right and left side so far
            for part, color in PARTS.items():
                value = 100 * one[part]["value"]
                axis.barh(place, value, 0.6, ends[value > 0], color=color,
                          label=part if place == 0 else None)  # fmt: skip
                ends[value > 0] += value
            score = one["score"]
            ends_at = [100 * (score["value"] if score[end] is None else score[end])
                       for end in ("low", "high")]  # fmt: skip
            axis.plot(ends_at, [place, place], color=INK, linewidth=1.2)
            axis.plot(100 * score["value"], place, marker="D", markersize=4.5, color=INK,
                      linestyle="none", label="score, 95 %" if place == 0 else None)  # fmt: skip
        axis.axvline(0, color=INK, linewidth=0.8)
        axis.set_yticks(range(len(found)), [label for label, _ in found])
        axis.set_ylim(len(found) - 0.4, -0.6)
        axis.set_xlabel("change of the score (points)")
        axis.grid(axis="y", visible=False)
        axis.grid(axis="x", color=GRID)
        handles, labels = axis.get_legend_handles_labels()  # lines first; the bars are first here
        axis.figure.legend(handles[1:] + handles[:1], labels[1:] + labels[:1],
                           loc="outside upper center", ncols=4, frameon=False, fontsize=9,
                           labelcolor=INK, columnspacing=1.0, handletextpad=0.5)  # fmt: skip

    size = (5.2, 1.2 + 0.3 * len(found))
    return to_svg(draw, size, "changes", "Each change as the sum of its parts")


def to_svg(draw: Callable, size: tuple[float, float], name: str, label: str) -> str:
    """An SVG element for the page.

    Args:
        draw: draws on a matplotlib axis.
        size: width and height in inches.
        name: keeps its ids apart from other figures'.
        label: what it shows, for readers who cannot see it.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ink = {f"{part}color": INK for part in ("text.", "axes.label", "axes.edge", "xtick.", "ytick.")}
    # The same figure twice is the same file; text stays text, for the page's own font and readers.
    plt.rcParams.update(ink | {"axes.titlecolor": INK, "svg.fonttype": "none", "svg.hashsalt": "0"})
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color=GRID)
    axis.set_axisbelow(True)
    draw(axis)
    file = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    plt.close(figure)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>|<metadata.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "currentColor").replace(GRID, "var(--line)")
    label = html.escape(label)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
