"""The audit's own cases: every trick is one, every ending is right, for golds of every kind."""

import pytest

from eval.audit.cases import (
    ENDINGS,
    SPARE,
    TRICKS,
    ending_completion,
    gold_completion,
    trick_completions,
    wrong_answers,
)
from grading.grade import grade_all
from pipeline.prompts import ANSWER_FORMS, BARE_FORMS, THINK_OPEN

GOLDS = [
    "72", "-3", "1,234", "0.5", "50\\%", r"\$18", r"\frac{3}{4}", r"-\frac{1}{2}", r"2\sqrt{3}",
    r"\pi", "(3, -5)", "[0, 1)", r"(-\infty, 2] \cup [5, \infty)",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\text{even}", "Evelyn", "C", "x^2+2x+1",
    "y = 2x + 1", "1, 2, 3", r"\{1, 2\}", "120^\\circ", "3:5", "2^{10}", "2+3i", "10:30",
]  # fmt: skip


def grade_in_its_form(form, completions, golds, **more):
    grades = grade_all(completions, golds, answer_form=form, **more)
    return [one.verdict for one in grades]


@pytest.mark.parametrize("final_number", [False, True])
@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_no_trick_is_paid_for_any_kind_of_gold(form, final_number):
    wrong = wrong_answers([{"answers": [gold]} for gold in GOLDS])
    cases = [
        (name, gold, text)
        for gold, other in zip(GOLDS, wrong, strict=True)
        for name, text in trick_completions([gold], form, other).items()
    ]
    golds, texts = [gold for _, gold, _ in cases], [text for *_, text in cases]
    verdicts = grade_in_its_form(form, texts, golds, final_number=final_number)
    paid = [case for case, verdict in zip(cases, verdicts, strict=True) if verdict == "right"]
    assert paid == []


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_every_gold_is_paid_in_its_form_and_read_in_every_ending(form, ending):
    completions = [ending_completion([gold], form, ending) for gold in GOLDS]
    assert {*grade_in_its_form(form, completions, GOLDS)} == {"right"}
    rest = [completion.removeprefix(THINK_OPEN) for completion in completions]
    assert {*grade_in_its_form(form, rest, GOLDS, think_prefilled=True)} == {"right"}
    own = completions == [gold_completion([gold], form) for gold in GOLDS]
    assert own is ("box" not in form or ending == "own form")


def test_a_trick_that_holds_the_gold_would_be_paid_without_its_fault():
    """Each holds the gold's own text, so that it is the trick that fails and not the writing."""
    for form in ANSWER_FORMS:
        texts = trick_completions(["72"], form, "17")
        without = {name for name, text in texts.items() if "72" not in text}
        if form in BARE_FORMS:
            without -= {"no thought"}
        assert without == {"a wrong answer", "nothing at all", "empty box"}, form
        assert len({*texts.values()}) == len(TRICKS)


@pytest.mark.parametrize(
    ("golds", "wrong"),
    [
        (["72", "5", "x+1"], ["5", "72", "72"]),
        (["72"], [SPARE[0]]),
        (["7", "7.0", "17"], ["17", "17", "7"]),
        (["17"], [SPARE[1]]),
    ],
)
def test_a_wrong_answer_is_another_problems_where_it_can_be(golds, wrong):
    assert wrong_answers([{"answers": [gold]} for gold in golds]) == wrong
