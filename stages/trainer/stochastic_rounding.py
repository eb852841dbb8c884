"""Shim: in `stages.trainer.rounding`."""

from stages.trainer.rounding import *  # noqa: F403
