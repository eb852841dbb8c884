"""Shim: the trainer is in `stages.trainer.trainer`."""

import sys

from stages.trainer import trainer

sys.modules[__name__] = trainer
