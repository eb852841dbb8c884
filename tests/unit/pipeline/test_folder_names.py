"""Folders with any letters in their names, and an environment that cannot be made or started."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import errors, folders, manifest, recipe_files, venv

ROOT = Path(__file__).parents[3]
NAME = "a b'c\"d[e]*$(touch pwned)`touch pwned`&;#: %41,f=g\\{run}\\t~ü"


def test_the_name_of_a_run_changes_nothing_else_in_a_yaml(tmp_path):
    path = tmp_path / "sft.yaml"
    path.write_text('a: "{run}/sft"\nb: {run}/data\nc: [x, "{run}"]\n', encoding="utf-8")
    found = recipe_files.read_yaml(str(path), NAME)
    assert found == {"a": f"{NAME}/sft", "b": f"{NAME}/data", "c": ["x", NAME]}


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
