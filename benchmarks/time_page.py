"""The page of `benchmarks.time_to_accuracy`: the arms, what each part is worth, a picture."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.curriculum import compare
from eval.report.plots import COLORS

Result = dict[str, Any]
Runs = dict[tuple[str, int], Result]  # by arm and seed
HOW = """\
`make bench-time` trains the recipe `{recipe}` from its SFT model: "stock" is TRL's own
`GRPOTrainer` with TRL's own generation, "ours" the recipe as it stands. Stock takes {stock_steps}
optimizer steps, the other arms {our_steps}. Seeds {seeds}; all runs of a seed are from one SFT
model, on one machine, two at a time with a core each. Accuracy is of {problems} held-out problems,
in per cent, sampled at temperature 1."""
MEANING = """\
- Seconds are those of the training process on its core, without the tests. Tokens are generated.
- Zero-variance: share of groups whose rewards are all equal, mean over the steps.
- Needed: what an arm takes to reach stock's accuracy at its end, as a share of stock's. Curves are
  made to rise (isotonic regression). By mean curves: the same for the mean over the seeds.
- At equal seconds, at equal tokens: difference to stock in points, at the greatest cost that both
  have reached.
- Ratios and differences are paired by seed, with [95 % interval]: Student's t over the seeds, and
  for mean curves a bootstrap over them.
- "Cost counted": the pass rates were sampled before the first step."""
CHOOSING = """\
## What choosing problems gains

Beside "{base}", in points, with the learning rate of ours."""
PARTS = """\
## What each part is worth

{steps} steps from the same model, seeds {seeds}. Each row adds a part to the row above it. Update:
a step without its generation. The curriculum takes {before:.0f} s before the first step, once."""
RATES = """\
## Learning rates

Accuracy in per cent at the end on {problems} validation problems, mean of the seeds {seeds}. The
arms between have the rate of ours."""
AGAIN = """\
## Run it again

```
{command}
```

It does what {cells} lacks, where each run is a line: {counts}. A run takes up to {minutes:.0f}
minutes of a core, tests not counted."""
COUNTED = ", cost counted"  # in the name of a row
BASE = "ours, no curriculum"
TITLE = "Time to the same accuracy, beside stock TRL"


def names_of(runs: Runs) -> list[str]:
    """The arms in the order of their first run, stock before ours."""
    found = dict.fromkeys(arm for arm, _ in runs)
    first = [arm for arm in ("stock", "ours") if arm in found]
    return first + [arm for arm in found if arm not in first]


def of_arm(runs: Runs, arm: str) -> list[Result]:
    """The runs of an arm."""
    return [run for (name, _), run in runs.items() if name == arm]


def arm_rows(runs: Runs, figures: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """The table of what the arms did."""
    rows = []
    for arm, row in figures.items():
        found = of_arm(runs, arm.removesuffix(COUNTED))
        if not arm.endswith(COUNTED):
            rows.append({
                "arm": arm,
                "seeds": str(row["seeds"]),
                "learning rate": f"{found[0]['rate']:g}",
                "steps": f"{row['steps']:.0f}",
                "seconds": f"{row['seconds']:,.0f}",
                "tokens": f"{row['tokens']:,.0f}",
                "seconds a step": f"{row['seconds'] / row['steps']:.1f}",
                "zero-variance": f"{row['zero_std']:.3f}",
                "accuracy at the start": f"{100 * fmean(starts(found)):.1f}",
                "at the end": f"{100 * row['final_accuracy']:.1f}",
            })  # fmt: skip
    return rows


def starts(runs: Sequence[Result]) -> list[float]:
    """Accuracy before the first step."""
    return [run["tests"][0]["accuracy"] for run in runs]


def gain_rows(figures: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """The table of each arm beside stock."""
    return [
        {
            "arm": arm,
            "seconds needed": table.show_interval(row["seconds_ratio"]),
            "by mean curves": table.show_interval(row["mean_curves_seconds"]),
            "tokens needed": table.show_interval(row["tokens_ratio"]),
            "by mean curves, tokens": table.show_interval(row["mean_curves_tokens"]),
            "at equal seconds": table.show_interval(row["at_seconds"], 100, 1),
            "at equal tokens": table.show_interval(row["at_tokens"], 100, 1),
        }
        for arm, row in figures.items()
        if arm != "stock"
    ]


def choosing_rows(runs: Runs) -> list[dict[str, str]]:
    """The table of the curricula beside ours without one."""
    rows = []
    for arm in names_of(runs):
        if arm in ("stock", BASE) or not of_arm(runs, BASE):
            continue
        has_cost = any(run["scoring"]["seconds"] for run in of_arm(runs, arm))
        for with_cost in (False, True)[: 1 + has_cost]:
            row = compare(runs, arm, with_cost, base=BASE)
            rows.append({
                "arm": arm + COUNTED * with_cost,
                "seeds": str(row["seeds"]),
                "at equal tokens": table.show_interval(row["at_tokens"], 100, 1),
                "at equal seconds": table.show_interval(row["at_seconds"], 100, 1),
                "useful groups, ratio": table.show_interval(row["useful_ratio"]),
            })  # fmt: skip
    return rows


def part_figures(parts: Runs) -> dict[str, dict[str, Any]]:
    """Seconds of a step and of its parts, and the groups, by the part that was added last."""
    figures = {}
    for name in dict.fromkeys(part for part, _ in parts):
        found = of_arm(parts, name)
        steps = [len(run["steps"]) for run in found]
        lasts = [run["steps"][-1] for run in found]
        step, generating = (
            [(last[key] - run["before"] * (key == "seconds")) / num
             for run, last, num in zip(found, lasts, steps, strict=True)]
            for key in ("seconds", "generating")
        )  # fmt: skip
        figures[name] = {
            "step": step,
            "generation": generating,
            "update": [whole - part for whole, part in zip(step, generating, strict=True)],
            "tokens": [last["tokens"] / num for last, num in zip(lasts, steps, strict=True)],
            "zero_std": [fmean(step["zero_std"] for step in run["steps"]) for run in found],
            "before": [run["before"] for run in found],
        }
    return figures


def part_rows(figures: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """The table of the parts; the ratio is to stock's step, paired by seed."""
    stock = figures["stock"]["step"]
    return [
        {
            "with": name if name == "stock" else f"and {name}",
            "seconds a step": f"{fmean(row['step']):.1f}",
            "ratio to stock": table.show_interval(
                table.ratio_interval([a / b for a, b in zip(row["step"], stock, strict=True)])
            ),
            "generation, s": f"{fmean(row['generation']):.1f}",
            "for 1,000 tokens": f"{1000 * fmean(row['generation']) / fmean(row['tokens']):.1f}",
            "update, s": f"{fmean(row['update']):.1f}",
            "zero-variance": f"{fmean(row['zero_std']):.2f}",
        }
        for name, row in figures.items()
    ]


def rate_rows(tuned: dict[str, dict[float, float]]) -> list[dict[str, str]]:
    """The table of the learning rates."""
    return [
        {"arm": arm} | {f"{rate:g}": f"{100 * found[rate]:.1f}" for rate in sorted(found)}
        for arm, found in tuned.items()
    ]


def draw(path: Path, runs: Runs) -> None:
    """Accuracy over seconds: a line for each run of stock and ours, and the mean of each arm."""
    from matplotlib.figure import Figure

    picture = Figure((7, 4.2), layout="constrained")
    axis = picture.subplots()
    for arm, color in zip(("stock", "ours"), COLORS, strict=False):
        found = of_arm(runs, arm)
        curves = [
            ([test["seconds"] / 60 for test in run["tests"]],
             [100 * test["accuracy"] for test in run["tests"]])
            for run in found
        ]  # fmt: skip
        for minutes, accuracies in curves:
            axis.plot(minutes, accuracies, ".-", color=color, alpha=0.35, linewidth=0.8)
        grid = np.linspace(0, min(minutes[-1] for minutes, _ in curves), 100)
        mean = np.mean([np.interp(grid, *curve) for curve in curves], axis=0)
        name = {"stock": "stock TRL", "ours": "this project"}[arm]
        axis.plot(grid, mean, color=color, linewidth=2.5, label=f"{name}, mean of {len(found)}")
    axis.set(xlabel="minutes of one CPU core", ylabel="held-out accuracy, %", ylim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    picture.savefig(path, dpi=150)


def machines(cells: Sequence[Result]) -> str:
    """A line for each machine and commit: what ran there."""
    found: dict[tuple[str, str], int] = {}
    for cell in cells:
        about = cell["about"]
        versions = " ".join(f"{name} {version}" for name, version in about["versions"].items())
        place = (f"{about['machine']}, {versions}", str(about["commit"])[:8])
        found[place] = found.get(place, 0) + 1
    return "\n".join(
        table.wrap(f"- {machine}: {num} runs of commit {commit}.")
        for (machine, commit), num in found.items()
    )


def write(
    args: Any,
    runs: Runs,
    parts: Runs,
    tuned: dict[str, dict[float, float]],
    cells: Sequence[Result],
) -> None:
    """Write the page, its figures and its picture; `args`: a `TimeArguments`."""
    path = Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    figures: dict[str, dict[str, Any]] = {}
    for arm in names_of(runs):
        figures[arm] = compare(runs, arm)
        if any(run["scoring"]["seconds"] for run in of_arm(runs, arm)):
            figures[arm + COUNTED] = compare(runs, arm, with_scoring=True)
    picture = path.with_suffix(".png")
    draw(picture, runs)
    notes = [
        table.markdown(gain_rows(figures)),
        f"![Held-out accuracy over seconds, each run and the means]({picture.name})",
        MEANING,
    ]
    if choosing := choosing_rows(runs):
        notes += [CHOOSING.format(base=BASE), table.markdown(choosing)]
    of_parts = part_figures(parts)
    if of_parts:
        before = fmean(of_parts["curriculum"]["before"])
        seeds = ", ".join(map(str, args.part_seeds))
        about = PARTS.format(steps=args.part_steps, seeds=seeds, before=before)
        notes += [about, table.markdown(part_rows(of_parts))]
    num_validation = len(next(cell for cell in cells if cell["purpose"] == "rate")["final"])
    seeds = ", ".join(map(str, args.tuning_seeds))
    notes += [RATES.format(problems=num_validation, seeds=seeds), table.markdown(rate_rows(tuned))]
    purposes = [cell["purpose"] for cell in cells]
    names = {"rate": "for learning rates", "seed": "for the seeds", "part": "for the parts"}
    counts = ", ".join(f"{purposes.count(one)} {name}" for one, name in names.items())
    minutes = max(cell["steps"]["seconds"][-1] for cell in cells) / 60
    command = "make bench-time"
    notes += [
        AGAIN.format(command=command, cells=path.with_suffix(".jsonl").name, counts=counts,
                     minutes=minutes),
        machines(cells),
    ]  # fmt: skip
    shown = sorted({seed for _, seed in runs})
    how = HOW.format(
        recipe=Path(args.grpo_config).parent.name, stock_steps=args.stock_steps,
        our_steps=args.our_steps, seeds=", ".join(map(str, shown)),
        problems=len(next(iter(runs.values()))["final"]),
    )  # fmt: skip
    table.publish(
        args.out, TITLE, table.wrap(how), arm_rows(runs, figures),
        {"figures": figures, "parts": of_parts, "tuned": tuned}, *notes,
        figures_to=path.with_suffix(".json"),
    )  # fmt: skip
