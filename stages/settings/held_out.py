"""Shim: `stages.held_out` and `stages.checks`."""

from stages import checks
from stages.held_out import *  # noqa: F403
from stages.settings.arguments import _grpo

check_held_out = _grpo(checks.check_held_out)
