"""Figures of the report: outcomes, parts, training curves. matplotlib is imported late.

Figures are SVGs in which the ink is `currentColor` and the grid a variable of the page, so that
they follow the reader's light or dark.
"""

import fnmatch
import html
import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from eval.report.decomposition import PARTS
from pipeline.console import clean
from pipeline.figures import percent, points
from pipeline.json_files import is_number

# Keys that a trainer may have logged: key, or pattern of keys with a line for each, panel title, y
# axis. With {} in the title every key has a panel, as their scales differ.
GRPO_PANELS = [
    ("rollout/rewards", "Reward", "mean of the weighted sum"),
    ("rewards/*/mean", "{}", "mean, before its weight"),
    ("eval_avg@*", "Evaluation while training", "correct answers (%)"),
    ("rollout/response_length", "Completion length", "tokens"),
    ("train/entropy_loss", "Entropy", "nats per token"),
    ("frac_reward_zero_std", "Groups without variance", "fraction of groups"),
    ("rollout/cut_off_rate", "Cut off at the limit", "fraction of completions"),
    ("kl", "KL to the reference", "nats per token"),
    ("grad_norm", "Gradient norm", "before clipping"),
    ("learning_rate", "Learning rate", "of the step"),
]
SFT_PANELS = [
    ("loss", "Training loss", "nats per token"),
    ("eval_loss", "Held-out loss", "nats per token"),
    GRPO_PANELS[2],
    ("mean_token_accuracy", "Token accuracy", "fraction of tokens"),
    *GRPO_PANELS[-2:],
]
EVALUATION = "eval_avg@"  # begins the keys that are drawn in per cent
INK, GRID = "#3d4450", "#e3e3e4"  # replaced in SVGs; used for nothing else
COLORS = ("#3f7fd0", "#e0862f", "#3a9a62", "#9a68c0", "#c8503c", "#2f9ea8", "#8a7433", "#9aa5b1")
DARK = "#1d2129"  # on a bar, in light and dark mode
# Of a bar of outcomes: name, color, and the outcomes that it is the sum of.
OUTCOME_BARS = {
    "correct": ("#3a9a62", ("right",)),
    "incorrect": ("#b9c0ca", ("wrong",)),
    "not readable": ("#e9a13b", ("unread", "unclosed", "no answer")),
    "cut off": ("#9a68c0", ("cut off",)),
}
# A part has the color of the outcome that goes away when it grows, `correct` that of its gain.
PART_COLORS = dict(zip(PARTS, ("#9a68c0", "#e9a13b", "#3a9a62"), strict=True))
LEGEND = {"frameon": False, "fontsize": 9, "labelcolor": INK}
FEW = 40  # points that are drawn one by one rather than smoothed


@dataclass
class Line:
    """One curve of a panel; lines of a `group` share its color and its place in the legend."""

    label: str
    steps: list[int]
    values: list[float]
    errors: list[float] | None = None
    group: str = ""


@dataclass
class Panel:
    """One axis of training curves."""

    title: str
    unit: str
    lines: list[Line] = field(default_factory=list)


def read_curve(log_history: list[dict], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of one logged key; both empty where it was never logged.

    An infinite value is NaN, which is drawn as a gap: fp16 logs an infinite gradient norm where its
    scale was too high.
    """
    scale = 100 if key.startswith(EVALUATION) else 1
    logs = [log for log in log_history if is_number(log.get(key))]
    values = [scale * log[key] if math.isfinite(log[key]) else math.nan for log in logs]
    return [log["step"] for log in logs], values


def read_panels(log_history: list[dict]) -> list[Panel]:
    """The panels for which the trainer, of SFT or of GRPO, logged a finite value."""
    logged = dict.fromkeys(key for log in log_history for key in log)
    panels: dict[str, Panel] = {}
    for wanted, title, unit in GRPO_PANELS if "rollout/rewards" in logged else SFT_PANELS:
        for key in fnmatch.filter(logged, wanted):
            steps, values = read_curve(log_history, key)
            if key.endswith("_stderr") or not any(map(math.isfinite, values)):
                continue
            label = re.sub("^(eval_|rewards/)|/mean$", "", key)
            errors = read_curve(log_history, f"{key}_stderr")[1]
            line = Line(label, steps, values, errors if len(errors) == len(steps) else None)
            name = title.format(label)
            panels.setdefault(name, Panel(name, unit)).lines.append(line)
    return [*panels.values()]


def moving_average(values: list[float], reach: int) -> list[float]:
    """Mean of each value with `reach` neighbours on either side, with fewer towards the ends.

    Centred: a mean of past values runs next to a steep curve instead of through it. A NaN stays
    one, and counts in no other mean.
    """
    last, means = len(values) - 1, []
    for at, value in enumerate(values):
        n = min(reach, at, last - at)
        near = values[at - n : at + n + 1]
        means.append(value if math.isnan(value) else float(np.nanmean(near)))
    return means


def _draw_panel(axis: Any, panel: Panel) -> None:
    groups = dict.fromkeys(line.group or line.label for line in panel.lines)
    colors = dict(zip(groups, cycle(COLORS), strict=False))
    named = set()
    for line in panel.lines:
        group = line.group or line.label
        color = colors[group]
        name = "_" if group in named else _fit(group, 24)  # one begun so is not in the legend
        named.add(group)
        if len(line.values) < FEW:
            axis.errorbar(
                line.steps, line.values, line.errors, color=color, linewidth=2, marker="o",
                markersize=3, elinewidth=1, capsize=2, label=name,
            )  # fmt: skip
        else:
            smooth = moving_average(line.values, len(line.values) // 24)
            axis.plot(line.steps, line.values, color=color, linewidth=0.8, alpha=0.35)
            axis.plot(line.steps, smooth, color=color, linewidth=2, label=name)
    axis.set(title=panel.title, xlabel="optimizer step", ylabel=panel.unit)
    axis.margins(y=0.1)
    if len(panel.lines) > 1:
        axis.figure.legend(loc="outside lower left", ncols=2, **LEGEND)
    drawn = [value for line in panel.lines for value in line.values]
    if np.nanmin(drawn) >= 0:
        most = np.nanmax(drawn)
        axis.set_ylim(0, max(1.1 * most, axis.get_ylim()[1]) if most else 1)


def draw_curves(panels: list[Panel], name: str) -> list[str]:
    """Training curves of the checkpoint `name`, a figure for each panel."""
    return [
        to_svg(
            partial(_draw_panel, panel=panel), (4.2, 3.1), f"{name}_curves-{number}",
            f"Training: {name}: {panel.title}",
        )
        for number, panel in enumerate(panels)
    ]  # fmt: skip


def draw_control(curves: dict[str, list]) -> list[str]:
    """The curves of `make control`: `{arm: [[step, mean, half of its interval], ...]}`."""
    panel = Panel("Control", "correct answers, validation (%)")
    for arm, found in curves.items():
        if found:
            steps, means, halves = zip(*found, strict=True)
            errors = [100 * (half or 0.0) for half in halves]
            panel.lines.append(Line(arm, [*steps], [100 * mean for mean in means], errors))
    return draw_curves([panel] if panel.lines else [], "control")


def draw_outcomes(tasks: dict[str, dict[str, tuple[dict[str, float], dict]]]) -> str:
    """The outcomes of the completions: a bar of 100 % for each `{task: {name: (rates, score)}}`.

    `rates` is of `outcome_rates`, `score` of `mean_interval`: the whisker and the number.
    """
    rows, headings, place = [], {}, 0.0
    for task, bars in tasks.items():
        headings[place] = task
        rows += [(place + number, name, *bar) for number, (name, bar) in enumerate(bars.items(), 1)]
        place += len(bars) + 1.2
    places = [row[0] for row in rows]

    def draw(axis) -> None:
        from matplotlib.transforms import blended_transform_factory

        left = np.zeros(len(rows))
        for name, (color, outcomes) in OUTCOME_BARS.items():
            width = np.array([100 * sum(rates[one] for one in outcomes) for *_, rates, _ in rows])
            axis.barh(places, width, 0.72, left, color=color, label=name)
            left += width
        for at, _, _, score in rows:
            value, low, high = (100 * (score[key] or 0) for key in ("value", "low", "high"))
            axis.text(102, at, percent(score["value"]), va="center", weight="bold")
            if low < high:  # one problem has no interval
                whiskers = [[max(value - low, 0)], [max(high - value, 0)]]
                axis.errorbar(value, at, xerr=whiskers, color=DARK, elinewidth=1.2, capsize=2)
        across = blended_transform_factory(axis.figure.transFigure, axis.transData)
        for at, text in headings.items():  # over bars and names; they take no room from them
            heading = axis.text(0.02, at + 0.1, _fit(text, 50), transform=across, in_layout=False)
            heading.set(va="center", weight="bold", fontsize=9)
        axis.set_yticks(places, [_fit(row[1], 20) for row in rows])
        axis.set(xlim=(0, 100), ylim=(place - 0.6, -0.6), xlabel="of the completions (%)")
        _finish_bars(axis, num_columns=4)

    size = (4.8, 0.9 + 0.24 * place)
    return to_svg(draw, size, "outcomes", "The outcomes of the completions, and the scores")


def _finish_bars(axis, num_columns: int) -> None:
    """Grid, spines and legend of horizontal bars."""
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="y", visible=False)
    axis.grid(axis="x", color=GRID)
    axis.spines["left"].set_visible(False)
    tight = {"columnspacing": 1.0, "handlelength": 1.0, "handletextpad": 0.4}
    axis.figure.legend(loc="outside upper left", ncols=num_columns, **tight, **LEGEND)


def draw_parts(changes: dict[str, dict]) -> str:
    """The parts of each `{name: change}` in points, side by side from 0; "" without changes.

    A change is of `split_change`; the number and the whisker are those of the score.
    """
    if not changes:
        return ""
    places = np.arange(len(changes))

    def draw(axis) -> None:
        ends = {1: np.zeros(len(changes)), -1: np.zeros(len(changes))}  # of gains and of losses
        for part, color in PART_COLORS.items():
            values = np.array([100 * one[part]["value"] for one in changes.values()])
            for sign, end in ends.items():
                width = np.where(sign * values > 0, values, 0.0)
                label = part if sign > 0 else "_"
                axis.barh(places, width, 0.62, end, color=color, label=label)
                end += width
        for at, one in zip(places, changes.values(), strict=True):
            value, low, high = (one["score"][key] for key in ("value", "low", "high"))
            if low is not None:
                axis.plot([100 * low, 100 * high], [at, at], color=INK, linewidth=1.2)
            axis.plot(100 * value, at, "|", color=INK, markersize=9, markeredgewidth=2)
            across = axis.get_yaxis_transform()
            axis.text(1.02, at, points(value), transform=across, va="center", weight="bold")
        axis.axvline(0, color=INK, linewidth=0.8)
        axis.margins(x=0.04)
        axis.set_yticks(places, [_fit(name, 24) for name in changes])
        axis.set(ylim=(len(changes) - 0.4, -0.6), xlabel="points of the score")
        _finish_bars(axis, num_columns=3)

    size = (4.8, 0.9 + 0.3 * len(changes))
    return to_svg(draw, size, "parts", "The parts of each change of the score")


def _fit(text: str, length: int) -> str:
    """A label that leaves room for the drawing: a long one loses its middle."""
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]}…{text[-half + 1 :]}"


def to_svg(draw: Callable, size: tuple[float, float], name: str, label: str) -> str:
    """An SVG element of `size` inches for the page, which `draw` draws on a matplotlib axis.

    `name` keeps its ids apart from other figures'; `label` is for readers who cannot see it.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ink = {f"{part}color": INK for part in ("text.", "axes.label", "axes.edge", "xtick.", "ytick.")}
    # The same figure twice is the same file; text stays text, for the page's own font and readers.
    fixed = {"svg.fonttype": "none", "svg.hashsalt": "0", "text.parse_math": False}
    plt.rcParams.update(ink | {"axes.titlecolor": INK} | fixed)
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color=GRID)
    axis.set_axisbelow(True)
    draw(axis)
    file = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    plt.close(figure)
    text = clean(file.getvalue())
    text = text[text.index("<svg") :]
    name = re.sub(r"[^\w.-]", lambda found: f"-{ord(found[0]):x}-", name, flags=re.ASCII)
    text = re.sub(r"<style.*?</style>|<metadata.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "currentColor").replace(GRID, "var(--line)")
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(clean(label))}" ', 1)
