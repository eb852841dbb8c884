"""GRPO's part of the throughput benchmark: the update on given rollouts, and the split of a step.

The trainers take turns, each with new weights from the same folder, the same prompts in the same
order and the same rollouts, so that a turn gives one ratio to TRL's trainer for each of them. Where
gradients differ by more than rounding no ratio is given.
"""

from functools import partial
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from benchmarks.bench_throughput_steps import GRPO_PARTS, split_step, take_turns, train
from benchmarks.bench_throughput_workload import Rollouts, draw_groups
from data_prep.config import UserError
from stages.trainer.grpo_trainer import MathGRPOTrainer
from stages.trainer.guards import Guards, GuardSettings

ONE_PASS = 10**9  # tokens: a micro-batch is never split
UNIFORM_SHARE = 0.63  # of the groups of the published run this project starts from
# Relative difference in a step's gradient norm that is put down to rounding.
TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2}


class Unsorted(MathGRPOTrainer):
    """Ours without sorting: rows are trimmed to the longest of the micro-batch they fell into."""

    _prepare_inputs = GRPOTrainer._prepare_inputs


class NothingSkipped(MathGRPOTrainer):
    """Ours with a gradient for every row, also where the advantage is 0."""

    def _has_gradient(self) -> None:
        return None


# Part -> name -> trainer, and whether passes are bounded by `update_tokens`; None is TRL as it is.
STOCK, OURS = (GRPOTrainer, None), (MathGRPOTrainer, True)
KINDS: dict[str, dict[str, tuple[type, bool | None]]] = {
    "update": {
        "stock": STOCK,
        "trimmed": (Unsorted, False),
        "sorted": (MathGRPOTrainer, False),
        "ours": OURS,
    },
    "uniform": {"stock": STOCK, "nothing skipped": (NothingSkipped, True), "ours": OURS},
    "step": {"stock": STOCK, "ours": OURS},
}


def build_trainer(
    kind: tuple[type, bool | None], args: Any, folder: Any, rollouts: Rollouts, is_forced: bool
) -> Any:
    """A trainer for one generation batch, which is one optimizer step.

    Args:
        args: the benchmark's arguments.
        folder: holds `model`; takes TRL's output.
        is_forced: rollouts and rewards are given; else the model writes completions of the same
            lengths, and texts are graded.
    """
    trainer_class, is_bounded = kind
    tokenizer = rollouts.tokenizer
    config = GRPOConfig(
        output_dir=str(folder / "grpo"),
        num_generations=args.num_generations,
        per_device_train_batch_size=args.grpo_batch_size,
        gradient_accumulation_steps=args.num_groups * args.num_generations // args.grpo_batch_size,
        max_steps=1,
        beta=args.beta,
        max_completion_length=max(max(group.lengths) for group in rollouts.groups),
        loss_type="dapo",
        **args.training(),
    )
    ours = {}
    if is_bounded is not None:
        ours = {"guards": Guards(GuardSettings())}
    trainer = trainer_class(
        model=str(folder / "model"),
        args=config,
        reward_funcs=rollouts.forced_reward if is_forced else rollouts.graded_reward,
        train_dataset=Dataset.from_list([{"prompt": group.prompt} for group in rollouts.groups]),
        processing_class=tokenizer,
        rollout_func=rollouts.generate if is_forced else None,
        **ours,
    )
    if is_bounded is not None:
        trainer.update_tokens = args.update_tokens if is_bounded else ONE_PASS
    if not is_forced:
        rollouts.force_lengths(trainer.model)
    return trainer


def check_equal(runs: dict[str, dict[str, Any]], tolerance: float, what: str) -> float:
    """The greatest relative difference in loss or gradient norm to "stock".

    On policy the ratio is 1, so the loss is the same whatever the model says; the norm is not.

    Raises:
        UserError: it is above the tolerance, or a norm is missing: no ratio may be given.
    """
    greatest = 0.0
    stock = runs["stock"]
    for name, run in runs.items():
        for key in ("losses", "grad_norms"):
            if len(run[key]) != len(stock[key]) or not run[key]:
                raise UserError(f"{what}: {name} has {len(run[key])} {key}, no ratio is given")
            for mine, theirs in zip(run[key], stock[key], strict=True):
                scale = max(abs(theirs), 0.1)  # a loss near 0 is a difference of great terms
                difference = abs(mine - theirs) / scale
                if not difference <= tolerance:  # NaN is never below
                    raise UserError(
                        f"{what}: {key} of {name} are {run[key]}, those of stock {stock[key]}; no "
                        f"ratio is given above a relative difference of {tolerance:g}"
                    )
                greatest = max(greatest, difference)
    return greatest


def measure(part: str, args: Any, folder: Any, tokenizer: Any) -> dict[str, Any]:
    """Take turns on new rollouts each.

    Args:
        part: a key of `KINDS`; "step" generates for itself.

    Returns:
        `rows` of each turn as (prompt, completion) lengths, `runs` by kind, each with `parts`, the
        seconds that add up to its step, and `difference`, the greatest in a gradient norm.
    """
    kinds = {name: KINDS[part][name] for name in KINDS[part] if name in ("stock", *args.variants)}
    is_forced = part != "step"
    share = UNIFORM_SHARE if part == "uniform" else 0.0
    num_turns = args.num_turns if is_forced else args.num_step_turns
    rollouts = [
        Rollouts(draw_groups(args.num_groups, args.num_generations, share, turn), tokenizer, turn)
        for turn in range(num_turns)
    ]

    def run(kind: tuple[type, bool | None], turn: int) -> dict[str, Any]:
        found = train(build_trainer(kind, args, folder, rollouts[turn], is_forced), GRPO_PARTS)
        return found | {"parts": split_step(found["seconds"])}

    check = partial(
        check_equal,
        tolerance=TOLERANCE[args.precision],
        what=f"GRPO, {part}",
    )
    runs, difference = take_turns(kinds, run, num_turns, check)
    return {
        "rows": [
            [(len(group.prompt), length) for group in turn.groups for length in group.lengths]
            for turn in rollouts
        ],
        "runs": runs,
        "difference": difference,
    }
