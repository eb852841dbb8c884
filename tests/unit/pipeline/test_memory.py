"""Out of memory, whoever says it: exit code 71 and one line; other errors stay what they are."""

import mmap
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline import errors, memory
from pipeline.errors import OUT_OF_MEMORY, KilledError, OutOfMemoryError, killed, run_cli

HUGE = 2**50
REAL = {
    "python": lambda: bytearray(HUGE),
    "numpy": lambda: np.zeros(HUGE),
    "Arrow": lambda: pa.allocate_buffer(HUGE),
    "torch on a CPU": lambda: torch.empty(HUGE),
    "the system": lambda: mmap.mmap(-1, HUGE),
}
TEXTS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total of"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ValueError("No available memory for the cache blocks. Try increasing it when initializing."),
    ValueError(
        "Free memory on device cuda:0 (10.2/79.1 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 71.2 GiB). Decrease GPU memory utilization"
    ),
    RuntimeError(
        "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory"
    ),
    RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "),
    RuntimeError("unable to mmap 4096 bytes from file </x>: Cannot allocate memory (12)"),
]


def fails(call, capsys):
    """The exit code of an entry point that does this, and its line on stderr."""
    with pytest.raises(SystemExit) as end:
        run_cli(call, is_first=False)
    return end.value.code, capsys.readouterr().err


@pytest.mark.parametrize("who", REAL)
def test_real_errors(who, capsys):
    code, line = fails(REAL[who], capsys)
    assert code == OUT_OF_MEMORY == 71 and line.count("\n") == 1 and "out of memory" in line


@pytest.mark.parametrize("error", TEXTS, ids=lambda error: str(error)[:30])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_texts_also_as_the_cause_of_another_error(error, is_wrapped, capsys):
    def call():
        if not is_wrapped:
            raise error
        try:
            raise error
        except Exception as one:
            raise KeyError("a library's own") from one

    code, line = fails(call, capsys)
    assert code == OUT_OF_MEMORY and line.count("\n") == 1


def test_other_errors_are_none():
    for error in (
        ValueError("a row is out of range"),
        OSError(5, "no"),
        KeyError(),
    ):
        assert memory.memory_fault(error) is None


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
    with pytest.raises(SystemExit) as end:
        run_cli(lambda: sys.exit("a text"), is_first=False)
    assert end.value.code == "a text"
    run_cli(lambda: sys.exit(0), is_first=False)  # as --help
    errors.note_folder(tmp_path)
    for code in (0, None):
        found, line = fails(lambda code=code: sys.exit(code), capsys)
        assert found == 2 and "test_memory.py, line" in line
