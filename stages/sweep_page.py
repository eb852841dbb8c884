"""The page of a sweep: means over its seeds, a grid of two keys, a row for each run, pictures."""

import math
import statistics
from pathlib import Path
from typing import Any

from pipeline import manifest

COLUMNS = (
    "run", "steps", "reward", "correct", "first avg@k", "avg@k", "best avg@k", "guards", "ended",
)  # fmt: skip
NOTES = """Reward and correct are means of the last 10 logged steps. avg@k is of the validation
problems. Guards: how often each fired. Over seeds: mean ± half of the 95 % interval (Student's t).
The change from the first avg@k to the last, and its difference to that of the first row, are paired
by seed."""
# Student's t for 95 %, by degrees of freedom from 1; above, the last is a little too wide.
T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
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


def grid(rows: Rows) -> tuple | None:
    """Figure, keys, their values, and by these the figure's values; None if not two keys vary."""
    keys = [key for key in rows[0]["values"] if key != "seed"]
    choices = {key: list(dict.fromkeys(row["values"][key] for row in rows)) for key in keys}
    choices = {key: values for key, values in choices.items() if len(values) > 1}
    if len(choices) != 2:
        return None
    figure = "avg@k" if any(row["avg@k"] is not None for row in rows) else "correct"
    cells: dict[tuple, list[float]] = {}
    for row in rows:
        at = cells.setdefault(tuple(row["values"][key] for key in choices), [])
        at += [row[figure]] if row[figure] is not None else []
    (down, across), (names, columns) = choices, choices.values()
    return figure, down, across, names, columns, cells


def to_markdown(rows: Rows, title: str, pictures: list[str]) -> str:
    """The tables as a page; a figure that a run never had is an empty cell."""
    parts = [f"# {title}"]
    if any("seed" in row["values"] for row in rows):
        parts.append(markdown_table(*seeds_table(rows)))
    if found := grid(rows):
        figure, down, across, names, columns, cells = found
        body = [[one, *(show(cells.get((one, two), [])) for two in columns)] for one in names]
        parts.append(markdown_table([f"{figure}: {down} \\ {across}", *columns], body))
    body = []
    for row in rows:
        values = ("" if row[column] is None else row[column] for column in COLUMNS)
        body.append([f"{v:.3f}" if isinstance(v, float) else str(v) for v in values])
    parts.append(markdown_table([*COLUMNS], body))
    return "\n\n".join([*parts, NOTES, *(f"![{name}]({name})" for name in pictures)]) + "\n"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw_grid(axis: Any, rows: Rows) -> None:
    """The grid as a heat map."""
    figure, down, across, names, columns, cells = grid(rows)
    found = [[cells.get((one, two)) for two in columns] for one in names]
    means = [[interval(cell)[0] if cell else math.nan for cell in line] for line in found]
    image = axis.imshow(means, cmap="cividis", aspect="auto")
    for y, line in enumerate(found):
        for x, cell in enumerate(line):
            color = "white" if cell and image.norm(means[y][x]) < 0.5 else "black"
            text = show(cell or []).replace(" ±", "\n±") or "-"
            axis.text(x, y, text, ha="center", va="center", color=color)
    axis.set_xticks(range(len(columns)), columns, rotation=20 if max(map(len, columns)) > 10 else 0)
    axis.set_yticks(range(len(names)), names)
    axis.grid(visible=False)
    axis.set(xlabel=across, ylabel=down)
    axis.figure.colorbar(image, label=figure)


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


def write(root: Path, rows: Rows, title: str) -> None:
    """Write what is known of the runs so far."""
    from matplotlib.figure import Figure

    drawn = {}
    if any(row["curve"] for row in rows) and len(groups(rows)) <= len(COLORS):
        drawn["curves.png"] = draw_curves, (6.4, 4.0)
    if found := grid(rows):
        drawn["heat_map.png"] = draw_grid, (2.4 + len(found[4]), 1.4 + 0.6 * len(found[3]))
    for name, (draw, size) in drawn.items():
        picture = Figure(size, layout="constrained")
        draw(picture.subplots(), rows)
        picture.savefig(root / name, dpi=150)
    (root / "table.md").write_text(to_markdown(rows, title, [*drawn]), encoding="utf-8")
    manifest.write_json(root / "table.json", manifest.finite(rows))
    if any("seed" in row["values"] for row in rows):
        header, body = seeds_table(rows)
        found = {"header": header, "rows": body, "curves": seed_curves(rows)}
        manifest.write_json(root / "seeds.json", manifest.finite(found))
