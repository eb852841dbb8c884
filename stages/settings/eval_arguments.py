"""Shim: `stages.held_out`."""

from stages.held_out import LEAST_PROBLEMS  # noqa: F401

DEFAULT_SIZE = 8
