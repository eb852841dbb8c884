"""Shim: `stages.run`."""

from stages.run import StageProgress, keep_metric_names  # noqa: F401
