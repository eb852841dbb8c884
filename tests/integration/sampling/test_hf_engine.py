"""The engine of transformers: prompts to the token, samples of their own, the truth about ends."""

import json
import random
import re
import shutil
from copy import deepcopy
from dataclasses import replace
from unittest import mock

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM

from data_prep.sampling import SamplingArguments
from data_prep.sampling.context import is_cut
from data_prep.sampling.hf import FiniteCheck, HfEngine, cut_at
from data_prep.sampling.store import Continuation, Request, Settings
from pipeline.errors import UserError

pytestmark = pytest.mark.integration
CONTEXT = 512  # of the tiny model
PROMPT = "Mia has 14 pens."
PROMPTS = [PROMPT, *("19 - 3 = 16\n" * n + "How many pens?" for n in range(9))]
GREEDY = Settings(16)
SAMPLED = Settings(16, temperature=1.0, top_p=0.9)


def load(checkpoint, batch_size=4):
    args = SamplingArguments(dtype="float32", batch_size=batch_size)
    return HfEngine(str(checkpoint), "checkpoints", args)


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


def generate(checkpoint, tokenizer, prompts, max_new_tokens):
    """Greedy ids by transformers alone for each prompt, one at a time."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    found = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt")
        whole = model.generate(**ids, do_sample=False, max_new_tokens=max_new_tokens)
        found.append(whole[0, ids["input_ids"].shape[1] :].tolist())
    return found


def expected_facts(tokenizer, rows):
    """What an engine makes of rows of greedy ids."""
    texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
    eos = tokenizer.eos_token_id
    return [(text, len(ids), ids[-1] != eos) for text, ids in zip(texts, rows, strict=True)]


@pytest.fixture(scope="module")
def reference(engine, tiny_model_dir):
    return generate(tiny_model_dir, engine.tokenizer, PROMPTS, 16)


def test_greedy_is_that_of_transformers(engine, reference):
    requests = [Request(prompt, GREEDY) for prompt in PROMPTS]
    expected = expected_facts(engine.tokenizer, reference)
    assert facts(answers(engine, requests)) == expected
    assert len({text for text, *_ in expected}) > 5
    limit = replace(SAMPLED, temperature=1e-6)  # of a sampler
    assert facts(answers(engine, [Request(p, limit) for p in PROMPTS])) == expected


def test_a_sample_is_its_own_in_any_batch(engine, tiny_model_dir):
    requests = [Request(prompt, SAMPLED, k) for prompt in PROMPTS for k in range(3)]
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


def test_of_the_generation_config_only_the_ends_count(engine, tiny_model_dir, reference, tmp_path):
    other = load(copy_with(tmp_path / "model", tiny_model_dir, "generation_config.json", **TASTE))
    for settings in (GREEDY, SAMPLED, replace(SAMPLED, top_p=1.0)):
        requests = [Request(prompt, settings) for prompt in PROMPTS]
        assert facts(answers(other, requests)) == facts(answers(engine, requests))
    ids = reference[0]
    place = ids.index(ids[6])
    ends = {"eos_token_id": [engine.tokenizer.eos_token_id, ids[6]]}
    other = load(copy_with(tmp_path / "ends", tiny_model_dir, "generation_config.json", **ends))
    text = engine.tokenizer.decode(ids[:place], skip_special_tokens=True)
    assert facts(answers(other, [Request(PROMPTS[0], GREEDY)])) == [(text, place + 1, False)]


@pytest.fixture
def seen(engine, monkeypatch):
    """The prompt ids of every row that the engine generates from."""
    found, generate = [], engine.model.generate

    def watch(input_ids, attention_mask, **settings):
        rows = zip(input_ids, attention_mask, strict=True)
        found.extend(ids[mask.bool()].tolist() for ids, mask in rows)
        return generate(input_ids=input_ids, attention_mask=attention_mask, **settings)

    monkeypatch.setattr(engine.model, "generate", watch)
    return found


def test_only_an_official_prompt_gets_the_tokenizer_s_own_tokens(engine, seen, monkeypatch):
    """As Llama's adds; the template of a rendered prompt has written them already."""
    plain = engine.tokenizer(PROMPT)["input_ids"]
    start = ("<|im_start|>", engine.tokenizer.convert_tokens_to_ids("<|im_start|>"))
    changed = deepcopy(engine.tokenizer)
    changed.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[start]
    )
    monkeypatch.setattr(engine, "tokenizer", changed)
    answers(engine, [Request(PROMPT, replace(GREEDY, rendered=False)), Request(PROMPT, GREEDY)])
    assert seen == [[start[1], *plain], plain]


def test_prompts_that_are_too_long(engine, seen):
    prompt = "Tuesday: loses 3. " * 60
    ids = engine.tokenizer(prompt)["input_ids"]
    message = f"max_new_tokens: 20 and a prompt of {len(ids)} tokens exceed the model's context of"
    with pytest.raises(UserError, match=f"{message} {CONTEXT} tokens; lower max_new_tokens"):
        answers(engine, [Request("short", GREEDY), Request(prompt, Settings(20))])
    answers(engine, [Request(prompt, replace(GREEDY, rendered=False))])
    assert seen[-1] == ids[-(CONTEXT - 16) :], "cut on the left"
    with pytest.raises(UserError, match=f"^held_out: p3: {message}"):
        answers(engine, [Request(prompt, Settings(20), place="held_out: p3: ")])
    for rendered in (True, False):
        with pytest.raises(UserError, match="max_new_tokens: 512 and a prompt of 1 tokens"):
            answers(engine, [Request("a", Settings(CONTEXT, rendered=rendered))])
    # Exactly full is not too long.
    assert answers(engine, [Request("a" * 10, Settings(CONTEXT - 10))])


@pytest.mark.parametrize(
    ("written", "until", "text", "cut_off"),
    [
        ("abc", (), "abc", True),
        ("ab<|im_end|>", (), "ab", False),
        ("<|im_end|><|endoftext|>", (), "", False),
        ("a<|endoftext|>b", (), "ab", True),  # padding that the model wrote itself
        ("14 + 5\n\nQuestion: 7", ("Question:",), "14 + 5\n\n", False),
        ("14 + 5", ("Question:",), "14 + 5", True),
        ("a b c", ("c", "b"), "a ", False),
        # Special tokens do not stand in the decoded text, and end it all the same.
        ("14 <|im_start|>user", ("<|im_start|>",), "14 ", False),
        ("14 <|im_start|>user: b", ("<|im_start|>", "4"), "1", False),
    ],
)
def test_ends_of_what_is_generated(engine, monkeypatch, written, until, text, cut_off):
    ids = torch.tensor([engine.tokenizer(written)["input_ids"]])
    monkeypatch.setattr(
        engine.model, "generate", lambda input_ids, **_: torch.cat([input_ids, ids], dim=1)
    )
    (found,) = answers(engine, [Request(PROMPT, replace(GREEDY, until=until))])
    assert (found, found.cut_off) == (text, cut_off)
    if not until:
        end = written.find("<|im_end|>")
        counted = written if end < 0 else written[: end + len("<|im_end|>")]
        assert found.num_tokens == len(engine.tokenizer(counted)["input_ids"])


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_no_answer(tiny_model_dir, is_fast, value):
    """Of broken weights argmax is a token, and the sampler draws one."""
    args = SamplingArguments(dtype="float32", fast_generation=is_fast)
    broken = HfEngine(str(tiny_model_dir), "checkpoints", args)
    broken.model.get_output_embeddings().weight.data[7] = value
    line = f"^checkpoints: {re.escape(str(tiny_model_dir))} computes NaN or infinity with dtype: fl"
    for settings in (GREEDY, SAMPLED):
        with pytest.raises(UserError, match=line):
            answers(broken, [Request(PROMPT, settings)])
    with pytest.raises(UserError, match=line):
        list(broken.loglikelihood([Continuation(PROMPT, " Monday")]))


def test_a_later_token_may_be_no_number_too():
    scores = [torch.tensor([[1.0, -torch.inf], [0.0, 2.0]]) for _ in range(3)]
    finite = FiniteCheck("it")
    for one in scores:
        assert finite(torch.zeros(2, 1), one) is one
    finite.check()
    finite(torch.zeros(2, 1), torch.tensor([[0.0, torch.nan]]))
    finite(torch.zeros(2, 1), scores[0])
    with pytest.raises(UserError, match=r"^it$"):
        finite.check()


def test_stop_strings_end_the_generation(engine):
    """The row that stops is as long as it is alone, whatever its batch does."""
    requests = [Request(f"{PROMPT} {i}", Settings(24)) for i in range(6)]
    whole = answers(engine, requests)
    stop = re.findall("[A-Za-z0-9]+", whole[0])[1]  # half letters are no string
    stopping = [replace(one, settings=replace(one.settings, until=(stop,))) for one in requests]
    alone, together = answers(engine, stopping[:1]), answers(engine, stopping)
    assert facts(alone) == facts(together[:1])
    assert alone[0] == whole[0][: whole[0].index(stop)] and alone[0].num_tokens < 24
    for found, text in zip(together, whole, strict=True):
        assert found == cut_at(text, [stop])[0]
        assert found.cut_off == (stop not in text and text.cut_off)


PAIRS = [
    ("Mia has 14 pens. Monday:", " buys 5."), ("Mia has 14 pens. Monday:", " loses 3."),
    ("Mia has 14 pens. Monday:  ", "loses 3."),  # the spaces move over
    ("Mia has 14 pens", "."), ("Mia has 14", " pens."), ("Mia has", " 14 pens."),  # of one text
    ("How many\n", "pens?"), ("", "Mia has"), ("<|im_end|>How", " many"),
    ("Tuesday: loses 3. " * 60, "19 - 3 = 16"),  # cut on the left
]  # fmt: skip


def score_pairs(checkpoint, **settings):
    """The harness's log-likelihoods of `PAIRS`, without its cache, which mixes up one text's."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    settings |= {"dtype": "float32", "device": "cpu", "logits_cache": False, "batch_size": 1}
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(PAIRS)]
    found = HFLM(str(checkpoint), **settings).loglikelihood(asked, disable_tqdm=True)
    return dict(zip(PAIRS, found, strict=True))


def check_loglikelihoods(engine, expected):
    for pairs in (PAIRS, random.Random(0).sample(PAIRS, len(PAIRS))):
        found = dict(engine.loglikelihood([Continuation(*pair) for pair in pairs]))
        for index, pair in enumerate(pairs):
            total, is_greedy = expected[pair]
            assert found.pop(index) == (pytest.approx(total, abs=1e-3), is_greedy)
        assert not found


def test_log_likelihoods_are_the_harness_s(engine, tiny_model_dir):
    check_loglikelihoods(engine, score_pairs(tiny_model_dir))


def test_which_prompts_are_cut(engine, seen):
    """As `seen`; of a pair the harness's model does not read the last token."""
    official = replace(GREEDY, rendered=False)
    num = len(engine.tokenizer(PROMPT)["input_ids"])
    for length, expected in ((num + 16, False), (num + 15, True)):
        with mock.patch.object(engine, "max_length", length):
            answers(engine, [Request(PROMPT, official)])
            assert is_cut(Request(PROMPT, official), engine) == (len(seen[-1]) < num) == expected
            assert not is_cut(Request(PROMPT, GREEDY), engine)
    whole = len(engine.tokenizer(PROMPT + " Monday")["input_ids"])
    for length, expected in ((whole - 1, False), (whole - 2, True)):
        with mock.patch.object(engine._harness_model, "_max_length", length):
            assert is_cut(Continuation(PROMPT, " Monday"), engine) == expected


def save_adapter(checkpoint, adapter, merged, **config):
    """Save a random LoRA adapter of a checkpoint, and the model that the two make."""
    from peft import LoraConfig, get_peft_model

    base = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(target_modules="all-linear", **config))
    torch.manual_seed(0)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.2)
    adapted.save_pretrained(adapter)
    adapted.merge_and_unload().save_pretrained(merged)


def test_an_adapter_is_the_merged_model(engine, tiny_model_dir, tmp_path):
    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    shutil.copytree(tiny_model_dir, merged)
    save_adapter(tiny_model_dir, adapter, merged, r=4)
    requests = [Request(f"{PROMPT} {i}", GREEDY) for i in range(6)]
    found = answers(load(adapter), requests)
    assert found == answers(load(merged), requests)
    assert found != answers(engine, requests)
