"""Shim: `stages.launch`."""

import sys

from stages import launch

sys.modules[__name__] = launch
