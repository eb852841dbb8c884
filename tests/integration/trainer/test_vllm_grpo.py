"""GRPO with vLLM's CPU build in the training process: the engine has the trainer's weights."""

import gc
import os

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from tests.integration.trainer import vllm_on_cpu
from tests.integration.trainer.runs import PAYS_FOR_LOOPS, grade_by_checksum, read_events, read_logs
from tests.integration.trainer.test_algorithms import HERE, ROWS

pytest.importorskip("vllm", reason="vLLM is opt-in: `make test-vllm` runs these")
pytestmark = [pytest.mark.integration, pytest.mark.slow]
VLLM = PAYS_FOR_LOOPS | {
    "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.1,
    "max_steps": 4, "save_steps": 1, "learning_rate": 1e-2,
}  # fmt: skip
LORA = {
    "use_peft": True,
    "lora_target_modules": "all-linear",
    "lora_dropout": 0.0,
    "learning_rate": 0.1,
}
LIMIT = 1.05  # the guard's


@pytest.fixture(scope="module")
def models(tmp_path_factory, tiny_model_dir):
    """Folder with the checkpoints `tied` and `untied`; vLLM wants heads of 32 dimensions."""
    folder = tmp_path_factory.mktemp("models")
    for name, is_tied in (("tied", True), ("untied", False)):
        AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder / name)
        sizes = {"hidden_size": 64, "tie_word_embeddings": is_tied}
        torch.manual_seed(0)
        config = Qwen2Config.from_pretrained(tiny_model_dir, **sizes)
        Qwen2ForCausalLM(config).save_pretrained(folder / name)
    return folder


@pytest.fixture
def train(run_stage, models, monkeypatch):
    """Function: run the stage in this process; returns its folder and the batches it generated."""
    from stages.trainer import grpo_trainer as module

    vllm_on_cpu.install(monkeypatch)
    monkeypatch.setattr("stages.rewards.grade_rollouts", grade_by_checksum)
    before, built = dict(os.environ), []
    torch.set_num_threads(1)  # as in the processes that `start` starts: the same rounding

    def call(model="tied", **settings):
        batches = []

        class Recorder(stage_trainer):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                built.append(self)

            def _generate_and_score_completions(self, inputs):
                batch = super()._generate_and_score_completions(inputs)
                if self.model.training:
                    batches.append(batch)
                return batch

        monkeypatch.setattr(module, "MathGRPOTrainer", Recorder)
        try:
            folder = run_stage("grpo", model_name_or_path=str(models / model), **VLLM | settings)
        finally:
            close()
        return folder, batches

    def close():
        """End the engine where the stage has not, and take back what TRL says of a launcher."""
        while built:
            built.pop().vllm_generation.llm.llm_engine.engine_core.shutdown()
        gc.collect()
        os.environ.clear()
        os.environ.update(before)

    stage_trainer = module.MathGRPOTrainer
    return call


def mismatch(checkpoint, batch):
    """Mean over the tokens of exp|log-prob of vLLM - of a checkpoint in plain transformers|."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    start = batch["prompt_ids"].size(1)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[:, start - 1 : -1]
    logps = logits.log_softmax(-1).gather(-1, ids[:, start:, None]).squeeze(-1)
    is_token = batch["completion_mask"].bool()
    return (logps - batch["sampling_per_token_logps"])[is_token].abs().exp().mean().item()


@pytest.mark.parametrize(
    ("model", "settings"),
    [("tied", {}), ("untied", {}), ("tied", LORA)],
    ids=["tied", "untied", "lora"],
)
def test_the_engine_follows_the_weights(train, models, model, settings):
    folder, batches = train(model, **settings)
    alignment = [log["guard/alignment"] for log in read_logs(folder)]
    assert len(alignment) == len(batches) == 4 and not read_events(folder)
    assert all(1 <= value < 1.0001 for value in alignment)
    # By the trainer's own word that was so; these read the files.
    assert mismatch(models / model, batches[0]) < 1.0001
    for step in (1, 2, 3):
        assert mismatch(folder / f"checkpoint-{step}", batches[step]) < 1.0001
    assert mismatch(models / model, batches[3]) > LIMIT  # the weights have moved that much
    assert mismatch(folder / "checkpoint-2", batches[3]) > 1.01  # in the last step, too


# The names of TRL and vLLM that training with vLLM leans on


def test_a_start_of_a_server_has_a_name(models):
    """By which `Watched` knows that a server was restarted; and its dtype, as we compare it."""
    from vllm.config import ModelConfig, VllmConfig
    from vllm.entrypoints.serve.dev.server_info.api_router import PydanticVllmConfig

    first, second = (
        PydanticVllmConfig.dump_python(VllmConfig(), mode="json", fallback=str) for _ in range(2)
    )
    assert first["instance_id"] != second["instance_id"]
    for dtype in ("float16", "bfloat16"):
        model = ModelConfig(str(models / "tied"), dtype=dtype)
        config = VllmConfig(model_config=model)
        said = PydanticVllmConfig.dump_python(config, mode="json", fallback=str)
        assert said["model_config"]["dtype"] == f"torch.{dtype}"


@pytest.mark.parametrize(
    "keys",
    [
        {"top_p": 0.8, "top_k": 20},
        {"generation_kwargs": {"presence_penalty": 1.0}},
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_keys_that_change_what_is_sampled_are_no_mismatch(train, keys):
    """The log-probs are those from before them, so the correction is 1 as well."""
    folder, batches = train(**keys, max_steps=2)
    alignment = [log["guard/alignment"] for log in read_logs(folder)]
    assert len(alignment) == 2 and all(1 <= value < 1.0001 for value in alignment)
    assert not read_events(folder)
    for batch in batches:
        ratio = batch["importance_sampling_ratio"]
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ROWS.keys() - {*HERE})
def test_a_row_of_the_page_on_algorithms(train, name):
    folder, batches = train(**ROWS[name], max_steps=3)
    assert len(read_logs(folder)) == 3
    for batch in batches:
        ratios = batch["importance_sampling_ratio"]
        assert 0 < ratios.max() <= ROWS[name]["vllm_importance_sampling_clip_max"]
        assert ratios.shape == batch["completion_mask"].shape  # by token, not by completion
