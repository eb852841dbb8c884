"""What the trainer costs over TRL's own: with every part off, and with guards that only warn.

    make bench-overhead

The trainers take turns in one process, each turn the same steps from the same weights and seed; a
turn gives one ratio to TRL's trainer in seconds of the process's own time, which other load on the
machine hardly touches.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.table import about, publish, ratio_interval, show_interval
from data_prep.schema import read_problems
from pipeline.console import quiet
from pipeline.errors import run_cli
from pipeline.prompts import prefills_think, render_prompt
from pipeline.settings import parse
from stages import grpo as grpo_stage
from stages.arguments import GrpoArguments

GUARDS_OFF = {
    f"guard_{name}": "off"
    for name in ("repetition", "eos", "entropy", "length", "alignment", "weights")
}
# Trainer -> what it changes in the recipe.
KINDS: dict[str, dict[str, Any]] = {
    "TRL's `GRPOTrainer`": GUARDS_OFF,
    "every part off": GUARDS_OFF,
    "guards: warn": {},
}
STOCK = next(iter(KINDS))


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's data and sft"})
    out: str = field(metadata={"help": "Markdown file to write, with .json next to it"})
    num_turns: int = field(default=30, metadata={"help": "turns of each trainer"})
    num_steps: int = field(default=5, metadata={"help": "optimizer steps a turn"})


def build_stock(rows: list[dict], args: Any, grpo: Any, model: Any, tokenizer: Any) -> Any:
    """TRL's own trainer with the recipe's settings and rewards."""
    from datasets import Dataset
    from trl import GRPOTrainer

    from stages import rewards, training

    columns = [{key: row[key] for key in grpo_stage.COLUMNS} for row in rows]
    think_prefilled = prefills_think(render_prompt(rows[0]["prompt"], tokenizer))
    return GRPOTrainer(
        reward_funcs=rewards.build_rewards(args, grpo, think_prefilled),
        train_dataset=Dataset.from_list(columns),
        processing_class=tokenizer,
        **training.trainer_kwargs(model, grpo),
    )


def train(kind: str, args: BenchArguments, seed: int) -> tuple[float, float]:
    """Seconds of the process's own time in one turn, and the last loss."""
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    from stages import training

    argv = ["--config", args.grpo_config, "--run_dir", args.recipe_run, "--curriculum", "off"]
    argv += ["--max_steps", str(args.num_steps), "--save_strategy", "no", "--report_to", "none"]
    argv += ["--seed", str(seed), "--output_dir", f"{args.recipe_run}/bench-overhead"]
    for key, value in KINDS[kind].items():
        argv += [f"--{key}", value]
    own, grpo, model = parse(__doc__, GrpoArguments, ("GRPOConfig", "ModelConfig"), argv=argv)
    tokenizer = training.load_tokenizer(model, grpo, padding_side="left")
    rows = list(read_problems(own.train_file))
    build = build_stock if kind == STOCK else grpo_stage.build_trainer
    trainer = build(rows, own, grpo, model, tokenizer)
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    started = time.process_time()
    trainer.train()
    seconds = time.process_time() - started
    return seconds, [log["loss"] for log in trainer.state.log_history if "loss" in log][-1]


def main() -> None:
    """Take turns, compare, write the table."""
    (args,) = parse(__doc__, BenchArguments)
    quiet()
    kinds = list(KINDS)
    for kind in kinds:  # caches and lazy imports
        train(kind, args, seed=0)
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(args.num_turns):
        losses = {}
        shift = turn % len(kinds)  # none is always first
        for kind in kinds[shift:] + kinds[:shift]:
            used, losses[kind] = train(kind, args, seed=turn)
            seconds[kind].append(used)
        assert len(set(losses.values())) == 1, f"the trainers disagree: {losses}"
    ratios = {
        kind: ratio_interval([a / b for a, b in zip(used, seconds[STOCK], strict=True)])
        for kind, used in seconds.items()
    }
    publish(
        args.out,
        "What the trainer costs over TRL's own",
        f"`make bench-overhead`: {args.num_turns} turns of {args.num_steps} steps of the recipe "
        f"`{Path(args.grpo_config).parent.name}` in one process, interleaved; losses are equal. "
        "Ratio of the process's own seconds to TRL's trainer, geometric mean [95 % interval].",
        [
            {
                "trainer": kind,
                "seconds a step": f"{sum(used) / len(used) / args.num_steps:.3f}",
                "ratio": show_interval(ratios[kind], digits=3),
            }
            for kind, used in seconds.items()
        ],
        {"about": about(), "seconds": seconds, "ratios": ratios},
    )


if __name__ == "__main__":
    run_cli(main)
