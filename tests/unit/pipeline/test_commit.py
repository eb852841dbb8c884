"""The commit of the code, and a manifest where none is known."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from pipeline import manifest
from pipeline.settings import RecipeArguments
from stages import doctor

ROOT = Path(__file__).resolve().parents[3]


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository that seems to be the project's."""
    place = tmp_path / "checkout"
    (place / "pipeline").mkdir(parents=True)
    (place / "pipeline" / "manifest.py").write_text("")
    git(tmp_path, "init", "-q", str(place))
    git(place, "add", ".")
    git(place, "commit", "-qm", "one")
    monkeypatch.setattr(manifest, "__file__", str(place / "pipeline" / "manifest.py"))
    manifest._tell_unknown.cache_clear()
    return place


def program(tmp_path, text):
    (tmp_path / "bin").mkdir(exist_ok=True)
    file = tmp_path / "bin" / "git"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(tmp_path / "bin")


def test_git_runs_no_program_that_environment_or_repository_name(tmp_path, checkout, monkeypatch):
    evil = Path(program(tmp_path, f"touch {tmp_path}/ran"), "git")
    for number, key in enumerate(("core.fsmonitor", "core.pager", "diff.external")):
        git(checkout, "config", key, str(evil))
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", str(evil))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "3")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(evil))
    (checkout / "pipeline" / "manifest.py").write_text("changed")
    assert manifest.git_commit().endswith("-dirty") and not (tmp_path / "ran").exists()


def test_the_commit_is_of_this_code_whatever_git_dir_says(tmp_path, checkout, monkeypatch):
    commit = manifest.git_commit()
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert len(commit) == 40 and manifest.git_commit() == commit


@pytest.mark.parametrize(
    "fault",
    ["no git", "no repository", "sleep 5", "printf '\\377' >&2; exit 3", "exit 0"],
)
def test_without_a_commit_the_manifest_is_written_with_one_notice(
    tmp_path, checkout, monkeypatch, capfd, fault
):
    monkeypatch.setattr(manifest, "GIT_SECONDS", 0.2 if fault == "sleep 5" else 20)
    if fault == "no git":
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    elif fault == "no repository":
        (checkout / ".git").rename(tmp_path / "away")
    else:  # what a program of this name does
        monkeypatch.setenv("PATH", f"{program(tmp_path, fault)}:{os.environ['PATH']}")
    for _ in range(2):
        manifest.write(tmp_path, "data", {}, {}, {}, 0.0)
    assert json.loads((tmp_path / "manifest.json").read_text())["git_commit"] is None
    assert capfd.readouterr().err.count("notice: ") == 1


def test_the_doctor_answers_without_git(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "devices", lambda: "none")
    monkeypatch.chdir(ROOT)
    assert doctor.examine(RecipeArguments(recipe="configs/tiny-cpu"))["commit"] == "unknown"
