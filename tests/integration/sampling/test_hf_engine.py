"""The engine of transformers: samples of their own, nothing of the checkpoint's taste, the truth
about lengths and ends."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from data_prep.config import UserError
from data_prep.sampling.hf import HfEngine
from data_prep.sampling.store import Request, Settings

pytestmark = pytest.mark.integration
PROMPTS = ["Mia has 14 pens.", *("19 - 3 = 16\n" * n + "How many pens?" for n in range(9))]
GREEDY = Settings(16)
SAMPLED = Settings(16, temperature=1.0, top_p=0.9)


def load(checkpoint, batch_size=4):
    return HfEngine(str(checkpoint), "float32", key="checkpoints", batch_size=batch_size)


@pytest.fixture(scope="module")
def engine(tiny_model_dir):
    return load(tiny_model_dir)


def answers(engine, requests):
    """The completions in the order of the requests, each there once."""
    found = list(engine.complete(requests))
    assert sorted(index for index, _ in found) == list(range(len(requests)))
    return [completion for _, completion in sorted(found, key=lambda pair: pair[0])]


def facts(completions):
    return [(str(one), one.num_tokens, one.cut_off) for one in completions]


@pytest.fixture(scope="module")
def reference(tiny_model_dir):
    """Greedy ids by transformers alone for each of `PROMPTS`, one at a time."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    found = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")
        whole = model.generate(**ids, do_sample=False, max_new_tokens=16)
        found.append(whole[0, ids["input_ids"].shape[1] :].tolist())
    return found


def test_greedy_is_that_of_transformers(engine, reference):
    requests = [Request(prompt, GREEDY) for prompt in PROMPTS]
    eos = engine.tokenizer.eos_token_id
    expected = [
        (engine.tokenizer.decode(ids, skip_special_tokens=True), len(ids), ids[-1] != eos)
        for ids in reference
    ]
    assert facts(answers(engine, requests)) == expected
    assert len({text for text, *_ in expected}) > 5
    for temperature in (1e-6, 0):  # a sampler's limit
        limit = replace(SAMPLED, temperature=temperature)
        assert facts(answers(engine, [Request(p, limit) for p in PROMPTS])) == expected


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED])
def test_a_sample_is_its_own_in_any_batch(engine, tiny_model_dir, settings):
    requests = [Request(prompt, settings, k) for prompt in PROMPTS for k in range(3)]
    together = facts(answers(engine, requests))
    assert together[::-1] == facts(answers(engine, requests[::-1]))
    assert together == facts(answers(load(tiny_model_dir, batch_size=1), requests))
    assert together == facts(answers(load(tiny_model_dir, batch_size=64), requests))
    mixed = [Request(PROMPTS[0], Settings(5)), *requests[:7], Request(PROMPTS[1], SAMPLED, 9)]
    assert together[:7] == facts(answers(engine, mixed))[1:-1]


def copy_with(folder, tiny_model_dir, file, **values):
    shutil.copytree(tiny_model_dir, folder)
    known = json.loads((folder / file).read_text()) if (folder / file).is_file() else {}
    (folder / file).write_text(json.dumps(known | values))
    return folder


TASTE = {
    "do_sample": True, "temperature": 0.1, "top_k": 1, "top_p": 0.1, "repetition_penalty": 5.0,
    "max_length": 20, "max_new_tokens": 3, "no_repeat_ngram_size": 2, "min_new_tokens": 12,
    "num_return_sequences": 2, "suppress_tokens": list(range(60, 200)),
}  # fmt: skip


def test_nothing_of_the_generation_config_leaks_in(engine, tiny_model_dir, tmp_path):
    other = load(copy_with(tmp_path / "model", tiny_model_dir, "generation_config.json", **TASTE))
    for settings in (GREEDY, SAMPLED, replace(SAMPLED, top_p=1.0)):
        requests = [Request(prompt, settings) for prompt in PROMPTS]
        assert facts(answers(other, requests)) == facts(answers(engine, requests))


@pytest.mark.parametrize("as_list", [True, False])
def test_but_its_ends_do(engine, tiny_model_dir, reference, tmp_path, as_list):
    ids = reference[0]
    place = ids.index(ids[6])
    eos = [engine.tokenizer.eos_token_id, ids[6]] if as_list else ids[6]
    checkpoint = tmp_path / "model"
    other = load(copy_with(checkpoint, tiny_model_dir, "generation_config.json", eos_token_id=eos))
    assert other._eos_ids == {engine.tokenizer.eos_token_id, ids[6]}
    (found,) = answers(other, [Request(PROMPTS[0], GREEDY)])
    assert found == engine.tokenizer.decode(ids[:place], skip_special_tokens=True)
    assert (found.num_tokens, found.cut_off) == (place + 1, False)


@pytest.mark.parametrize(
    ("generated", "text", "num_tokens", "cut_off"),
    [
        (["a", "b", "c"], "abc", 3, True),
        (["a", "<|im_end|>", "<|endoftext|>"], "a", 2, False),
        (["a", "b", "<|im_end|>"], "ab", 3, False),  # ends with the last token allowed
        (["<|im_end|>", "<|endoftext|>", "<|endoftext|>"], "", 1, False),
        (["a", "<|endoftext|>", "b"], "ab", 3, True),  # padding that the model wrote itself
    ],
)
def test_scripted_rows(engine, monkeypatch, generated, text, num_tokens, cut_off):
    """What `generate` hands back, padded by it after an end."""
    ids = torch.tensor([engine.tokenizer.convert_tokens_to_ids(generated)])

    def scripted(input_ids, attention_mask, **kwargs):
        assert kwargs["max_new_tokens"] == 3
        return torch.cat([input_ids, ids], dim=1)

    monkeypatch.setattr(engine.model, "generate", scripted)
    (found,) = answers(engine, [Request("Mia", Settings(3))])
    assert (found, found.num_tokens, found.cut_off) == (text, num_tokens, cut_off)


def test_rows_that_end_at_different_places(engine, tiny_model_dir, reference, tmp_path):
    """Ends in the middle of a batch: every row's count is what it is alone."""
    ends = sorted({ids[i] for i, ids in enumerate(reference)})
    checkpoint = tmp_path / "model"
    other = load(copy_with(checkpoint, tiny_model_dir, "generation_config.json", eos_token_id=ends))
    expected = []
    for ids in reference:
        end = next((i for i, token in enumerate(ids) if token in {*ends, *engine._eos_ids}), None)
        text = engine.tokenizer.decode(ids[:end], skip_special_tokens=True)
        expected.append((text, 16 if end is None else end + 1, end is None))
    assert facts(answers(other, [Request(prompt, GREEDY) for prompt in PROMPTS])) == expected
    assert len({count for _, count, _ in expected}) > 3


def test_a_tokenizer_without_padding(engine, tiny_model_dir, tmp_path):
    """The end stands in for it, and still ends its row."""
    checkpoint = copy_with(
        tmp_path / "model", tiny_model_dir, "tokenizer_config.json", pad_token=None
    )
    other = load(checkpoint)
    assert other.tokenizer.pad_token == "<|im_end|>"
    requests = [Request(prompt, SAMPLED, k) for prompt in PROMPTS for k in range(4)]
    found = facts(answers(other, requests))
    assert found == facts(answers(engine, requests))
    assert {cut_off for *_, cut_off in found} == {True, False}


def test_a_damaged_checkpoint_is_one_line(tiny_model_dir, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(tiny_model_dir, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UserError, match=r"damaged: cannot be loaded \(.*fetch it again"):
        HfEngine(str(folder), "float32", key="checkpoints", batch_size=1)
