"""What the engine of transformers is given: prompts to the token, stop strings, adapters, pairs."""

import json
import random
import re
import shutil
from dataclasses import replace

import pytest
import torch

from data_prep.checkpoints import tokenizer_path
from data_prep.config import UserError
from data_prep.prompts import build_prompt, render_prompt
from data_prep.sampling.hf import HfEngine, cut_at
from data_prep.sampling.store import Continuation, Request, Settings
from tests.integration.harness.eval_runs import PROBLEMS, evaluate, write_problems

pytestmark = pytest.mark.integration
CONTEXT = 512  # of the tiny model
PROMPT = "Mia has 14 pens."
GREEDY = Settings(16)


def load(checkpoint, batch_size=4):
    return HfEngine(str(checkpoint), "float32", key="checkpoints", batch_size=batch_size)


@pytest.fixture(scope="module")
def engine(tiny_model_dir):
    return load(tiny_model_dir)


@pytest.fixture
def scripted(engine, monkeypatch):
    """Function: let `generate` write this text; returns the completion."""

    def call(text, settings):
        ids = torch.tensor([engine.tokenizer(text)["input_ids"]])

        def generate(input_ids, **_):
            return torch.cat([input_ids, ids], dim=1)

        with monkeypatch.context() as patch:
            patch.setattr(engine.model, "generate", generate)
            ((_, found),) = engine.complete([Request(PROMPT, settings)])
        return found

    return call


def complete(engine, *requests):
    return [text for _, text in sorted(engine.complete(requests), key=lambda pair: pair[0])]


@pytest.fixture
def seen(monkeypatch):
    """The prompt ids of every row that is generated from, whichever the engine."""
    found, build = [], HfEngine.__init__

    def build_watched(engine, *args, **kwargs):
        build(engine, *args, **kwargs)
        generate = engine.model.generate

        def watch(input_ids, attention_mask, **settings):
            for ids, mask in zip(input_ids, attention_mask, strict=True):
                assert torch.equal(mask, mask.sort().values), "padding stands on the left"
                found.append(ids[mask.bool()].tolist())
            return generate(input_ids=input_ids, attention_mask=attention_mask, **settings)

        engine.model.generate = watch

    monkeypatch.setattr(HfEngine, "__init__", build_watched)
    return found


@pytest.fixture(scope="module")
def adding(tmp_path_factory, tiny_model_dir):
    """A checkpoint whose tokenizer adds a token by itself, as Llama's does."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    folder = tmp_path_factory.mktemp("adding") / "model"
    shutil.copytree(tiny_model_dir, folder)
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    start = ("<|im_start|>", tokenizer.token_to_id("<|im_start|>"))
    tokenizer.post_processor = TemplateProcessing(single="<|im_start|> $A", special_tokens=[start])
    tokenizer.save(path)
    # Of no model's own class, which would build its own post-processor.
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_the_model_sees_exactly_the_training_prompt(tmp_path, adding, seen):
    from transformers import AutoTokenizer

    write_problems(tmp_path / "test.jsonl", system_prompt="think")
    evaluate(tmp_path, f"base={adding}", max_new_tokens=2)
    tokenizer = AutoTokenizer.from_pretrained(adding)
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert tokenizer("a")["input_ids"][0] == start, "only the template's own may remain"
    trained = [
        tokenizer(
            render_prompt(build_prompt(question, "think"), tokenizer), add_special_tokens=False
        )["input_ids"]
        for question in PROBLEMS
    ]
    assert all(ids[0] == start != ids[1] for ids in trained)
    assert sorted(seen) == sorted(trained * 3)  # once greedy, twice sampled


def test_an_official_prompt_gets_the_tokenizer_s_own_tokens(adding, seen):
    engine = load(adding)
    complete(engine, Request(PROMPT, replace(GREEDY, rendered=False)), Request(PROMPT, GREEDY))
    start = engine.tokenizer.convert_tokens_to_ids("<|im_start|>")
    plain = engine.tokenizer(PROMPT, add_special_tokens=False)["input_ids"]
    assert sorted(seen, key=len) == [plain, [start, *plain]]


def test_prompts_that_are_too_long(engine, tiny_model_dir, seen):
    prompt = "Tuesday: loses 3. " * 60
    ids = engine.tokenizer(prompt)["input_ids"]
    message = f"max_new_tokens: 20 and a prompt of {len(ids)} tokens exceed the model's context of"
    with pytest.raises(UserError, match=f"{message} {CONTEXT}; lower max_new_tokens"):
        complete(engine, Request("short", GREEDY), Request(prompt, Settings(20)))
    plain = replace(GREEDY, rendered=False)
    kept = load(tiny_model_dir)
    (found,) = complete(kept, Request(prompt, plain))
    assert seen == [ids[-(CONTEXT - 16) :]], "cut on the left"
    assert found == complete(engine, Request(engine.tokenizer.decode(seen[0]), GREEDY))[0]
    for rendered in (True, False):
        with pytest.raises(UserError, match="max_new_tokens: 512 and a prompt of 1 tokens"):
            complete(engine, Request("a", Settings(CONTEXT, rendered=rendered)))
    # Exactly full is not too long.
    assert complete(engine, Request("a" * 10, Settings(CONTEXT - 10)))


@pytest.mark.parametrize(
    ("written", "until", "text", "cut_off"),
    [
        ("14 + 5\n\nQuestion: 7", ("Question:",), "14 + 5\n\n", False),
        ("14 + 5", ("Question:",), "14 + 5", True),
        ("Question: 7", ("Question:",), "", False),
        ("a b c", ("c", "b"), "a ", False),
        ("a b</s> c", ("Question:", "</s>"), "a b", False),
        ("14 <|im_end|>", ("</s>",), "14 ", False),
        # Special tokens do not stand in the decoded text, and end it all the same.
        ("14 <|im_start|>user", ("<|im_start|>",), "14 ", False),
        ("14 <|im_start|>user", (), "14 user", True),
        ("14 <|im_start|>user: b", ("<|im_start|>", "4"), "1", False),
        ("14", ("",), "14", True),
    ],
)
def test_stop_strings(scripted, engine, written, until, text, cut_off):
    found = scripted(written, replace(GREEDY, until=until))
    assert (found, found.cut_off) == (text, cut_off)


def test_stop_strings_end_the_generation(engine, monkeypatch):
    """The row that stops is as long as it is alone, whatever its batch does."""
    requests = [Request(f"{PROMPT} {i}", Settings(24)) for i in range(6)]
    whole = complete(engine, *requests)
    stop = re.findall("[A-Za-z0-9]+", whole[0])[1]  # half letters are no string
    stopping = [replace(one, settings=replace(one.settings, until=(stop,))) for one in requests]
    steps, forward = [], engine.model.forward

    def step(*args, **kwargs):
        steps.append(1)
        return forward(*args, **kwargs)

    monkeypatch.setattr(engine.model, "forward", step)
    (alone,) = complete(engine, stopping[0])
    assert alone == whole[0][: whole[0].index(stop)] and not alone.cut_off
    assert alone.num_tokens == len(steps) < 24
    together = complete(engine, *stopping)
    assert (together[0], together[0].num_tokens) == (alone, alone.num_tokens)
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


def test_log_likelihoods_are_the_harness_s(engine, tiny_model_dir):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    # Without its cache, which mixes up the pairs of one text.
    settings = {"dtype": "float32", "device": "cpu", "logits_cache": False}
    harness = HFLM(str(tiny_model_dir), batch_size=1, **settings)
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(PAIRS)]
    expected = harness.loglikelihood(asked, disable_tqdm=True)
    shuffled = random.Random(0).sample(PAIRS, len(PAIRS))
    for pairs in (PAIRS, shuffled):
        found = dict(engine.loglikelihood([Continuation(*pair) for pair in pairs]))
        for index, pair in enumerate(pairs):
            total, is_greedy = expected[PAIRS.index(pair)]
            assert found.pop(index) == (pytest.approx(total, abs=1e-3), is_greedy)
        assert not found


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_an_adapter_is_the_merged_model(engine, tiny_model_dir, tmp_path, has_tokenizer):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear"))
    torch.manual_seed(0)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.2)
    adapter = tmp_path / "adapter"
    adapted.save_pretrained(adapter)
    if has_tokenizer:
        for path in tiny_model_dir.glob("token*"):
            shutil.copy(path, adapter)
    assert tokenizer_path(str(adapter)) == str(adapter if has_tokenizer else tiny_model_dir)
    merged = tmp_path / "merged"
    shutil.copytree(tiny_model_dir, merged)
    adapted.merge_and_unload().save_pretrained(merged)

    requests = [Request(f"{PROMPT} {i}", GREEDY) for i in range(6)]
    found = complete(load(adapter), *requests)
    assert found == complete(load(merged), *requests)
    assert found != complete(engine, *requests)
