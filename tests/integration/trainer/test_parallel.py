"""Two processes over gloo do what one does, under every engine, however they are launched."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.integration.trainer.fsdp_on_cpu import HALF, shard_on_cpu
from tests.integration.trainer.runs import read_extra, read_history, record_batches

pytestmark = pytest.mark.integration
needs_deepspeed = pytest.mark.skipif(not find_spec("deepspeed"), reason="DeepSpeed not installed")
STEPS = 4
COMMON = {"max_steps": STEPS, "gradient_accumulation_steps": 2}
BASE = {
    "sft": COMMON,
    # A reference model beside the policy, and completions of unlike lengths.
    "grpo": COMMON | {"beta": 0.1},
}
LORA = {"use_peft": True, "lora_dropout": 0.0}
PACKED = {"update_tokens": 40}
# A head of its own, as 7B models have: another way to its weights under FSDP.
UNTIED = {"untied": True}
# Some groups get equal rewards, so that rows without advantage go through without a gradient.
UNIFORM = PACKED | {
    "beta": 0.0, "num_generations": 2, "reward_funcs": ["soft_length_penalty"],
    "reward_weights": [1.0], "length_penalty_start": 5, "length_penalty_end": 6,
}  # fmt: skip


@pytest.fixture(scope="module")
def alone():
    """What one process did, by stage and settings."""
    return {}


@pytest.fixture(scope="module")
def untied_model_dir(tiny_model_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("untied")
    shutil.copytree(tiny_model_dir, folder, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().flip(1))
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def train(fork_server, write_recipe, tmp_path, untied_model_dir):
    """Run a stage in a folder of its name; returns exit codes, what was printed, and the folder."""

    def call(stage, num_processes, config, name, die_at=0, rows=8, **settings):
        per_device = rows // num_processes
        settings = BASE[stage] | {"per_device_train_batch_size": per_device} | settings
        if settings.pop("untied", False):
            settings["model_name_or_path"] = str(untied_model_dir)
        folder = tmp_path / name
        recipe = write_recipe(stage, output_dir=str(folder), **settings)
        setup = (shard_on_cpu, "record_batches") if config == "fsdp2" else record_batches
        order = {"stage": stage, "config": config, "die_at": die_at, "setup": setup}
        codes, logs = fork_server.run(recipe, num_processes, **order)
        return codes, logs, folder

    return call


def logged(folder):
    """Loss and gradient norm of every step."""
    logs = [log for log in read_history(folder) if "grad_norm" in log]
    return {log["step"]: (log["loss"], log["grad_norm"]) for log in logs}


def logits_of(folder):
    """What a checkpoint says, loaded by plain transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    return model(torch.arange(5, 45).view(4, 10)).logits.detach()


def assert_alike(folder, expected):
    """Losses within 2e-6, gradient norms within 5e-5 of themselves, logits of what was saved.

    The logits may be apart by a thousandth of what the training has moved them by.
    """
    losses, norms = zip(*logged(folder).values(), strict=True)
    wanted, wanted_norms = zip(*logged(expected).values(), strict=True)
    assert len(losses) == STEPS and losses == pytest.approx(wanted, abs=2e-6)
    assert norms == pytest.approx(wanted_norms, rel=5e-5)
    config = json.loads((folder / "run.json").read_text())["config"]
    end = logits_of(expected)
    moved = (end - logits_of(config["model_name_or_path"])).abs().max()
    for path in (folder, folder / f"checkpoint-{STEPS}"):
        assert (logits_of(path) - end).abs().max() < moved / 1000


CASES = [
    *[("sft", config, {}) for config in ("cpu", "zero2", "zero3")],
    ("sft", "fsdp2", UNTIED),
    *[("sft", config, LORA) for config in ("zero2", "zero3", "fsdp2")],
    *[("grpo", config, LORA) for config in ("zero2", "fsdp2")],
    *[("grpo", config, {}) for config in ("cpu", "zero2", "zero3", "fsdp2")],
    *[("grpo", config, PACKED) for config in ("cpu", "zero2", "zero3")],
    ("grpo", "fsdp2", PACKED | UNTIED),
    *[("grpo", config, UNIFORM) for config in ("cpu", "zero2", "zero3", "fsdp2")],
]
SLOW_CASES = [("sft", "fsdp2", LORA), ("grpo", "fsdp2", UNIFORM)]


@pytest.mark.parametrize(
    ("stage", "config", "settings"),
    [
        pytest.param(
            *case,
            marks=[needs_deepspeed] * ("zero" in case[1])
            + [pytest.mark.slow] * (case in SLOW_CASES),
        )
        for case in CASES
    ],
    ids=["-".join([stage, config, *settings]) for stage, config, settings in CASES],
)  # fmt: skip
def test_two_processes_do_what_one_does(train, alone, stage, config, settings, tmp_path_factory):
    key = (stage, *settings)
    if key not in alone:
        folder = tmp_path_factory.mktemp("alone")
        codes, logs, _ = train(stage, 1, None, folder, **settings)
        assert codes == [0], logs
        alone[key] = folder
    codes, logs, folder = train(stage, 2, config, "two", **settings)
    assert codes == [0, 0], logs
    assert_alike(folder, alone[key])
    assert config != "fsdp2" or all(HALF in log for log in logs)
    assert len(list(folder.glob("checkpoint-4/rng_state_*.pth"))) == 2


SHARDED = {"zero3": "global_step2/*_model_states.pt", "fsdp2": "rng_state_*.pth"}


@pytest.mark.parametrize(
    "engine", [pytest.param("zero3", marks=needs_deepspeed), pytest.param("fsdp2")]
)
def test_a_sharded_model_generates_and_trains(fork_server, write_recipe, tmp_path, engine):
    """With completions and prompt states of the model, whose weights lie in two processes.

    Of the 12 prompts 9 are read before the first step, the others before the second.
    """
    settings = {"beta": 0.1, "curriculum": "predictive", "prompt_components": 3, "save_steps": 1}
    components = []
    for num_processes, config in ((1, None), (2, engine)):
        folder = tmp_path / str(num_processes) / "grpo"
        settings |= {"per_device_train_batch_size": 8 // num_processes, "output_dir": str(folder)}
        recipe = write_recipe("grpo", **settings)
        setup = shard_on_cpu if config == "fsdp2" else None
        fork_server.finish(recipe, num_processes, config=config, setup=setup)
        first, then = (read_extra(folder, step)["extra"]["prompts"] for step in (1, 2))
        assert len(first["read"]) == 9 and sorted(then["read"]) == [*range(12)]
        assert np.all(np.any(then["components"], axis=1))
        # Components have no sign of their own.
        components.append(np.abs(first["components"]))
    assert np.allclose(*components, atol=1e-3)
    AutoModelForCausalLM.from_pretrained(folder)
    assert len(list(folder.glob(f"checkpoint-2/{SHARDED[engine]}"))) == 2


# The launch commands of the README: what runs, and what is refused

ROOT = Path(__file__).parents[3]
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


@pytest.mark.gpu
@pytest.mark.slow
def test_fsdp2_in_one_process_on_a_gpu(type_in, write_recipe, tmp_path):
    """The engine is FSDP 2, and what it saves loads in plain transformers."""
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
