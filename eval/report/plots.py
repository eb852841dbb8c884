"""Figures of the report, drawn from scores, changes and trainer logs. matplotlib is imported late.

Every figure is drawn as a PNG for Markdown and as SVG for the page. In an SVG the ink is
`currentColor` and the grid a variable of the page, so that it follows the reader's light or dark.
"""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.report.blocks import Figure
from eval.report.compare import headline_mode
from eval.report.text import metric_name

# What a trainer may have logged, and how a reader would name it: key, panel title, y axis. A key
# that ends with @ stands for every key that begins so.
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


def read_panels(log_history: list[dict], panels: list[tuple[str, str, str]]) -> list[Panel]:
    """The panels for which the trainer logged anything."""
    logged = dict.fromkeys(key for log in log_history for key in log)
    found = []
    for wanted, title, unit in panels:
        if wanted[-1] == "@":
            panel = _read_evaluation(log_history, [key for key in logged if key.startswith(wanted)])
            panel = Panel(wanted, title, unit, *panel)
        else:
            panel = Panel(wanted, title, unit, {wanted: read_curve(log_history, wanted)})
        panel.lines = {label: line for label, line in panel.lines.items() if line[0]}
        if panel.lines:
            found.append(panel)
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

    Centred: a mean of past values runs beside a steep curve instead of through it.
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


def draw_curves(path: Path, panels: list[Panel], heading: str, caption: str) -> Figure:
    """Training curves: one PNG with all panels, and one SVG for each."""
    draws = [(panel.title, lambda axis, panel=panel: _draw_panel(axis, panel)) for panel in panels]
    return draw_panels(path, draws, (4.2, 3.1), heading, caption)


def draw_panels(
    path: Path, panels: list[tuple[str, Callable]], size: tuple, heading: str, caption: str
) -> Figure:
    """One PNG with all panels, and one SVG for each.

    Args:
        panels: (title, what draws it on an axis).
        size: of one panel, width and height in inches.
    """

    def draw(axes) -> None:
        for axis, (_, draw_one) in zip(axes, panels, strict=True):
            draw_one(axis)

    _save_png(path, draw, len(panels), size, heading)
    svgs = [
        _to_svg(lambda axes, draw_one=draw_one: draw_one(axes[0]), size,
                f"{path.stem}-{number}", f"{heading}: {title}")
        for number, (title, draw_one) in enumerate(panels)
    ]  # fmt: skip
    return Figure(caption, path.name, svgs)


def draw_scores(path: Path, scores: dict[str, dict], caption: str) -> Figure:
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

    def draw(axes) -> None:
        (axis,) = axes
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
        axis.set_xlim(0, 109)  # room for the number beside a full bar
        axis.set_xticks(range(0, 101, 20))
        axis.set_xlabel("problems solved (%)")
        axis.grid(axis="y", visible=False)
        axis.grid(axis="x", color=GRID)
        axis.figure.legend(loc="outside upper center", ncols=3, frameon=False, labelcolor=INK)

    size = (5.2, 1.2 + 0.21 * len(kinds) * len(scores) + 0.1 * len(kinds))
    _save_png(path, draw, 1, size)
    return Figure(caption, path.name, [_to_svg(draw, size, path.stem, caption)])


def draw_changes(path: Path, changes: dict[str, dict], caption: str) -> Figure:
    """Signed stacked bars: each task's headline changes as the sum of their parts, in points."""
    found = [
        (f"{task}: {one['from']} → {one['to']}", one)
        for task, modes in changes.items()
        for one in modes[headline_mode(modes)]
    ]

    def draw(axes) -> None:
        (axis,) = axes
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
    _save_png(path, draw, 1, size)
    return Figure(caption, path.name, [_to_svg(draw, size, path.stem, caption)])


def _new_figure(num_panels: int, size: tuple[float, float]):
    """A figure with room for panels of `size` inches, three to a row, and its axes as a list."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(num_panels, 3)
    num_rows = -(-num_panels // columns)
    ink = {f"{part}color": INK for part in ("text.", "axes.label", "axes.edge", "xtick.", "ytick.")}
    # The same figure twice is the same file; text stays text, for the page's own font and readers.
    plt.rcParams.update(ink | {"axes.titlecolor": INK, "svg.fonttype": "none", "svg.hashsalt": "0"})
    figure, axes = plt.subplots(
        num_rows,
        columns,
        figsize=(size[0] * columns, size[1] * num_rows),
        squeeze=False,
        layout="constrained",
    )
    for number, axis in enumerate(axes.flat):
        axis.set_visible(number < num_panels)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color=GRID)
        axis.set_axisbelow(True)
    return figure, list(axes.flat)[:num_panels]


def _save_png(
    path: Path, draw: Callable[[list], None], num_panels: int, size: tuple, heading: str = ""
) -> None:
    import matplotlib.pyplot as plt

    figure, axes = _new_figure(num_panels, size)
    draw(axes)
    if heading:
        figure.suptitle(heading)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _to_svg(draw: Callable[[list], None], size: tuple, name: str, label: str) -> str:
    """An SVG element for the page; `name` keeps its ids apart from other figures'."""
    import matplotlib.pyplot as plt

    figure, axes = _new_figure(1, size)
    draw(axes)
    file = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    plt.close(figure)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>|<metadata.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "currentColor").replace(GRID, "var(--line)")
    label = label.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
