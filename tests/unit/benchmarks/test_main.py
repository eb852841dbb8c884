"""What `make study` and the other benchmarks refuse before anything is trained."""

import subprocess
import sys

import pytest

from benchmarks import __main__ as benchmarks
from pipeline.errors import UserError, run_cli


@pytest.fixture
def start(monkeypatch):
    """Run the command with some words; a process that it starts fails the test."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    for name in ("ARGS", "SEEDS", "MODES", "SMALL", "OUT"):
        monkeypatch.delenv(name, raising=False)

    def call(*words, **env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        benchmarks.main()

    return call


@pytest.mark.parametrize("goal", ["study", "bench-curriculum", "bench-guards"])
def test_a_wrong_key_is_refused_before_the_starting_model_is_made(start, goal):
    with pytest.raises(UserError, match="sede"):
        start(goal, ARGS="--sede 1")
    with pytest.raises(SystemExit) as end:
        start(goal, "--help", ARGS="")
    assert not end.value.code


def test_so_are_wrong_values(start, capsys):
    with pytest.raises(UserError, match="modes: "):
        start("bench-curriculum", MODES="stock best")
    with pytest.raises(UserError, match="seeds"):
        start("study", SEEDS="0 one")
    with pytest.raises(SystemExit) as end:
        run_cli(lambda: start("bench-guards", "--runs", "none"), is_first=False)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "runs: " in error and error.count("\n") == 1
