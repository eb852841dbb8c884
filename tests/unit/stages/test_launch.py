"""A launch that would become another one is refused; none starts again for the error it has met."""

import json
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from torch.distributed.elastic.multiprocessing import errors as torch_errors

from pipeline import commands
from pipeline import request as requests
from pipeline.errors import UserError
from pipeline.key_types import known_keys
from pipeline.launched import in_launch, note_for_launcher
from pipeline.settings import Settings, run_check
from stages import host, sweep
from stages.arguments import GRPO, GrpoArguments
from stages.preflight import rehearsal
from stages.run import launch
from stages.run.launch import asked_of_launcher, check_launch, check_started, keep_batch, launched
from stages.run.restarts import cause, errors_of, same_error
from tests.recipes import LAUNCHES
from tests.refused import refused
from tests.tables import read_beside, tables_beside
from tests.unit.stages.helpers import sft

table = tables_beside(__file__)

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "configs" / "accelerate"
CASES = read_beside(__file__)


@pytest.mark.parametrize("case", CASES["good"].values(), ids=CASES["good"])
def test_what_does_as_it_says_is_let_through(case):
    check_launch(sft(case.get("recipe", {})), case.get("env", {}), case.get("asked", {}))


@pytest.mark.parametrize("case", CASES["bad"].values(), ids=CASES["bad"])
def test_what_would_become_something_else_is_refused(case):
    settings = sft(case.get("recipe", {}))
    refused(f"^{case['error']}", check_launch, settings, case["env"], case.get("asked", {}))


@table
def test_the_launchers_number_of_processes(command, asked):
    assert asked_of_launcher(command.split()).get("num_processes") == asked


def test_the_launchers_config_file_and_what_beats_it(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text("num_processes: 2\ndistributed_type: MULTI_GPU\nuse_cpu: true\n")
    for more, number in (("", 2), ("--num_processes 3", 3)):
        words = f"accelerate launch --config_file {file} {more} -m stages.sft".split()
        found = asked_of_launcher(words)
        assert (found["num_processes"], found["use_cpu"]) == (number, True)
        assert found["config_file"] == str(file)


def test_the_parents_command_line_is_read():
    """As `accelerate launch` starts a stage: a child of a process of that name."""
    child = "from stages.run import launch; print(launch.parent_command()[-3:])"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    command = [sys.executable, "-c", parent, "launch", "--num_processes", "2"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.stdout == "['launch', '--num_processes', '2']\n", found


@table
def test_what_has_started(monkeypatch, use_cpu, env, num_gpus, num_running, message):
    import accelerate
    import torch

    for key in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(key, raising=False)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    state = SimpleNamespace(num_processes=num_running)
    monkeypatch.setattr(accelerate, "PartialState", lambda cpu: state)
    with pytest.raises(UserError, match=f"^{message}") if message else nullcontext():
        check_started(use_cpu)


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_config_is_one_that_accelerate_knows(name):
    """Unknown keys make accelerate fail; a comment says what the file is for and what it needs."""
    from accelerate.commands.config.config_args import load_config_from_file

    path = CONFIGS / f"{name}.yaml"
    config = load_config_from_file(str(path))
    assert config.distributed_type.value in ("NO", "MULTI_GPU", "FSDP", "DEEPSPEED")
    assert path.read_text().startswith("# ")
    assert yaml.safe_load(path.read_text())["num_processes"] == config.num_processes


BATCH = {"gradient_accumulation_steps": 16, "steps_per_generation": 64}


def settings_of(values, typed=()):
    return Settings(values, {}, known_keys(GrpoArguments, GRPO), typed=typed)


@table
def test_a_step_keeps_its_rows(values, typed, processes, expected):
    settings = settings_of(values, tuple(typed))
    if isinstance(expected, str):
        refused(rf"^batch_for_gpus: .*{expected}", keep_batch, settings, processes)
        return
    found = keep_batch(settings, processes)
    assert [found.gradient_accumulation_steps, found.steps_per_generation] == expected


def test_the_stage_says_what_it_changes(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setattr(launch, "check_launch", lambda *_: None)
    settings = settings_of(BATCH | {"batch_for_gpus": 1, "gradient_accumulation_steps": 8})
    found = run_check(settings, launched(lambda one: None))
    assert found.gradient_accumulation_steps == 1 and found.steps_per_generation == 8
    said = capsys.readouterr().err
    assert "gradient_accumulation_steps: 1, steps_per_generation: 8 on 8 GPUs" in said


# What is checked ahead is checked as on the processes of the launch, and not as on one.


@table
def test_a_recipe_is_checked_ahead_for_its_launch(tmp_path, monkeypatch, words, error):
    monkeypatch.setattr(rehearsal, "is_installed", lambda package: True)
    monkeypatch.setattr(rehearsal, "check_packages", lambda settings: None)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    given = ["grpo", f"RECIPE={ROOT}/configs/grpo7b", f"RUN={tmp_path}", *shlex.split(words)]
    ahead = commands.look_ahead(requests.read(given, {}))
    monkeypatch.setattr(sys, "argv", ["ahead", *ahead[2:]])
    with pytest.raises(UserError, match=error) if error else nullcontext():
        rehearsal.main()


@pytest.mark.parametrize("number", [2, 1])
def test_a_sweep_is_checked_on_the_processes_of_its_runs(tmp_path, monkeypatch, number):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(host, "is_installed", lambda package: True)
    monkeypatch.setattr(host, "has_gpu", lambda: True)
    for check in ("check_packages", "check_file", "check_checkpoint", "check_held_out"):
        monkeypatch.setattr(f"stages.host.{check}", lambda *_, **__: None)
    words = [sys.executable, "-m", "stages.run.launch", "--config_file", f"{CONFIGS}/ddp.yaml"]
    words += ["--num_processes", str(number), "-m"]
    args = sweep.SweepArguments(
        grpo_config=f"{ROOT}/configs/grpo7b/grpo.yaml", run=str(tmp_path), sweep=["beta=0.1"],
        keys=["grpo.vllm_tensor_parallel_size=2"], launcher=shlex.join(words),
    )  # fmt: skip
    is_wrong = pytest.raises(UserError, match="2 does not divide 1 processes")
    with is_wrong if number == 1 else nullcontext():
        sweep.check(args, sweep.combinations(args.sweep))


# A launch does not start again for the error that it has just met, unless it got further.


def failure(code, rank=0, **facts):
    """Torch elastic's own record of a process that has failed."""
    found = torch_errors.ProcessFailure(rank, 1, code, "none")
    found.error_file_data = facts
    return found


@table
def test_which_errors_count(code, facts, is_oom_kill, expected):
    expected, failures = {*expected}, [failure(code, **facts), failure(75, rank=1)]
    assert errors_of(failures, is_oom_kill) == expected
    assert same_error(expected, failures, is_oom_kill) == expected
    assert same_error({"another"}, failures, is_oom_kill) == set()
    further = failure(code, **facts, checkpoint="run/checkpoint-8")
    assert same_error(expected, [further], is_oom_kill) == set()


def test_a_process_leaves_its_facts_for_torch_elastic(tmp_path, monkeypatch):
    file = tmp_path / "error.json"
    note_for_launcher(checkpoint="nowhere")  # without a launcher
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    note_for_launcher(checkpoint="run/checkpoint-8")

    def fail():
        raise ValueError("17 is odd")

    with pytest.raises(ValueError, match="17 is odd"):
        in_launch(fail)()
    read = torch_errors.ProcessFailure(0, 1, 1, str(file))
    assert read.error_file_data["checkpoint"] == "run/checkpoint-8"
    (error,) = errors_of([read], is_oom_kill=False)
    assert "ValueError" in error and "test_launch.py" in error and "17" not in error
    assert json.loads(file.read_text())["timestamp"] == read.timestamp > 0


@table
def test_the_cause_is_no_process_that_ended_for_another(codes, rank):
    failures = {n: failure(code, rank=n) for n, code in enumerate(codes)}
    for n, found in failures.items():
        found.timestamp = n  # the times of checkpoints would name rank 0
    assert cause(failures) == (rank, failures[rank])
