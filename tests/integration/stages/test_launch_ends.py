"""How a launch of two processes ends: with what they say, and their exit code."""

import subprocess
import sys

import pytest

from tests.demo import ROOT

SCRIPT = """
import os, signal, sys, time
from data_prep.errors import UserError, run_cli

def main():
    rank, kind = os.environ["RANK"], sys.argv[1]
    if kind == "refused" or kind == f"refused {rank}":
        raise UserError("seed: 'x' must be a whole number")
    if kind == f"killed {rank}":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0 if kind == "well" else 60)

run_cli(main)
"""
LINE = "error: seed: 'x' must be a whole number\n"


@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [
        ("well", 0, ""),
        ("refused", 2, LINE),
        ("refused 1", 2, LINE),
        ("killed 1", 137, "error: rank 1 was ended by SIGKILL\n"),
    ],
)
def test_a_launch_ends_with_one_line(tmp_path, kind, code, line):
    (tmp_path / "script.py").write_text(SCRIPT)
    flags = ["--config_file", "configs/accelerate/cpu.yaml", "--num_processes", "2"]
    command = [sys.executable, "-m", "stages.launch", *flags, tmp_path / "script.py", kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, line)
