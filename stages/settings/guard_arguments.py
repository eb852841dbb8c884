"""Checks of a recipe's `guard_*` keys together with the checkpoints they need."""

import math
from typing import Any

from data_prep.config import UserError
from stages.trainer.guard_statistics import RECENT
from stages.trainer.guards import GUARDS, GuardSettings

ROLLBACK_KEYS = ("guard_rollback_lr_factor", "guard_max_rollbacks")


def check_rollback(values: dict[str, Any]) -> None:
    """Refuse a recipe that deletes, or never writes, the checkpoints a guard would roll back to."""
    names = [f"guard_{name}" for name in GUARDS if values.get(f"guard_{name}") == "rollback"]
    if not names:
        for key in ROLLBACK_KEYS:
            if values.get(key) is not None:
                raise UserError(
                    f"{key}: {values[key]} would have no effect: no guard has the action rollback; "
                    "remove the key"
                )
        return
    if values.get("save_strategy", "steps") != "steps":
        raise UserError(f"{names[0]}: rollback needs checkpoints; set save_strategy to steps")
    steps = float(values.get("save_steps", 500))
    if steps < 1:
        raise UserError(
            f"save_steps: {steps:g} with {names[0]}: rollback must be a number of steps"
        )
    limit = values.get("save_total_limit")
    if limit is None or int(float(limit)) <= 0:  # Hugging Face keeps all
        return
    needed = math.ceil(look_back(values) / steps) + 1
    if int(float(limit)) < needed:
        raise UserError(
            f"save_total_limit: {limit} with save_steps {steps:g} may leave {names[0]} nothing to "
            f"roll back to, it distrusts up to {look_back(values)} steps; use {needed} or more"
        )


def look_back(values: dict[str, Any]) -> int:
    """Optimizer steps that a guard may distrust when it fires.

    Rollouts are judged once a generation, which serves `steps_per_generation` x `num_iterations`
    micro-batches.
    """

    def number(key: str, default: float) -> float:
        value = values.get(key)
        return default if value is None else float(value)

    accumulation = number("gradient_accumulation_steps", 1)
    uses = number("steps_per_generation", accumulation) * number("num_iterations", 1)
    patience = number("guard_patience", GuardSettings.patience)
    return int((RECENT + patience) * max(1, math.ceil(uses / accumulation))) + 1
