"""The curriculum's benchmark: every mode and TRL's own trainer, from one SFT checkpoint.

    make bench-curriculum SEEDS="0 1 2 3 4" MODES="stock predictive"
    python -m benchmarks.pools --pool topics
    python -m benchmarks.curriculum --recipe_run runs/pools/topics --learning_rates 2e-4 4e-4 8e-4

Starts `benchmarks.training_run` once for each mode and seed, the modes of a seed one after the
other. A finished run is not repeated, so an interrupted benchmark resumes. With `learning_rates`
each mode first finds its own, on `tuning_seeds`, which serve for nothing else. Ratios and
differences are paired by seed. Seconds are those of the training process.
"""

import math
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks import table
from data_prep.sampling.problems import load_pass_counts
from pipeline import json_files, manifest
from pipeline.errors import run_cli
from pipeline.settings import parse

# Mode -> what it changes in the recipe.
MODES: dict[str, dict[str, Any]] = {
    "stock": {"curriculum": "off"},
    "offline": {"curriculum": "offline"},
    "refill": {"curriculum": "refill"},
    "dapo": {"curriculum": "refill", "max_refill_rounds": 9},  # its script generates 10 times
    "predictive": {"curriculum": "predictive"},
    "predictive+refill": {"curriculum": "predictive+refill"},
    # Zero-variance groups out of the loss, with and without choosing.
    "stock+drop": {"curriculum": "off", "dead_groups": "drop"},
    "predictive+drop": {"curriculum": "predictive", "dead_groups": "drop"},
}
AXES = ("tokens", "seconds")
CLEARLY_WORSE = 0.03  # of held-out accuracy
PARTS = {"hardest": 0, "easiest": 4}  # of five
HOW = """Every run generates {token_budget:,} tokens, from the SFT model of `{recipe_run}`. `stock`
is TRL's own trainer. Ratios and differences are to `stock`, paired by seed, with [95 % interval].
Learning rates: {rates}."""
MEANING = """- Zero-variance: share of the groups trained on that are all-correct or all-wrong
  (TRL's `frac_reward_zero_std`), mean over the steps.
- Useful: groups trained on that are neither, per 1,000 generated tokens.
- Final accuracy: of held-out problems, sampled, at the end.
- Tokens and seconds needed: to reach `stock`'s final accuracy, as a share of what `stock` needs.
  "None": not every seed reached it.
- By mean curves: the same for the mean over the seeds, with a percentile bootstrap over them.
- At equal tokens, at equal seconds: difference to `stock` in percentage points.
- Hardest, easiest fifth: that difference at the end, on the held-out problems that the starting
  model answers worst and best.

To run it again:

```
{command}
```"""

Result = dict[str, Any]  # what `benchmarks.training_run` writes
Runs = dict[tuple[str, int], Result]  # by mode and seed


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's data and sft"})
    out: str = field(metadata={"help": "the page to write, with a picture (.png)"})
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    modes: list[Literal[*MODES]] = field(default_factory=lambda: list(MODES))
    token_budget: int = field(default=150_000, metadata={"help": "generated tokens of every run"})
    num_tests: int = field(default=10, metadata={"help": "tests on the way, evenly in tokens"})
    num_generations: int = field(default=8, metadata={"help": "G, rollouts of a problem"})
    learning_rates: list[float] = field(
        default_factory=list,
        metadata={"help": "to choose from, for each mode, or one for all; empty: the recipe's"},
    )
    tuning_seeds: list[int] = field(
        default_factory=lambda: [101, 102],
        metadata={"help": "seeds that learning rates are tuned on"},
    )

    def __post_init__(self) -> None:
        if "stock" not in self.modes:
            self.modes = ["stock", *self.modes]


def learning_curve(result: Result, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Cost and held-out accuracy at each test, the accuracies made to rise (isotonic regression).

    A noisy curve crosses any level too early; its best rising fit does not favour either side. A
    test weighs as much as it has samples a problem.
    """
    tests = result["tests"]
    weights = [test.get("samples", 1) for test in tests]
    curve = isotonic_regression([test["accuracy"] for test in tests], weights=weights).x
    return np.array([test[axis] for test in tests], dtype=float), curve


def cost_of(result: Result, accuracy: float, axis: str) -> float:
    """Cost at which the learning curve first reaches an accuracy; infinite where it never does."""
    cost, curve = learning_curve(result, axis)
    reached = np.flatnonzero(curve >= accuracy)
    if not len(reached):
        return math.inf
    after = reached[0]
    if after == 0:
        return float(cost[0])
    share = (accuracy - curve[after - 1]) / (curve[after] - curve[after - 1])
    return float(cost[after - 1] + share * (cost[after] - cost[after - 1]))


def mean_curves_ratio(pairs: list[tuple[Result, Result]]) -> table.Interval:
    """Tokens at which a mode's mean curve reaches the end of stock's, over stock's own.

    Bootstrap over the pairs (mode, stock) of the seeds; infinite where it is not reached.
    """
    curves = [[learning_curve(one, "tokens") for one in pair] for pair in pairs]
    costs = np.linspace(0, min(cost[-1] for pair in curves for cost, _ in pair), 201)
    found = np.array([[np.interp(costs, *curve) for curve in pair] for pair in curves])  # (S, 2, C)

    def ratio(seeds: np.ndarray) -> float:
        mine, stock = found[seeds].mean(axis=0)
        reached, needed = (np.flatnonzero(one >= stock[-1] - 1e-9) for one in (mine, stock))
        return divide(costs[reached[0]], costs[needed[0]]) if len(reached) else math.inf

    rng, num = np.random.default_rng(0), len(pairs)
    drawn = sorted(ratio(rng.integers(num, size=num)) for _ in range(1000))
    return ratio(np.arange(num)), drawn[25], drawn[-26]


def accuracy_at(result: Result, cost: float, axis: str) -> float:
    """Held-out accuracy at a cost, between the tests in proportion; NaN beyond the last."""
    costs, curve = learning_curve(result, axis)
    return float(np.interp(cost, costs, curve)) if cost <= costs[-1] else math.nan


def summary(result: Result) -> dict[str, float]:
    """Figures of one run: see `HOW`; `generated_zero_std` is of all generated groups."""
    steps, size = result["steps"], result["num_generations"]
    groups = [right for step in steps for right in step["groups"]]
    zero_std = [step["zero_std"] for step in steps]
    useful = sum(1 - share for share in zero_std) * result["groups_per_step"]
    return {
        "zero_std": float(np.mean(zero_std)),
        "generated_zero_std": float(np.mean(np.isin(groups, (0, size)))),
        "useful_per_1k": 1000 * useful / steps[-1]["tokens"],
        "tokens": steps[-1]["tokens"],
        "seconds": steps[-1]["seconds"],
        "steps": len(steps),
        "final_accuracy": float(learning_curve(result, "tokens")[1][-1]),
    }


def count_scoring(result: Result) -> Result:
    """The run as if the offline filter's pass rates had been sampled before its first step."""
    scoring = result["scoring"]
    return result | {
        key: [one | {axis: one[axis] + scoring[axis] for axis in AXES} for one in result[key]]
        for key in ("tests", "steps")
    }


def difficulty_parts(counts: dict[str, tuple[int, int]]) -> dict[str, list[str]]:
    """The problems of each of `PARTS`: fifths by the starting model's accuracy."""
    rates = {name: right / num for name, (right, num) in counts.items()}
    parts = np.array_split(sorted(rates, key=lambda name: (rates[name], name)), 5)
    return {name: parts[number].tolist() for name, number in PARTS.items()}


def accuracy_on(result: Result, problems: list[str]) -> float:
    """Held-out accuracy of a run's end on some of the problems."""
    return float(np.mean([result["final"][name] for name in problems]))


def divide(above: float, below: float) -> float:
    """A ratio; NaN, which has no interval, where nothing was learned within a small budget."""
    return above / below if below else math.nan


def compare(
    runs: Runs, mode: str, with_scoring: bool = False, parts: dict[str, list[str]] | None = None
) -> dict[str, Any]:
    """A mode against "stock", paired by seed; `with_scoring` counts what pass rates have cost.

    Here `tokens_ratio` is the cost at which stock's final accuracy is reached, over stock's.
    The difference in accuracy at the greatest cost that both have reached is `at_tokens`.
    The one at the end, on each of the `parts` of the held-out problems, is `at_<name>`.
    """
    pairs = [
        (count_scoring(result) if with_scoring else result, runs["stock", seed])
        for (name, seed), result in sorted(runs.items())
        if name == mode and ("stock", seed) in runs
    ]
    singles = [(summary(mine), summary(stock)) for mine, stock in pairs]
    figures: dict[str, Any] = {"seeds": len(pairs)}
    figures |= {key: float(np.mean([mine[key] for mine, _ in singles])) for key in singles[0][0]}
    figures["useful_ratio"] = table.ratio_interval(
        [divide(mine["useful_per_1k"], stock["useful_per_1k"]) for mine, stock in singles]
    )
    for axis in AXES:
        ratios, differences = [], []
        for mine, stock in pairs:
            target = summary(stock)["final_accuracy"]
            ratios.append(divide(cost_of(mine, target, axis), cost_of(stock, target, axis)))
            cost = min(result["tests"][-1][axis] for result in (mine, stock))
            differences.append(accuracy_at(mine, cost, axis) - accuracy_at(stock, cost, axis))
        figures[f"{axis}_ratio"] = table.ratio_interval(ratios)
        figures[f"at_{axis}"] = table.mean_interval(differences)
    figures["mean_curves_ratio"] = mean_curves_ratio(pairs)
    for name, problems in (parts or {}).items():
        differences = [
            accuracy_on(mine, problems) - accuracy_on(stock, problems) for mine, stock in pairs
        ]
        figures[f"at_{name}"] = table.mean_interval(differences)
    return figures


def render_groups(figures: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """The rows of the table on the groups."""
    return [
        {
            "mode": mode,
            "seeds": str(row["seeds"]),
            "steps": f"{row['steps']:.1f}",
            "zero-variance": f"{row['zero_std']:.3f}",
            "of all generated": f"{row['generated_zero_std']:.3f}",
            "useful": f"{row['useful_per_1k']:.2f}",
            "ratio to stock": table.show_interval(row["useful_ratio"]),
            "seconds": f"{row['seconds']:.1f}",
        }
        for mode, row in figures.items()
    ]


def render_accuracy(figures: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """The rows of the table on held-out accuracy."""
    return [
        {
            "mode": mode,
            "final accuracy, %": f"{100 * row['final_accuracy']:.1f}",
            "tokens needed": table.show_interval(row["tokens_ratio"]),
            "by mean curves": table.show_interval(row["mean_curves_ratio"]),
            "seconds needed": table.show_interval(row["seconds_ratio"]),
            "at equal tokens": table.show_interval(row["at_tokens"], 100, 1),
            "at equal seconds": table.show_interval(row["at_seconds"], 100, 1),
        }
        | {
            f"{name} fifth": table.show_interval(row[f"at_{name}"], 100, 1)
            for name in PARTS
            if f"at_{name}" in row
        }
        for mode, row in figures.items()
    ]


def draw(path: Path, runs: Runs, modes: list[str]) -> None:
    """Held-out accuracy over generated tokens: the mean of each mode's runs, and its range."""
    from matplotlib.figure import Figure

    picture = Figure((7, 4.2), layout="constrained")
    axis = picture.subplots()
    for mode in modes:
        found = [
            learning_curve(result, "tokens") for (name, _), result in runs.items() if name == mode
        ]
        grid = np.linspace(0, min(cost[-1] for cost, _ in found), 50)
        curves = 100 * np.array([np.interp(grid, cost, curve) for cost, curve in found])
        (line,) = axis.plot(grid / 1000, curves.mean(axis=0), linewidth=2, label=mode)
        axis.fill_between(
            grid / 1000, curves.min(axis=0), curves.max(axis=0), alpha=0.12, color=line.get_color()
        )
    axis.set(xlabel="thousand generated tokens", ylabel="held-out accuracy, %")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    picture.savefig(path, dpi=150)


def run_one(
    args: BenchArguments, mode: str, seed: int, rate: float | None, num_tests: int
) -> Result:
    """The result of one run, which is started unless it is there already."""
    folder = Path(args.recipe_run) / "bench" / mode / f"{rate or 'recipe'}" / f"seed-{seed}"
    changes = MODES[mode] | {
        "mode": mode,
        "token_budget": args.token_budget,
        "num_tests": num_tests,
        "num_generations": args.num_generations,
        "test_file": f"{args.recipe_run}/data/test.jsonl",
        "seed": seed,
        "output_dir": str(folder),
        "run_dir": args.recipe_run,
        "max_steps": 100_000,  # the token budget ends the run
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1,
    }
    if rate:
        changes["learning_rate"] = rate
    if changes["curriculum"] == "offline":
        changes["pass_rates"] = str(folder / "pass_rates.jsonl")
    made_from = manifest.hash_inputs([args.grpo_config, f"{args.recipe_run}/sft"])
    command = ["-m", "benchmarks.training_run", "--config", args.grpo_config]
    for name, value in changes.items():
        command += [f"--{name}", str(value)]
    table.run_once(folder, {"changes": changes, "inputs": made_from}, command)
    shape = {"tests": [{"tokens": int, "seconds": float, "accuracy": float}]}
    result = json_files.read(folder / "result.json", shape, f"remove {folder}")
    test = result["tests"][-1]
    cost = f"{test['tokens']:,} tokens, {test['seconds']:.0f} s"
    table.tell(f"{mode}, {rate or 'recipe'}, seed {seed}: {test['accuracy']:.3f} after {cost}")
    return result


def tune(args: BenchArguments, mode: str) -> float | None:
    """The learning rate with the highest final accuracy; further ones where it is at an edge.

    A rate that falls `CLEARLY_WORSE` behind the best on a seed is not run on the next. A single
    rate is taken as it is. If none is given, the recipe's is taken.
    """
    rates = sorted(args.learning_rates)
    if len(rates) < 2:
        return rates[0] if rates else None
    ends: dict[float, list[float]] = {}
    while True:
        found = dict.fromkeys(rates, 0.0)
        for number, seed in enumerate(args.tuning_seeds):
            limit = max(found.values()) - CLEARLY_WORSE
            found = {rate: mean for rate, mean in found.items() if mean >= limit}
            for rate in found:
                known = ends.setdefault(rate, [])
                if len(known) == number:
                    final = run_one(args, mode, seed, rate, num_tests=1)["final"]
                    known.append(fmean(final.values()))
                found[rate] = fmean(known)
        best = max(found, key=lambda rate: found[rate])
        if best in rates[1:-1] or len(rates) > len(args.learning_rates) + 2:
            return best
        rates = [rates[0] / 2, *rates] if best == rates[0] else [*rates, rates[-1] * 2]


def main() -> None:
    """Run what is missing, then write table and figures."""
    (args,) = parse(__doc__, BenchArguments)
    runs: Runs = {}
    rates = {mode: tune(args, mode) for mode in args.modes}
    for number, seed in enumerate(args.seeds):
        turn = number % len(args.modes)  # no mode always runs first
        for mode in [*args.modes[turn:], *args.modes[:turn]]:
            runs[mode, seed] = run_one(args, mode, seed, rates[mode], args.num_tests)
    difficulty = Path(args.recipe_run) / "test_difficulty/pass_rates.jsonl"
    parts = difficulty_parts(load_pass_counts(difficulty)) if difficulty.exists() else {}
    figures = {mode: compare(runs, mode, parts=parts) for mode in args.modes}
    if "offline" in args.modes:
        figures["offline, scoring counted"] = compare(runs, "offline", True, parts)
    kept = [
        {key: result[key] for key in ("mode", "seed", "scoring", "tests", "commit")}
        | {"summary": summary(result)}
        | {name: accuracy_on(result, problems) for name, problems in parts.items()}
        for _, result in sorted(runs.items())
    ]
    command = f"python -m benchmarks.curriculum {shlex.join(sys.argv[1:])}"
    tuned = ", ".join(f"{mode} {rate}" for mode, rate in rates.items() if rate) or "the recipe's"
    how = HOW.format(token_budget=args.token_budget, rates=tuned, recipe_run=args.recipe_run)
    picture = Path(args.out).with_suffix(".png")
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(picture, runs, args.modes)
    table.publish(
        args.out,
        f"Curriculum, measured on {Path(args.recipe_run).name}",
        table.wrap(how),
        render_groups(figures),
        {"about": table.about(), "figures": figures, "runs": kept, "learning_rates": rates},
        table.markdown(render_accuracy(figures)),
        f"![Held-out accuracy over generated tokens, mean and range of the seeds]({picture.name})",
        MEANING.format(command=command),
    )


if __name__ == "__main__":
    run_cli(main)
