"""A launch that would become another one is refused; every launch that does as it says is not."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pipeline.errors import UserError
from pipeline.key_types import known_keys
from pipeline.settings import Settings, run_check
from stages.arguments import GRPO, GrpoArguments
from stages.run import launch
from stages.run.launch import asked_of_launcher, check_launch, check_started, keep_batch, launched
from tests.recipes import LAUNCHES
from tests.unit.stages.helpers import sft

CONFIGS = Path(__file__).parents[3] / "configs" / "accelerate"
TWO = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
CPU = {"use_cpu": True, "bf16": False}
FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
FSDP2["FSDP_STATE_DICT_TYPE"] = "FULL_STATE_DICT"
ZERO2 = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}
ZERO3 = ZERO2 | {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}
ZERO3["ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"] = "true"
FILE = {"config_file": "x.yaml"}


# name: recipe, environment, what the launcher was asked for
GOOD = {
    "nothing but the recipe": ({}, {}, {}),
    "two of two": (CPU, TWO | {"NUM_PROCESSES": "2"}, {"num_processes": "2"}),
    "one step of a batch job": ({}, {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"}, {}),
    "a launcher on each host by srun": ({}, TWO | {"SLURM_STEP_NUM_TASKS": "2"}, {}),
    "a CPU config for a CPU recipe": (CPU, TWO, FILE | {"use_cpu": True, "num_processes": 2}),
    "accelerate's switch for the CPU": ({}, {"ACCELERATE_USE_CPU": "True"}, {"cpu": True}),
    "FSDP 2": ({}, TWO | FSDP2, FILE | {"distributed_type": "FSDP"}),
    "ZeRO-2 on a CPU": (CPU, TWO | ZERO2, {"use_deepspeed": "true"}),
    "ZeRO-3": ({}, TWO | ZERO3, {}),
    "a launch that says no precision": ({"bf16": True}, {"ACCELERATE_MIXED_PRECISION": "no"}, {}),
}

# name: recipe, environment, what the launcher was asked for, how the error begins
BAD = {
    "make's number": (CPU, {"NUM_PROCESSES": "2"}, {}, "NUM_PROCESSES: 2 wanted, .*started 1;"),
    "srun": (CPU, {"SLURM_STEP_NUM_TASKS": "4"}, {}, "SLURM_STEP_NUM_TASKS: 4 copies .*torchrun"),
    "accelerate --cpu": (
        CPU, {"ACCELERATE_USE_CPU": "True"}, {"cpu": True, "num_processes": "2"},
        "num_processes: 2 wanted, .*started 1;",
    ),
    "another number": (CPU, TWO, {"num_processes": "4"}, "num_processes: 4 .*started 2;"),
    "a CPU config for a GPU recipe": (
        {}, TWO, FILE | {"use_cpu": True}, "use_cpu: the launch .x.yaml. is for CPUs",
    ),
    "FSDP on a CPU": (CPU, TWO | FSDP2, {}, "use_cpu: FSDP needs GPUs"),
    "FSDP and accelerate's switch for the CPU": (
        {}, TWO | FSDP2 | {"ACCELERATE_USE_CPU": "true"}, {}, "use_cpu: FSDP needs GPUs",
    ),
    "FSDP 1 by default": (
        {}, TWO | {"ACCELERATE_USE_FSDP": "true"}, {}, "fsdp_version: the launch would run FSDP 1",
    ),
    "sharded saves": (
        {}, TWO | FSDP2 | {"FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT"}, {},
        "fsdp_state_dict_type: SHARDED_STATE_DICT saves no model",
    ),
    "FSDP of the recipe": ({"fsdp": True}, TWO, {}, "fsdp: belongs to the launch"),
    "DeepSpeed's own file": (
        {}, TWO | ZERO2 | {"ACCELERATE_DEEPSPEED_CONFIG_FILE": "zero.json"}, {},
        "deepspeed_config_file: ",
    ),
    "ZeRO-3 that saves no model": (
        {}, TWO | ZERO3 | {"ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "false"}, {},
        "zero3_save_16bit_model: false",
    ),
    "another precision": (
        {"bf16": False}, {"ACCELERATE_MIXED_PRECISION": "bf16"}, {},
        "mixed_precision: bf16 in the launch, no in the recipe",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_does_as_it_says_is_let_through(name):
    recipe, env, asked = GOOD[name]
    check_launch(sft(recipe), env, asked)


@pytest.mark.parametrize("name", BAD)
def test_what_would_become_something_else_is_refused(name):
    recipe, env, asked, message = BAD[name]
    with pytest.raises(UserError, match=f"^{message}") as error:
        check_launch(sft(recipe), env, asked)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("python /venv/bin/accelerate launch --num_processes 2 -m stages.sft --seed 3", 2),
        ("python -m accelerate.commands.launch --num-processes=2 train.py", 2),
        ("/venv/bin/accelerate-launch --cpu --num-processes=2 -m stages.sft", 2),
        ("python -m stages.run.launch --num_processes 2 -m stages.sft --num_processes 3", 2),
        ("accelerate launch -m stages.sft --num_processes 3", None),
        ("torchrun --nproc_per_node 2 -m stages.sft", None),
        ("", None),
    ],
)
def test_the_launchers_number_of_processes(command, asked):
    assert asked_of_launcher(command.split()).get("num_processes") == asked


def test_the_launchers_config_file_and_what_beats_it(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text("num_processes: 2\ndistributed_type: MULTI_GPU\nuse_cpu: true\n")
    flags = f"--config_file {file}"
    for more, number in (("", 2), ("--num_processes 3", 3)):
        found = asked_of_launcher(f"accelerate launch {flags} {more} -m stages.sft".split())
        assert (found["num_processes"], found["use_cpu"]) == (number, True)
        assert found["config_file"] == str(file)


def test_the_parents_command_line_is_read():
    """As `accelerate launch` starts a stage: a child of a process of that name."""
    child = "from stages.run import launch; print(launch.parent_command()[-3:])"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    command = [sys.executable, "-c", parent, "launch", "--num_processes", "2"]
    found = subprocess.run(command, cwd=CONFIGS.parents[1], capture_output=True, text=True)
    assert found.stdout == "['launch', '--num_processes', '2']\n", found


STARTED = {
    "one process": ({}, {}, 0, 1, None),
    "two on a CPU": (CPU, TWO, 0, 2, None),
    "a CPU recipe on a GPU host": (CPU, TWO, 8, 2, "use_cpu: true, but this host has 8 GPUs"),
    "torch's old DataParallel": ({}, {}, 8, 1, "num_processes: 1 process sees 8 GPUs"),
    "one of eight by a launcher": ({}, {"LOCAL_RANK": "0"}, 8, 1, None),
    "each by itself": (CPU, TWO, 0, 1, "num_processes: 2 started, but only 1 work together"),
}


@pytest.mark.parametrize("name", STARTED)
def test_what_has_started(monkeypatch, name):
    import accelerate
    import torch

    config, env, num_gpus, num_running, message = STARTED[name]
    for key in (*TWO, *ZERO3, *FSDP2):
        monkeypatch.delenv(key, raising=False)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    state = SimpleNamespace(num_processes=num_running)
    monkeypatch.setattr(accelerate, "PartialState", lambda cpu: state)
    if message is None:
        return check_started(bool(config))
    with pytest.raises(UserError, match=f"^{message}"):
        check_started(bool(config))


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_config_is_one_that_accelerate_knows(name):
    """Unknown keys make accelerate fail; a comment says what the file is for and what it needs."""
    from accelerate.commands.config.config_args import load_config_from_file

    path = CONFIGS / f"{name}.yaml"
    config = load_config_from_file(str(path))
    assert config.distributed_type.value in ("NO", "MULTI_GPU", "FSDP", "DEEPSPEED")
    assert path.read_text().startswith("# ")
    settings = yaml.safe_load(path.read_text())
    assert settings["num_processes"] == config.num_processes


BATCH = {"gradient_accumulation_steps": 16, "steps_per_generation": 64}


@pytest.mark.parametrize(
    ("values", "typed", "processes", "expected"),
    [
        (BATCH, (), 8, (16, 64)),  # without `batch_for_gpus` as it is
        (BATCH | {"batch_for_gpus": 32}, (), 32, (16, 64)),
        (BATCH | {"batch_for_gpus": 32}, (), 8, (64, 256)),
        (BATCH | {"batch_for_gpus": 32}, (), 512, (1, 4)),
        (BATCH | {"batch_for_gpus": 32}, ("gradient_accumulation_steps",), 8, (16, 64)),
        (BATCH | {"batch_for_gpus": 32}, ("learning_rate",), 64, (8, 32)),
        ({"batch_for_gpus": 8}, (), 4, (2, None)),  # TRL's default of 1
    ],
)
def test_a_step_keeps_its_rows(values, typed, processes, expected):
    settings = Settings(values, {}, known_keys(GrpoArguments, GRPO), typed=typed)
    found = keep_batch(settings, processes)
    names = ("gradient_accumulation_steps", "steps_per_generation")
    assert tuple(getattr(found, name) for name in names) == expected
    rows = expected[0] * processes
    if "batch_for_gpus" in values and not {*names} & {*typed}:
        assert rows == values["batch_for_gpus"] * values.get(names[0], 1)


@pytest.mark.parametrize(
    ("values", "processes", "line"),
    [
        (BATCH | {"batch_for_gpus": 1}, 3, "16 on 1 GPUs has no whole number on 3; use 1, 2, 4, 8"),
        (BATCH | {"batch_for_gpus": 1}, 32, "has no whole number on 32; use 1, 2, 4, 8, 16 proc"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(values, processes, line):
    settings = Settings(values, {}, known_keys(GrpoArguments, GRPO))
    with pytest.raises(UserError, match=r"^batch_for_gpus: ") as error:
        keep_batch(settings, processes)
    assert line in str(error.value)


def test_the_stage_says_what_it_changes(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setattr(launch, "check_launch", lambda *_: None)
    values = BATCH | {"batch_for_gpus": 1, "gradient_accumulation_steps": 8}
    settings = Settings(values, {}, known_keys(GrpoArguments, GRPO))
    found = run_check(settings, launched(lambda one: None))
    assert found.gradient_accumulation_steps == 1 and found.steps_per_generation == 8
    said = capsys.readouterr().err
    assert "gradient_accumulation_steps: 1, steps_per_generation: 8 on 8 GPUs" in said
