"""Shim: `stages.arguments` and `stages.checks`."""

from data_prep.config import Settings
from stages import checks
from stages.arguments import *  # noqa: F403
from stages.arguments import GRPO, SFT, GrpoArguments, SftArguments
from stages.checks import *  # noqa: F403

BATCH_DEFAULTS = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 8,
    "steps_per_generation": None, "generation_batch_size": None,
}  # fmt: skip


def _grpo(check):
    return lambda values, *rest: check(Settings.of(values, GrpoArguments, GRPO), *rest)


def _sft(check):
    return lambda values: check(Settings.of(values, SftArguments, SFT))


check_grpo, check_grpo_numbers = _grpo(checks.check_grpo), _grpo(checks.check_grpo_keys)
check_batch = _grpo(checks.check_batch)
check_sft, check_sft_keys = _sft(checks.check_sft), _sft(checks.check_sft_keys)
