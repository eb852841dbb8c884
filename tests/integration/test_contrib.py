"""The diffs of contrib/trl apply to TRL 1.16.0, and their tests fail without them."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(version("trl") != "1.16.0", reason="the diffs are against TRL 1.16.0"),
]
FOLDER = Path(__file__).parents[2] / "contrib/trl"
# Diff -> its tests, and those of them that pass with TRL as it is.
CHANGES = {
    "pad-per-minibatch": (10, 4),  # the same step however wide: of each of four losses
    "resume-repeat-sampler": (8, 2),  # a resume in epoch 0, of each of two trainers
}


@pytest.fixture
def trl(tmp_path):
    """A folder with a copy of the installed package."""
    package = Path(find_spec("trl").origin).parent
    shutil.copytree(package, tmp_path / "trl", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run_tests(name, trl):
    """How many tests of a diff pass and fail with a copy of TRL."""
    path = FOLDER / f"test_{name.replace('-', '_')}.py"
    env = os.environ | {"PYTHONPATH": f"{trl}:{FOLDER}", "OMP_NUM_THREADS": "1"}
    flags = ["-q", "-c", os.devnull, "--rootdir", str(trl), "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *flags, "--basetemp", str(trl / "tmp"), str(path)]
    done = subprocess.run(command, cwd=trl, env=env, capture_output=True, text=True, check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}
    assert {*counts} & {"passed", "failed"} and not counts.get("error"), done.stdout[-3000:]
    return counts.get("passed", 0), counts.get("failed", 0)


@pytest.mark.parametrize("name", CHANGES)
def test_a_diff_applies_and_its_tests_fail_without_it(trl, name):
    num_tests, num_regression = CHANGES[name]
    assert run_tests(name, trl) == (num_regression, num_tests - num_regression)
    diff = str(FOLDER / f"{name}.diff")
    subprocess.run(["patch", "-p1", "-i", diff], cwd=trl, check=True, capture_output=True)
    assert run_tests(name, trl) == (num_tests, 0)


def test_both_apply_together(trl):
    for name in CHANGES:
        command = ["patch", "-p1", "-F0", "-i", str(FOLDER / f"{name}.diff")]
        subprocess.run(command, cwd=trl, check=True, capture_output=True)
