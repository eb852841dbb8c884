"""The vLLM engine against transformers and the harness, on a tiny random Qwen2 on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from data_prep.sampling import SamplingArguments, vllm
from data_prep.sampling.store import Continuation, Request, Settings
from data_prep.sampling.vllm import VllmEngine, lora_rank
from pipeline.errors import UserError
from tests.integration.sampling.contract import (
    PROMPTS,
    SAMPLED,
    EngineContract,
    answers,
    engine,
    facts,
    reference,
    score_pairs,
)

pytest.importorskip("vllm", reason="vLLM is opt-in: `make test-vllm` runs these")
pytestmark = [pytest.mark.integration, pytest.mark.slow]
__all__ = ["engine", "reference"]
ROOT = Path(__file__).parents[3]
CONTEXT = 320
BASE = {"dtype": "float32", "vllm_gpu_memory_utilization": 0.1}


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_model_dir):
    """A random Qwen2; vLLM's attention on a CPU takes heads of size 32."""
    folder = tmp_path_factory.mktemp("model")
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
    sizes = {"hidden_size": 64, "max_position_embeddings": CONTEXT}
    torch.manual_seed(0)
    config = Qwen2Config.from_pretrained(tiny_model_dir, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def harness(model):
    return score_pairs(model, max_length=CONTEXT - 2)


@pytest.fixture(scope="module")
def start(harness):
    """Function: checkpoint -> its engine; one runs at a time, and stays for the next test."""
    running = {}

    def call(checkpoint, **settings):
        key = (str(checkpoint), *settings.items())
        if key not in running:
            stop()
            running[key] = VllmEngine(str(checkpoint), SamplingArguments(**BASE | settings), 0)
        return running[key]

    def stop():
        while running:
            running.popitem()[1].close()

    yield call
    stop()


class TestVllmEngine(EngineContract):
    """On the CPU."""

    def test_requests_go_in_windows(self, engine, monkeypatch):
        assert engine._llm.model_config.dtype == torch.float32
        requests = [Request(PROMPTS[i], Settings(num)) for i, num in enumerate((60, 5, 30))]
        expected = facts(answers(engine, requests))
        monkeypatch.setattr(vllm, "WINDOW", 2)
        stream = engine.complete(requests)
        assert [next(stream)[0], next(stream)[0]] == [0, 1]
        stream.close()  # the caller gives up: nothing runs on
        assert not engine._llm.llm_engine.has_unfinished_requests()
        assert facts(answers(engine, requests)) == expected

    def test_refusals_are_one_line(self, start, engine, model, monkeypatch):
        with pytest.raises(UserError, match=r"a continuation of .* exceeds vLLM"):
            next(engine.loglikelihood([Continuation("short", "Tuesday: loses 3. " * 60)]))
        words = "backend: vllm refuses .*max_model_len.*backend: hf"
        with pytest.raises(UserError, match=words) as info:
            start(model, vllm_max_model_length=10**6)
        assert "\n" not in str(info.value)
        monkeypatch.setitem(sys.modules, "vllm", None)
        with pytest.raises(UserError, match=r"vLLM is not installed.*make gpu-env"):
            start(model, seed=1)


@pytest.mark.parametrize(
    ("config", "rank"),
    [({"r": 4}, 8), ({"r": 12}, 16), ({"r": 32, "rank_pattern": {"q_proj": 65}}, 128)],
)
def test_ranks(tmp_path, config, rank):
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    assert lora_rank(str(tmp_path)) == rank


SCRIPT = """
import json, os, sys
from data_prep.sampling import SamplingArguments
from data_prep.sampling.store import Request, Settings
from data_prep.sampling.vllm import VllmEngine

rank, before = int(os.environ["RANK"]), dict(os.environ)
args = SamplingArguments(dtype="float32", vllm_gpu_memory_utilization=0.1)
engine = VllmEngine(sys.argv[1], args, rank)
assert os.environ["WORLD_SIZE"] == "2" and dict(os.environ) == before
sampled = Settings(16, temperature=1.0, top_p=0.9)
found = list(engine.complete([Request(sys.argv[2], sampled, rank)]))
engine.close()
print(json.dumps([rank, found]))
"""


def test_two_processes_have_an_engine_each(engine, model, tmp_path):
    (tmp_path / "two.py").write_text(SCRIPT)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, *launcher, "two.py", str(model), PROMPTS[0]]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    where = {"env": env, "cwd": tmp_path, "timeout": 240}
    ran = subprocess.run(command, capture_output=True, text=True, **where)
    assert ran.returncode == 0, ran.stderr
    found = dict(json.loads(line) for line in ran.stdout.splitlines())
    expected = answers(engine, [Request(PROMPTS[0], SAMPLED, rank) for rank in range(2)])
    assert [found[rank] for rank in range(2)] == [[[0, text]] for text in expected]
