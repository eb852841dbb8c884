"""Shim: `stages.arguments`."""

from functools import partial

from stages.arguments import MODES, GrpoArguments  # noqa: F401

CurriculumArguments = partial(GrpoArguments, train_file="")
