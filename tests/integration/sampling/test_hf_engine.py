"""The engine of transformers: prompts to the token, samples of their own, the truth about ends."""

import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
import yaml
from tokenizers.processors import TemplateProcessing

from data_prep.sampling import SamplingArguments
from data_prep.sampling.context import is_cut
from data_prep.sampling.hf import FiniteCheck, HfEngine
from data_prep.sampling.store import Continuation, Request, Settings
from pipeline.errors import UserError
from tests.integration.sampling.contract import (
    GREEDY,
    PROMPT,
    SAMPLED,
    EngineContract,
    answers,
    engine,
    harness,
    reference,
)

pytestmark = pytest.mark.integration
__all__ = ["engine", "harness", "reference"]
ENDS = yaml.safe_load(Path(__file__).with_name("ends.yaml").read_text(encoding="utf-8"))
CONTEXT = 512  # of the tiny model


@pytest.fixture(scope="module")
def model(tiny_model_dir):
    return tiny_model_dir


@pytest.fixture(scope="module", params=[True, False], ids=["ours", "transformers"])
def start(request):
    """By either loop that generates."""

    def load(checkpoint):
        args = SamplingArguments(dtype="float32", batch_size=4, fast_generation=request.param)
        return HfEngine(str(checkpoint), "checkpoints", args)

    return load


class TestHfEngine(EngineContract):
    """By either loop."""

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_what_is_no_number_is_no_answer(self, start, model, value):
        """Of broken weights argmax is a token, and the sampler draws one."""
        broken = start(model)
        broken.model.get_output_embeddings().weight.data[7] = value
        line = f"^checkpoints: {re.escape(str(model))} computes NaN or infinity with dtype: fl"
        for settings in (GREEDY, SAMPLED):
            with pytest.raises(UserError, match=line):
                answers(broken, [Request(PROMPT, settings)])
        with pytest.raises(UserError, match=line):
            list(broken.loglikelihood([Continuation(PROMPT, " Monday")]))


@pytest.fixture(scope="module")
def hf(model):
    """As a CPU's user has it."""
    return HfEngine(str(model), "checkpoints", SamplingArguments(dtype="float32", batch_size=4))


@pytest.fixture
def seen(hf, monkeypatch):
    """The prompt ids of every row that the engine generates from."""
    found, generate = [], hf.model.generate

    def watch(input_ids, attention_mask, **settings):
        rows = zip(input_ids, attention_mask, strict=True)
        found.extend(ids[mask.bool()].tolist() for ids, mask in rows)
        return generate(input_ids=input_ids, attention_mask=attention_mask, **settings)

    monkeypatch.setattr(hf.model, "generate", watch)
    return found


def test_only_an_official_prompt_gets_the_tokenizer_s_own_tokens(hf, seen, monkeypatch):
    """As Llama's adds; the template of a rendered prompt has written them already."""
    plain = hf.tokenizer(PROMPT)["input_ids"]
    start = ("<|im_start|>", hf.tokenizer.convert_tokens_to_ids("<|im_start|>"))
    changed = deepcopy(hf.tokenizer)
    changed.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[start]
    )
    monkeypatch.setattr(hf, "tokenizer", changed)
    answers(hf, [Request(PROMPT, replace(GREEDY, rendered=False)), Request(PROMPT, GREEDY)])
    assert seen == [[start[1], *plain], plain]


def test_prompts_that_are_too_long(hf, seen):
    prompt = "Tuesday: loses 3. " * 60
    ids = hf.tokenizer(prompt)["input_ids"]
    message = f"max_new_tokens: 20 and a prompt of {len(ids)} tokens exceed the model's context of"
    with pytest.raises(UserError, match=f"{message} {CONTEXT} tokens; lower max_new_tokens"):
        answers(hf, [Request("short", GREEDY), Request(prompt, Settings(20))])
    answers(hf, [Request(prompt, replace(GREEDY, rendered=False))])
    assert seen[-1] == ids[-(CONTEXT - 16) :], "cut on the left"
    with pytest.raises(UserError, match=f"^held_out: p3: {message}"):
        answers(hf, [Request(prompt, Settings(20), place="held_out: p3: ")])
    with pytest.raises(UserError, match="max_new_tokens: 512 and a prompt of 1 tokens"):
        answers(hf, [Request("a", Settings(CONTEXT, rendered=False))])
    # Exactly full is not too long.
    assert answers(hf, [Request("a" * 10, Settings(CONTEXT - 10))])


@pytest.mark.parametrize(("written", "until", "text", "cut_off"), ENDS)
def test_ends_of_what_is_generated(hf, monkeypatch, written, until, text, cut_off):
    ids = torch.tensor([hf.tokenizer(written)["input_ids"]])
    monkeypatch.setattr(
        hf.model, "generate", lambda input_ids, **_: torch.cat([input_ids, ids], dim=1)
    )
    (found,) = answers(hf, [Request(PROMPT, replace(GREEDY, until=tuple(until)))])
    assert (found, found.cut_off) == (text, cut_off)
    if not until:
        end = written.find("<|im_end|>")
        counted = written if end < 0 else written[: end + len("<|im_end|>")]
        assert found.num_tokens == len(hf.tokenizer(counted)["input_ids"])


def test_a_later_token_may_be_no_number_too():
    scores = torch.tensor([[1.0, -torch.inf], [0.0, 2.0]])
    finite = FiniteCheck("it")
    assert finite(torch.zeros(2, 1), scores) is scores
    finite.check()
    finite(torch.zeros(2, 1), torch.tensor([[0.0, torch.nan]]))
    finite(torch.zeros(2, 1), scores)
    with pytest.raises(UserError, match=r"^it$"):
        finite.check()


def test_which_prompts_are_cut(hf, seen):
    """As `seen`; of a pair the harness's model does not read the last token."""
    official = replace(GREEDY, rendered=False)
    num = len(hf.tokenizer(PROMPT)["input_ids"])
    for length, expected in ((num + 16, False), (num + 15, True)):
        with mock.patch.object(hf, "max_length", length):
            answers(hf, [Request(PROMPT, official)])
            assert is_cut(Request(PROMPT, official), hf) == (len(seen[-1]) < num) == expected
            assert not is_cut(Request(PROMPT, GREEDY), hf)
    whole = len(hf.tokenizer(PROMPT + " Monday")["input_ids"])
    for length, expected in ((whole - 1, False), (whole - 2, True)):
        with mock.patch.object(hf._harness_model, "_max_length", length):
            assert is_cut(Continuation(PROMPT, " Monday"), hf) == expected
