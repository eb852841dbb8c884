"""Builds in this process, and what they leave."""

import json
import sys

import pytest
import yaml

from data_prep.build import __main__ as build
from pipeline import manifest


def write(path, rows):
    """Rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rows_of(path):
    """The rows of a file of JSON lines, split at line feeds alone."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def run(tmp_path, recipe, *flags):
    """Build a recipe with one worker, unless it says otherwise; (its folder, the manifest)."""
    config = tmp_path / "data.yaml"
    recipe = {"output_dir": "{run}/data", "data_root": str(tmp_path), "num_workers": 1} | recipe
    config.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        argv = ["build", "--config", str(config), "--run_dir", str(tmp_path / "run"), *flags]
        patch.setattr(sys, "argv", argv)
        build.main()
    return tmp_path / "run/data", manifest.read(tmp_path / "run/data")
