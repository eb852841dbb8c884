"""Output never ends a run: streams that are closed, full, slow, gone or of another encoding."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grading import __main__ as grading

# Everything that writes: Python, our lines, a thread, a bar, a logger, a table, a child process.
WRITES = """
import logging, os, subprocess, sys, threading
from pipeline import errors
from pipeline.console import Bar, notice, say

def main():
    print("a ± ≤ \\ud800", flush=True)
    say("b ± →")
    notice("c μ")
    thread = threading.Thread(target=lambda: print("thread ±", flush=True))
    thread.start()
    thread.join()
    for _ in Bar(range(3)):
        logging.warning("d ±")
    import rich.console
    rich.console.Console().print("e ±")
    if "child" in sys.argv:
        return
    child = [sys.executable, __file__, "child"]
    assert subprocess.run(child, check=True).returncode == 0
    for _ in range(200):
        print("x" * 1000)
    assert os.open("opened", os.O_WRONLY | os.O_CREAT) > 2  # and no print gets there
    print("y", flush=True)
    if "wrong" in sys.argv:
        raise errors.UserError("z ±")
    open("done", "w").close()

errors.run_cli(main)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    path = tmp_path / "writes.py"
    path.write_text(WRITES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(grading.__file__).parents[1]))
    return [sys.executable, str(path)]


@pytest.mark.parametrize(
    "how",
    [
        ">/dev/full 2>&1 wrong", ">&- wrong", "<&- >&- 2>&-", "2>&1 | true",
        "unbuffered >/dev/full",
    ],
)  # fmt: skip
def test_the_work_goes_on_and_the_exit_code_tells_the_truth(script, tmp_path, how):
    before, pipe, after = how.partition("|")
    command = f'{{ "$@" {before}; echo $? >code; }} {pipe}{after}'
    env = os.environ | {"PYTHONUNBUFFERED": "1" if "unbuffered" in how else ""}
    shell = ["bash", "-c", command, "bash", *script]
    done = subprocess.run(shell, env=env, capture_output=True, text=True, timeout=60)
    assert int((tmp_path / "code").read_text()) == (2 if "wrong" in how else 0), done.stderr
    assert (tmp_path / "done").exists() is ("wrong" not in how)
    assert (tmp_path / "opened").read_bytes() == b""
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_letter_that_the_terminal_lacks_is_replaced(script, tmp_path, encoding):
    env = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(script, env=env, capture_output=True, timeout=60)
    assert done.returncode == 0 and (tmp_path / "done").exists(), done.stderr
    assert "\\u2264 \\ud800" in done.stdout.decode(encoding)


@pytest.mark.parametrize(
    "words", [("pipeline", "--help"), ("pipeline", "help"), ("stages.grpo", "--help")]
)
def test_help_is_shown_in_any_encoding(words):
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", *words], env=env, capture_output=True)
    assert done.returncode == 0 and done.stdout and not done.stderr


def test_a_slow_reader_of_a_non_blocking_pipe_gets_everything(script):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = subprocess.Popen(script, stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    time.sleep(0.5)  # it fills the pipe
    with open(reader, "rb") as file:
        text = file.read()
    assert process.wait(60) == 0 and text.count(b"x" * 1000) == 200 and text.endswith(b"y\n")


def test_a_terminal_that_is_gone(script, tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(script, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)  # no controlling terminal, so no signal comes with it
    assert process.wait(60) == 0 and (tmp_path / "done").exists()


def test_results_on_standard_output_are_not_lost_silently(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prediction": "1", "gold": "1"}\n', encoding="utf-8")
    command = [sys.executable, "-m", "grading", str(path), "--form", "answer"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.count("error: ") == 1, done.stderr
    assert "Traceback" not in done.stderr
