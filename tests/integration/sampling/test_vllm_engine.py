"""The vLLM engine against transformers and the harness, on a tiny random Qwen2 on the CPU."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from data_prep.sampling import SamplingArguments, vllm
from data_prep.sampling.store import Continuation, Request, Settings
from data_prep.sampling.vllm import VllmEngine, choose_visible, lora_rank
from pipeline.errors import UserError
from tests.integration.sampling.test_hf_engine import (
    answers,
    check_loglikelihoods,
    expected_facts,
    facts,
    generate,
    save_adapter,
    score_pairs,
)

pytest.importorskip("vllm", reason="vLLM is opt-in: `make test-vllm` runs these")
pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
CONTEXT = 320
BASE = {"dtype": "float32", "vllm_gpu_memory_utilization": 0.1}
PROMPTS = ["Mia has 14 pens.", *("19 - 3 = 16\n" * n + "How many pens?" for n in range(19))]
GREEDY = Settings(24)
SAMPLED = Settings(24, temperature=1.0, top_p=0.9)


def save_model(folder, tiny_model_dir):
    """Save a random Qwen2 with its tokenizer; vLLM's attention on a CPU takes heads of size 32."""
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder)
    sizes = {"hidden_size": 64, "max_position_embeddings": CONTEXT}
    torch.manual_seed(0)
    config = Qwen2Config.from_pretrained(tiny_model_dir, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir):
    return AutoTokenizer.from_pretrained(tiny_model_dir)


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_model_dir):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, tiny_model_dir)
    return folder


@pytest.fixture(scope="module")
def harness(model):
    """The harness's log-likelihoods; before any engine, whose process group it would join."""
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


@pytest.fixture
def engine(start, model):
    return start(model)


@pytest.fixture(scope="module")
def reference(model, tokenizer):
    return generate(model, tokenizer, PROMPTS, 24)


def test_greedy_completions_are_those_of_transformers(engine, tokenizer, reference):
    completions = answers(engine, [Request(prompt, GREEDY) for prompt in PROMPTS])
    assert facts(completions) == expected_facts(tokenizer, reference)
    assert engine._llm.model_config.dtype == torch.float32


def test_a_sample_is_its_own_in_any_batch(engine):
    wanted = [Request(PROMPTS[1], SAMPLED, number) for number in range(6)]
    others = [Request(prompt, SAMPLED) for prompt in PROMPTS[2:]]
    alone = [answers(engine, [one])[0] for one in wanted]
    assert len(set(alone)) == 6
    assert answers(engine, [*others[:9], *wanted[::-1], *others[9:]])[9:15] == alone[::-1]
    reseeded = replace(SAMPLED, seed=1)
    assert answers(engine, [Request(PROMPTS[1], reseeded)])[0] not in alone


def test_requests_go_in_windows(engine, monkeypatch):
    requests = [Request(PROMPTS[i], Settings(num)) for i, num in enumerate((60, 5, 30))]
    expected = facts(answers(engine, requests))
    monkeypatch.setattr(vllm, "WINDOW", 2)
    stream = engine.complete(requests)
    assert [next(stream)[0], next(stream)[0]] == [0, 1]
    stream.close()  # the caller gives up: nothing runs on
    assert not engine._llm.llm_engine.has_unfinished_requests()
    assert facts(answers(engine, requests)) == expected


def test_stop_strings(engine, tokenizer, reference):
    whole = tokenizer.decode(reference[0], skip_special_tokens=True)
    stop = whole[8:11]
    assert whole.index(stop) == 8
    request = Request(PROMPTS[0], replace(GREEDY, until=("never written", stop)))
    (completion,) = answers(engine, [request])
    assert completion == whole[:8] and not completion.cut_off
    assert completion.num_tokens < 24


def test_log_likelihoods_are_the_harness_s(engine, harness):
    check_loglikelihoods(engine, harness)
    with pytest.raises(UserError, match=r"a continuation of .* exceeds vLLM"):
        next(engine.loglikelihood([Continuation("short", "Tuesday: loses 3. " * 60)]))


def test_of_the_generation_config_only_the_ends_count(
    start, engine, model, tokenizer, reference, tmp_path
):
    ids = reference[0]
    place = ids.index(ids[6])
    shutil.copytree(model, tmp_path / "c")
    config = {"temperature": 0.1, "top_k": 1, "repetition_penalty": 5.0, "do_sample": True}
    config["eos_token_id"] = [tokenizer.eos_token_id, ids[6]]
    (tmp_path / "c" / "generation_config.json").write_text(json.dumps(config))

    sampled = [Request(prompt, SAMPLED) for prompt in PROMPTS]
    plain = answers(engine, sampled)
    (completion, *others) = answers(start(tmp_path / "c"), [Request(PROMPTS[0], GREEDY), *sampled])
    assert completion == tokenizer.decode(ids[:place], skip_special_tokens=True)
    assert (completion.num_tokens, completion.cut_off) == (place + 1, False)
    long = [(one, other) for one, other in zip(plain, others, strict=True) if other.cut_off]
    assert len(long) > 5 and all(one == other for one, other in long)


def test_an_adapter_is_the_merged_model(start, model, tokenizer, tmp_path):
    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    save_adapter(model, adapter, merged, r=12, lora_alpha=24)
    assert lora_rank(str(adapter)) == 16
    requests = [Request(prompt, GREEDY) for prompt in PROMPTS]
    expected = expected_facts(tokenizer, generate(merged, tokenizer, PROMPTS, 24))
    assert facts(answers(start(adapter), requests)) == expected


def test_devices():
    assert choose_visible(None, 3) == "3"
    assert choose_visible("4, 5", 1) == "5"
    with pytest.raises(UserError, match="'4' has no GPU for process 1"):
        choose_visible("4", 1)


def test_ranks(tmp_path):
    for config, rank in (({"r": 4}, 8), ({"r": 32, "rank_pattern": {"q_proj": 65}}, 128)):
        (tmp_path / "adapter_config.json").write_text(json.dumps(config))
        assert lora_rank(str(tmp_path)) == rank


def test_refusals_are_one_line(start, model, monkeypatch):
    words = "backend: vllm refuses .*max_model_len.*backend: hf"
    with pytest.raises(UserError, match=words) as info:
        start(model, vllm_max_model_length=10**6)
    assert "\n" not in str(info.value)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UserError, match=r"vLLM is not installed.*make gpu-env"):
        start(model, seed=1)


SCRIPT = """
import json, os, sys
from data_prep.sampling import SamplingArguments
from data_prep.sampling.store import Request, Settings
from data_prep.sampling.vllm import VllmEngine

rank, before = int(os.environ["RANK"]), dict(os.environ)
args = SamplingArguments(dtype="float32", vllm_gpu_memory_utilization=0.1)
engine = VllmEngine(sys.argv[1], args, rank)
assert os.environ["WORLD_SIZE"] == "2" and dict(os.environ) == before
sampled = Settings(24, temperature=1.0, top_p=0.9)
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
