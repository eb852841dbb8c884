"""What an entry point writes when something fails."""

import subprocess
import sys

import pytest

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
    ("error", "code", "begins"),
    [
        ('OSError(errno.ENOSPC, "full", "runs")', 2, ["error: runs: "]),
        ("MemoryError()", 71, ["notice: out of memory in a thread", "error: "]),
        ('KeyError("a")', 1, None),
    ],
)
def test_a_fault_of_disk_or_memory_in_a_librarys_thread_is_no_traceback(error, code, begins):
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(error=error)], capture_output=True, text=True
    )
    assert run.returncode == code
    assert ("Traceback" in run.stderr) is (begins is None)
    if begins is not None:
        for line, begin in zip(run.stderr.splitlines(), begins, strict=True):
            assert line.startswith(begin)
