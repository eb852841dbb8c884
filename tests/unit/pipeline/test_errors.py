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


@pytest.mark.parametrize("error", ['OSError(errno.ENOSPC, "full", "runs")', 'KeyError("a")'])
def test_a_disks_fault_in_a_librarys_thread_is_one_line_all_the_same(error):
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(error=error)], capture_output=True, text=True
    )
    is_disks = "ENOSPC" in error
    assert run.returncode == (2 if is_disks else 1)
    assert ("Exception in thread" in run.stderr) is not is_disks
    assert not is_disks or (run.stderr.startswith("error: runs: ") and run.stderr.count("\n") == 1)
