"""Shim: `tests.integration.stages.stage_processes`."""

from tests.integration.stages.stage_processes import finish, start, stop_when  # noqa: F401
