"""Prompts of every template become bare questions, and questions stay as they are."""

import contextlib
import json
from pathlib import Path

import pytest

from data_prep.sources.base import Drop, clean_gold, get_question
from data_prep.sources.registry import BUILDERS
from data_prep.sources.templates import SeveralTurns, bare_question, find_foreign_token
from pipeline.errors import UserError

CASES = json.loads(Path(__file__).with_name("templates.json").read_text(encoding="utf-8"))
Q = "Find $x$ if $x + 1 = 3$."
BOX = CASES["instructions"][0]


@pytest.mark.parametrize("prompt", CASES["templates"])
def test_template_tokens_go(prompt):
    assert bare_question(prompt) == Q


@pytest.mark.parametrize("instruction", CASES["instructions"])
def test_instructions_go_from_either_end(instruction):
    assert bare_question(f"{Q} {instruction}") == Q
    assert bare_question(f"{Q}\n\n{instruction}\n") == Q
    assert bare_question(f"{Q[:-1]} {instruction}") == Q[:-1]  # no full stop before it
    assert bare_question(f"{instruction}\n\n{Q}") == Q


@pytest.mark.parametrize("question", CASES["questions"])
def test_questions_stay_as_they_are(question):
    assert bare_question(question) == question
    assert find_foreign_token(question) is None
    # Nor does an instruction behind it take something along.
    assert bare_question(f"{question}\n{BOX}") == question


@pytest.mark.parametrize(("prompt", "token"), CASES["unknown templates"])
def test_what_is_left_of_an_unknown_template_is_named(prompt, token):
    for source, key in (("math", "problem"), ("gsm8k", "question"), ("dapo", "prompt")):
        row = {key: prompt, "answer": "#### 2" if source == "gsm8k" else "2"}
        with pytest.raises(Drop) as caught:
            BUILDERS[source](row, "id", "f:1")
        assert caught.value == Drop("unknown_template", f"{token!r} is left in {key}")


@pytest.mark.parametrize("prompt", CASES["several turns"])
def test_several_turns_are_refused(prompt):
    with pytest.raises(UserError, match=r"f:1: prompt: no single question .*; write one question"):
        get_question({"prompt": prompt}, ("prompt",), "f:1")


SPACES = " \n" * 50_000


@pytest.mark.parametrize(
    "hostile",
    ["[INST]" * 20_000, "<|user|>" * 20_000, "\\boxed{" * 20_000, "Question: a\n" * 20_000,
     "Please " * 20_000 + "\\boxed{}", "step by step. " * 20_000, "\\boxed{" + " " * 1900,
     "\\boxed{your " * 150, f"Question: x{SPACES}x", f"[INST]{SPACES}x[/INST]{SPACES}x",
     f"User: {SPACES}boxed{SPACES}.", "<|" * 50_000, "<|user" + "_a" * 50_000,
     "USER: ASSISTANT: " * 10_000 + "x", "[{" * 50_000, "like <a>" * 20_000 + "\\boxed{}"],
)  # fmt: skip
def test_hostile_prompts_end(hostile):
    with contextlib.suppress(SeveralTurns):
        assert isinstance(bare_question(hostile), str)
    assert isinstance(find_foreign_token(hostile), str | None)
    assert isinstance(clean_gold("\\boxed{" + hostile), str)
