"""The names of vLLM that the engine leans on, and what it decides without running anything."""

import inspect
import json

import pytest

from data_prep.config import UserError
from data_prep.sampling.vllm import LORA_RANKS, choose_device, lora_rank

pytest.importorskip("vllm", reason="vLLM is opt-in: `make test-vllm` runs these")
pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_devices():
    assert choose_device(None, 3) == "3"
    assert choose_device("4, 5", 1) == "5"
    with pytest.raises(UserError, match="'4' has no GPU for process 1"):
        choose_device("4", 1)


def test_ranks(tmp_path):
    for config, rank in (
        ({"r": 4}, 8),
        ({"r": 32, "rank_pattern": {}}, 32),
        ({"r": 32, "rank_pattern": {"q_proj": 65}}, 128),
        ({"r": 1000}, 1000),  # which vLLM refuses
    ):
        (tmp_path / "adapter_config.json").write_text(json.dumps(config))
        assert lora_rank(str(tmp_path)) == rank


def test_the_names_of_vllm_that_we_lean_on():
    from vllm.config.lora import MaxLoRARanks
    from vllm.distributed import cleanup_dist_env_and_memory
    from vllm.inputs import tokens_input
    from vllm.lora.request import LoRARequest
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    from vllm.v1.engine.core_client import EngineCoreClient
    from vllm.v1.engine.llm_engine import LLMEngine

    assert MaxLoRARanks.__args__ == LORA_RANKS
    assert callable(cleanup_dist_env_and_memory) and callable(current_platform.is_cpu)
    assert tokens_input(prompt_token_ids=[1]) == {"type": "token", "prompt_token_ids": [1]}
    assert LoRARequest("name", 1, "path").lora_path == "path"
    assert list(inspect.signature(LLMEngine.add_request).parameters)[1:4] == [
        "request_id", "prompt", "params",
    ]  # fmt: skip
    for name in ("step", "has_unfinished_requests", "abort_request", "add_lora"):
        assert callable(getattr(LLMEngine, name))
    assert callable(EngineCoreClient.shutdown)
    assert 32 in CPUAttentionBackend.get_supported_head_sizes()
    fields = {"request_id", "prompt_token_ids", "prompt_logprobs", "outputs", "finished"}
    assert fields <= set(inspect.signature(RequestOutput).parameters)
    assert {"token_ids", "finish_reason"} <= set(inspect.signature(CompletionOutput).parameters)
