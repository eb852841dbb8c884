"""Two processes over gloo do what one does, under every engine, however they are launched.

A run that another launch takes up goes on with the same data, or is refused in one line.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from data_prep.sampling.hf import load_checkpoint
from tests.integration.fork_server import DIED
from tests.integration.trainer.fsdp_on_cpu import HALF, shard_on_cpu
from tests.integration.trainer.runs import read_extra, read_history, read_logs, record_batches

pytestmark = pytest.mark.integration
needs_deepspeed = pytest.mark.skipif(not find_spec("deepspeed"), reason="DeepSpeed not installed")
TABLE = yaml.safe_load(Path(__file__).with_name("parallel.yaml").read_text(encoding="utf-8"))
STEPS, KILLED_STEPS, DIE_AT = 4, 8, 5


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
def launch(fork_server, write_recipe, tmp_path, untied_model_dir):
    """Run a stage in a folder of its name; returns exit codes, what was printed, the folder."""

    def call(stage, num_processes, config, name, die_at=0, **settings):
        rows = {"per_device_train_batch_size": 8 // num_processes}
        settings = TABLE["base"][stage] | rows | settings
        if settings.pop("untied", False):
            settings["model_name_or_path"] = str(untied_model_dir)
        folder = tmp_path / name
        recipe = write_recipe(stage, output_dir=str(folder), **settings)
        setup = (shard_on_cpu, "record_batches") if config == "fsdp2" else record_batches
        order = {"stage": stage, "config": config, "die_at": die_at, "setup": setup}
        return *fork_server.run(recipe, num_processes, **order), folder

    return call


@pytest.fixture
def train(launch):
    """Run a stage to its end, or to the step at which it dies; returns what was printed."""

    def call(stage, num_processes, config, name, die_at=0, **settings):
        codes, logs, folder = launch(stage, num_processes, config, name, die_at, **settings)
        assert codes == [DIED if die_at else 0] * num_processes, logs
        is_halved = config == "fsdp2" and num_processes == 2
        assert not is_halved or all(HALF in log for log in logs)
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


def cases():
    """What two processes do, as parameters of a test."""
    for speed in ("quick", "slow"):
        for stage, config, settings in TABLE[speed]:
            marks = [needs_deepspeed] if config.startswith("zero") else []
            marks += [pytest.mark.slow] if speed == "slow" else []
            name = "-".join([stage, config, *settings])
            yield pytest.param(stage, config, settings, marks=marks, id=name)


@pytest.mark.parametrize(("stage", "config", "settings"), cases())
def test_two_processes_do_what_one_does(train, alone, stage, config, settings, tmp_path_factory):
    key = (stage, *settings)
    if key not in alone:
        alone[key] = train(stage, 1, None, tmp_path_factory.mktemp("alone"), **settings)[1]
    _, folder = train(stage, 2, config, "two", **settings)
    assert_alike(folder, alone[key])
    assert len(list(folder.glob("checkpoint-4/rng_state_*.pth"))) == 2


@pytest.mark.parametrize(
    "engine", ["fsdp2", pytest.param("zero3", marks=[pytest.mark.slow, needs_deepspeed])]
)
def test_merged_weights_equal_those_of_data_parallel(train, tmp_path, engine):
    """Also of an SFT that is killed behind its first checkpoint."""
    chain, start = (
        TABLE["chain"],
        tmp_path / "cpu/sft",
    )  # both GRPO runs start from the same weights
    for config in ("cpu", engine):
        if config != "cpu":
            train("sft", 2, config, f"{config}/sft", die_at=1, **chain)
        said, folder = train("sft", 2, config, f"{config}/sft", **chain)
        assert config == "cpu" or f"resuming from {folder.resolve()}/checkpoint-1" in said
        more = TABLE["evaluated"] | {"model_name_or_path": str(start)}
        train("grpo", 2, config, f"{config}/grpo", **chain | more)
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


# Another launch


@pytest.mark.parametrize("name", TABLE["launches"])
def test_another_launch_goes_on_or_is_refused(launch, train, alone, name, tmp_path_factory):
    case = TABLE["launches"][name]
    stage, settings = case["stage"], TABLE["killed"][case["stage"]]
    if "zero" in name and not find_spec("deepspeed"):
        pytest.skip("DeepSpeed not installed")
    if ("killed", stage) not in alone:
        straight = train(stage, 1, None, tmp_path_factory.mktemp("straight"), **settings)[1]
        alone["killed", stage] = straight
    _, folder = train(stage, *case["before"], "resumed", DIE_AT, **settings)
    checkpoint = folder.resolve() / f"checkpoint-{DIE_AT}"
    files = sorted(path.name for path in folder.iterdir())
    for num, config, num_rows in case["refused"]:
        if config == "zero2" and not find_spec("deepspeed"):
            continue
        rows = {"per_device_train_batch_size": num_rows}
        codes, logs, _ = launch(stage, num, config, "resumed", **settings | rows)
        assert codes == [2] * num, logs
        lines = [line for line in logs[0].splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and f"{checkpoint}: was made with" in lines[0]
        # Nothing is lost: started as before it would go on.
        assert sorted(path.name for path in folder.iterdir()) == files
    said, _ = train(stage, *case["after"], "resumed", **settings)
    assert f"resuming from {checkpoint}\n" in said
    assert_close(folder, alone["killed", stage], stage)


def assert_close(folder, expected, stage):
    """Losses within 1e-5, where other rows would be off in the second digit, and weights."""
    losses = [log["loss"] for log in read_logs(folder)]
    assert losses == pytest.approx([log["loss"] for log in read_logs(expected)], abs=1e-5)
    assert len(losses) == KILLED_STEPS and len({f"{loss:.3f}" for loss in losses}) > 4
    found = load_file(folder / "model.safetensors")
    for key, value in load_file(expected / "model.safetensors").items():
        assert (found[key] - value).abs().max() < 1e-3, key
    if stage == "grpo":
        state, wanted = read_extra(folder, KILLED_STEPS), read_extra(expected, KILLED_STEPS)
        assert state["extra"]["curriculum"] == wanted["extra"]["curriculum"]
        assert state["num_completions"] == wanted["num_completions"]


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
