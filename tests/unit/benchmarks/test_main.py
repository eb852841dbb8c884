"""What `make study` and the other benchmarks refuse before anything is trained."""

import subprocess
import sys

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.study import StudyArguments
from benchmarks.time_to_accuracy import TimeArguments
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse


@pytest.fixture
def start(monkeypatch):
    """Run the command with some words; a process that it starts fails the test."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    for name in (
        "ARGS",
        "SEEDS",
        "MODES",
        "SMALL",
        "OUT",
        "RECIPE",
        "DATA_ROOT",
        "MODEL",
        "MAKE_WORDS",
    ):
        monkeypatch.delenv(name, raising=False)

    def call(*words, **env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        benchmarks.main()

    return call


@pytest.mark.parametrize("goal", ["study", "bench-curriculum"])
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
        run_cli(
            lambda: start("bench-curriculum", "--runs", "none", SEEDS="", MODES=""), is_first=False
        )
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "'runs'" in error and error.count("\n") == 1


def test_a_study_of_a_recipe_takes_its_keys_and_makes_its_data(monkeypatch):
    for name in ("SMALL", "OUT", "SEEDS", "CPU_STANDIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RECIPE", "smollm2-135m")
    monkeypatch.setenv("DATA_ROOT", "/my/data")
    before, own = benchmarks.command("study", ["--jobs", "1"])
    assert before == [
        *("-m", "pipeline", "data", "RECIPE=smollm2-135m", "RUN=runs/smollm2-135m"),
        "DATA_ROOT=/my/data",
    ]
    keys = own[own.index("--config") + 1]
    assert own[-2:] == ["--jobs", "1"] and keys.endswith("benchmarks/study-smollm2-135m.yaml")
    (args,) = parse("", StudyArguments, argv=own[2:])
    assert args.own_starts and args.control_seeds != args.seeds
    assert args.out == "docs/results/smollm2.md" and args.recipe_run == "runs/smollm2-135m"
    monkeypatch.setenv("OUT", "mine.md")
    (args,) = parse("", StudyArguments, argv=benchmarks.command("study", [])[1][2:])
    assert args.out == "mine.md"
    monkeypatch.setenv("RECIPE", "skewed-cpu")  # has no keys of its own
    monkeypatch.delenv("OUT")
    assert "docs/results/study-skewed-cpu.md" in benchmarks.command("study", [])[1]
    before, own = benchmarks.command("bench-curriculum", [])  # takes no recipe
    assert "RECIPE=skewed-cpu" in before and not [one for one in before if "DATA_ROOT" in one]


def test_seeds_of_the_command_line_replace_those_of_the_keys(monkeypatch):
    for name in ("SMALL", "OUT", "RECIPE", "CPU_STANDIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SEEDS", "12 21")
    before, own = benchmarks.command("bench-time", [])
    assert before[2:4] == ["sft", "RECIPE=smollm2-135m"]
    (args,) = parse("", TimeArguments, argv=own[2:])
    assert args.seeds == args.seeds_of("ours") == [12, 21]
    assert args.seeds_of("ours, offline") == [12]
    assert args.out == "docs/results/time-to-accuracy.md"


def test_what_a_benchmark_would_ignore_is_refused(start):
    with pytest.raises(UserError, match="MODEL: study does not take it"):
        start("study", MODEL="/mine", RECIPE="smollm2-135m")
    with pytest.raises(UserError, match="RECIPE: bench-curriculum does not take it"):
        start("bench-curriculum", MODEL="", RECIPE="grpo7b")
    with pytest.raises(UserError, match="LR=1: bench-curriculum does not take it"):
        start("bench-curriculum", MODEL="", RECIPE="", MAKE_WORDS="CUDA_VISIBLE_DEVICES=0 LR=1")


def test_a_study_needs_test_problems(start):
    with pytest.raises(UserError, match=r"qwen2.5-0.5b/eval.yaml: has no test_file"):
        start("study", RECIPE="qwen2.5-0.5b")


def test_control_runs_are_of_the_seeds_that_are_asked_for(monkeypatch):
    args = StudyArguments(grpo_config="g", recipe_run="r", seeds=[0, 1])
    assert args.seeds_of("sft") == [0, 1]
    args = StudyArguments(grpo_config="g", recipe_run="r", seeds=[0, 1], controls=False)
    assert args.seeds_of("sft") == [] and args.seeds_of("start") == [0, 1]
    monkeypatch.setenv("RECIPE", "smollm2-135m")
    for seeds, own, controls in (("", [1, 2, 3], [4]), ("2", [2], []), ("2 4", [2, 4], [4])):
        monkeypatch.setenv("SEEDS", seeds)
        (args,) = parse("", StudyArguments, argv=benchmarks.command("study", [])[1][2:])
        assert (args.seeds_of("own"), args.seeds_of("random")) == (own, controls)
