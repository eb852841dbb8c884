"""The command that grades a file, as a process: pipes, interrupts, and texts too large to read."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
BOMB = "9^{9^{9^9}}"


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
    """Rows whose gold is 7."""
    with path.open("w", encoding="utf-8") as file:
        for answer in map(str, answers):
            prediction = f"<think>so</think> \\boxed{{{answer}}}"
            file.write(json.dumps({"prediction": prediction, "gold": "7"}) + "\n")
    return path


def test_a_text_that_is_too_large_is_a_verdict_and_no_noise(tmp_path):
    pairs = write(tmp_path / "pairs.jsonl", ["7", BOMB, "8"])
    process = start(pairs)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    verdicts = [json.loads(line)["verdict"] for line in out.splitlines()]
    assert verdicts == ["right", "unparseable", "wrong"]
    assert b"rows with an error: 0" in err


def test_a_closed_pipe_ends_it_quietly(tmp_path):
    process = start(write(tmp_path / "pairs.jsonl", range(50_000)))
    assert json.loads(process.stdout.readline())["verdict"] == "wrong"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_an_interrupt_says_what_is_left(tmp_path):
    pairs = write(tmp_path / "pairs.jsonl", range(500_000))
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    process = start(pairs, "--out", out)
    deadline = time.monotonic() + 60
    while not partial.is_file() or partial.read_bytes().count(b"\n") < 256:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    said = re.fullmatch(
        r"interrupted after ([\d,]+) rows; their verdicts are in (.*)", err.decode().strip()
    )
    assert said and said[2] == str(partial)
    assert (process.returncode, rest, out.exists()) == (130, b"", False)
    assert partial.read_bytes().count(b"\n") == int(said[1].replace(",", "")) < 500_000


def test_a_wrong_command_line_is_one_line_and_exit_2(tmp_path):
    process = start(tmp_path / "missing.jsonl")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"error: ") and err.count(b"\n") == 1
