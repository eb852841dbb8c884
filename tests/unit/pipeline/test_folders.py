"""A folder: its one owner, any letters in its name, an environment that cannot be started."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline import errors, folders, lock, manifest, venv
from tests.refused import refused

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
        refused(f"in use by process {process.pid} on ", lock.claim, tmp_path / "run")
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


@pytest.mark.parametrize("text", ["", "{", '{"host": "a", "pid": 1, "started": 5.0}'])
def test_a_file_that_nobody_holds_is_no_lock(tmp_path, text):
    (tmp_path / "run.lock").write_text(text)
    lock.claim(tmp_path / "run")
    lock.release(tmp_path / "run.lock", os.getpid())


def test_a_run_below_a_file_is_refused(tmp_path):
    (tmp_path / "rows.jsonl").touch()
    refused("is a file; choose another folder", lock.claim, tmp_path / "rows.jsonl/run")


def test_of_many_that_start_together_one_owns(tmp_path):
    """The owner ends when its input does, the others at once."""
    hold = "import sys; from pipeline import errors, lock\n"
    hold += "errors.run_cli(lambda: (lock.claim(sys.argv[1]), sys.stdin.read()))"
    command = [sys.executable, "-c", hold, str(tmp_path / "run")]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started, deadline = [subprocess.Popen(command, **pipes) for _ in range(4)], time.time() + 120
    while sum(process.poll() is None for process in started) > 1 and time.time() < deadline:
        time.sleep(0.05)
    ends = [(process.communicate()[1], process.returncode) for process in started]
    assert sorted(code for _, code in ends) == [0, 2, 2, 2]
    assert all("in use by" in text for text, code in ends if code)  # its file may be empty yet
    assert list(tmp_path.iterdir()) == []


# Any letters in a name, and an environment that cannot be made or started.

ROOT = Path(__file__).parents[3]
NAME = "a b'c\"d[e]*$(touch pwned)`touch pwned`&;#: %41,f=g\\{run}\\t~ü"


@pytest.fixture(autouse=True)
def outside_make(monkeypatch):
    """`make test` hands its flags and its Python on to every make below it."""
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKE_GOALS", "PY"):
        monkeypatch.delenv(name, raising=False)


def test_make_starts_what_it_should_in_such_a_folder(tmp_path):
    clone = tmp_path / NAME
    (clone / ".venv/bin").mkdir(parents=True)
    for name in ("pipeline", "Makefile", "pyproject.toml", "locks"):
        (clone / name).symlink_to(ROOT / name)
    python = clone / ".venv/bin/python"
    python.write_text('#!/bin/sh\necho "started $*"\n', encoding="utf-8")
    python.chmod(0o755)
    (clone / ".venv/ready").touch()
    done = subprocess.run(["make", "doctor"], cwd=clone, capture_output=True, text=True)
    assert done.stdout == "started -c \nstarted -m pipeline doctor\n", done
    assert done.returncode == 0
    assert not list(tmp_path.rglob("pwned"))


def test_nothing_is_started_through_a_shell(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(venv, "run", lambda *words, **_: started.append(words) or "")
    monkeypatch.setattr(venv, "index_variables", lambda python: {})
    (tmp_path / NAME).mkdir()
    assert venv.install(str(tmp_path / NAME), "gpu") == ""
    python = f"{tmp_path / NAME}/bin/python"
    assert [words[0] for words in started] == [sys.executable, *[python] * 3]
    assert [words[words.index("--python") + 1] for words in started[2:]] == [python] * 2


def test_the_runs_of_a_folder_with_brackets_are_found(tmp_path):
    for name in ("x[1]-0a1b2c", "x[1]-0a1b2c-2", "x[1]-0a1b2c-1", "x[1]-0A1B2C", "x1-0a1b2c"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / folders.RUN_FILE).touch()
    assert len(folders.runs_of(tmp_path / "x[1]")) == 2


def test_a_name_that_is_not_utf8_is_written_and_read(tmp_path):
    name = os.fsdecode(b"\xff\xfe")
    manifest.write_json(tmp_path / "a.json", {name: 1})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {name: 1}


def test_an_environment_whose_python_is_gone(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to("/no/python3")
    (tmp_path / "ready").touch()
    done = subprocess.run(
        ["make", "doctor", f"VENV={tmp_path}"], cwd=ROOT, capture_output=True, text=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(lines) == 1 and "/no/python3" in lines[0], done
    assert venv.check(str(tmp_path), "cpu")
    assert venv.explain(str(tmp_path), 2) == ""  # it was started


WITHOUT = """
import runpy, sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == {package!r} else find(name, *more)
sys.modules.pop({package!r}, None)
sys.argv = ["pipeline", "doctor"]
runpy.run_module("pipeline", run_name="__main__")
"""


@pytest.mark.parametrize("package", ["rich", "yaml"])
def test_a_package_that_is_missing(package):
    command = [sys.executable, "-c", WITHOUT.format(package=package)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and package in done.stderr, done


def test_a_module_of_ours_that_is_missing_stays_visible(capsys):
    def main():
        import pipeline.no_such  # noqa: F401

    with pytest.raises(ModuleNotFoundError):
        errors.run_cli(main, is_first=False)
