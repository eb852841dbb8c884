"""The names of TRL and vLLM that training with vLLM leans on."""

import inspect

import pytest
import torch

pytest.importorskip("vllm", reason="vLLM is opt-in: `make test-vllm` runs these")
pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_names_of_trl_that_the_cpu_engine_leans_on():
    from trl.generation.vllm_generation import VLLMGeneration
    from trl.trainer import grpo_trainer

    start = inspect.getsource(VLLMGeneration._init_vllm)
    assert "self.llm = LLM(" in start  # the module's name, which takes our settings
    for setting in ("dtype=", "enforce_eager="):
        assert setting not in start
    for name in ("mode", "gpu_memory_utilization", "model", "accelerator"):
        assert f"self.{name} = {name}" in inspect.getsource(VLLMGeneration.__init__)
    sync = inspect.getsource(VLLMGeneration.sync_weights)
    theirs = "self.llm.llm_engine.model_executor.driver_worker.model_runner.model.load_weights("
    assert theirs in sync and "self.llm.reset_prefix_cache()" in sync
    assert inspect.isgeneratorfunction(VLLMGeneration._iter_named_params)
    assert list(inspect.signature(VLLMGeneration._iter_named_params).parameters) == ["self"]
    # Merged for as long as the generator runs, so what it yields must be copied.
    names = inspect.getsource(VLLMGeneration._iter_named_params)
    assert names.index("merge_adapter()") < names.index("yield name, param.data")
    assert names.index("yield name, param.data") < names.index("unmerge_adapter()")
    assert "self.vllm_generation = VLLMGeneration(" in inspect.getsource(grpo_trainer.GRPOTrainer)
    assert "self.vllm_generation.sync_weights()" in inspect.getsource(grpo_trainer.GRPOTrainer)


def test_names_of_vllm_that_the_cpu_engine_leans_on():
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
    from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    assert "weights_iterator" in inspect.signature(GPUModelRunner.reload_weights).parameters
    assert callable(GPUModelRunner.get_model) and callable(InprocClient.shutdown)
    assert callable(UnquantizedEmbeddingMethod.process_weights_after_loading)
    assert "self.lm_head.tie_weights(self.model.embed_tokens)" in inspect.getsource(
        Qwen2ForCausalLM
    )


def test_limits_of_a_cpu():
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    from stages.vllm_checks import CPU_HEAD_SIZES

    assert list(CPU_HEAD_SIZES) == CPUAttentionBackend.get_supported_head_sizes()


def test_what_a_server_says_and_how_it_is_started():
    from trl.generation.vllm_client import VLLMClient
    from trl.scripts.vllm_serve import ScriptArguments, build_command

    from stages.vllm_checks import SERVE

    assert 'f"{self.base_url}/health"' in inspect.getsource(VLLMClient.check_server)
    told = inspect.getsource(VLLMClient.get_server_info)
    assert "/server_info" in told and '["vllm_config"]' in told and "VLLM_SERVER_DEV_MODE=1" in told
    # TRL's own start adds what a trainer needs; ours leaves out a limit that GRPO does not reach.
    theirs = " ".join(build_command(ScriptArguments(model="MODEL")))
    for flag in SERVE.replace("'", "").split("MODEL ")[1].split(" --"):
        assert flag.removeprefix("--") in theirs


def test_generate_on_cpu_leaves_cuda_alone(monkeypatch):
    from trl.generation import vllm_generation
    from trl.trainer import grpo_trainer

    from stages.trainer.vllm_cpu import SETTINGS, CpuGeneration, generate_on_cpu

    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", vllm_generation.VLLMGeneration)
    monkeypatch.setattr(vllm_generation, "LLM", llm := vllm_generation.LLM)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    generate_on_cpu()
    assert grpo_trainer.VLLMGeneration is vllm_generation.VLLMGeneration
    assert vllm_generation.LLM is llm
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    generate_on_cpu()
    assert grpo_trainer.VLLMGeneration is CpuGeneration
    assert vllm_generation.LLM.keywords == SETTINGS
