"""Shim: `stages.arguments`."""

from functools import partial

from stages.arguments import GrpoArguments

UpdateArguments = partial(GrpoArguments, train_file="")
