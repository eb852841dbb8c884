"""The page of `benchmarks.time_to_accuracy`: the arms, what each part gains, a picture.

A result is a line of the finished runs, with the SFT model's test before its own tests.
"""

import math
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks import table
from eval.report.plots import COLORS

Result = dict[str, Any]
Results = dict[tuple[str, int], Result]  # by arm and seed
Pairs = list[tuple[Result, Result]]  # an arm and what it is compared with, of one seed
AXES = ("seconds", "tokens")
COUNTED = ", cost counted"  # in the name of a row
NO_CURRICULUM = "ours, no curriculum"
FEWEST_SEEDS = 5  # of a bootstrap
TITLE = "Time to the same accuracy, beside stock TRL"
HOW = """\
`make bench-time` trains the recipe `{recipe}` from its SFT model. "stock" is TRL's own
`GRPOTrainer` with TRL's own generation, "ours" is the recipe as it stands. Stock takes
{stock_steps} optimizer steps, the other arms {our_steps}. Accuracy is of {problems} held-out
problems, in per cent, sampled at temperature 1: {test_samples} completions a problem on the way,
{last_samples} at start and end."""
MEANING = """\
- Seconds are those of the training process on one core, with another run on the other core. Tests
  do not count. Tokens are the generated ones.
- Zero-variance: share of groups with equal rewards, in the first {stock_steps} steps and in all.
- Needed: what an arm takes to reach stock's accuracy at stock's end, as a share of what stock
  takes. It is the geometric mean over the seeds. Curves are made to rise first (isotonic
  regression). "None": not every seed reached it.
- By mean curves: where the mean of the arm's curves reaches the mean of stock's ends.
- At equal seconds, at equal tokens: difference to stock in points, at the greatest cost that both
  have reached.
- Brackets are 95 % intervals over the seeds, paired: Student's t, and for mean curves a bootstrap.
  They hold for this model and these problems.
- "Cost counted": the seconds and tokens of sampling the pass rates are added.
- In the picture a curve starts flat where an arm has work before its first step: `predictive` reads
  prompts. The dotted line is the mean of stock's ends."""
CURRICULA = """\
## What the curriculum gains

Beside "{base}" in place of stock: what is needed for its accuracy at its end, and the difference in
points at equal cost. All have the learning rate of "ours"."""
PARTS = """\
## What each part gains

{steps} steps from the same model, each run alone on one core. Seeds {seeds}. Each row adds a part
to the row above it; `generation` also brings this project's trainer with its guards. The forward
pass of the curriculum takes {before:.0f} s before the first step."""
RATES = """\
## Learning rates

Accuracy in per cent at the end on {problems} validation problems. Tuning seeds: {seeds}.
"{curriculum}" and "ours, offline" have the rate of ours."""
AGAIN = """\
## Run it again

```
{command}
```

It runs what `{lines}` does not have yet. A run takes up to {seconds:,.0f} seconds of a core, tests
aside."""


# Figures


def learning_curve(result: Result, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Cost and held-out accuracy at each test, the accuracies made to rise (isotonic regression).

    A noisy curve crosses any level too early; its best rising fit does not favour either side. A
    test weighs as much as it has samples a problem.
    """
    tests = result["tests"]
    weights = [test["samples"] for test in tests]
    curve = isotonic_regression([test["accuracy"] for test in tests], weights=weights).x
    return np.array([test[axis] for test in tests], dtype=float), curve


def cost_of(result: Result, accuracy: float, axis: str) -> float:
    """Cost at which the learning curve first reaches an accuracy; infinite where it never does."""
    cost, curve = learning_curve(result, axis)
    reached = np.flatnonzero(curve >= accuracy)
    if not len(reached):
        return math.inf
    upto = slice(max(reached[0] - 1, 0), reached[0] + 1)  # it rises from one test to the next
    return float(np.interp(accuracy, curve[upto], cost[upto]))


def count_scoring(result: Result) -> Result:
    """The run as if the offline filter's pass rates had been sampled before its first step."""
    scoring = result["scoring"]
    tests = [test | {axis: test[axis] + scoring[axis] for axis in AXES} for test in result["tests"]]
    return result | {"tests": tests}


def needed(pairs: Pairs, axis: str) -> table.Interval:
    """Cost to the other's accuracy at its end, as a share of its cost; infinite if a seed has none.

    A seed in which the other gained nothing has none.
    """
    ratios = []
    for mine, other in pairs:
        _, curve = learning_curve(other, axis)
        gained = curve[-1] > curve[0]
        ratio = cost_of(mine, curve[-1], axis) / cost_of(other, curve[-1], axis) if gained else 0.0
        ratios.append(ratio)
    return table.ratio_interval(ratios)


def needed_by_means(pairs: Pairs, axis: str) -> table.Interval:
    """Share of the other's cost at which the mean of an arm's curves reaches that of its ends.

    Costs are shares of the other's of the same seed, so machines of different speed go together.
    """
    curves = []
    for mine, other in pairs:
        whole = other["tests"][-1][axis]
        cost, curve = learning_curve(mine, axis)
        curves.append((cost / whole, curve))
    grid = np.linspace(0, min(cost[-1] for cost, _ in curves), 1001)
    accuracies = np.array([np.interp(grid, *curve) for curve in curves])  # (seeds, 1001)
    ends = np.array([learning_curve(other, axis)[1][-1] for _, other in pairs])

    def share(seeds: np.ndarray) -> float:
        reached = np.flatnonzero(accuracies[seeds].mean(axis=0) >= ends[seeds].mean())
        return float(grid[reached[0]]) if len(reached) else math.inf

    rng, num = np.random.default_rng(0), len(pairs)
    drawn = sorted(share(rng.integers(num, size=num)) for _ in range(1000))
    is_enough = num >= FEWEST_SEEDS
    low, high = (drawn[25], drawn[-26]) if is_enough else (-math.inf, math.inf)
    return share(np.arange(num)), low, high


def gain_at_equal(pairs: Pairs, axis: str) -> table.Interval:
    """Difference in accuracy at the greatest cost that both runs of a pair have reached."""
    differences = []
    for mine, other in pairs:
        cost = min(run["tests"][-1][axis] for run in (mine, other))
        reached = [np.interp(cost, *learning_curve(run, axis)) for run in (mine, other)]
        differences.append(reached[0] - reached[1])
    return table.mean_interval(differences)


def compare(pairs: Pairs) -> dict[str, Any]:
    """All figures of an arm beside another."""
    figures: dict[str, Any] = {"seeds": len(pairs)}
    for axis in AXES:
        figures[f"{axis}_needed"] = needed(pairs, axis)
        figures[f"{axis}_by_means"] = needed_by_means(pairs, axis)
        figures[f"at_{axis}"] = gain_at_equal(pairs, axis)
    return figures


def compare_all(results: Results, base: str) -> dict[str, dict[str, Any]]:
    """Each arm beside `base`, and again with the cost of its pass rates if it has any."""
    found = {}
    for arm in dict.fromkeys(name for name, _ in results):
        pairs = [
            (result, results[base, seed])
            for (name, seed), result in results.items()
            if name == arm and (base, seed) in results
        ]
        if arm in (base, "stock") or not pairs:
            continue
        found[arm] = compare(pairs)
        if any(mine["scoring"]["seconds"] for mine, _ in pairs):
            found[arm + COUNTED] = compare([(count_scoring(mine), other) for mine, other in pairs])
    return found


def part_figures(parts: Results) -> dict[str, dict[str, list[float]]]:
    """Seconds of a step and of its halves, for each seed, by the part that was added last."""
    figures: dict[str, dict[str, list[float]]] = {}
    for (part, _), run in parts.items():
        last = {name: column[-1] for name, column in run["steps"].items()}
        num_steps = len(run["steps"]["seconds"])
        seconds = (last["seconds"] - run["seconds_before"]) / num_steps
        generating = last["generating"] / num_steps
        row = {
            "step": seconds,
            "generation": generating,
            "update": seconds - generating,
            "tokens": last["tokens"] / num_steps,
            "before": run["seconds_before"],
        }
        for name, value in row.items():
            figures.setdefault(part, {}).setdefault(name, []).append(value)
    return figures


# Tables


def arm_rows(results: Results, stock_steps: int) -> list[dict[str, str]]:
    """The table of what the arms did: means over their runs."""
    rows = []
    for arm in dict.fromkeys(name for name, _ in results):
        runs = [run for (name, _), run in results.items() if name == arm]
        zero_std = [run["steps"]["zero_std"] for run in runs]
        first = fmean(one for shares in zero_std for one in shares[:stock_steps])
        rows.append({
            "arm": arm,
            "learning rate": f"{runs[0]['rate']:g}",
            "seeds": str(len(runs)),
            "steps": str(len(zero_std[0])),
            "seconds": f"{fmean(run['steps']['seconds'][-1] for run in runs):,.0f}",
            "tokens": f"{fmean(run['steps']['tokens'][-1] for run in runs):,.0f}",
            "zero-variance": f"{first:.2f}",
            "in all": f"{fmean(one for shares in zero_std for one in shares):.2f}",
            "start": f"{100 * fmean(run['tests'][0]['accuracy'] for run in runs):.1f}",
            "end": f"{100 * fmean(fmean(run['final']) for run in runs):.1f}",
        })  # fmt: skip
    return rows


def needed_rows(figures: dict[str, dict[str, Any]], is_whole: bool = True) -> list[dict[str, str]]:
    """The table of each arm beside another; `is_whole`: by mean curves, too."""
    rows = []
    for arm, row in figures.items():
        cells = {
            "arm": arm,
            "seeds": str(row["seeds"]),
            "seconds needed": table.show_interval(row["seconds_needed"]),
            "by mean curves": table.show_interval(row["seconds_by_means"]),
            "tokens needed": table.show_interval(row["tokens_needed"]),
            "the same by mean curves": table.show_interval(row["tokens_by_means"]),
            "at equal seconds": table.show_interval(row["at_seconds"], 100, 1),
            "at equal tokens": table.show_interval(row["at_tokens"], 100, 1),
        }
        left_out = ("seeds",) if is_whole else ("by mean curves", "the same by mean curves")
        rows.append({name: cell for name, cell in cells.items() if name not in left_out})
    return rows


def part_rows(figures: dict[str, dict[str, list[float]]]) -> list[dict[str, str]]:
    """The table of the parts; ratios are to stock's step of the same seed."""
    stock, rows = figures["stock"]["step"], []
    for part, row in figures.items():
        ratios = [mine / other for mine, other in zip(row["step"], stock, strict=True)]
        rows.append({
            "with": part if part == "stock" else f"and {part}",
            "seconds a step": f"{fmean(row['step']):.1f}",
            "share of stock's, by seed": ", ".join(f"{ratio:.2f}" for ratio in ratios),
            "generation": f"{fmean(row['generation']):.1f}",
            "for 1,000 tokens": f"{1000 * fmean(row['generation']) / fmean(row['tokens']):.1f}",
            "update": f"{fmean(row['update']):.1f}",
        })  # fmt: skip
    return rows


def rate_rows(tuned: dict[str, dict[float, float]]) -> list[dict[str, str]]:
    """The table of the learning rates."""
    return [
        {"arm": arm} | {f"{rate:g}": f"{100 * found[rate]:.1f}" for rate in sorted(found)}
        for arm, found in tuned.items()
    ]


# The page


def draw(path: Path, results: Results) -> None:
    """Accuracy over seconds: a line for each run of stock and ours, and the mean of each arm."""
    from matplotlib.figure import Figure

    picture = Figure((7, 4.2), layout="constrained")
    axis = picture.subplots()
    names = {"stock": "stock TRL", "ours": "this project"}
    for (arm, name), color in zip(names.items(), COLORS, strict=False):
        curves = [
            ([test["seconds"] / 60 for test in run["tests"]],
             [100 * test["accuracy"] for test in run["tests"]])
            for (one, _), run in results.items() if one == arm
        ]  # fmt: skip
        for minutes, accuracies in curves:
            axis.plot(minutes, accuracies, ".-", color=color, alpha=0.35, linewidth=0.8)
        grid = np.linspace(0, min(minutes[-1] for minutes, _ in curves), 100)
        mean = np.mean([np.interp(grid, *curve) for curve in curves], axis=0)
        axis.plot(grid, mean, color=color, linewidth=2.5, label=f"{name}, mean of {len(curves)}")
        if arm == "stock":
            end = fmean(accuracies[-1] for _, accuracies in curves)
            axis.axhline(end, color=color, linestyle=":", linewidth=1)
    axis.set(xlabel="minutes of one CPU core", ylabel="held-out accuracy, %", ylim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    picture.savefig(path, dpi=150)


def wrapped(text: str) -> list[str]:
    """The paragraphs of a text whose figures are filled in, in lines of 100 columns."""
    parts = text.split("\n\n")
    return [part if part.startswith(("#", "```")) else table.wrap(part) for part in parts]


def write(args: Any, bench: Any) -> None:
    """Write the page, its figures and its picture, of the seeds whose runs are all done.

    Args:
        args: a `TimeArguments`.
        bench: a `Benchmark`.
    """
    path, results, parts = Path(args.out), bench.results("seed"), bench.results("part")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside_stock, curricula = (compare_all(results, base) for base in ("stock", NO_CURRICULUM))
    of_parts, tuned = part_figures(parts), bench.tuned()
    picture = path.with_suffix(".png")
    draw(picture, results)
    notes = [
        table.markdown(needed_rows(beside_stock)),
        f"![Held-out accuracy over seconds, each run and the means]({picture.name})",
        MEANING.format(stock_steps=args.stock_steps),
    ]
    if curricula:
        about = CURRICULA.format(base=NO_CURRICULUM)
        notes += [*wrapped(about), table.markdown(needed_rows(curricula, is_whole=False))]
    if of_parts:
        seeds = ", ".join(str(seed) for part, seed in parts if part == "stock")
        before = fmean(of_parts["curriculum"]["before"])
        about = PARTS.format(steps=args.part_steps, seeds=seeds, before=before)
        notes += [*wrapped(about), table.markdown(part_rows(of_parts))]
    if args.tuning_seeds:
        num = len(bench.used_lines("rate")[0]["final"])
        seeds = ", ".join(map(str, args.tuning_seeds))
        rates = RATES.format(problems=num, seeds=seeds, curriculum=NO_CURRICULUM)
        notes += [*wrapped(rates), table.markdown(rate_rows(tuned))]
    seconds = [run["steps"]["seconds"][-1] for run in results.values()]
    recipe = Path(args.grpo_config).parent.name
    command = f"make bench-time RECIPE={recipe}"
    again = AGAIN.format(command=command, lines=bench.path.name, seconds=max(seconds))
    notes += wrapped(again)
    how = HOW.format(
        recipe=recipe, stock_steps=args.stock_steps, our_steps=args.our_steps,
        problems=len(next(iter(results.values()))["final"]), test_samples=args.test_samples,
        last_samples=args.last_samples,
    )  # fmt: skip
    table.publish(
        args.out, TITLE, table.wrap(how), arm_rows(results, args.stock_steps),
        {"beside_stock": beside_stock, "curricula": curricula, "parts": of_parts, "tuned": tuned},
        *notes, figures_to=path.with_suffix(".json"), runs=bench.path.name,
    )  # fmt: skip
