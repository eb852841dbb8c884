"""The audit's own cases: every trick is one, every ending is right, for golds of every kind."""

import pytest

from data_prep.grading.grade import grade_all
from data_prep.prompts import THINK_OPEN, build_prompt, wants_answer_tags
from eval.audit.cases import (
    ENDINGS,
    SPARE,
    TRICKS,
    ending_completion,
    gold_completion,
    trick_completions,
    wrong_answers,
)

GOLDS = [
    "72", "-3", "1,234", "0.5", "50\\%", r"\$18", r"\frac{3}{4}", r"-\frac{1}{2}", r"2\sqrt{3}",
    r"\pi", "(3, -5)", "[0, 1)", r"(-\infty, 2] \cup [5, \infty)",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\text{even}", "Evelyn", "C", "x^2+2x+1",
    "y = 2x + 1", "1, 2, 3", r"\{1, 2\}", "120^\\circ", "3:5", "2^{10}", "2+3i", "10:30",
]  # fmt: skip
PROMPTS = {style: build_prompt("How many?", style) for style in ("none", "think", "answer_tags")}


def grade_in_its_form(prompt, completions, golds, **more):
    return [
        one.verdict
        for one in grade_all(completions, golds, answer_tags=wants_answer_tags(prompt), **more)
    ]


@pytest.mark.parametrize("final_number", [False, True])
@pytest.mark.parametrize("style", PROMPTS)
def test_no_trick_is_paid_for_any_kind_of_gold(style, final_number):
    wrong, texts, golds = wrong_answers([[gold] for gold in GOLDS]), [], []
    for gold, other in zip(GOLDS, wrong, strict=True):
        texts += trick_completions(PROMPTS[style], [gold], other)
        golds += [gold] * len(TRICKS)
    verdicts = grade_in_its_form(PROMPTS[style], texts, golds, final_number=final_number)
    paid = [text for text, one in zip(texts, verdicts, strict=True) if one == "right"]
    assert paid == []


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("style", PROMPTS)
def test_every_gold_is_paid_in_its_form_and_with_every_ending(style, ending):
    prompt = PROMPTS[style]
    completions = [ending_completion(prompt, [gold], ending) for gold in GOLDS]
    own = [gold_completion(prompt, [gold]) for gold in GOLDS]
    for texts in (completions, own):
        assert {*grade_in_its_form(prompt, texts, GOLDS)} == {"right"}
    rest = [completion.removeprefix(THINK_OPEN) for completion in own]
    assert {*grade_in_its_form(prompt, rest, GOLDS, think_prefilled=True)} == {"right"}
    assert (completions == own) is (style == "answer_tags" or ending == "own form")


@pytest.mark.parametrize("style", PROMPTS)
def test_tricks_differ_and_hold_the_gold(style):
    """So that it is the trick that fails and not the writing."""
    texts = dict(zip(TRICKS, trick_completions(PROMPTS[style], ["72"], "17"), strict=True))
    without = {name for name, text in texts.items() if "72" not in text}
    assert without == {"a wrong answer", "nothing at all", "empty box"}
    assert len({*texts.values()}) == len(TRICKS)


def test_wrong_answers_never_equal_a_gold():
    every = [[gold] for gold in GOLDS] + [["1/2", "0.5", "50\\%"], ["x = 5", "5"]]
    wrong = wrong_answers(every)
    graded = [
        grade_all([f"<think>a</think>\\boxed{{{answer}}}"] * len(golds), golds)
        for answer, golds in zip(wrong, every, strict=True)
    ]
    assert all(one.verdict != "right" for each in graded for one in each)
    assert all(golds[0] not in answer for golds, answer in zip(every[:3], wrong, strict=False))


def test_a_wrong_answer_is_another_problems_where_it_can_be():
    assert wrong_answers([["72"], ["5"], ["x+1"]]) == ["5", "72", "72"]
    assert wrong_answers([["72"]]) == [SPARE[0]]
    assert wrong_answers([["7"], ["7.0"], ["17"]]) == ["17", "17", "7"]
    assert wrong_answers([["17"]]) == [SPARE[1]]
    assert wrong_answers([]) == []
