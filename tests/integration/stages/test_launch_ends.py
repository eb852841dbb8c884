"""How a launch of two processes ends, or starts them again: what they say, and their exit code."""

import signal
import subprocess
import sys

import pytest

from pipeline.errors import run_cli
from tests.demo import ROOT

pytestmark = pytest.mark.integration

SCRIPT = """
import os, signal, sys, time
from pipeline.errors import UserError, run_cli
from pipeline.launched import in_launch, note_for_launcher

def main():
    rank, kind = os.environ["RANK"], sys.argv[1]
    num_restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if kind == f"refused {rank}":
        raise UserError("seed: 'x' must be a whole number")
    if kind == "killed once" and rank == "1" and num_restarts == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "killed later" and rank == "0":
        note_for_launcher(checkpoint="checkpoint-8")
    if kind == "killed later" and rank == "1":
        time.sleep(3)
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "nohup" and rank == "0":
        os.kill(os.getppid(), signal.SIGHUP)
        time.sleep(1)
    with open(f"{sys.argv[0]}.starts-{rank}", "a") as file:
        file.write("x")
    if kind.startswith("broken") and rank == "0":
        if kind == "broken further" and num_restarts == 1:
            note_for_launcher(checkpoint="checkpoint-8")
        raise MemoryError if kind == "broken memory" else OverflowError("same")
    time.sleep(0 if kind in ("well", "nohup") or num_restarts == 1 else 60)

run_cli(in_launch(main))
"""
LINE = "error: seed: 'x' must be a whole number\n"


def launch(*words):
    """The whole of `python -m stages.run.launch` with these words."""
    from stages.run import launch

    sys.argv = ["launch", *words]
    if words[-1] == "nohup":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run_cli(launch.main, is_first=False)
    sys.exit()


@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [
        ("well", 0, ""),
        ("nohup", 0, ""),
        ("refused 1", 2, LINE),
        ("killed later", 137, "error: rank 1 was ended by SIGKILL"),
        ("killed once", 0, "notice: rank 1 ended with SIGKILL; all processes start again"),
        ("broken memory", 71, ""),
        ("broken further", 1, ""),
    ],
)
def test_a_launch_ends_with_one_line(fork_server, tmp_path, kind, code, line):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = ["--config_file", "configs/accelerate/cpu.yaml", "--num_processes", "2"]
    words += ["--max_restarts", "0"] if kind == "killed later" else []
    words += [str(script), kind]
    if kind == "well":  # a process of its own, whose imports say nothing either
        command = [sys.executable, "-m", "stages.run.launch", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        found, log = done.returncode, done.stdout + done.stderr
    else:
        (found,), (log,) = fork_server.run(tmp_path / "launch", setup=(launch, *words))
    assert found == code, log
    if kind.startswith("broken"):  # it is not tried once more, unless there is a new checkpoint
        starts = len((tmp_path / "script.py.starts-0").read_text())
        assert starts == 2 + ("further" in kind) and "the same error again" in log, log
        return
    (shown,) = log.splitlines(keepends=True) or [""]
    assert shown == line if line in ("", LINE) else shown.startswith(line)
