"""Evaluation, audit and report."""

import sys

import data_prep

if not hasattr(data_prep, "IS_OURS"):
    sys.stderr.write(f"error: {data_prep.__file__} hides the package data_prep; rename it\n")
    sys.exit(2)
