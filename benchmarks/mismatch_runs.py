"""Runs of GRPO in each precision, for `benchmarks.mismatch`.

On a CPU accelerate has neither autocast nor loss scaling for `fp16: true`, and says nothing: here
it has both (`emulate_fp16`).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks import curriculum_run, table
from pipeline import manifest
from pipeline.errors import run_cli
from stages import grpo
from stages.trainer.update import use_stochastic_rounding

# The keys of each part of a trainer's name.
KEYS = {
    "float32": {"dtype": "float32", "bf16": "false"},
    "bfloat16": {"dtype": "bfloat16", "bf16": "true"},
    "fp16 autocast": {"fp16": "true"},
    "bf16 autocast": {"bf16": "true"},
    "fp32 head": {"cast_lm_head_to_fp32": "true"},
    "stochastic rounding": {"stochastic_rounding": "true"},
}
EXACT, FP16, MIXED = "float32", "float32, fp16 autocast", "float32, bf16 autocast"
RUNS = (EXACT, FP16, MIXED, f"{MIXED}, fp32 head", "bfloat16, stochastic rounding", "bfloat16")
TRAINED = """## Accuracy

GRPO from the same checkpoint, {0.token_budget:,} tokens, learning rate 4e-4, no curriculum; sampler
and trainer are one model, which is tested in its own precision, 2 completions a held-out problem.
Differences are paired by seed, with 95 % intervals; seconds are the process's own."""


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's data and sft"})
    out: str = field(metadata={"help": "Markdown file to write, with .json next to it"})
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4], metadata={"help": "of each"})
    token_budget: int = field(default=60_000, metadata={"help": "of a run"})
    finished_only: bool = field(
        default=False, metadata={"help": "start no run, show what is there"}
    )


def emulate_fp16() -> None:
    """Give accelerate on a CPU what `fp16: true` has on a GPU: autocast and a scaled loss."""
    from accelerate import Accelerator

    init = Accelerator.__init__

    def emulating(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if self.state.mixed_precision == "fp16" and self.device.type == "cpu":
            self.native_amp, self.scaler = True, torch.amp.GradScaler("cpu")

    Accelerator.__init__ = emulating


def round_by_chance() -> None:
    """Have `stochastic_rounding` in the harness, which builds the trainer and no optimizer."""
    build = grpo.build_trainer

    def rounding(rows: list[dict], args: Any, *rest: Any) -> Any:
        trainer = build(rows, args, *rest)
        if args.stochastic_rounding:
            use_stochastic_rounding(trainer)
        return trainer

    grpo.build_trainer = rounding


def flags(name: str, args: BenchArguments, seed: int, **more: Any) -> list[str]:
    """The command line of a trainer of this name."""
    keys = {key: value for part in name.split(", ") for key, value in KEYS[part].items()}
    keys |= {"config": args.grpo_config, "run_dir": args.recipe_run, "curriculum": "off"}
    keys |= {"report_to": "none", "save_strategy": "no", "logging_steps": 1, "seed": seed} | more
    return [text for key, value in keys.items() for text in (f"--{key}", str(value))]


def folder_of(args: BenchArguments, *names: Any) -> Path:
    """Where the last of these names, the seed, is kept."""
    *parts, seed = (str(name).replace(", ", "-").replace(" ", "-") for name in names)
    return Path(args.recipe_run, "mismatch", *parts, f"seed-{seed}")


def made_from(args: BenchArguments) -> dict[str, Any]:
    """What a result depends on, hashed."""
    return manifest.hash_inputs([args.grpo_config, f"{args.recipe_run}/sft"])


def train_seeds(args: BenchArguments, name: str) -> dict[int, dict[str, float]]:
    """The results of a trainer by seed; runs are started unless they are there already."""
    is_there = {seed: (folder_of(args, name, seed) / "bench.json").exists() for seed in args.seeds}
    wanted = [seed for seed in args.seeds if is_there[seed] or not args.finished_only]
    return {seed: train(args, name, seed) for seed in wanted}


def train(args: BenchArguments, name: str, seed: int) -> dict[str, float]:
    """The result of one run, which is started unless it is there already."""
    folder = folder_of(args, name, seed)
    argv = flags(
        name, args, seed, output_dir=folder, mode=name, token_budget=args.token_budget, num_tests=1,
        test_file=f"{args.recipe_run}/data/test.jsonl", max_steps=100_000, learning_rate=4e-4,
    )  # fmt: skip
    table.run_once(
        folder, {"argv": argv, "inputs": made_from(args)}, ["-m", "benchmarks.mismatch_runs", *argv]
    )
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return {"accuracy": fmean(result["final"].values()), "seconds": result["steps"][-1]["seconds"]}


def show_run(runs: dict[int, dict[str, float]], exact: dict[int, dict[str, float]]) -> dict:
    """A row's figures; results by seed of a trainer, and of float32."""
    gains = [one["accuracy"] - exact[seed]["accuracy"] for seed, one in runs.items()]
    return {
        "seeds": f"{len(runs)}",
        "accuracy, %": f"{100 * fmean(one['accuracy'] for one in runs.values()):.1f}",
        "to float32, points": table.show_interval(table.mean_interval(gains), 100, 1),
        "seconds": f"{fmean(one['seconds'] for one in runs.values()):.0f}",
    }


if __name__ == "__main__":
    emulate_fp16()
    round_by_chance()
    run_cli(curriculum_run.main)
