"""Shim: in `stages.trainer.trainer`."""

from stages.trainer.trainer import MathGRPOTrainer as EfficientUpdate  # noqa: F401
