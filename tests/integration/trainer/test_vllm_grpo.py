"""GRPO with vLLM's CPU build in the training process: the engine has the trainer's weights."""

import gc
import inspect
import itertools
import json
import os
import shlex
import signal

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from data_prep.schema import grpo_row
from data_prep.sources import synthetic
from pipeline import manifest
from pipeline.errors import LostError, UserError
from tests.files import write_rows
from tests.integration.stages.stage_processes import finish, start, stop_when
from tests.integration.trainer.recorders import grade_by_checksum
from tests.integration.trainer.runs import PAYS_FOR_LOOPS, read_events, read_logs, whole_checkpoints
from tests.integration.trainer.test_algorithms import HERE, ROWS

pytest.importorskip("vllm", reason="vLLM is opt-in: `make test-vllm` runs these")
pytestmark = [pytest.mark.integration, pytest.mark.slow]
VLLM = PAYS_FOR_LOOPS | {
    "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.1,
    "max_steps": 4, "save_steps": 1, "learning_rate": 1e-2,
}  # fmt: skip
EVAL = {
    "eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 2,
    "per_device_eval_batch_size": 8,
}  # fmt: skip
LORA = {
    "use_peft": True,
    "lora_target_modules": "all-linear",
    "lora_dropout": 0.0,
    "learning_rate": 0.1,
}
LIMIT = 1.05  # the guard's
ON_CPU = """
import pytest
from stages import grpo
from tests.integration.trainer.vllm_on_cpu import install
install(pytest.MonkeyPatch())
grpo.main()
"""


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
    from tests.integration.trainer import vllm_on_cpu

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


@pytest.mark.parametrize(
    ("keys", "dtype", "most"),
    [({"fp16": True}, torch.float16, 1.02), ({"bf16": True}, torch.bfloat16, 1.2)],
    ids=["fp16", "bf16"],
)
def test_the_engine_samples_in_the_trainers_16_bits(train, monkeypatch, keys, dtype, most):
    """And takes its float32 weights at each sync."""
    from trl.generation import vllm_generation

    start, engines = vllm_generation.LLM, []

    def build(**given):
        engines.append(start(**given))
        return engines[-1]

    monkeypatch.setattr(vllm_generation, "LLM", build)
    monkeypatch.setattr("stages.rules.of_device", lambda settings: ())  # fp16 wants a GPU
    folder, _ = train(**keys)
    (engine,) = engines
    assert engine.llm_engine.model_config.dtype == dtype
    alignment = [log["guard/alignment"] for log in read_logs(folder)]
    assert len(alignment) == 4 and all(1.0001 < value < most for value in alignment)


def read_weights(folder):
    return {name: value.tolist() for name, value in load_file(folder / "model.safetensors").items()}


def never_sync(monkeypatch):
    monkeypatch.setattr(
        "tests.integration.trainer.vllm_on_cpu.CpuGeneration.sync_weights", lambda self: None
    )


def forget_the_head(monkeypatch):
    monkeypatch.setattr("tests.integration.trainer.vllm_on_cpu.pack_tied_head", lambda model: None)


@pytest.mark.parametrize("break_sync", [never_sync, forget_the_head])
def test_a_stale_engine_is_told(train, monkeypatch, capfd, break_sync):
    break_sync(monkeypatch)
    folder, _ = train(guard_patience=2)
    alignment = [log["guard/alignment"] for log in read_logs(folder)]
    assert 1 <= alignment[0] < 1.0001 and min(alignment[1:]) > LIMIT
    (event,) = read_events(folder)
    assert (event["guard"], event["action"], event["limit"]) == ("alignment", "warn", LIMIT)
    assert (event["since"], event["step"]) == (1, 2) and event["value"] > LIMIT
    assert "guard alignment: " in capfd.readouterr().out


def test_a_refusal_is_one_line(train, monkeypatch):
    from trl.generation import vllm_generation

    def refuse(**settings):
        assert settings["dtype"] == "float32" and settings["enforce_eager"]
        raise ValueError("Available memory (1/2)\n  is less")

    monkeypatch.setattr(vllm_generation, "LLM", refuse)
    with pytest.raises(UserError) as error:
        train(vllm_gpu_memory_utilization=0.3)
    assert str(error.value).startswith("use_vllm: vLLM does not start with ")
    assert str(error.value).endswith("_utilization: 0.3): Available memory (1/2) is less")


def test_an_engine_that_dies_is_one_line_and_the_run_resumes(train, monkeypatch, tmp_path, capfd):
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    straight, _ = train(output_dir=str(tmp_path / "straight"))
    execute, calls = CPUModelRunner.execute_model, itertools.count(1)

    def die(self, *args, **kwargs):
        if next(calls) > 30:
            raise RuntimeError("the worker is gone")
        return execute(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(CPUModelRunner, "execute_model", die)
        with pytest.raises(LostError, match=r"^use_vllm: the vLLM engine failed .*worker is gone"):
            train()
    capfd.readouterr()
    folder, _ = train()
    assert "resuming from" in capfd.readouterr().out
    assert read_weights(folder) == read_weights(straight)


@pytest.mark.parametrize("model", ["tied", "untied"])
def test_a_sync_gives_back_all_that_sleep_throws_away(train, monkeypatch, model):
    """vLLM's own sleep is for GPUs; here the weights of its model are NaN after each generation."""
    from trl.generation import vllm_generation
    from vllm import LLM

    calls = []

    def sleep(self, level):
        calls.append(("sleep", level))
        runner = self.llm_engine.model_executor.driver_worker.model_runner
        for part in runner.get_model().parameters():
            part.data.fill_(torch.nan)

    monkeypatch.setattr(LLM, "sleep", sleep)
    monkeypatch.setattr(LLM, "wake_up", lambda self, tags: calls.append(("wake", *tags)))
    start = vllm_generation.LLM
    monkeypatch.setattr(
        vllm_generation, "LLM", lambda **given: start(**given | {"enable_sleep_mode": False})
    )
    folder, _ = train(model, vllm_enable_sleep_mode=True)
    alignment = [log["guard/alignment"] for log in read_logs(folder)]
    assert len(alignment) == 4 and max(alignment) < 1.0001
    assert calls == [("sleep", 2), *[("wake", "kv_cache"), ("sleep", 2)] * 4]


def test_dropout_in_an_adapter_is_told(train):
    """TRL's default; its log-probs are with dropout, and the engine's are without."""
    folder, _ = train(**LORA | {"lora_dropout": 0.3}, guard_patience=2)
    assert max(log["guard/alignment"] for log in read_logs(folder)) > LIMIT
    assert read_events(folder)


def test_killed_it_goes_on_as_if_it_had_not_been(train, write_recipe, models, tmp_path):
    straight, _ = train(output_dir=str(tmp_path / "straight"))
    recipe = write_recipe("grpo", model_name_or_path=str(models / "tied"), **VLLM)
    folder = recipe.with_name("grpo")
    command = ("-m", "tests.integration.stand_in", "stages.grpo", "--config", recipe)
    command += ("--use_vllm", "true")
    stop_when(start(*command), lambda: 2 in whole_checkpoints(folder), signal.SIGKILL)
    assert manifest.read(folder) is None and max(whole_checkpoints(folder)) < 4
    out = finish(start(*command))
    assert "resuming from" in out and manifest.read(folder)["counts"]["steps"] == 4
    assert all(1 <= log["guard/alignment"] < 1.0001 for log in read_logs(folder))
    assert read_weights(folder) == read_weights(straight)


@pytest.mark.parametrize("keys", [{}, {"eval_temperature": 0.5}], ids=str)
def test_evaluation_on_the_way_leaves_no_trace(train, tmp_path, monkeypatch, keys):
    from trl.generation import vllm_generation

    asked, make = [], vllm_generation.SamplingParams

    def record(**given):
        asked.append(given["temperature"])
        return make(**given)

    monkeypatch.setattr(vllm_generation, "SamplingParams", record)
    straight, _ = train(output_dir=str(tmp_path / "straight"))
    rows = [grpo_row(problem, "none") for problem in synthetic.load("test", 6, 0, max_level=4)]
    file = tmp_path / "held_out.jsonl"
    write_rows(file, rows)
    assert {*asked} == {1.0}
    folder, batches = train(**EVAL, eval_file=str(file), **keys)
    assert {*asked} == {1.0, *keys.values()}
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    evaluated = {log["step"]: log for log in history if "eval_avg@2" in log}
    assert list(evaluated) == [2, 4] and len(batches) == 4
    for log in evaluated.values():
        assert 0 < log["eval_avg@2"] < 1  # the engine writes noise, and half of it is right
        if keys:  # the log-probs are of another temperature than the samples
            assert not [name for name in log if "sampling" in name]
        else:
            assert log["eval_sampling/sampling_logp_difference/max"] < 1e-3  # the step's weights
    assert read_weights(folder) == read_weights(straight)


def test_two_processes(write_recipe, run_two_processes, models):
    recipe = write_recipe("grpo", model_name_or_path=str(models / "tied"), **VLLM)
    run_two_processes(ON_CPU, "--config", recipe)
    folder = recipe.with_name("grpo")
    logs = read_logs(folder)
    assert len(logs) == 4 and all(1 <= log["guard/alignment"] < 1.0001 for log in logs)
    assert manifest.read(folder)["counts"]["completions"] == 4 * 16
    assert read_weights(folder) != read_weights(models / "tied")


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
        {"min_p": 0.2},
        {"repetition_penalty": 1.3},
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


def test_at_another_temperature_they_cannot_be_compared(train, capfd):
    keys = {"top_p": 0.8, "temperature": 0.7, "vllm_importance_sampling_mode": "token_truncate"}
    folder, batches = train(**keys, max_steps=2)
    assert not any("guard/alignment" in log for log in read_logs(folder))
    assert "guard_alignment is off" in capfd.readouterr().out
    assert batches[0]["importance_sampling_ratio"].mean() < 0.99


def test_what_a_server_says_and_how_it_is_started():
    from trl.generation.vllm_client import VLLMClient
    from trl.scripts.vllm_serve import ScriptArguments, build_command

    from stages.host import SERVE, server_flags
    from tests.unit.stages.helpers import grpo

    assert 'f"{self.base_url}/health"' in inspect.getsource(VLLMClient.check_server)
    told = inspect.getsource(VLLMClient.get_server_info)
    assert "/server_info" in told and '["vllm_config"]' in told and "VLLM_SERVER_DEV_MODE=1" in told
    # TRL's own start adds what a trainer needs; ours leaves out a limit that GRPO does not reach.
    theirs = build_command(ScriptArguments(model="MODEL", dtype="float16"))
    ours = shlex.split(SERVE)[4:] + server_flags(grpo({"fp16": True, "bf16": False}))
    assert {*ours} <= {*theirs}


@pytest.mark.parametrize("name", ROWS.keys() - {*HERE})
def test_a_row_of_the_page_on_algorithms(train, name):
    folder, batches = train(**ROWS[name], max_steps=3)
    assert len(read_logs(folder)) == 3
    for batch in batches:
        ratios = batch["importance_sampling_ratio"]
        assert 0 < ratios.max() <= ROWS[name]["vllm_importance_sampling_clip_max"]
        assert ratios.shape == batch["completion_mask"].shape  # by token, not by completion
