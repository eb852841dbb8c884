"""The curriculum's benchmark: every mode beside TRL's own trainer, from one SFT checkpoint.

    make bench-curriculum SEEDS="0 1 2 3 4" MODES="stock predictive"

Runs `bench_run` once for each mode and seed, the modes of a seed one after the other; runs
that are there already are not made again, so it goes on where it was stopped. Then it writes the
table and, beside it, a picture and all figures as JSON. Seconds are wall-clock time.
"""

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bench_run import RESULT
from data_prep import manifest
from data_prep.config import UserError, parse, run_cli

# Mode -> what it changes in the recipe.
MODES: dict[str, dict[str, Any]] = {
    "stock": {"stock": True, "curriculum": "off"},
    "offline": {"curriculum": "offline"},
    "refill": {"curriculum": "refill"},
    "predictive": {"curriculum": "predictive"},
    "predictive+refill": {"curriculum": "predictive+refill"},
    "no-std": {"curriculum": "off", "advantage": "none"},
    "batch-std": {"curriculum": "off", "advantage": "batch"},
    "posterior": {"curriculum": "off", "advantage": "posterior"},
    "predictive+posterior": {"curriculum": "predictive", "advantage": "posterior"},
}
DEFAULT_MODES = ["stock", "offline", "refill", "predictive", "predictive+refill"]


@dataclass
class BenchArguments:
    """Keys of the command line; there is no YAML for this one."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's data and sft"})
    out: str = field(metadata={"help": "page to write; the figures go beside it as .json"})
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    modes: list[str] = field(default_factory=lambda: DEFAULT_MODES)
    token_budget: int = field(default=150_000, metadata={"help": "generated tokens of every run"})

    def __post_init__(self) -> None:
        for mode in self.modes:
            if mode not in MODES:
                raise ValueError(f"modes: {mode!r} is none of {', '.join(MODES)}")
        if "stock" not in self.modes:
            self.modes = ["stock", *self.modes]


def run_one(args: BenchArguments, mode: str, seed: int) -> dict[str, Any]:
    """The result of one run, made now if it is not there yet."""
    folder = Path(args.recipe_run) / "bench" / mode / f"seed-{seed}"
    changes = MODES[mode] | {
        "mode": mode,
        "token_budget": args.token_budget,
        "test_file": f"{args.recipe_run}/data/test.jsonl",
        "seed": seed,
        "output_dir": str(folder),
        "run_dir": args.recipe_run,
        "max_steps": 100_000,  # the token budget ends the run
        "save_strategy": "no",
        "report_to": "none",
    }
    if changes["curriculum"] == "offline":
        changes["pass_rates"] = str(folder / "pass_rates.jsonl")
    made_from = manifest.hash_inputs([args.grpo_config, f"{args.recipe_run}/sft"])
    key = json.loads(json.dumps({"changes": changes, "inputs": made_from}, default=str))
    found, key_file = folder / RESULT, folder / "key.json"
    if found.is_file() and json.loads(key_file.read_text(encoding="utf-8")) == key:
        return json.loads(found.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    found.unlink(missing_ok=True)
    manifest.write_json(key_file, key)
    command = [sys.executable, "-m", "benchmarks.bench_run", "--config", args.grpo_config]
    for name, value in changes.items():
        command += [f"--{name}", str(value)]
    command += ["--logging_steps", "1"]
    log = folder / "log.txt"
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.run(command, stdout=file, stderr=file, check=False).returncode
    if code or not found.is_file():
        raise UserError(f"{log}: the run ended with exit code {code}; see its last lines")
    return json.loads(found.read_text(encoding="utf-8"))


def main() -> None:
    """Run what is missing, then write the page and the figures."""
    (args,) = parse(__doc__, BenchArguments)
    runs: dict[tuple[str, int], dict[str, Any]] = {}
    for number, seed in enumerate(args.seeds):
        turn = number % len(args.modes)  # no mode always runs first
        for mode in [*args.modes[turn:], *args.modes[:turn]]:
            runs[mode, seed] = result = run_one(args, mode, seed)
            test, steps = result["tests"][-1], len(result["steps"])
            sys.stdout.write(
                f"bench: {mode}, seed {seed}: {test['accuracy']:.3f} after {steps} steps, "
                f"{test['tokens']:,} tokens, {test['seconds']:.0f} s\n"
            )
            sys.stdout.flush()

    from benchmarks.bench_page import figures_of, short, write_page
    from benchmarks.bench_plot import draw

    figures = figures_of(runs, args.modes)
    about = {
        "command": f'make bench-curriculum SEEDS="{" ".join(map(str, args.seeds))}" '
        f'MODES="{" ".join(args.modes)}"',
        "cpu": f"{os.cpu_count()} CPU cores, {platform.machine()}",
        "token_budget": args.token_budget,
        "versions": manifest.versions(),
        "commits": sorted({str(result["commit"]) for result in runs.values()}),
    }
    out = Path(args.out)
    singles = [short(runs[key]) for key in sorted(runs)]
    kept = manifest.finite({"about": about, "figures": figures, "runs": singles})
    manifest.write_json(out.with_suffix(".json"), kept)
    draw(runs, args.modes, out.with_suffix(".png"))
    out.write_text(write_page(figures, about, out.with_suffix(".png").name), encoding="utf-8")
    sys.stdout.write(f"bench: {len(runs)} runs -> {out} and {out.with_suffix('.json')}\n")


if __name__ == "__main__":
    run_cli(main)
