"""Our own keys of the SFT and GRPO recipes, and the checks that need no torch.

Everything else in `sft.yaml` and `grpo.yaml` is TRL's `SFTConfig`, `GRPOConfig` and `ModelConfig`.
"""

import math
import os
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any

from data_prep.checkpoints import check_checkpoint
from data_prep.config import UserError
from stages.settings.curriculum_arguments import CurriculumArguments, check_curriculum
from stages.settings.eval_arguments import HeldOutArguments, check_evaluation
from stages.settings.guard_arguments import check_rollback
from stages.settings.held_out import check_held_out
from stages.settings.reward_arguments import GRADED, RewardArguments, check_rewards
from stages.settings.rounding_arguments import RoundingArguments, check_rounding
from stages.settings.update_arguments import UpdateArguments
from stages.settings.value_checks import check_values
from stages.settings.vllm_checks import check_vllm, check_vllm_keys
from stages.trainer.guards import GuardSettings

# TRL accepts any text for these and fails at the first loss.
CHOICES = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
}

DEFAULTS = {"report_to": "tensorboard"}  # Hugging Face's default reports to nobody
_TEMPLATE = "prompts are rendered with the chat template of the checkpoint's own tokenizer"
SFT_INEFFECTIVE = {
    "chat_template_path": _TEMPLATE,
    "eos_token": "rows end with the EOS of the checkpoint's own tokenizer",
    "dataset_text_field": "rows have prompt and completion",
    "assistant_only_loss": "the loss is on the completion",
    "truncation_mode": "rows over max_length are dropped, never cut",
}
# Only GRPO would render with them, and SFT, difficulty and evaluation without.
GRPO_INEFFECTIVE = {"chat_template_kwargs": _TEMPLATE}


@dataclass
class SftArguments(RoundingArguments):
    """Keys of `sft.yaml` that are ours."""

    train_file: str = field(metadata={"help": "JSON lines with `prompt` and `completion`"})


# `guard_` before each name of `GuardSettings`.
_GuardKeys = make_dataclass(
    "_GuardKeys",
    [
        (f"guard_{f.name}", f.type, field(default=f.default, metadata=dict(f.metadata)))
        for f in fields(GuardSettings)
    ],
    kw_only=True,
)


@dataclass(kw_only=True)
class GrpoArguments(
    RewardArguments,
    CurriculumArguments,
    HeldOutArguments,
    UpdateArguments,
    RoundingArguments,
    _GuardKeys,
):
    """Keys of `grpo.yaml` that are ours: these and those of the parts."""

    guard_rollback_lr_factor: float = field(
        default=0.5, metadata={"help": "a roll-back multiplies the learning rate with it, 0..1"}
    )
    guard_max_rollbacks: int = field(
        default=3, metadata={"help": "roll-backs after which the next one stops the run"}
    )

    train_file: str = field(metadata={"help": "JSON lines with `prompt` and `answer`"})
    max_prompt_length: int | None = field(
        default=None, metadata={"help": "drop problems whose prompt has more tokens"}
    )

    def __post_init__(self) -> None:
        for part in (RewardArguments, CurriculumArguments, UpdateArguments):
            part.__post_init__(self)
        self.guard_settings()
        if not 0 < self.guard_rollback_lr_factor <= 1:
            raise ValueError(
                f"guard_rollback_lr_factor: {self.guard_rollback_lr_factor} is not within 0..1"
            )
        if self.guard_max_rollbacks < 0:
            raise ValueError(f"guard_max_rollbacks: {self.guard_max_rollbacks} is below 0")
        if self.follows_pass_rates() and not GRADED.keys() & {*self.reward_funcs}:
            raise ValueError(
                f"reward_funcs: {', '.join(self.reward_funcs)}: none tells right from wrong, which "
                f"curriculum: {self.curriculum} follows; add correctness_reward, with "
                "reward_weights 0 if it shall not be paid"
            )

    def guard_settings(self) -> GuardSettings:
        """What the guards are told; a bare `off` in YAML has been read as false."""
        values = {f.name: getattr(self, f"guard_{f.name}") for f in fields(GuardSettings)}
        return GuardSettings(**{k: "off" if v is False else v for k, v in values.items()})


def check_file(values: dict[str, Any], key: str, target: str) -> None:
    """Refuse a missing input file, naming the make target that writes it."""
    path = values.get(key)
    if path and not isinstance(path, str):
        raise UserError(f"{key}: {path!r} is no path")
    if path and not Path(path).is_file():
        raise UserError(f"{key}: {path} does not exist; run `make {target}` first")


def refuse_ineffective(values: dict[str, Any], reasons: dict[str, str]) -> None:
    """Refuse keys that Hugging Face knows and this pipeline would silently ignore."""
    for key, reason in reasons.items():
        if values.get(key):
            raise UserError(
                f"{key}: {values[key]!r} would have no effect: {reason}; remove the key"
            )


def check_sft_keys(values: dict[str, Any]) -> None:
    """The checks of `check_sft` that need no input file."""
    refuse_ineffective(values, SFT_INEFFECTIVE)
    check_values(values)
    check_rounding(values)


def check_sft(values: dict[str, Any]) -> None:
    """Everything about an SFT run that can be refused before torch is imported."""
    check_sft_keys(values)
    check_file(values, "train_file", "data")
    check_checkpoint(values.get("model_name_or_path"), "model_name_or_path", "base")


def check_grpo(values: dict[str, Any]) -> None:
    """Everything about a GRPO run that can be refused before torch is imported."""
    check_grpo_numbers(values)
    check_file(values, "train_file", "data")
    check_file(values, "pass_rates", "difficulty")
    check_file(values, "eval_file", "data")
    check_held_out(values)
    check_checkpoint(values.get("model_name_or_path"), "model_name_or_path", "sft")
    check_vllm(values)


def check_grpo_numbers(values: dict[str, Any]) -> None:
    """The checks of `check_grpo` that need no input file."""
    refuse_ineffective(values, GRPO_INEFFECTIVE)
    check_values(values)
    check_rounding(values)
    check_curriculum(values)
    check_batch(values, int(os.environ.get("WORLD_SIZE", "1")))
    check_rollback(values)
    check_evaluation(values)
    check_vllm_keys(values)
    refuse_unusable(values)
    for key, choices in CHOICES.items():
        if key in values and str(values[key]) not in choices:
            raise UserError(f"{key}: {values[key]!r} is none of {', '.join(choices)}")
    check_rewards(values)


def refuse_unusable(values: dict[str, Any]) -> None:
    """Refuse values that Hugging Face takes and this stage cannot work with."""
    if values.get("sync_ref_model"):
        raise UserError(
            "sync_ref_model: no checkpoint holds the moved reference, so no run could be resumed; "
            "remove the key"
        )
    if int(float(values.get("seed", 0))) < 0:
        raise UserError(f"seed: {values['seed']} is below 0")
    checkpoint = values.get("resume_from_checkpoint")
    if isinstance(checkpoint, str) and not Path(checkpoint).is_dir():
        raise UserError(f"resume_from_checkpoint: {checkpoint} is no folder; name a checkpoint-<n>")
    limit = values.get("max_prompt_length")
    if limit is not None and int(float(limit)) < 1:
        raise UserError(f"max_prompt_length: {limit} must be at least 1; remove it for no limit")


# TRL's defaults, for keys that a recipe leaves out.
BATCH_DEFAULTS = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "steps_per_generation": None,
    "generation_batch_size": None,
}


def check_batch(values: dict[str, Any], num_processes: int) -> None:
    """Refuse batch numbers that do not give every process whole groups.

    TRL generates `per_device_train_batch_size x num_processes x steps_per_generation` completions
    at a time; each process's part must hold whole groups of `num_generations`.

    Args:
        values: the flat recipe; TRL's defaults stand in for absent keys.
        num_processes: number of training processes (WORLD_SIZE).
    """
    numbers = {}
    for key, default in BATCH_DEFAULTS.items():
        value = values.get(key)
        numbers[key] = default if value is None else int(float(value))
        if numbers[key] is not None and numbers[key] < 1:
            raise UserError(f"{key}: {value} must be at least 1")
    per_device, accumulation, group, steps, whole = numbers.values()
    if group < 2:
        raise UserError(f"num_generations: {group} gives no group to compare within; use 2 or more")
    if steps and whole:
        raise UserError("generation_batch_size: set it or steps_per_generation, not both")
    if whole and whole % (per_device * num_processes):
        raise UserError(
            f"generation_batch_size: {whole} is no multiple of per_device_train_batch_size x "
            f"processes = {per_device * num_processes}"
        )
    steps = whole // (per_device * num_processes) if whole else steps or accumulation
    local = per_device * steps
    if local % group == 0:
        return
    if whole:
        key, now, unit = "generation_batch_size", whole, num_processes * math.lcm(per_device, group)
    else:
        key, now, unit = "per_device_train_batch_size", per_device, group // math.gcd(group, steps)
    fits = [n for n in (now // unit * unit, (now // unit + 1) * unit) if n]
    groups = sorted(
        (n for n in range(2, local + 1) if local % n == 0), key=lambda n: abs(n - group)
    )
    raise UserError(
        f"num_generations: {group} does not divide the {local} completions of one process "
        f"(per_device_train_batch_size {per_device} x {steps} steps per generation); "
        f"use {key} {' or '.join(map(str, fits))}"
        + (f", or num_generations {groups[0]}" if groups else "")
    )
