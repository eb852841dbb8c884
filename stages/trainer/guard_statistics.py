"""Shim: in `stages.trainer.guards`."""

from stages.trainer.guards import *  # noqa: F403
from stages.trainer.guards import RECENT  # noqa: F401
