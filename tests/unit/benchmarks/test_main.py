"""What `make study` and the other benchmarks refuse before anything is trained."""

import subprocess
import sys

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.study import StudyArguments
from benchmarks.time_to_accuracy import TimeArguments
from pipeline.errors import UserError
from pipeline.settings import parse


@pytest.fixture
def start(monkeypatch):
    """Run the command with some words; a process that it starts fails the test."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    for name in ("ARGS", "SEEDS", "SMALL", "OUT", "RECIPE", "DATA_ROOT", "MODEL", "MAKE_WORDS"):
        monkeypatch.delenv(name, raising=False)

    def call(*words, **env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        benchmarks.main()

    return call


@pytest.mark.parametrize(
    ("goal", "env", "fault"),
    [
        ("study", {"ARGS": "--sede 1"}, "sede"),
        ("bench-curriculum", {"ARGS": "--arms best"}, "arms: "),
        ("study", {"SEEDS": "0 one"}, "seeds"),
        ("study", {"MODEL": "/mine"}, "MODEL: study does not take it"),
        ("bench-curriculum", {"RECIPE": "grpo7b"}, "RECIPE: bench-curriculum does not take it"),
        ("study", {"MAKE_WORDS": "CUDA_VISIBLE_DEVICES=0 LR=1"}, "LR=1: study does not take it"),
        ("study", {"RECIPE": "qwen2.5-0.5b"}, r"qwen2.5-0.5b/eval.yaml: has no test_file"),
    ],
)
def test_a_fault_is_told_before_the_starting_model_is_made(start, goal, env, fault):
    with pytest.raises(UserError, match=fault):
        start(goal, **env)


@pytest.mark.parametrize("goal", ["study", "bench-time", "bench-curriculum"])
def test_each_shows_its_keys(start, goal):
    with pytest.raises(SystemExit) as end:
        start(goal, "--help")
    assert not end.value.code


def test_a_recipe_has_keys_of_its_own(start, monkeypatch):
    monkeypatch.setenv("RECIPE", "smollm2-135m")
    monkeypatch.setenv("DATA_ROOT", "/my/data")
    before, own = benchmarks.command("study", ["--jobs", "1"])
    assert before == [
        *("-m", "pipeline", "data", "RECIPE=smollm2-135m", "RUN=runs/smollm2-135m"),
        "DATA_ROOT=/my/data",
    ]
    (args,) = parse("", StudyArguments, argv=own[2:])
    assert args.own_starts and (args.seeds, args.control_seeds) == ([1, 2, 3], [4])
    assert args.out == "docs/results/smollm2.md" and args.recipe_run == "runs/smollm2-135m"
    monkeypatch.setenv("RECIPE", "skewed-cpu")  # has none
    assert "docs/results/study-skewed-cpu.md" in benchmarks.command("study", [])[1]
    monkeypatch.delenv("RECIPE")
    monkeypatch.setenv("SEEDS", "12 21")
    assert "difficulty" in benchmarks.command("study", [])[0]  # tiny-cpu's GRPO reads pass rates
    before, own = benchmarks.command("bench-time", [])
    assert before[2:4] == ["sft", "RECIPE=smollm2-135m"]
    (args,) = parse("", TimeArguments, argv=own[2:])
    assert args.seeds == [12, 21] and args.out == "docs/results/time-to-accuracy.md"
    assert args.arms_of(12)[2:] == ["ours, offline", "ours, no curriculum"] != args.arms_of(21)[2:]
