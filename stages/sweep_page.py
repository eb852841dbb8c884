"""The page of a sweep: a row for each combination, means over its seeds, and curves.

Where scores of the same sweep are published, they stand beside ours. A figure that is not known is
an empty cell.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline import manifest
from stages.published_sweeps import PublishedSweep

MEANS = ("reward", "correct", "first avg@k", "avg@k", "best avg@k")  # of a run, or of several
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


def show(values: Iterable[float | None]) -> str:
    """0.512 ± 0.030; empty where no run had a value."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    mean, half = interval(known)
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


def table(rows: Rows, published: PublishedSweep | None = None) -> Table:
    """A row for each combination, without columns that are empty in all of them."""
    found: list[dict[str, str]] = []
    first: dict[Any, float] = {}  # the changes of the first combination, by seed
    for name, group in groups(rows).items():
        gains = {
            row["values"].get("seed"): row["avg@k"] - row["first avg@k"]
            for row in group
            if row["avg@k"] is not None
        }
        cells = {"runs": name, "seeds": str(len(group))}
        cells["steps"] = ", ".join(dict.fromkeys(str(row["steps"]) for row in group))
        cells |= {figure: show(row[figure] for row in group) for figure in MEANS}
        cells["change"] = show(gains.values())
        less = [gains[seed] - first[seed] for seed in gains if seed in first]
        cells["less the first's"] = show(less)
        cells["published"] = show([published.score(group[0]["values"]) if published else None])
        fired: Counter[str] = Counter()
        for row in group:
            fired.update(row["guards"])
        cells["guards"] = ", ".join(f"{guard} {count}" for guard, count in sorted(fired.items()))
        ended = Counter(row["ended"] for row in group)
        cells["ended"] = ", ".join(f"{how} {count}" for how, count in ended.items())
        found.append(cells)
        first = first or gains
    header = [column for column in found[0] if any(cells[column] for cells in found)]
    return header, [[cells[column] for column in header] for cells in found]


def to_markdown(
    rows: Rows, title: str, has_picture: bool = False, published: PublishedSweep | None = None
) -> str:
    """The table as a page.

    Args:
        has_picture: whether the curves are beside the page.
    """
    header, body = table(rows, published)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *body]
    parts = [f"# {title}", "\n".join(f"| {' | '.join(line)} |" for line in lines), NOTES]
    if published:
        parts.append(
            f"Published: {published.metric}, of {published.source} ({published.note}). Ours are "
            "of this run's model and data."
        )
    if has_picture:
        parts.append(f"![avg@k by step]({CURVES})")
    return "\n\n".join(parts) + "\n"


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


def write(root: Path, rows: Rows, title: str, published: PublishedSweep | None = None) -> None:
    """Write what is known of the runs so far."""
    from matplotlib.figure import Figure

    has_picture = any(row["curve"] for row in rows) and len(groups(rows)) <= len(COLORS)
    if has_picture:
        picture = Figure((6.4, 4.0), layout="constrained")
        draw_curves(picture.subplots(), rows)
        picture.savefig(root / CURVES, dpi=150)
    page = to_markdown(rows, title, has_picture, published)
    (root / "table.md").write_text(page, encoding="utf-8")
    manifest.write_json(root / "table.json", manifest.finite(rows))
    if any("seed" in row["values"] for row in rows):
        header, body = table(rows, published)
        found = {"header": header, "rows": body, "curves": seed_curves(rows)}
        manifest.write_json(root / "seeds.json", manifest.finite(found))
