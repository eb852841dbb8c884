"""Shim: `stages.arguments`, the module itself, because a test patches REWARD_FUNCS."""

import sys

from stages import arguments

arguments.MAX_COMPLETION_LENGTH = 512
sys.modules[__name__] = arguments
