"""Shim: `stages.checks`."""

from stages.checks import CPU_HEAD_SIZES, SERVE  # noqa: F401
