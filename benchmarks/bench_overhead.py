"""What the trainer costs over TRL's own: with every part off, and with the guards that only warn.

    make bench-overhead

The trainers take turns in one process, each turn the same steps from the same weights and seed, so
that all of them write the same completions; a turn gives one ratio to TRL's trainer in seconds of
the process's own time, which other load on the machine hardly touches.
"""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.config import parse, run_cli
from data_prep.schema import read_problems
from stages import grpo as grpo_stage
from stages.settings.arguments import GrpoArguments

OFF = {f"guard_{name}": "off" for name in
       ("repetition", "eos", "entropy", "length", "alignment", "weights")}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {"stock": OFF, "off": OFF, "guards": {}}


@dataclass
class BenchArguments:
    """Keys of the command line; there is no YAML for this one."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's data and sft"})
    out: str = field(metadata={"help": "page to write"})
    num_turns: int = field(default=30, metadata={"help": "turns of each trainer"})
    num_steps: int = field(default=5, metadata={"help": "optimizer steps a turn"})


def train(kind: str, args: BenchArguments, seed: int) -> tuple[float, float]:
    """Seconds (the process's own, wall clock) of one turn, and the last loss."""
    from datasets import Dataset
    from transformers.trainer_callback import PrinterCallback, ProgressCallback
    from trl import GRPOTrainer

    from stages import rewards, run

    argv = ["--config", args.grpo_config, "--run_dir", args.recipe_run, "--curriculum", "off"]
    argv += ["--max_steps", str(args.num_steps), "--save_strategy", "no", "--report_to", "none"]
    argv += ["--seed", str(seed), "--output_dir", f"{args.recipe_run}/bench-overhead"]
    for key, value in KINDS[kind].items():
        argv += [f"--{key}", value]
    own, grpo, model = parse(__doc__, GrpoArguments, ("GRPOConfig", "ModelConfig"), argv=argv)
    tokenizer = run.load_tokenizer(model, grpo, padding_side="left")
    rows = list(read_problems(own.train_file))
    if kind == "stock":
        trainer = GRPOTrainer(
            reward_funcs=rewards.build_rewards(own, grpo, think_prefilled=False),
            train_dataset=Dataset.from_list(
                [{key: row[key] for key in grpo_stage.COLUMNS} for row in rows]
            ),
            processing_class=tokenizer,
            **run.trainer_kwargs(model, grpo),
        )
    else:
        trainer = grpo_stage.build_trainer(rows, own, grpo, model, tokenizer)
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    started = time.process_time()
    trainer.train()
    seconds = time.process_time() - started
    return seconds, [log["loss"] for log in trainer.state.log_history if "loss" in log][-1]


def main() -> None:
    """Take turns, compare, write the page."""
    (args,) = parse(__doc__, BenchArguments)
    from benchmarks.bench_figures import ratio_interval
    from stages import run

    run.quiet()
    for kind in KINDS:  # caches and lazy imports
        train(kind, args, seed=0)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(args.num_turns):
        kinds = list(KINDS)
        losses = {}
        for kind in kinds[turn % 3 :] + kinds[: turn % 3]:
            used, losses[kind] = train(kind, args, seed=turn)
            seconds[kind].append(used)
        assert len(set(losses.values())) == 1, f"the trainers disagree: {losses}"
    lines = [
        "# What the trainer costs over TRL's own",
        "",
        f"`make bench-overhead`: {args.num_turns} turns of {args.num_steps} steps of the recipe "
        f"`{Path(args.grpo_config).parent.name}`, in one process, interleaved; losses equal. Ratio "
        "of the process's own seconds to TRL's trainer, geometric mean [95 % interval].",
        "",
        "| trainer | seconds a step | ratio |",
        "| --- | ---: | ---: |",
    ]
    names = {"stock": "TRL's `GRPOTrainer`", "off": "every part off", "guards": "guards: warn"}
    for kind, used in seconds.items():
        pairs = zip(used, seconds["stock"], strict=True)
        ratio, low, high = ratio_interval([mine / stock for mine, stock in pairs])
        lines.append(
            f"| {names[kind]} | {sum(used) / len(used) / args.num_steps:.3f} | "
            f"{ratio:.3f} [{low:.3f}, {high:.3f}] |"
        )
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions().items())
    lines += ["", f"Commit {manifest.git_commit()}. Versions: {versions}.", ""]
    Path(args.out).write_text("\n".join(lines), encoding="utf-8")
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    run_cli(main)
