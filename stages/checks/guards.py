"""Checkpoints that a guard needs to roll back to."""

import math

from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.arguments import steps_per_generation
from stages.trainer.guards import GUARDS, RECENT


def check_rollback(settings: Settings, num_processes: int) -> None:
    """Refuse a recipe that deletes, or never writes, the checkpoints a guard would roll back to."""
    actions = tuple(f"guard_{name}" for name in GUARDS)
    names = [key for key in actions if getattr(settings, key) == "rollback"]
    if not names:
        return
    if settings.save_strategy != "steps":
        raise UserError(f"{names[0]}: rollback needs checkpoints; set save_strategy to steps")
    if settings.save_only_model:
        raise UserError(f"{names[0]}: rollback needs save_only_model: false")
    steps, limit = settings.save_steps, settings.save_total_limit
    if steps < 1:
        raise UserError(f"save_steps: must be at least 1 with a rollback (got {steps:g})")
    distrusted = look_back(settings, num_processes)
    needed = math.ceil(distrusted / steps) + 1
    if limit is not None and 0 < limit < needed:  # Hugging Face keeps all with 0
        raise UserError(
            f"save_total_limit: {limit} with save_steps {steps:g} may leave {names[0]} no "
            f"checkpoint older than {distrusted} steps to roll back to; use {needed} or more"
        )


def look_back(settings: Settings, num_processes: int) -> int:
    """Optimizer steps that a guard, which sees one rollout a generation, may distrust."""
    accumulation = settings.gradient_accumulation_steps
    uses = steps_per_generation(settings, num_processes) * settings.num_iterations
    return (RECENT + settings.guard_patience) * max(1, math.ceil(uses / accumulation)) + 1
