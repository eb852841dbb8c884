"""The page of a sweep: means over its seeds, a grid of two keys, a row for each run, curves.

Where scores of the same sweep are published, they stand beside ours. A cell that has not run, or is
not published, is empty.
"""

import itertools
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import manifest
from stages.published_sweeps import PublishedSweep

COLUMNS = (
    "run", "steps", "reward", "correct", "first avg@k", "avg@k", "best avg@k", "guards", "ended",
)  # fmt: skip
NOTES = """Reward and correct are means of the last 10 logged steps. avg@k is of the validation
problems. Guards: how often each fired. Over seeds: mean ± half of the 95 % interval (Student's t).
The change from the first avg@k to the last, and its difference to that of the first row, are paired
by seed."""
# Student's t for 95 %, by degrees of freedom from 1; above, the last is a little too wide.
T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
CURVES = "curves.png"
COLORS = ("#3f7fd0", "#9aa5b1", "#e0862f", "#3a9a62", "#9a68c0", "#c0504d")
Rows = list[dict[str, Any]]
Table = tuple[list[str], list[list[str]]]


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half of its 95 % interval, which is NaN for one value."""
    n = len(values)
    half = T[min(n - 1, len(T)) - 1] * statistics.stdev(values) / n**0.5 if n > 1 else math.nan
    return statistics.fmean(values), half


def show(values: list[float]) -> str:
    """0.512 ± 0.030; empty where no run had a value."""
    if not values:
        return ""
    mean, half = interval(values)
    return f"{mean:.3f}" if math.isnan(half) else f"{mean:.3f} ± {half:.3f}"


def groups(rows: Rows) -> dict[str, Rows]:
    """Rows that differ in their seed alone, by the values of the other keys that vary."""
    values = [row["values"] for row in rows]
    keys = [key for key in values[0] if key != "seed" and len({one[key] for one in values}) > 1]
    found: dict[str, Rows] = {}
    for row in rows:
        name = ", ".join(f"{key}={row['values'][key]}" for key in keys)
        found.setdefault(name or "all", []).append(row)
    return found


def seeds_table(rows: Rows) -> Table:
    """A row for each combination, means over its seeds; every change beside the first row's."""
    found: list[list[str]] = []
    first: dict[Any, float] | None = None
    for name, group in groups(rows).items():
        had = [row for row in group if row["avg@k"] is not None]
        gains = {row["values"].get("seed"): row["avg@k"] - row["first avg@k"] for row in had}
        less = [gains[seed] - (first or {})[seed] for seed in gains if seed in (first or {})]
        ends = [[row[key] for row in had] for key in ("first avg@k", "avg@k")]
        correct = [row["correct"] for row in group if row["correct"] is not None]
        figures = (correct, *ends, [*gains.values()], less)
        found.append([name, str(len(group)), *map(show, figures)])
        first = gains if first is None else first
    return ["rows", "seeds", "correct", "first avg@k", "avg@k", "change", "less the first's"], found


def figure_of(rows: Rows) -> str:
    """What stands for a run in a grid: avg@k, or correct where no run has one."""
    return "avg@k" if any(row["avg@k"] is not None for row in rows) else "correct"


def grid_table(rows: Rows) -> Table | None:
    """The runs' figure by two keys; None if not two keys vary."""
    keys = [key for key in rows[0]["values"] if key != "seed"]
    choices = {key: list(dict.fromkeys(row["values"][key] for row in rows)) for key in keys}
    choices = {key: values for key, values in choices.items() if len(values) > 1}
    if len(choices) != 2:
        return None
    cells: dict[tuple, list[float]] = {}
    for row in rows:
        at = cells.setdefault(tuple(row["values"][key] for key in choices), [])
        at += figures(row, figure_of(rows))
    (down, across), (names, columns) = choices, choices.values()
    body = [[one, *(show(cells.get((one, two), [])) for two in columns)] for one in names]
    return [f"{figure_of(rows)}: {down} \\ {across}", *columns], body


def figures(row: dict[str, Any], figure: str) -> list[float]:
    """A run's figure, as a list of one; empty where it has none."""
    return [row[figure]] if row[figure] is not None else []


@dataclass(frozen=True)
class Beside:
    """Our scores and the published ones, by the same values of the same keys.

    Args:
        values: by key, in the published order, then those that only we ran.
        ours: those of the runs, by the values.
        theirs: one published score, or none, by the values.
    """

    values: dict[str, list[str]]
    ours: dict[tuple[str, ...], list[float]]
    theirs: dict[tuple[str, ...], list[float]]


def set_beside(rows: Rows, published: PublishedSweep) -> Beside:
    """Our scores and the published ones, with the spelling of values that our runs have."""
    values: dict[str, list[str]] = {}
    for key, numbers in published.keys.items():
        ours = dict.fromkeys(row["values"][key] for row in rows)
        # 8e-8 and 8.0e-08 are one value.
        spelling = {number: f"{number:g}".replace("e-0", "e-") for number in numbers}
        spelling |= {number: name for name in ours if (number := to_number(name)) in spelling}
        values[key] = list(dict.fromkeys([*spelling.values(), *ours]))
    found: dict[tuple[str, ...], list[float]] = {}
    theirs: dict[tuple[str, ...], list[float]] = {}
    for cell in itertools.product(*values.values()):
        at = dict(zip(values, cell, strict=True))
        score = published.score(at)
        theirs[cell] = [] if score is None else [score]
        same = [row for row in rows if is_at(row["values"], at)]
        found[cell] = [value for row in same for value in figures(row, figure_of(rows))]
    return Beside(values, found, theirs)


def to_number(text: str) -> float | None:
    """The number that a value's text is; None for another text."""
    try:
        return float(text)
    except ValueError:
        return None


def is_at(values: dict[str, str], cell: dict[str, str]) -> bool:
    """Whether a run's values are those of a cell, however their numbers are written."""

    def is_same(one: str, other: str) -> bool:
        number = to_number(one)
        return one == other or (number is not None and number == to_number(other))

    return all(is_same(values[key], cell[key]) for key in cell)


def beside_table(rows: Rows, published: PublishedSweep) -> Table:
    """Our scores and the published ones: with two keys a grid each, side by side."""
    found, figure = set_beside(rows, published), f"ours, {figure_of(rows)}"
    down, *rest = found.values
    columns: list[tuple[str, ...]] = (
        [()] if not rest else [(name,) for name in found.values[rest[0]]]
    )
    header = [" \\ ".join(found.values)]
    for whose in (figure, "published"):
        header += [": ".join([whose, *column]) for column in columns]
    body = []
    for name in found.values[down]:
        cells = [(name, *column) for column in columns]
        body.append(
            [name, *(show(found.ours[cell]) for cell in cells)]
            + [show(found.theirs[cell]) for cell in cells]
        )
    return header, body


def beside_note(rows: Rows, published: PublishedSweep) -> str:
    """What the two scores are, and that they are not the same measure."""
    ours = "the last avg@k of the validation problems"
    if figure_of(rows) == "correct":
        ours = "the share of correct answers in the last 10 logged steps"
    return (
        f"Published: {published.metric}, of {published.source} ({published.note}). Ours: {ours}, "
        "with this run's model and data. An empty cell was not run, or is not published."
    )


def to_markdown(
    rows: Rows,
    title: str,
    has_picture: bool = False,
    sets: list[list[str]] | None = None,
    published: PublishedSweep | None = None,
) -> str:
    """The tables as a page; a figure that a run never had is an empty cell.

    Args:
        has_picture: whether the curves are beside the page.
        sets: a row for each data set that varies: key=value, its file, its sources, its rows.
    """
    parts = [f"# {title}"]
    if sets:
        parts.append(markdown_table(["data", "built from", "sources", "rows"], sets))
    if any("seed" in row["values"] for row in rows):
        parts.append(markdown_table(*seeds_table(rows)))
    if published:
        parts.append(markdown_table(*beside_table(rows, published)))
        parts.append(beside_note(rows, published))
    elif grid := grid_table(rows):
        parts.append(markdown_table(*grid))
    body = []
    for row in rows:
        values = ("" if row[column] is None else row[column] for column in COLUMNS)
        body.append([f"{v:.3f}" if isinstance(v, float) else str(v) for v in values])
    parts.append(markdown_table([*COLUMNS], body))
    parts += [NOTES, *([f"![avg@k by step]({CURVES})"] if has_picture else [])]
    return "\n\n".join(parts) + "\n"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def seed_curves(rows: Rows) -> dict[str, list[list[float]]]:
    """`[step, mean, half of its interval]` of avg@k over the seeds of each combination."""
    found = {}
    for name, group in groups(rows).items():
        by_step: dict[int, list[float]] = {}
        for step, value in (point for row in group for point in row["curve"]):
            by_step.setdefault(step, []).append(value)
        found[name] = [
            [step, *interval(values)]
            for step, values in sorted(by_step.items())
            if len(values) == len(group)
        ]
    return found


def draw_curves(axis: Any, rows: Rows) -> None:
    """avg@k by step: the mean over the seeds of each combination, and its interval."""
    for color, (name, points) in zip(COLORS, seed_curves(rows).items(), strict=False):
        steps = [point[0] for point in points]
        means, halves = ([point[at] for point in points] for at in (1, 2))
        axis.errorbar(
            steps, means, halves, color=color, linewidth=2, marker="o", markersize=3, capsize=2,
            elinewidth=1, label=name,
        )  # fmt: skip
    axis.set(xlabel="optimizer step", ylabel="avg@k, validation", ylim=(0, 1))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)


def write(
    root: Path,
    rows: Rows,
    title: str,
    sets: list[list[str]] | None = None,
    published: PublishedSweep | None = None,
) -> None:
    """Write what is known of the runs so far; `sets` and `published` as for `to_markdown`."""
    from matplotlib.figure import Figure

    has_picture = any(row["curve"] for row in rows) and len(groups(rows)) <= len(COLORS)
    if has_picture:
        picture = Figure((6.4, 4.0), layout="constrained")
        draw_curves(picture.subplots(), rows)
        picture.savefig(root / CURVES, dpi=150)
    page = to_markdown(rows, title, has_picture, sets, published)
    (root / "table.md").write_text(page, encoding="utf-8")
    manifest.write_json(root / "table.json", manifest.finite(rows))
    if any("seed" in row["values"] for row in rows):
        header, body = seeds_table(rows)
        found = {"header": header, "rows": body, "curves": seed_curves(rows)}
        manifest.write_json(root / "seeds.json", manifest.finite(found))
