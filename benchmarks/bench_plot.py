"""The picture of the curriculum's benchmark: held-out accuracy over tokens and over time."""

from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.bench_figures import Result, accuracy_at

matplotlib.use("Agg")
from matplotlib import pyplot as plt

# Okabe and Ito's colours, which can be told apart without seeing red and green.
COLOURS = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#0072B2", "#CC79A7", "#F0E442",
    "#999999",
)  # fmt: skip
AXES = {"tokens": "generated tokens, thousands", "seconds": "seconds of training"}


def draw(runs: dict[tuple[str, int], Result], modes: list[str], path: Path) -> None:
    """Write a PNG: a line for each mode, mean over its seeds, with a band of one deviation."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for panel, (axis, label) in zip(panels, AXES.items(), strict=True):
        for mode, colour in zip(modes, COLOURS, strict=False):
            results = [result for (name, _), result in sorted(runs.items()) if name == mode]
            end = min(result["tests"][-1][axis] for result in results)
            grid = np.linspace(0, end, 60)
            curves = np.array([[accuracy_at(r, cost, axis) for cost in grid] for r in results])
            mean, deviation = 100 * curves.mean(axis=0), 100 * curves.std(axis=0)
            shown = grid / 1000 if axis == "tokens" else grid
            panel.plot(shown, mean, color=colour, label=mode)
            panel.fill_between(
                shown, mean - deviation, mean + deviation, color=colour, alpha=0.12, linewidth=0
            )
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("held-out problems solved, %")
    panels[0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)
