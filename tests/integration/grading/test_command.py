"""The command that grades a file, as a process: what a closed pipe and an interrupt leave."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.files import write_rows

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]


def start(*arguments):
    """The command, in a process group of its own as in a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "grading", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def write(path, num_rows):
    """The first row is incorrect."""
    answers = (f"<think>so</think> \\boxed{{{number}}}" for number in range(num_rows))
    write_rows(path, [{"prediction": answer, "gold": "7"} for answer in answers])
    return path


def test_a_closed_pipe_ends_it_quietly(tmp_path):
    process = start(write(tmp_path / "pairs.jsonl", 50_000))
    assert json.loads(process.stdout.readline())["verdict"] == "wrong"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_an_interrupt_says_what_is_left(tmp_path):
    pairs = write(tmp_path / "pairs.jsonl", 500_000)
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
