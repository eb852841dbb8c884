"""Shim: `stages.host_loss`."""

import sys

from stages import host_loss

sys.modules[__name__] = host_loss
