"""What every engine that runs a model itself must do: a class of tests, and what they compare with.

A module that takes `EngineContract` has the fixtures `start` (function: checkpoint -> its engine)
and `model` (the folder of a random Qwen2).
"""

import random
import re
import shutil
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_prep.sampling.store import Continuation, Request, Settings
from tests.integration.harness.eval_runs import copy_with

PROMPT = "Mia has 14 pens."
PROMPTS = [PROMPT, *("19 - 3 = 16\n" * n + "How many pens?" for n in range(9))]
GREEDY = Settings(16)
SAMPLED = Settings(16, temperature=1.0, top_p=0.9)
GENERATION = "generation_config.json"
TASTE = {
    "do_sample": True, "temperature": 0.1, "top_k": 1, "top_p": 0.1, "repetition_penalty": 5.0,
    "max_length": 20, "max_new_tokens": 3, "no_repeat_ngram_size": 2, "min_new_tokens": 12,
    "num_return_sequences": 2, "suppress_tokens": list(range(60, 200)),
}  # fmt: skip
PAIRS = [
    ("Mia has 14 pens. Monday:", " buys 5."), ("Mia has 14 pens. Monday:", " loses 3."),
    ("Mia has 14 pens. Monday:  ", "loses 3."),  # the spaces move over
    ("Mia has 14 pens", "."), ("Mia has 14", " pens."), ("Mia has", " 14 pens."),  # of one text
    ("How many\n", "pens?"), ("", "Mia has"), ("<|im_end|>How", " many"),
    ("Tuesday: loses 3. " * 60, "19 - 3 = 16"),  # cut on the left
]  # fmt: skip


def answers(engine, requests):
    """The completions in the order of the requests, each there once."""
    found = list(engine.complete(requests))
    assert sorted(index for index, _ in found) == list(range(len(requests)))
    return [completion for _, completion in sorted(found, key=lambda pair: pair[0])]


def facts(completions):
    return [(str(one), one.num_tokens, one.cut_off) for one in completions]


def generate(checkpoint, max_new_tokens=16):
    """`(ids, facts)` of greedy completions of `PROMPTS` by transformers alone, one at a time."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    rows = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")
        whole = model.generate(**ids, do_sample=False, max_new_tokens=max_new_tokens)
        rows.append(whole[0, ids["input_ids"].shape[1] :].tolist())
    texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
    eos = tokenizer.eos_token_id
    found = [(text, len(ids), ids[-1] != eos) for text, ids in zip(texts, rows, strict=True)]
    return rows, found


def score_pairs(checkpoint, max_length=None):
    """The harness's log-likelihoods of `PAIRS`, without its cache, which mixes up one text's."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    settings = {"dtype": "float32", "device": "cpu", "logits_cache": False, "batch_size": 1}
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(PAIRS)]
    model = HFLM(str(checkpoint), max_length=max_length, **settings)
    return dict(zip(PAIRS, model.loglikelihood(asked, disable_tqdm=True), strict=True))


def save_adapter(checkpoint, adapter, merged):
    """Save a random LoRA adapter of a checkpoint, and the model that the two make."""
    from peft import LoraConfig, get_peft_model

    shutil.copytree(checkpoint, merged)
    base = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(target_modules="all-linear", r=12, lora_alpha=24))
    torch.manual_seed(0)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.2)
    adapted.save_pretrained(adapter)
    adapted.merge_and_unload().save_pretrained(merged)


@pytest.fixture(scope="module")
def reference(model):
    return generate(model)


@pytest.fixture(scope="module")
def harness(model):
    """The harness's log-likelihoods; before any engine, whose process group it would join."""
    return score_pairs(model)


@pytest.fixture
def engine(start, model, harness):
    return start(model)


class EngineContract:
    """The tests; see the module."""

    def test_greedy_completions_are_those_of_transformers(self, engine, reference):
        _, expected = reference
        assert facts(answers(engine, [Request(prompt, GREEDY) for prompt in PROMPTS])) == expected
        assert len({text for text, *_ in expected}) > 5

    def test_a_sample_is_its_own_in_any_batch(self, engine):
        requests = [Request(prompt, SAMPLED, k) for prompt in PROMPTS for k in range(3)]
        together = facts(answers(engine, requests))
        assert len({*together[:3]}) == 3
        assert together[::-1] == facts(answers(engine, requests[::-1]))
        assert together[:2] == [facts(answers(engine, [one]))[0] for one in requests[:2]]
        mixed = [Request(PROMPTS[0], Settings(5)), *requests[:7], Request(PROMPTS[1], SAMPLED, 9)]
        assert together[:7] == facts(answers(engine, mixed))[1:-1]
        reseeded = Request(PROMPTS[0], replace(SAMPLED, seed=1))
        assert facts(answers(engine, [reseeded]))[0] not in together[:3]

    def test_stop_strings_end_the_generation(self, engine):
        """The row that stops is as long as it is alone, whatever its batch does."""
        requests = [Request(f"{PROMPT} {i}", Settings(24)) for i in range(6)]
        whole = answers(engine, requests)
        stop = re.findall("[A-Za-z0-9]+", whole[0])[1]  # half letters are no string
        until = ("never written", stop)
        stopping = [replace(one, settings=replace(one.settings, until=until)) for one in requests]
        alone, together = answers(engine, stopping[:1]), answers(engine, stopping)
        assert facts(alone) == facts(together[:1])
        assert alone[0] == whole[0][: whole[0].index(stop)] and alone[0].num_tokens < 24
        for found, text in zip(together, whole, strict=True):
            assert found == text.partition(stop)[0]
            assert found.cut_off == (stop not in text and text.cut_off)

    def test_log_likelihoods_are_the_harness_s(self, engine, harness):
        for pairs in (PAIRS, random.Random(0).sample(PAIRS, len(PAIRS))):
            found = dict(engine.loglikelihood([Continuation(*pair) for pair in pairs]))
            assert len(found) == len(pairs)
            for index, pair in enumerate(pairs):
                total, is_greedy = harness[pair]
                assert found[index] == (pytest.approx(total, abs=1e-3), is_greedy)

    def test_of_the_generation_config_only_the_ends_count(
        self, start, engine, model, reference, tmp_path
    ):
        """A token that ends is counted, and not shown."""
        requests = [Request(prompt, SAMPLED) for prompt in PROMPTS]
        requests += [Request(prompt, GREEDY) for prompt in PROMPTS]
        plain = facts(answers(engine, requests))
        tokenizer, ids = AutoTokenizer.from_pretrained(model), reference[0][0]
        other = start(copy_with(tmp_path / "taste", model, GENERATION, **TASTE))
        assert facts(answers(other, requests)) == plain
        ends = [tokenizer.eos_token_id, ids[6]]
        other = start(copy_with(tmp_path / "ends", model, GENERATION, eos_token_id=ends))
        place = ids.index(ids[6])
        text = tokenizer.decode(ids[:place], skip_special_tokens=True)
        assert facts(answers(other, [Request(PROMPT, GREEDY)])) == [(text, place + 1, False)]

    def test_an_adapter_is_the_merged_model(self, start, model, reference, tmp_path):
        adapter, merged = tmp_path / "adapter", tmp_path / "merged"
        save_adapter(model, adapter, merged)
        _, expected = generate(merged)
        found = facts(answers(start(adapter), [Request(prompt, GREEDY) for prompt in PROMPTS]))
        assert found == expected != reference[1]
