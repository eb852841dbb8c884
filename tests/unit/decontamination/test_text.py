"""Words of a question: what two editions share, and what tells two questions apart."""

import json
from pathlib import Path

import pytest

from data_prep.decontamination.index import is_retold, same_wording
from data_prep.decontamination.text import (
    content,
    figures,
    normalise_question,
    tokenise,
    without_options,
)

CASES = json.loads(Path(__file__).with_name("texts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("first", "second"), CASES["same tokens"])
def test_editions_of_one_text_have_the_same_tokens(first, second):
    assert tokenise(first) == tokenise(second)


@pytest.mark.parametrize(("first", "second"), CASES["other content"])
def test_what_carries_mathematics_stays(first, second):
    assert content(tokenise(first)) != content(tokenise(second))


def test_scripts_without_spaces_give_one_token_per_character():
    assert tokenise("求 x² 的值") == ["求", "x", "^", "2", "的", "值"]


def test_long_white_space_takes_no_longer_than_other_text():
    assert normalise_question("a" + " \n" * 99_999 + "$ + " + "$ " * 99_999 + "b?") == "a+b"


@pytest.mark.parametrize(("first", "second"), CASES["same text"])
def test_typography_makes_no_other_text(first, second):
    assert normalise_question(first) == normalise_question(second)


@pytest.mark.parametrize(("text", "sign"), CASES["signs of a name"] + CASES["signs of a word"])
def test_primes_and_factorials_make_another_text(text, sign):
    first, second = f"Find ${text}=2$.", f"Find ${text}{sign}=2$."
    assert normalise_question(first) != normalise_question(second)
    if [text, sign] in CASES["signs of a name"]:
        assert content(tokenise(first)) != content(tokenise(second))


def test_figures_are_code_without_space():
    text = "Find $x$ [asy] draw( 1 ); [/asy] in\n![](a.png) and [asy]dot(2);[/asy]"
    assert figures(text) == ["[asy]draw(1);[/asy]", "![](a.png)", "[asy]dot(2);[/asy]"]
    assert figures("Find $x$ in the diagram.") == []


POLYGON = (
    "The solutions of $z^4+4z^3i-6z^2-4zi-i=0$ are vertices of a convex polygon of the plane. "
)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("What is the area of it?", "Its area is $p^{a/b}$ with a prime $p$. Find $a+b+p$.", True),
        ("What is the area of it?", "What is the perimeter of it?", True),
        ("What is the area of it below 7?", "What is the area of it below 8?", False),
        ("What is the area in the figure?", "What is the perimeter in the figure?", False),
    ],
)
def test_one_statement_may_ask_for_other_forms(first, second, same):
    first, second = content(tokenise(POLYGON + first)), content(tokenise(POLYGON + second))
    assert is_retold(first, second) is is_retold(second, first) is same


def test_templates_are_not_retold():
    one = content(tokenise(POLYGON))
    for old, new in (("4zi-i", "4zi+i"), ("z^4+4z^3i-6", "(z^2)^2+(4+i)z^3i-6"), ("6z", "7z")):
        assert not is_retold(one, content(tokenise(POLYGON.replace(old, new))))
    assert not is_retold(one[:12], one[:12])


@pytest.mark.parametrize(
    "text",
    ["", "$$", "}}{{", "\\", "\\frac", "[asy]", "12.", "{" * 999, ". answer" * 999, "* *",
     "&;&#0;&#x110000;&lt", "<p", "\\n" * 99, "\n " * 9999, "\\" * 99999, "\\ud800"],
)  # fmt: skip
def test_any_text_has_tokens(text):
    assert all(tokenise(text))


@pytest.mark.parametrize(("first", "second", "same"), CASES["wordings"])
def test_wordings_of_one_question_differ_in_harmless_words_only(first, second, same):
    first, second = content(tokenise(first)), content(tokenise(second))
    assert same_wording(first, second) is same_wording(second, first) is same


def test_the_options_of_an_edition_do_not_count():
    question = "Which gas is lightest?"
    assert without_options(f"{question}\n\nA. neon\nB. hydrogen") == question
    assert without_options(question) == question
