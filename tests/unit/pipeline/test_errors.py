"""How an entry point ends when something fails: one line and an exit code, or a traceback."""

import builtins
import errno
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

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
