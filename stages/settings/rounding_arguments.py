"""Shim: `stages.arguments` and `stages.checks`."""

import importlib.util  # noqa: F401

from stages import checks
from stages.arguments import SftArguments as RoundingArguments  # noqa: F401
from stages.settings.arguments import _grpo

KEY = "stochastic_rounding"
check_rounding = _grpo(checks.check_rounding)
