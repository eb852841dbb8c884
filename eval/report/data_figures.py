"""The data report's figures: how long the texts are. matplotlib is imported late."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from eval.report.blocks import Figure
from eval.report.data_rows import quantile
from eval.report.plots import INK, LINE, draw_panels

NUM_BINS = 32
SKEWED = 8  # a text that is so many times the median's length: a log axis
SIZE = (4.2, 2.9)  # inches


def bin_edges(counts: Counter[int]) -> tuple[list[float], bool]:
    """Edges of a histogram of whole numbers, and whether they belong on a log axis.

    Linear bins are whole numbers wide and log bins never narrower than 1, so that no bin is empty
    for want of a number in it.

    Args:
        counts: `{value: number}` of values >= 0, at least one.
    """
    low, high = min(counts), max(counts)
    is_log = high >= SKEWED * max(1, quantile(counts, 0.5))
    if not is_log:
        width = max(1, -(-(high + 1 - low) // NUM_BINS))
        return [low - 0.5 + width * i for i in range((high - low) // width + 2)], False
    ratio = ((high + 1) / max(1, low)) ** (1 / NUM_BINS)
    edges = [max(1, low) - 0.5]
    while edges[-1] <= high:
        edges.append(max(edges[-1] + 1, round(edges[-1] * ratio) + 0.5))
    if low < 1:  # empty texts have no logarithm; they are counted in the first bin
        edges[0] = 0.5
    return edges, True


def fill_bins(counts: Counter[int], edges: list[float]) -> list[int]:
    """How many of the counted values lie in each bin; values below the first edge go into it."""
    heights = [0] * (len(edges) - 1)
    place = 0
    for value in sorted(counts):
        while place < len(heights) - 1 and value >= edges[place + 1]:
            place += 1
        heights[place] += counts[value]
    return heights


def _draw_lengths(axis: Any, title: str, counts: Counter[int], unit: str) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    edges, is_log = bin_edges(counts)
    heights = fill_bins(counts, edges)
    widths = [right - left for left, right in pairwise(edges)]
    axis.bar(edges[:-1], heights, widths, align="edge", color=LINE, alpha=0.75, linewidth=0)
    for share, style, name in ((0.5, "-", "median"), (0.95, "--", "95 % up to")):
        value = quantile(counts, share)
        axis.plot(
            [value, value], [0, 1.08 * max(heights)], style, color=INK, linewidth=1.2,
            label=f"{name} {value:,}",
        )  # fmt: skip
    axis.plot([], [], " ", label=f"longest {max(counts):,}")
    if is_log:
        axis.set_xscale("log")
        is_wide = edges[-1] / edges[0] > 60  # numbers every 1, 2, 5 would run into each other
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3) if is_wide else (1, 2, 5), numticks=8))
        axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_ylim(0, 1.3 * max(heights))  # room for the legend
    axis.legend(
        frameon=False, fontsize=9, labelcolor=INK, loc="upper right", ncols=3, columnspacing=1.0,
        handlelength=1.2, handletextpad=0.5, borderaxespad=0,
    )  # fmt: skip
    axis.set(title=title, xlabel=unit, ylabel="rows")


def draw_lengths(path: Path, lengths: dict[str, Counter[int]], unit: str, caption: str) -> Figure:
    """One histogram for each kind of text.

    Args:
        lengths: `{title: {length: rows}}`, at least one, none empty.
        unit: what the lengths count: tokens or characters.
    """
    panels = [
        (title, lambda axis, title=title, counts=counts: _draw_lengths(axis, title, counts, unit))
        for title, counts in lengths.items()
    ]
    return draw_panels(path, panels, SIZE, "Length", caption)
