"""What all builders share: columns, texts, prompts, golds, ids, thoughts."""

import json
from pathlib import Path

import pytest

from data_prep.sources.base import (
    clean_gold,
    find_value,
    get_golds,
    get_question,
    get_text,
    repair_escapes,
    stated_answers,
)
from grading.compare import is_same_value
from pipeline.errors import UserError

CASES = json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("row", "columns", "found"),
    [
        ({"a": 1, "b": 2}, ("b", "a"), ("b", 2)),
        ({"a": None, "b": 2}, ("a", "b"), ("b", 2)),
        ({"a": None}, ("a", "b"), ("a", None)),
        ({"a": {"b": 0}}, ("c", "a.b"), ("a.b", 0)),
        ({"a": "text"}, ("a.b",), None),
    ],
)
def test_first_column_that_holds_a_value(row, columns, found):
    assert find_value(row, columns) == found


@pytest.mark.parametrize("value", [True, None, ["7"], 7])
def test_what_is_no_text(value):
    with pytest.raises(UserError, match=r"f:1: a: .* is not text; fix the row"):
        get_text({"a": value}, ("a",), "f:1", allows_numbers=value != 7)


@pytest.mark.parametrize(("broken", "text"), CASES["broken escapes"])
def test_repair_escapes(broken, text):
    assert repair_escapes(broken) == (broken if text is None else text)
    assert repair_escapes(repair_escapes(broken)) == repair_escapes(broken)


ASKED = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        [{"role": "assistant", "content": "x"}],
        ASKED * 2,
        [{"role": "user", "content": None}],
        [["user", "x"]],
        [{"role": "assistant", "content": "<think>"}, *ASKED],
        json.dumps(ASKED * 2),
    ],
)
def test_a_chat_without_a_single_user_turn_is_refused(prompt):
    with pytest.raises(UserError, match=r"f:1: prompt: .*no single user turn"):
        get_question({"prompt": prompt}, ("problem", "prompt"), "f:1")


@pytest.mark.parametrize(
    ("reply", "golds"),
    [
        ("So \\boxed{4}, and \\boxed{5}.", ["5"]), ("<think>4</think>The answer is 5.", ["5"]),
        ("It is 5.", []), ("<think>\n", []), (None, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("keys", [("role", "content"), ("from", "value")])
def test_golds_of_a_chat_are_what_its_reply_states(reply, golds, keys):
    turns = (("system", "Hi"), ("user", "x"), ("assistant", reply))
    chat = [dict(zip(keys, turn, strict=True)) for turn in turns]
    assert get_golds({"chat": chat}, ("chat",), "f:1") == golds
    assert get_question({"chat": chat}, ("chat",), "f:1") == "x"
    assert get_question({"chat": json.dumps(chat)}, ("chat",), "f:1") == "x"


@pytest.mark.parametrize("kind", ["stated", "not stated"])
def test_statements_of_an_answer(kind):
    for end in CASES[kind]:
        found = stated_answers(f"How many hens are in 7 pens? {end}")
        assert any(is_same_value(one, "56") for one in found) is (kind == "stated"), end


@pytest.mark.parametrize("text", ["answer is ", "#", "answer (", "A: ", "*"])
def test_hostile_statements_end(text):
    assert len(list(stated_answers(text * 30_000))) < 30


@pytest.mark.parametrize(("text", "gold"), CASES["golds"])
def test_clean_gold(text, gold):
    assert clean_gold(text) == gold
