"""Shim: `stages.launch`."""

from stages.launch import check_shared as check  # noqa: F401
from stages.launch import find_fault  # noqa: F401
