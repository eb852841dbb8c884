"""One folder, one owner: two processes never write to the same run."""

import json
import os
import socket
import subprocess
import sys

import psutil
import pytest

from pipeline import errors, lock

PARENT = psutil.Process(os.getppid()).create_time()


def lock_of(folder, **changes):
    started = psutil.Process().create_time()
    owner = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
    file = folder.with_name(f"{folder.name}.lock")
    file.write_text(json.dumps(owner | changes))
    return file


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({}, False),  # this process's own
        ({"pid": os.getppid(), "started": PARENT}, True),
        ({"pid": os.getppid(), "started": 5.0}, False),  # another process got the number
        # The system's clock was set while the owner lived, or another process got the number.
        *(({"pid": os.getppid(), "started": PARENT + by}, True) for by in (-59, 59)),
        *(({"pid": os.getppid(), "started": PARENT + by}, False) for by in (-61, 61)),
        ({"pid": 2**22 + 1}, False),  # dead
        ({"host": "other", "pid": 2**22 + 1}, True),  # who knows
    ],
)
def test_a_lock_holds_while_its_owner_may_live(tmp_path, changes, is_refused):
    file = lock_of(tmp_path / "run", **changes)
    if is_refused:
        with pytest.raises(errors.UserError, match=f"in use by process {changes['pid']}"):
            lock.claim(tmp_path / "run")
    else:
        lock.claim(tmp_path / "run")
        assert json.loads(file.read_text())["pid"] == os.getpid()
        file.unlink()


@pytest.mark.parametrize(
    ("job", "squeue", "is_refused"),
    [
        (["7", "0"], "exit 0", False),  # this job, before it was requeued
        (["7", "1"], "exit 0", True),  # this start of it
        (["6", "0"], "exit 0", False),  # ended a moment ago
        (["6", "0"], "echo Invalid job id specified >&2; exit 1", False),  # ended long ago
        (["6", "0"], "echo 6 gpu sft-grpo me R 1:00 1 node-a", True),
        (["6", "0"], "echo Unable to contact slurm controller >&2; exit 1", True),
        (["6", "0"], None, True),
        (["--help", "0"], "exit 0", True),
        ("7", "exit 0", True),
    ],
)
def test_the_lock_of_a_slurm_job_that_has_ended_is_taken_over(
    tmp_path, monkeypatch, job, squeue, is_refused
):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if squeue:
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{squeue}\n")
        (tmp_path / "squeue").chmod(0o755)
    file = lock_of(tmp_path / "run", host="other", pid=5, job=job)
    if is_refused:
        with pytest.raises(errors.UserError, match="in use by process 5 on other"):
            lock.claim(tmp_path / "run")
    else:
        lock.claim(tmp_path / "run")
        assert json.loads(file.read_text())["job"] == ["7", "1"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_torn_lock_is_nobodys(tmp_path, text):
    (tmp_path / "run.lock").write_text(text)
    lock.claim(tmp_path / "run")


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
    assert all("in use by process" in text for text, code in ends if code)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "runs/x/model"),
        PermissionError(13, "Permission denied", "runs/x/model"),
        RuntimeError("[enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_disks_fault_is_one_line(capsys, error):
    def main():
        raise RuntimeError("while saving") from error

    with pytest.raises(SystemExit, match="2"):
        errors.run_cli(main)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")


def test_other_faults_keep_their_traceback():
    with pytest.raises(KeyError):
        errors.run_cli(lambda: {}["a"])


@pytest.mark.parametrize("is_right", [True, False])
def test_json_is_all_that_stdout_gets(tmp_path, is_right):
    problems = 8 if is_right else -8
    source = [{"name": "synthetic", "split": "rl", "sample": problems}]
    config = tmp_path / "data.yaml"
    config.write_text(json.dumps({"output_dir": str(tmp_path / "data"), "grpo": source}))
    command = [sys.executable, "-m", "data_prep.build", "--config", str(config), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode == (0 if is_right else 2)
    if is_right:
        assert found["stage"] == "data" and found["counts"] == {"grpo_train": 8}
        assert found["output_dir"] == str(tmp_path / "data") and "wrote 8 problems" in done.stderr
    else:
        assert found["error"] == done.stderr.strip() and "sample" in found["error"]
