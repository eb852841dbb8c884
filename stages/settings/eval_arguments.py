"""Keys of `grpo.yaml` that turn evaluation during training on, and the checks of its numbers.

When, and how many completions a problem: Hugging Face's `eval_strategy`, `eval_steps`,
`eval_on_start` and TRL's `num_generations_eval`. On which problems: ours.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from data_prep.config import UserError

# Without `eval_strategy: steps` nothing reads these.
_NEEDS_STRATEGY = (
    "eval_file", "eval_problems", "eval_steps", "eval_delay", "eval_on_start", "do_eval",
    "num_generations_eval", "per_device_eval_batch_size",
)  # fmt: skip
_BEST = "the model with the highest avg@k is kept in <output_dir>/best, <output_dir> has the last"
_BEST_KEYS = ("load_best_model_at_end", "metric_for_best_model", "greater_is_better")
DEFAULT_SIZE = 8  # TRL's, of num_generations and of per_device_eval_batch_size
LEAST_PROBLEMS = 2  # of one alone there is no standard error


@dataclass(kw_only=True)
class HeldOutArguments:
    """Which problems avg@k is measured on during training."""

    eval_file: str | None = field(
        default=None,
        metadata={"help": "held-out problems, rows as in train_file; else part of train_file is"},
    )
    eval_problems: int | None = field(
        default=None,
        metadata={"help": "held-out problems to evaluate on; all of eval_file where it is absent"},
    )


def is_set(value: Any) -> bool:
    """Whether a key of the recipe or of the command line, where all is text, turns anything on."""
    return str(value).lower() not in ("none", "false", "no", "0")


def evaluates(values: dict[str, Any]) -> bool:
    """Whether the recipe evaluates during training; YAML reads a bare `no` as false."""
    return is_set(values.get("eval_strategy"))


def check_evaluation(values: dict[str, Any]) -> None:
    """Everything about the evaluation that can be refused without a look into a file."""
    for key in _BEST_KEYS:
        if is_set(values.get(key)):
            raise UserError(f"{key}: {values[key]!r} has no use here: {_BEST}; remove the key")
    if str(values.get("save_strategy")) == "best":
        raise UserError(f"save_strategy: best leaves nothing to resume from; use steps: {_BEST}")
    if str(values.get("lr_scheduler_type")) in ("reduce_lr_on_plateau", "greedy"):
        raise UserError(
            f"lr_scheduler_type: {values['lr_scheduler_type']} follows a loss of held-out rows, "
            "which GRPO has not; use another"
        )
    if not evaluates(values):
        for key in _NEEDS_STRATEGY:
            if is_set(values.get(key)):
                raise UserError(
                    f"{key}: {values[key]!r} would have no effect without eval_strategy: steps; "
                    "set that, or remove the key"
                )
        return
    _check_numbers(values)


def _check_numbers(values: dict[str, Any]) -> None:
    if str(values["eval_strategy"]) != "steps":
        raise UserError(f"eval_strategy: {values['eval_strategy']!r}: use steps, with eval_steps")
    if not is_set(values.get("eval_file")) and not is_set(values.get("eval_problems")):
        raise UserError(
            "eval_problems: missing; eval_strategy: steps needs held-out problems: their number, "
            "or an eval_file"
        )
    problems = values.get("eval_problems")
    if problems is not None and int(float(problems)) < LEAST_PROBLEMS:
        raise UserError(f"eval_problems: {problems} must be at least {LEAST_PROBLEMS}")
    steps = values.get("eval_steps")
    if steps is None:
        raise UserError("eval_steps: missing; set the optimizer steps between two evaluations")
    if float(steps) < 1 or not float(steps).is_integer():
        raise UserError(f"eval_steps: {steps} must be a whole number of optimizer steps above 0")
    if is_set(values.get("dataloader_drop_last")):
        raise UserError(
            "dataloader_drop_last: True would leave held-out problems out; remove the key"
        )
    key = (
        "num_generations_eval" if is_set(values.get("num_generations_eval")) else "num_generations"
    )
    size, batch = (
        int(float(DEFAULT_SIZE if values.get(name) is None else values[name]))
        for name in (key, "per_device_eval_batch_size")
    )
    if size < 1 or batch < 1:
        raise UserError(f"{key}: {size} and per_device_eval_batch_size: {batch} must be above 0")
    if batch % size:
        fits = [n for n in (batch // size * size, math.ceil(batch / size) * size) if n]
        raise UserError(
            f"per_device_eval_batch_size: {batch} is no multiple of {key}, {size}; use "
            f"{' or '.join(map(str, fits))}"
        )
