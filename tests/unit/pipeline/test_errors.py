"""How an entry point ends when something fails, and that its output never ends it."""

import builtins
import errno
import mmap
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from grading import __main__ as grading
from pipeline import errors, memory
from pipeline.errors import OUT_OF_MEMORY, KilledError, OutOfMemoryError, killed, run_cli
from stages.run import folders
from tests.tables import tables_beside

table = tables_beside(__file__)

SCRIPT = """
import errno, threading
from pipeline.errors import run_cli

def write():
    raise {error}

def main():
    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    raise {error}

run_cli(main)
"""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        ('OSError(errno.ENOSPC, "full", "runs")', 2, "error: runs: "),
        ("MemoryError()", OUT_OF_MEMORY, "error: -c: out of memory"),
        ('KeyError("a")', 1, None),
    ],
)
def test_a_fault_of_disk_or_memory_in_a_thread_is_no_traceback(error, code, line):
    command = [sys.executable, "-c", SCRIPT.format(error=error)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == code
    assert ("Traceback" in run.stderr) is (line is None)
    assert line is None or (run.stderr.startswith(line) and run.stderr.count("\n") == 1)


def end_of(call, capsys, code):
    """The line that an entry point writes that does this and ends with the exit code."""
    with pytest.raises(SystemExit) as end:
        run_cli(call, is_first=False)
    line = capsys.readouterr().err
    assert end.value.code == code and line.startswith("error: ") and line.count("\n") == 1
    return line


def raising(error, cause=None):
    def call():
        raise error from cause

    return call


@table
def test_a_fault_of_the_system_is_one_line_also_as_the_cause(
    kind, args, code, words, capsys, monkeypatch
):
    """With the file that it names, or the folder of the run."""
    monkeypatch.setattr(errors, "_folders", [Path("runs/a")])
    kinds = vars(builtins) | {"torch.OutOfMemoryError": torch.OutOfMemoryError}
    error = kinds[kind](*args)
    for call in (raising(error), raising(KeyError("a library's own"), error)):
        found = end_of(call, capsys, code)
        assert all(part in found for part in words)


def test_a_bug_keeps_its_traceback():
    bugs = OSError(errno.EINVAL, "why"), OSError("timed out"), KeyError("No space"), ValueError()
    for error in bugs:
        assert memory.memory_fault(error) is None
        with pytest.raises(type(error)):
            run_cli(raising(error), is_first=False)


def test_an_interrupted_run_says_that_it_can_be_resumed(capsys):
    with pytest.raises(SystemExit, match="130"):
        run_cli(raising(KeyboardInterrupt()), is_first=False)
    assert capsys.readouterr().err == "interrupted: run the same command again to resume\n"


def test_a_bug_while_a_fault_is_handled_stays_visible():
    error = KeyError()
    error.__context__ = OSError(errno.EIO, "why", "a")
    assert errors.disk_fault(error) is None


def test_a_checkpoint_that_cannot_be_read_now_is_not_passed_over(tmp_path, monkeypatch):
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
        state = tmp_path / f"checkpoint-{step}" / folders.STATE
        state.write_text('{"global_step": 1}', encoding="utf-8")
        folders.seal(state.parent)
    read_bytes = Path.read_bytes

    def fail(path):
        if "checkpoint-2" in str(path) or path.name == folders.RUN_FILE:
            raise OSError(errno.ESTALE, "why", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError):
        folders.last_whole(tmp_path, {})
    with pytest.raises(OSError):
        folders.read_run(tmp_path)


HUGE = 2**50
ALLOCATE = {
    "python": lambda: bytearray(HUGE),
    "numpy": lambda: np.zeros(HUGE),
    "Arrow": lambda: pa.allocate_buffer(HUGE),
    "torch on a CPU": lambda: torch.empty(HUGE),
    "the system": lambda: mmap.mmap(-1, HUGE),
}


@pytest.mark.parametrize("who", ALLOCATE)
def test_memory_that_is_full_has_an_exit_code_of_its_own(who, capsys):
    assert "out of memory" in end_of(ALLOCATE[who], capsys, OUT_OF_MEMORY)


def test_a_process_that_the_kernel_killed_for_memory(tmp_path, monkeypatch):
    counter = tmp_path / "memory.events"
    monkeypatch.setattr(memory, "OOM_COUNTERS", (tmp_path / "no-such", counter))
    assert isinstance(killed("rank 1", memory.num_oom_kills()), KilledError)
    counter.write_text("low 0\noom 3\noom_kill 1\n")
    assert memory.num_oom_kills() == 1
    assert killed("rank 1", 1).exit_code == 137
    assert isinstance(killed("rank 1", 0), OutOfMemoryError)


def test_sys_exit_0_inside_a_stage_is_no_success(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "_folders", [])
    with pytest.raises(SystemExit, match="a text"):
        run_cli(lambda: sys.exit("a text"), is_first=False)
    run_cli(lambda: sys.exit(0), is_first=False)  # as --help
    errors.note_folder(tmp_path)
    for code in (0, None):
        line = end_of(lambda code=code: sys.exit(code), capsys, 2)
        assert "test_errors.py, line" in line


# Output never ends a run: streams that are closed, full, slow, gone or of another encoding.

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
