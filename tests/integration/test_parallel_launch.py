"""The launch commands of the README, typed as they stand there: what runs, and what is refused."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
ACCELERATE = Path(sys.executable).with_name("accelerate")


@pytest.fixture
def type_in(tmp_path):
    """Run a command line of `accelerate` in the repository's root."""

    def call(command, **env):
        env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | env
        env = {"PATH": f"{os.environ['PATH']}:{Path(sys.executable).parent}"} | env
        command = [sys.executable, ACCELERATE, *command.split()[1:]]
        pipes = {"capture_output": True, "text": True, "timeout": 300}
        return subprocess.run(command, cwd=ROOT, env=os.environ | env, **pipes)

    return call


LAUNCH = "accelerate launch --config_file configs/accelerate/{}.yaml --num_processes 2 -m stages."


def test_two_processes_on_a_cpu(type_in, write_recipe, tmp_path):
    found = type_in(LAUNCH.format("cpu") + f"sft --config {write_recipe('sft')}")
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "sft" / "manifest.json").is_file()
    assert json.loads((tmp_path / "sft" / "run.json").read_text())["num_processes"] == 2
    assert len(list(tmp_path.glob("sft/checkpoint-2/rng_state_*.pth"))) == 2


@pytest.mark.skipif(not find_spec("deepspeed"), reason="DeepSpeed not installed")
def test_zero3_generates_and_trains(type_in, write_recipe, tmp_path):
    """With completions of the model itself, whose weights lie in two processes."""
    from transformers import AutoModelForCausalLM

    recipe = write_recipe("grpo", per_device_train_batch_size=4, beta=0.1)
    found = type_in(LAUNCH.format("zero3") + f"grpo --config {recipe}")
    assert found.returncode == 0, found.stderr
    AutoModelForCausalLM.from_pretrained(tmp_path / "grpo")
    assert len(list(tmp_path.glob("grpo/checkpoint-2/global_step2/*_model_states.pt"))) == 2


REFUSED = {
    "accelerate launch --cpu --num_processes 2 -m stages.sft --config {recipe}": (
        "error: num_processes: 2 asked for, the launch has started 1; use `accelerate launch"
    ),
    LAUNCH.format("fsdp2") + "sft --config {recipe}": (
        "error: use_cpu: FSDP runs on GPUs only, on a CPU it would be plain data parallel; launch"
    ),
}


@pytest.mark.parametrize("command", REFUSED)
def test_refused_before_torch_is_imported(type_in, write_recipe, tmp_path, command):
    # A tokenizer that cannot be loaded: it would be the first thing after the checks.
    recipe = write_recipe("sft", model_name_or_path=str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    found = type_in(command.format(recipe=recipe))
    assert found.returncode != 0 and not (tmp_path / "sft").exists()
    lines = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert lines and all(line.startswith(REFUSED[command]) for line in lines), found.stderr


def test_two_processes_for_gpus_that_are_not_there(type_in, write_recipe, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this host has a GPU")
    recipe = write_recipe("sft", use_cpu=False)
    found = type_in(LAUNCH.format("ddp") + f"sft --config {recipe}")
    assert found.returncode != 0 and not (tmp_path / "sft").exists()
    assert "error: use_cpu: false, and no GPU was found: neither would 2 pro" in found.stderr


PROBE = """
import sys
from data_prep.config import run_cli
from stages import sft
try:
    run_cli(sft.main)
except SystemExit as end:
    print(end.code, "torch" in sys.modules)
"""


def test_makes_number_of_processes(write_recipe):
    command = [sys.executable, "-c", PROBE, "--config", str(write_recipe("sft"))]
    env = os.environ | {"PYTHONPATH": str(ROOT), "NUM_PROCESSES": "2"}
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert found.stdout.split() == ["2", "False"], found
    assert found.stderr.startswith("error: NUM_PROCESSES: 2 asked for, the launch has started 1;")
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.gpu
def test_fsdp2_in_one_process_on_a_gpu(type_in, write_recipe, tmp_path):
    """The engine is FSDP 2, and what it saves loads in plain transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: accelerate runs FSDP on accelerators only")
    launch = LAUNCH.format("fsdp2").replace("--num_processes 2", "--num_processes 1")
    for stage in ("sft", "grpo"):
        recipe = write_recipe(stage, use_cpu=False)
        found = type_in(launch + f"{stage} --config {recipe}", CUDA_VISIBLE_DEVICES="0")
        assert found.returncode == 0, found.stderr
        AutoModelForCausalLM.from_pretrained(tmp_path / stage)
        AutoModelForCausalLM.from_pretrained(tmp_path / stage / "checkpoint-2")
        assert list(tmp_path.glob(f"{stage}/checkpoint-2/optimizer*"))
