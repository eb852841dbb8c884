"""The command that grades a file, as a process: pipes, interrupts, and calls over the limit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
BOMB = r"\sum_{{k=1}}^{{\infty}} \frac{{\sin(k)}}{{k^3+k+{}}}"  # over the limit in math-verify


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "grading", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def write(path, answers):
    """Rows whose gold is 7; of a sum another sum, as it is computed only if the gold is one."""
    with path.open("w", encoding="utf-8") as file:
        for answer in map(str, answers):
            prediction = f"<think>so</think> \\boxed{{{answer}}}"
            gold = BOMB.format("2k") if "sum" in answer else "7"
            file.write(json.dumps({"prediction": prediction, "gold": gold}) + "\n")
    return path


def test_a_call_over_the_limit_is_a_verdict_and_no_noise(tmp_path):
    pairs = write(tmp_path / "pairs.jsonl", ["7", BOMB.format(1), "8"])
    process = start(pairs)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    verdicts = [json.loads(line)["verdict"] for line in out.splitlines()]
    assert verdicts == ["right", "timeout", "wrong"]
    assert b"rows with an error: 0" in err
    assert b"stopped" not in err  # the pool's own warning


def test_a_closed_pipe_ends_it_quietly(tmp_path):
    process = start(write(tmp_path / "pairs.jsonl", range(50_000)))
    assert json.loads(process.stdout.readline())["verdict"] == "wrong"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_an_interrupt_says_what_is_left(tmp_path):
    # The second chunk takes minutes.
    pairs = write(tmp_path / "pairs.jsonl", [*range(256), *(BOMB.format(k) for k in range(256))])
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    process = start(pairs, "--out", out)
    deadline = time.monotonic() + 60
    while not partial.is_file() or partial.read_bytes().count(b"\n") < 256:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert err.decode().strip() == f"interrupted after 256 rows; their verdicts are in {partial}"
    assert (process.returncode, rest, out.exists()) == (130, b"", False)
    assert partial.read_bytes().count(b"\n") == 256


def test_a_wrong_command_line_is_one_line_and_exit_2(tmp_path):
    process = start(tmp_path / "missing.jsonl")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"error: ") and err.count(b"\n") == 1
