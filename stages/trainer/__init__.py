"""Curriculum, guards and the trainer they act in; each is imported when it is first asked for."""

import importlib
from typing import Any

PARTS = {
    "curriculum": ("Curriculum", "PredictiveCurriculum", "Refill"),
    "guards": ("GuardSettings",),
    "guard_actions": ("GuardCallback",),
    "grpo_trainer": ("MathGRPOTrainer",),
}  # the first two without torch, which takes seconds


def __getattr__(name: str) -> Any:
    for module, names in PARTS.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
