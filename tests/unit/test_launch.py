"""What a command line of `accelerate launch` asks for, read as accelerate itself reads it."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from stages.launching import launch


@pytest.fixture(autouse=True)
def default_file(monkeypatch, tmp_path):
    """Where accelerate looks for a config file when none is named; there is none."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf" / "accelerate" / "default_config.yaml"


COMMANDS = {
    "/venv/bin/python /venv/bin/accelerate launch --num_processes 2 -m stages.sft --seed 3": {
        "num_processes": "2"
    },
    "python -m accelerate.commands.launch --num-processes=2 train.py": {"num_processes": "2"},
    "/venv/bin/accelerate-launch --num-processes=2 train.py": {"num_processes": "2"},
    "accelerate launch --cpu --num-processes=4 -m stages.sft": {"cpu": True, "num_processes": "4"},
    "accelerate launch --cpu train.py --num_processes 3": {"cpu": True},
    "accelerate launch -m stages.sft --num_processes 3": {},
    "accelerate launch -m --num_processes 2 stages.sft --num_processes 3": {"num_processes": "2"},
    "accelerate launch --debug stages/sft.py --num_processes 9": {"debug": True},
    "accelerate launch --no-python stages/sft.py --num_processes 9": {"no_python": True},
    "torchrun --nproc_per_node 2 -m stages.sft": {},
    "make launch": {},
    "": {},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_of_the_launcher(command):
    assert launch.launcher_settings(command.split()) == COMMANDS[command]


def test_switches_are_those_of_accelerate():
    from accelerate.commands.launch import launch_command_parser

    switches = {
        name.lstrip("-").replace("-", "_")
        for action in launch_command_parser()._actions
        if action.nargs == 0
        for name in action.option_strings
    }
    assert switches == launch.SWITCHES


def test_accelerates_default_file_is_read_where_none_is_named(default_file, tmp_path):
    default_file.parent.mkdir(parents=True)
    default_file.write_text("num_processes: 4\nuse_cpu: true\n")
    command = "accelerate launch {} -m stages.sft"
    found = launch.launcher_settings(command.format("--mixed_precision no").split())
    assert found == {
        "num_processes": 4, "use_cpu": True, "mixed_precision": "no",
        "config_file": str(default_file),
    }  # fmt: skip
    assert launch.launcher_settings(command.format("--cpu").split()) == {"cpu": True}
    other = tmp_path / "other.yaml"
    other.write_text("num_processes: 2\n")
    found = launch.launcher_settings(command.format(f"--config_file {other}").split())
    assert found == {"num_processes": 2, "config_file": str(other)}
    assert launch.launcher_settings(["torchrun", "-m", "stages.sft"]) == {}


@pytest.mark.parametrize("env", [{}, {"XDG_CACHE_HOME": "/c"}, {"HF_HOME": "~/h"}])
def test_the_default_file_is_where_accelerate_has_it(env, monkeypatch):
    for key in ("HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(key, raising=False)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    from accelerate.commands.config import config_args

    there = runpy.run_path(config_args.__file__, run_name="accelerate.commands.config.again")
    assert str(launch.default_config_file(env)) == there["default_yaml_config_file"]


def test_flags_beat_the_launchers_config_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("num_processes: 8\nmixed_precision: bf16\nuse_cpu: false\n")
    found = launch.launcher_settings(
        [
            "accelerate",
            "launch",
            f"--config_file={path}",
            "--num_processes",
            "2",
            "-m",
            "stages.sft",
        ]
    )
    assert found["num_processes"] == "2" and found["mixed_precision"] == "bf16"
    assert found["use_cpu"] is False and found["config_file"] == str(path)


def test_the_parents_command_line_is_read():
    """As `accelerate launch` starts a stage: a child of a process of that name."""
    child = (
        "from stages.launching import launch\n"
        "print(launch.launcher_settings(launch.parent_command()))"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    command = [
        sys.executable,
        "-c",
        parent,
        "accelerate",
        "launch",
        "--cpu",
        "--num_processes",
        "2",
    ]
    root = Path(__file__).parents[2]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert found.stdout == "{'cpu': True, 'num_processes': '2'}\n", found
