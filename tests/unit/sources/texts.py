"""Texts of a row, on their way into a problem: what `functions.yaml` asks of several functions."""

import contextlib
import json

import pytest

from data_prep.sources.base import (
    Drop,
    clean_gold,
    find_reply,
    get_golds,
    get_question,
    stated_answers,
)
from data_prep.sources.registry import BUILDERS
from data_prep.sources.solutions import strip_ending
from data_prep.sources.templates import SeveralTurns, bare_question, find_foreign_token
from data_prep.sources.thoughts import read_thought
from grading.compare import is_same_value

Q = "Find $x$ if $x + 1 = 3$."
BOX = "Please reason step by step, and put your final answer within \\boxed{}."


def read_chat(reply):
    """The golds of a chat with this reply, in either of two shapes, as a list or as JSON."""
    for keys in (("role", "content"), ("from", "value")):
        turns = (("system", "Hi"), ("user", "x"), ("assistant", reply))
        chat = [dict(zip(keys, turn, strict=True)) for turn in turns]
        assert get_question({"chat": chat}, ("chat",), "f:1") == "x"
        assert get_question({"chat": json.dumps(chat)}, ("chat",), "f:1") == "x"
        golds = get_golds({"chat": chat}, ("chat",), "f:1")
        if keys[0] == "role":
            first = golds
    assert golds == first
    return golds


def states_56(end):
    found = stated_answers(f"How many hens are in 7 pens? {end}")
    return any(is_same_value(one, "56") for one in found)


def has_few_statements(text):
    return len(list(stated_answers(text))) < 30


def loses_instruction(instruction):
    """From behind the question, also one without a full stop, and from before it."""
    for text in (f"{Q} {instruction}", f"{Q}\n\n{instruction}\n", f"{instruction}\n\n{Q}"):
        assert bare_question(text) == Q
    return bare_question(f"{Q[:-1]} {instruction}") == Q[:-1]


def stays(question):
    """Nor does an instruction behind it take something along."""
    assert bare_question(question) == bare_question(f"{question}\n{BOX}") == question
    return find_foreign_token(question) is None


def is_left(prompt, token):
    """Whatever the source, its column is named with the token."""
    for source, key in (("math", "problem"), ("gsm8k", "question"), ("dapo", "prompt")):
        row = {key: prompt, "answer": "#### 2" if source == "gsm8k" else "2"}
        with pytest.raises(Drop) as caught:
            BUILDERS[source](row, "id", "f:1")
        assert caught.value == Drop("unknown_template", f"{token!r} is left in {key}")
    return True


def refuses_several_turns(prompt):
    return get_question({"prompt": prompt}, ("prompt",), "f:1")


def ends(hostile):
    with contextlib.suppress(SeveralTurns):
        assert isinstance(bare_question(hostile), str)
    assert isinstance(find_foreign_token(hostile), str | None)
    return isinstance(clean_gold("\\boxed{" + hostile), str)


def read_markup(start, end):
    """A thought in these tags is read from all replies that hold one, and from no other."""
    reply = f"{start}\n\nSo it is 5.\n\n{end}\n\nThe answer is \\boxed{{5}}."
    assert read_thought(reply) == "So it is 5."
    assert read_thought(f"<|im_start|>assistant\n{reply}<|im_end|>") == "So it is 5."
    assert read_thought(reply.partition(start)[2]) == "So it is 5."  # a template opened it
    for text, reason in (
        (f"{start}a", "unclosed_thought"),
        (f"{end}a{start}", "unclosed_thought"),
        (f"{reply}{reply}", "several_thoughts"),
        (f"Sure. {reply}", "text_before_thought"),
        (f"{start}a{end}<answer>\n</answer><|im_end|>", "no_answer_after_thought"),
        (f"{start}\n{end}5", "empty_thought"),
        (f"{start}a<|unheard_of|>b{end}5", "unknown_markup"),
        (f"{start}a</scratchpad>5", "mixed_markup"),
    ):
        with pytest.raises(Drop, match=reason):
            read_thought(text)
    return True


def thought_beside(name):
    """The thought in a column of its own, the reply without it, and why two are refused."""
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2", name: "a"}]
    found = [read_thought(find_reply(turns, with_thought=True)), find_reply(turns)]
    turns[1]["content"] = "<think>b</think>2"
    with pytest.raises(Drop) as caught:
        read_thought(find_reply(turns, with_thought=True))
    return [*found, caught.value.reason]


def without_ending(end):
    marked = f"4 * 2 = <<4*2=8>>8 legs\n#### 8{end}"
    texts = (f"So it is 8.{end}", marked, f"{marked}\nThank you for reading.")
    return [strip_ending(text, ("8",)) for text in texts]


def keeps_ending(end):
    return strip_ending(f"So it is 8.{end}", ("8",)) == f"So it is 8.{end}"
