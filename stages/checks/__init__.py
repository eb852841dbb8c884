"""Checks of SFT and GRPO recipes before torch is imported.

They refuse keys that Hugging Face accepts and fails on later, keys that it silently ignores, and
keys without effect. `check_sft_keys` and `check_grpo_keys` check values alone, `check_sft` and
`check_grpo` also files and host. There is one module for each topic.
"""

import os
from pathlib import Path

from pipeline.checkpoints import check_checkpoint
from pipeline.settings import Settings
from stages.checks.batch import check_batch
from stages.checks.common import (
    check_device,
    check_file,
    check_packages,
    check_resume,
    check_rounding,
    check_trackers,
    check_upload,
)
from stages.checks.evaluation import (
    check_evaluation,
    check_held_out,
    check_sft_evaluation,
    check_sft_held_out,
)
from stages.checks.guards import check_rollback
from stages.checks.logprobs import check_logprobs
from stages.checks.loss import check_loss, check_scale
from stages.checks.packing import check_packing
from stages.checks.positions import check_positions
from stages.checks.rewards import check_rewards
from stages.checks.vllm import check_vllm, check_vllm_keys
from stages.rules import check_rules


def check_sft(settings: Settings) -> Settings:
    """Refuse mistakes of an SFT run that show before torch is imported.

    Returns the settings without keys that an override made pointless; the others do so, too.
    """
    settings = check_sft_keys(settings)
    check_packages(settings)
    check_file(settings, "train_file", "data")
    check_file(settings, "eval_file", "data")
    check_sft_held_out(settings)
    template = settings.chat_template_path
    check_checkpoint(settings.model_name_or_path, "model_name_or_path", template)
    if template and not Path(template).is_file():
        check_checkpoint(template, "chat_template_path")
    check_positions(settings)
    return settings


def check_sft_keys(settings: Settings) -> Settings:
    """The checks of `check_sft` that need no input file."""
    settings = check_rules("sft", settings)
    check_upload(settings)
    check_trackers(settings)
    check_device(settings)
    check_resume(settings)
    check_sft_evaluation(settings)
    check_packing(settings)
    check_rounding(settings)
    return settings


def check_grpo(settings: Settings) -> Settings:
    """Refuse mistakes of a GRPO run that show before torch is imported."""
    settings = check_grpo_keys(settings)
    check_packages(settings)
    check_file(settings, "train_file", "data")
    check_file(settings, "pass_rates", "difficulty")
    check_file(settings, "eval_file", "data")
    check_held_out(settings)
    check_checkpoint(settings.model_name_or_path, "model_name_or_path")
    check_positions(settings)
    check_vllm(settings)
    return settings


def check_grpo_keys(settings: Settings) -> Settings:
    """The checks of `check_grpo` that need no input file."""
    settings = check_grpo_values(settings)
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    check_batch(settings, num_processes)
    check_rollback(settings, num_processes)
    check_vllm_keys(settings, num_processes)
    return settings


def check_grpo_values(settings: Settings) -> Settings:
    """The checks of `check_grpo_keys` that are the same on any number of processes."""
    settings = check_rules("grpo", settings)
    check_upload(settings)
    check_trackers(settings)
    check_device(settings)
    check_loss(settings)
    check_rounding(settings)
    check_resume(settings)
    check_scale(settings)
    check_evaluation(settings)
    check_logprobs(settings)
    check_rewards(settings)
    return settings
