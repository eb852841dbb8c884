"""The patches in examples/patches apply and work, and importing any module changes nothing."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_effects import ROOT, find_changes, product_modules

pytestmark = pytest.mark.integration
# They change some of it themselves, so they come first.
LIBRARIES = [
    "trl.trainer.sft_trainer", "trl.trainer.grpo_trainer", "lm_eval.tasks", "lm_eval.api.model",
    "datasets", "pandas", "matplotlib", "datasketch", "math_verify",
]  # fmt: skip
PATCHES = {
    name: (ROOT / f"examples/patches/{name}.patch").read_text(encoding="utf-8")
    for name in ("loss", "curriculum", "metric")
}
RUN = """
import json, sys
from pipeline.errors import run_cli
from eval.harness.metrics import sampled_metrics
from stages import grpo

record = {"verdict": "right", "prediction": "1", "well_formed": True, "cut_off": False}
record |= {"num_tokens": 1, "lenient": "right", "completion": ""}
assert sampled_metrics([record, record])["all@2"] == 1.0
run_cli(grpo.main)
"""


@pytest.mark.parametrize("name", PATCHES)
def test_a_change_touches_three_files_at_most(name):
    files = re.findall(r"^\+\+\+ b/(.*)$", PATCHES[name], re.M)
    assert 1 <= len(files) == len(set(files)) <= 3


def test_all_of_them_apply_and_train(tmp_path, write_recipe):
    for name in ("pipeline", "grading", "data_prep", "stages", "eval"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, ignore=ignored)
    for patch in PATCHES.values():
        command = ["git", "apply", "-"]
        subprocess.run(command, cwd=tmp_path / "tree", input=patch, text=True, check=True)
    recipe = write_recipe("grpo", curriculum="uniform:Uniform", drift_penalty=0.1, num_iterations=2)
    done = subprocess.run(
        [sys.executable, "-c", RUN, "--config", str(recipe)],
        cwd=tmp_path / "tree",
        env=os.environ | {"PYTHONPATH": str(tmp_path / "tree"), "ALLOW_CODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(recipe.read_text())["output_dir"])
    (state,) = {p.read_text() for p in folder.glob("checkpoint-2/extra_state.json")}
    assert "num_batches" in state


def test_importing_any_module_changes_nothing():
    assert find_changes(LIBRARIES, product_modules()) == []
