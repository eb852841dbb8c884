"""Outcomes of scripted completions, and score changes that split without a rest."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.grading.answers import grade_all, is_well_formed
from data_prep.grading.lenient import grade_leniently
from eval.harness.metrics import (
    CAUSES,
    OUTCOMES,
    cut_off_right,
    outcome,
    outcome_rates,
    split_change,
)

RIGHT = "<think>\n2+2=4\n</think>\n\n\\boxed{4}"
WRONG = RIGHT.replace("boxed{4}", "boxed{5}")
UNBOXED = "<think>\n2+2=4\n</think>\n\nThe answer is 4."
REPEATED = "\n\n".join([RIGHT] * 3)  # three thoughts: the strict grader cannot tell which counts
UNCLOSED = "<think>\n2+2=4, so \\boxed{4}"
CUT_OFF = ("<think>\n2+2=4, so \\boxed{4}. But wait", True)
EMPTY = ""

# 16 completions: 6 right, 4 wrong, 3 unread (twice unboxed, once repeated), and one each unclosed,
# cut off and empty.
BEFORE = {
    "1": [RIGHT, RIGHT, RIGHT, RIGHT],
    "2": [RIGHT, WRONG, WRONG, UNBOXED],
    "3": [RIGHT, WRONG, CUT_OFF, REPEATED],
    "4": [UNCLOSED, EMPTY, UNBOXED, WRONG],
}
# One unboxed and the cut off one are right now, the unclosed one is wrong.
AFTER = {
    "1": BEFORE["1"],
    "2": [RIGHT, WRONG, WRONG, RIGHT],
    "3": [RIGHT, WRONG, RIGHT, REPEATED],
    "4": [WRONG, EMPTY, UNBOXED, WRONG],
}


def graded(completions, gold="4"):
    """Records as the evaluation makes them; a completion is a text, or (text, cut off)."""
    pairs = [one if isinstance(one, tuple) else (one, False) for one in completions]
    texts = [text for text, _ in pairs]
    golds = [gold] * len(texts)
    return [
        {"completion": text, "verdict": grade.verdict, "prediction": grade.prediction}
        | {"well_formed": is_well_formed(text), "cut_off": is_cut, "num_tokens": len(text)}
        | {"lenient": lenient}
        for (text, is_cut), grade, lenient in zip(
            pairs, grade_all(texts, golds), grade_leniently(texts, golds), strict=True
        )
    ]


def scripted_rows(problems):
    return [
        record
        | {"task": "sampled", "mode": "sampled", "source": "s", "id": id, "sample": sample}
        | {"outcome": outcome(record, record["verdict"] == "right")}
        for id, completions in problems.items()
        for sample, record in enumerate(graded(completions))
    ]


def test_scripted_outcome_rates():
    found = scripted_rows(BEFORE)
    assert outcome_rates(found) == {
        "right": 6 / 16, "wrong": 4 / 16, "unread": 3 / 16, "unclosed": 1 / 16,
        "no answer": 1 / 16, "cut off": 1 / 16,
    }  # fmt: skip
    assert sum(map(cut_off_right, found)) == 1


def test_scripted_change():
    found = split_change(scripted_rows(BEFORE), scripted_rows(AFTER))
    # Right: 6 -> 8 of 16. Wrong: 4 -> 5. Format: 5 -> 3. Cut off: 1 -> 0.
    assert {name: part["value"] for name, part in found.items()} == {
        "score": 2 / 16, "ability": -1 / 16, "format": 2 / 16, "truncation": 1 / 16
    }  # fmt: skip
    # By problem the score moves by 0, 1/4, 1/4, 0: s^2 = 4 (1/8)^2 / 3, stderr = s / 2.
    assert found["score"]["stderr"] == pytest.approx(math.sqrt(4 / 64 / 3) / 2)
    # Ability by problem: 0, 0, 0, -1/4, of which s^2 = 3/4 (1/4)^2 / 3 = 1/64.
    assert found["ability"]["stderr"] == pytest.approx(1 / 16)
    # All four draws of that problem are as likely as 1/256, none of them as (3/4)^4.
    assert (found["ability"]["low"], found["ability"]["high"]) == (-3 / 16, 0.0)
    assert {part["n"] for part in found.values()} == {4}


@pytest.mark.parametrize(
    ("completion", "verdict", "lenient", "cut_off", "is_right", "expected"),
    [
        ("…</think> 4", "right", "right", False, True, "right"),
        ("…</think> 4", "right", "right", True, True, "right"),  # the score counts it, so do we
        ("…</think> 4", "wrong", "wrong", False, True, "right"),  # an official parser's verdict
        ("…</think> 4", "right", "right", False, False, "unread"),  # it missed what we can read
        ("…</think> 4", "right", "wrong", False, False, "unread"),
        ("…</think> 4", "no_think", "right", False, False, "unread"),  # `<think>` in the prompt
        ("<think>… 4", "unclosed_think", "right", False, False, "unclosed"),
        ("<think>…</think> 4 <think>", "unclosed_think", "right", False, False, "unclosed"),
        ("\\boxed{4}", "no_think", "right", False, False, "unclosed"),
        ("…</think> 5", "wrong", "wrong", False, False, "wrong"),
        ("…</think> 5", "wrong", "right", False, False, "wrong"),
        ("…</think> 5", "wrong", None, False, False, "wrong"),
        ("…</think> 5", "no_answer", "wrong", False, False, "wrong"),
        ("…</think> 4", "timeout", None, False, False, "no answer"),
        ("", "no_think", None, False, False, "no answer"),
        ("…</think> 5", "wrong", "wrong", True, False, "cut off"),
        ("<think>… 4", "unclosed_think", "right", True, False, "cut off"),
    ],
)
def test_outcome(completion, verdict, lenient, cut_off, is_right, expected):
    record = {"completion": completion, "verdict": verdict, "lenient": lenient, "cut_off": cut_off}
    assert outcome(record, is_right) == expected


def test_every_outcome_but_right_has_one_cause():
    assert sorted(name for names in CAUSES.values() for name in names) == sorted(OUTCOMES[1:])


def made_up_rows(outcomes):
    """Rows of made-up outcomes, `[[outcome of each sample] of each problem]`."""
    return [
        {"task": "t", "mode": "sampled", "source": "s", "id": str(id), "outcome": name}
        for id, samples in enumerate(outcomes)
        for name in samples
    ]


SAMPLES = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SAMPLES, SAMPLES), min_size=1, max_size=8))
def test_causes_sum_to_the_change_of_the_score(problems):
    before, after = (made_up_rows(side) for side in zip(*problems, strict=True))
    found = split_change(before, after, resamples=50)
    parts = math.fsum(found[cause]["value"] for cause in CAUSES)
    assert parts == pytest.approx(found["score"]["value"], abs=1e-12)
    assert sum(outcome_rates(before).values()) == pytest.approx(1)


def test_what_cannot_be_compared_is_refused():
    rows = made_up_rows([["right"], ["wrong"]])
    with pytest.raises(ValueError, match="mixed; compare one at a time"):
        split_change(rows, [row | {"mode": "greedy"} for row in rows])
    with pytest.raises(ValueError, match=r"'1'.*one side only"):
        split_change(rows, rows[:1])
    with pytest.raises(ValueError, match="no completions"):
        outcome_rates([])
