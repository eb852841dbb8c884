"""What an entry point writes when something fails."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import errors
from stages.run import folders

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
        ("MemoryError()", 71, ["error: -c: out of memory"]),
        ('KeyError("a")', 1, None),
    ],
)
def test_a_fault_of_disk_or_memory_in_a_thread_is_no_traceback(error, code, begins):
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(error=error)], capture_output=True, text=True
    )
    assert run.returncode == code
    assert ("Traceback" in run.stderr) is (begins is None)
    if begins is not None:
        for line, begin in zip(run.stderr.splitlines(), begins, strict=True):
            assert line.startswith(begin)


def end_of(error, capsys):
    """What an entry point writes that ends with this error."""

    def main():
        raise error

    with pytest.raises(SystemExit, match="2"):
        errors.run_cli(main, is_first=False)
    text = capsys.readouterr().err
    assert text.startswith("error: ") and text.count("\n") == 1
    return text


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EROFS])
def test_a_systems_error_is_one_line_with_the_file(number, capsys):
    line = end_of(OSError(number, "why", "runs/a"), capsys)
    assert line == "error: runs/a: why; correct that, then repeat the command\n"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),  # of a write, which knows no name
        RuntimeError("Error while serializing: No space left on device (os error 28)"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "runs/a"),
    ],
)
def test_a_full_disk_is_one_line_with_the_folder(error, capsys, monkeypatch):
    monkeypatch.setattr(errors, "_folders", [Path("runs/a")])
    line = end_of(error, capsys)
    assert line.startswith("error: runs/a: ") and "; free space, then" in line


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EINVAL, "why"), OSError("timed out"), KeyError("No space"), ValueError()],
)
def test_a_bug_keeps_its_traceback(error):
    def main():
        raise error

    with pytest.raises(type(error)):
        errors.run_cli(main, is_first=False)


def test_a_bug_while_a_fault_is_handled_stays_visible():
    try:
        try:
            raise OSError(errno.EIO, "why", "a")
        except OSError:
            {}["key"]
    except KeyError as error:
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
