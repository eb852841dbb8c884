"""LoRA in two processes that share out the weights: they save what plain data parallel saves.

SFT is killed and resumed, GRPO starts from its result, evaluation loads GRPO's last and best one.
"""

import json
from importlib.util import find_spec

import pytest
from safetensors.torch import load_file

from data_prep.sampling.hf import load_checkpoint
from tests.integration.fork_server import DIED
from tests.integration.trainer.fsdp_on_cpu import HALF, shard_on_cpu
from tests.integration.trainer.runs import record_batches

pytestmark = pytest.mark.integration
LORA = {
    "use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "lora_target_modules": ["all-linear"],
    "learning_rate": 1.0e-2, "per_device_train_batch_size": 4, "max_steps": 2,
}  # fmt: skip
EVALUATED = {
    "steps_per_generation": 2, "eval_strategy": "steps", "eval_steps": 1, "eval_problems": 2,
    "num_generations_eval": 2, "per_device_eval_batch_size": 4, "beta": 0.1,
}  # fmt: skip


@pytest.fixture(scope="module")
def chains():
    """Folder of both stages, by engine."""
    return {}


@pytest.fixture
def train(fork_server, write_recipe):
    def call(folder, stage, config, codes=(0, 0), die_at=0, **settings):
        recipe = write_recipe(stage, **LORA | settings, output_dir=str(folder / stage))
        setup = {"sft": None, "grpo": record_batches}[stage]
        if config == "fsdp2":
            setup = (shard_on_cpu, "record_batches") if stage == "grpo" else shard_on_cpu
        order = {"stage": stage, "config": config, "setup": setup, "die_at": die_at}
        found, logs = fork_server.run(recipe, 2, **order)
        assert tuple(found) == codes, logs
        assert config != "fsdp2" or all(HALF in log for log in logs)
        return logs[0]

    return call


@pytest.fixture
def chain(train, chains, tmp_path_factory):
    def call(config):
        if config not in chains:
            folder = chains[config] = tmp_path_factory.mktemp(config)
            if config != "cpu":  # killed behind its first checkpoint
                train(folder, "sft", config, (DIED, DIED), die_at=1, save_steps=1)
            said = train(folder, "sft", config, save_steps=1)
            checkpoint = (folder / "sft").resolve() / "checkpoint-1"
            assert config == "cpu" or f"resuming from {checkpoint}" in said
            # Both start from the same weights, down to the last bit.
            start = chains["cpu"] / "sft"
            train(folder, "grpo", config, model_name_or_path=str(start), **EVALUATED)
        return chains[config]

    return call


@pytest.mark.parametrize(
    "engine",
    [
        "fsdp2",
        pytest.param(
            "zero3",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(not find_spec("deepspeed"), reason="DeepSpeed not installed"),
            ],
        ),
    ],
)
def test_merged_weights_equal_those_of_data_parallel(chain, engine):
    expected, found = chain("cpu"), chain(engine)
    for name in ("sft", "grpo", "grpo/best"):
        assert not (found / name / "adapter_config.json").exists()
        assert (found / name / "adapter/adapter_config.json").is_file()
        weights = load_file(found / name / "model.safetensors")
        wanted = load_file(expected / name / "model.safetensors")
        assert weights.keys() == wanted.keys()
        assert max((weights[key] - wanted[key]).abs().max() for key in wanted) < 1e-6
        load_checkpoint(str(found / name), "float32", "checkpoints")  # as evaluation does
    best = json.loads((found / "grpo/best/best.json").read_text())
    assert best == json.loads((expected / "grpo/best/best.json").read_text())
    moved = load_file(found / "grpo/model.safetensors")
    start = load_file(found / "sft/model.safetensors")
    assert any((moved[key] - start[key]).abs().max() > 1e-4 for key in moved)
