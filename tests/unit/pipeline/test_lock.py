"""One folder, one owner: two processes never write to the same run."""

import contextlib
import errno
import os
import signal
import subprocess
import sys

import pytest
from filelock import FileLock, Timeout

from pipeline import errors, lock

HOLD = """
import sys, time
from pipeline import errors, lock
errors.run_cli(lambda: (lock.claim(sys.argv[1]), print("held", flush=True), time.sleep(60)))
"""


@contextlib.contextmanager
def held(folder):
    """Another process that has the lock of a folder."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_lock_holds_while_its_owner_lives(tmp_path, number):
    with held(tmp_path / "run") as process:
        with pytest.raises(errors.UserError, match=f"in use by process {process.pid} on "):
            lock.claim(tmp_path / "run")
        process.send_signal(number)
        process.wait()
        lock.claim(tmp_path / "run")
    lock.claim(tmp_path / "run")  # this process's own
    file = tmp_path / "run.lock"
    assert f"process {os.getpid()} on " in file.read_text()
    lock.release(file, os.getpid() + 1)  # a fork of the process
    assert file.exists()
    lock.release(file, os.getpid())
    assert not file.exists()


def test_a_link_and_what_it_names_are_one_folder(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "run")
    (tmp_path / "run").mkdir()
    with held(tmp_path / "link"), pytest.raises(errors.UserError, match="in use by process"):
        lock.claim(tmp_path / "run")


@pytest.mark.parametrize("text", ["", "{", '{"host": "a", "pid": 1, "started": 5.0}'])
def test_a_file_that_nobody_holds_is_no_lock(tmp_path, text):
    (tmp_path / "run.lock").write_text(text)
    lock.claim(tmp_path / "run")
    lock.release(tmp_path / "run.lock", os.getpid())


def test_where_the_disk_has_no_locks_the_file_is_one(tmp_path, monkeypatch):
    def refuse(handle, kind):
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.warns(UserWarning, match="flock not supported"):
        lock.claim(tmp_path / "run")
    file = tmp_path / "run.lock"
    with pytest.warns(UserWarning), pytest.raises(Timeout):
        FileLock(file, thread_local=False).acquire(timeout=0)
    lock._held.pop(file).release()


def test_a_run_below_a_file_is_refused(tmp_path):
    (tmp_path / "rows.jsonl").touch()
    with pytest.raises(errors.UserError, match="is a file; choose another folder"):
        lock.claim(tmp_path / "rows.jsonl/run")


def test_of_many_that_start_together_one_owns(tmp_path):
    hold = "import sys, time; from pipeline import errors, lock\n"
    hold += "errors.run_cli(lambda: (lock.claim(sys.argv[1]), time.sleep(2)))"
    command = [sys.executable, "-c", hold, str(tmp_path / "run")]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ends = [(process.communicate()[1], process.returncode) for process in started]
    assert sorted(code for _, code in ends) == [0, 2, 2, 2]
    assert all("in use by" in text for text, code in ends if code)  # its file may be empty yet
    assert list(tmp_path.iterdir()) == []
