"""Every benchmark at its smallest size, as `make bench-… SMALL=1` runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
# Goal -> texts that its table must hold, one at least in each row.
GOALS = {
    "bench": ("stock", "padded", "packed to", "ours"),
    "bench-time": (
        *("|arm|", "|---", "|stock|", "|ours|", "|ours, no curriculum|", "|ours, offline"),
        *("|with|", "|and "),
    ),
}


@pytest.fixture(scope="module")
def run_make(tmp_path_factory):
    """Run one goal with SMALL=1; the goals share a shortened SFT run."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "ready").touch()  # newer than pyproject.toml: make installs nothing

    def run(goal, out):
        outer = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "SEED", "RECIPE")
        env = {key: value for key, value in os.environ.items() if key not in outer}
        env |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        command = ["make", goal, f"VENV={folder}", f"PY={sys.executable}", f"OUT={out}", "SMALL=1"]
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]

    return run


@pytest.mark.parametrize("goal", GOALS)
def test_a_benchmark_at_its_smallest_size(run_make, tmp_path, goal):
    out = tmp_path / "new" / "page.md"
    run_make(goal, out)
    _, _, *rows = [line for line in out.read_text().splitlines() if line.startswith("|")]
    assert all(any(text in row for row in rows) for text in GOALS[goal]), rows
    assert all(any(text in row for text in GOALS[goal]) for row in rows), rows
    assert json.loads(out.with_suffix(".json").read_text())
