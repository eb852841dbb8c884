"""The curriculum's benchmark: every mode and TRL's own trainer, from one SFT checkpoint.

    make bench-curriculum SEEDS="0 1 2 3 4" MODES="stock predictive"

Starts `benchmarks.curriculum_run` once for each mode and seed, the modes of a seed one after the
other; a finished run is not repeated, so an interrupted benchmark goes on. Ratios and differences
are paired by seed. Seconds are wall-clock time.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks import table
from benchmarks.rivals import RIVALS
from data_prep import manifest
from data_prep.config import parse, run_cli

# Mode -> what it changes in the recipe.
MODES: dict[str, dict[str, Any]] = {
    "stock": {"curriculum": "off"},
    "offline": {"curriculum": "offline"},
    "refill": {"curriculum": "refill"},
    "dapo": {"curriculum": "refill", "max_refill_rounds": 9},  # its script generates 10 times
    "predictive": {"curriculum": "predictive"},
    "predictive+refill": {"curriculum": "predictive+refill"},
    **{name: {"curriculum": "off"} for name in RIVALS},  # which takes its place
}
AXES = ("tokens", "seconds")
HOW = """`make bench-curriculum SEEDS="{seeds}" MODES="{modes}"`: {token_budget:,} generated
tokens a run. Zero-std: TRL's `frac_reward_zero_std` of the groups trained on, mean over the
steps. Useful: groups trained on that are neither all right nor all wrong, per 1,000 generated
tokens. Final: held-out accuracy, sampled, at the end. Tokens and seconds needed: what a mode
needs to reach stock's final accuracy over what stock needs (none: not reached by every seed). At
equal tokens, at equal seconds: difference to stock in percentage points. All paired by seed, [95
% interval]."""

Result = dict[str, Any]  # what `benchmarks.curriculum_run` writes
Runs = dict[tuple[str, int], Result]  # by mode and seed


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's data and sft"})
    out: str = field(metadata={"help": "Markdown file to write, with .json next to it"})
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    modes: list[str] = field(default_factory=lambda: list(MODES))
    token_budget: int = field(default=150_000, metadata={"help": "generated tokens of every run"})
    num_tests: int = field(default=10, metadata={"help": "tests on the way, evenly in tokens"})

    def __post_init__(self) -> None:
        for mode in self.modes:
            if mode not in MODES:
                raise ValueError(f"modes: must be some of {', '.join(MODES)} (got {mode!r})")
        if "stock" not in self.modes:
            self.modes = ["stock", *self.modes]


def learning_curve(result: Result, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Cost and held-out accuracy at each test, the accuracies made to rise (isotonic regression).

    A noisy curve crosses any level too early; its best rising fit does not favour either side.
    """
    cost = np.array([test[axis] for test in result["tests"]], dtype=float)
    return cost, isotonic_regression([test["accuracy"] for test in result["tests"]]).x


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


def divide(above: float, below: float) -> float:
    """A ratio; NaN, which has no interval, where nothing was learned within a small budget."""
    return above / below if below else math.nan


def compare(runs: Runs, mode: str, with_scoring: bool = False) -> dict[str, Any]:
    """A mode against "stock", paired by seed; `with_scoring` counts what pass rates have cost.

    `tokens_ratio` is the cost at which stock's final accuracy is reached, over stock's;
    `at_tokens` the difference in accuracy at the greatest cost that both have reached.
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
    return figures


def render(figures: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """The rows of the table."""
    return [
        {
            "mode": mode,
            "seeds": str(row["seeds"]),
            "steps": f"{row['steps']:.1f}",
            "zero-std": f"{row['zero_std']:.3f}",
            "of all generated": f"{row['generated_zero_std']:.3f}",
            "useful": f"{row['useful_per_1k']:.2f}",
            "ratio to stock": table.show_interval(row["useful_ratio"]),
            "seconds": f"{row['seconds']:.1f}",
            "final, %": f"{100 * row['final_accuracy']:.1f}",
            "tokens needed": table.show_interval(row["tokens_ratio"]),
            "seconds needed": table.show_interval(row["seconds_ratio"]),
            "at equal tokens": table.show_interval(row["at_tokens"], 100, 1),
            "at equal seconds": table.show_interval(row["at_seconds"], 100, 1),
        }
        for mode, row in figures.items()
    ]


def run_one(args: BenchArguments, mode: str, seed: int) -> Result:
    """The result of one run, which is started unless it is there already."""
    folder = Path(args.recipe_run) / "bench" / mode / f"seed-{seed}"
    changes = MODES[mode] | {
        "mode": mode,
        "token_budget": args.token_budget,
        "num_tests": args.num_tests,
        "test_file": f"{args.recipe_run}/data/test.jsonl",
        "seed": seed,
        "output_dir": str(folder),
        "run_dir": args.recipe_run,
        "max_steps": 100_000,  # the token budget ends the run
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1,
    }
    if changes["curriculum"] == "offline":
        changes["pass_rates"] = str(folder / "pass_rates.jsonl")
    made_from = manifest.hash_inputs([args.grpo_config, f"{args.recipe_run}/sft"])
    command = ["-m", "benchmarks.curriculum_run", "--config", args.grpo_config]
    for name, value in changes.items():
        command += [f"--{name}", str(value)]
    table.run_once(folder, {"changes": changes, "inputs": made_from}, command)
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def main() -> None:
    """Run what is missing, then write table and figures."""
    (args,) = parse(__doc__, BenchArguments)
    runs: Runs = {}
    for number, seed in enumerate(args.seeds):
        turn = number % len(args.modes)  # no mode always runs first
        for mode in [*args.modes[turn:], *args.modes[:turn]]:
            runs[mode, seed] = result = run_one(args, mode, seed)
            test = result["tests"][-1]
            cost = f"{test['tokens']:,} tokens, {test['seconds']:.0f} s"
            table.tell(f"{mode}, seed {seed}: {test['accuracy']:.3f} after {cost}")
    figures = {mode: compare(runs, mode) for mode in args.modes}
    if "offline" in args.modes:
        figures["offline, scoring counted"] = compare(runs, "offline", with_scoring=True)
    kept = [
        {key: result[key] for key in ("mode", "seed", "scoring", "tests", "commit")}
        | {"summary": summary(result)}
        for _, result in sorted(runs.items())
    ]
    seeds, modes = " ".join(map(str, args.seeds)), " ".join(args.modes)
    table.publish(
        args.out,
        "Curriculum, measured",
        HOW.format(seeds=seeds, modes=modes, token_budget=args.token_budget),
        render(figures),
        {"about": table.about(), "figures": figures, "runs": kept},
    )


if __name__ == "__main__":
    run_cli(main)
