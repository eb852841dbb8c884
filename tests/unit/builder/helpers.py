"""Builds in this process, and what they leave."""

import sys

import pytest
import yaml

from data_prep.builder import __main__ as build
from pipeline import manifest


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
