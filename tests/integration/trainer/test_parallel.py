"""Two processes over gloo do what one does, under every engine, however they are launched."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from data_prep.sampling.hf import load_checkpoint
from tests.integration.fork_server import DIED
from tests.integration.trainer.fsdp_on_cpu import HALF, shard_on_cpu
from tests.integration.trainer.runs import read_history, record_batches

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
# Of the 12 prompts 9 are read before the first step, the others before the second.
PROMPTS = {"curriculum": "predictive", "prompt_components": 3}
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
    """Run a stage in a folder of its name; returns what was printed, and the folder."""

    def call(stage, num_processes, config, name, die_at=0, **settings):
        settings = {"per_device_train_batch_size": 8 // num_processes} | BASE[stage] | settings
        if settings.pop("untied", False):
            settings["model_name_or_path"] = str(untied_model_dir)
        folder = tmp_path / name
        recipe = write_recipe(stage, output_dir=str(folder), **settings)
        setup = (shard_on_cpu, "record_batches") if config == "fsdp2" else record_batches
        order = {"stage": stage, "config": config, "die_at": die_at, "setup": setup}
        codes, logs = fork_server.run(recipe, num_processes, **order)
        assert config != "fsdp2" or all(HALF in log for log in logs)
        assert codes == [DIED if die_at else 0] * num_processes, logs
        return logs[0], folder

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
    *[("sft", config, LORA) for config in ("zero2", "zero3")],
    ("grpo", "zero2", LORA),
    *[("grpo", config, PROMPTS) for config in ("cpu", "zero2", "zero3", "fsdp2")],
    *[("grpo", config, PACKED) for config in ("cpu", "zero2", "zero3")],
    ("grpo", "fsdp2", PACKED | UNTIED),
    *[("grpo", config, UNIFORM) for config in ("cpu", "zero2", "zero3", "fsdp2")],
]
# Each engine and each way through the update; the other cases are slow tests.
QUICK = [
    *[("sft", "zero2", {}), ("sft", "fsdp2", UNTIED), ("sft", "zero3", LORA)],
    *[("grpo", "fsdp2", PROMPTS), ("grpo", "cpu", PACKED), ("grpo", "fsdp2", PACKED | UNTIED)],
    *[("grpo", config, UNIFORM) for config in ("cpu", "zero3")],
]


def marks_of(case):
    is_zero = case[1].startswith("zero")
    return [needs_deepspeed] * is_zero + [pytest.mark.slow] * (case not in QUICK)


@pytest.mark.parametrize(
    ("stage", "config", "settings"),
    [pytest.param(*case, marks=marks_of(case)) for case in CASES],
    ids=["-".join([stage, config, *settings]) for stage, config, settings in CASES],
)
def test_two_processes_do_what_one_does(train, alone, stage, config, settings, tmp_path_factory):
    key = (stage, *settings)
    if key not in alone:
        alone[key] = train(stage, 1, None, tmp_path_factory.mktemp("alone"), **settings)[1]
    _, folder = train(stage, 2, config, "two", **settings)
    assert_alike(folder, alone[key])
    assert len(list(folder.glob("checkpoint-4/rng_state_*.pth"))) == 2


# SFT with LoRA, GRPO from its result, its last and its best model

CHAIN = {
    "use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "lora_target_modules": ["all-linear"],
    "learning_rate": 1.0e-2, "max_steps": 2, "gradient_accumulation_steps": 1, "save_steps": 1,
}  # fmt: skip
EVALUATED = {
    "steps_per_generation": 2, "eval_strategy": "steps", "eval_steps": 1, "eval_problems": 2,
    "num_generations_eval": 2, "per_device_eval_batch_size": 4, "beta": 0.1,
}  # fmt: skip


@pytest.mark.parametrize(
    "engine", ["fsdp2", pytest.param("zero3", marks=[pytest.mark.slow, needs_deepspeed])]
)
def test_merged_weights_equal_those_of_data_parallel(train, tmp_path, engine):
    """Also of an SFT that is killed behind its first checkpoint."""
    start = tmp_path / "cpu/sft"  # both GRPO runs start from the same weights
    for config in ("cpu", engine):
        if config != "cpu":
            train("sft", 2, config, f"{config}/sft", die_at=1, **CHAIN)
        said, folder = train("sft", 2, config, f"{config}/sft", **CHAIN)
        assert config == "cpu" or f"resuming from {folder.resolve()}/checkpoint-1" in said
        more = EVALUATED | {"model_name_or_path": str(start)}
        train("grpo", 2, config, f"{config}/grpo", **CHAIN | more)
    expected, found = tmp_path / "cpu", tmp_path / engine
    for name in ("sft", "grpo", "grpo/best"):
        assert not (found / name / "adapter_config.json").exists()
        assert (found / name / "adapter/adapter_config.json").is_file()
        weights, wanted = (load_file(one / name / "model.safetensors") for one in (found, expected))
        assert weights.keys() == wanted.keys()
        assert max((weights[key] - wanted[key]).abs().max() for key in wanted) < 1e-6
        load_checkpoint(str(found / name), "float32", "checkpoints")  # as evaluation does
    best = (found / "grpo/best/best.json").read_text()
    assert best == (expected / "grpo/best/best.json").read_text()
    assert (logits_of(found / "grpo") - logits_of(start)).abs().max() > 1e-3


@pytest.mark.gpu
@pytest.mark.slow
def test_fsdp2_in_one_process_on_a_gpu(write_recipe, tmp_path):
    """The engine is FSDP 2, and what it saves loads in plain transformers."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: accelerate runs FSDP on accelerators only")
    root, pipes = Path(__file__).parents[3], {"capture_output": True, "text": True, "timeout": 300}
    launch = f"-m accelerate.commands.launch --config_file {root}/configs/accelerate/fsdp2.yaml"
    env = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"}
    for stage in ("sft", "grpo"):
        words = f"{launch} --num_processes 1 -m stages.{stage} --config".split()
        command = [sys.executable, *words, write_recipe(stage, use_cpu=False)]
        found = subprocess.run(command, cwd=root, env=os.environ | env, **pipes)
        assert found.returncode == 0, found.stderr
        AutoModelForCausalLM.from_pretrained(tmp_path / stage)
        AutoModelForCausalLM.from_pretrained(tmp_path / stage / "checkpoint-2")
        assert list(tmp_path.glob(f"{stage}/checkpoint-2/optimizer*"))
