"""The parts of a change: by hand, at the extremes, by property."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.harness.metrics import OUTCOMES
from eval.report.decomposition import (
    MIN_READABLE,
    PARTS,
    Rates,
    problem_shares,
    split_change,
    split_rates,
    task_rates,
)


def rows_of(problems):
    """Rows of made-up outcomes, `[[outcome of each sample] of each problem]`."""
    rows = [("s", str(id), name) for id, samples in enumerate(problems) for name in samples]
    return pd.DataFrame(rows, columns=["source", "id", "outcome"])


def rates_of(problems):
    return task_rates(problem_shares(rows_of(problems)))


def values(found):
    return {name: part["value"] for name, part in found.items()}


def test_rates_by_hand():
    """Of 10: 2 cut off, 8 finished; 2 of those not readable, 6 readable; 3 correct."""
    problems = [["right", "right", "wrong", "wrong", "unread"]]
    problems += [["right", "wrong", "no answer", "cut off", "cut off"]]
    assert rates_of(problems) == pytest.approx((8 / 10, 6 / 8, 3 / 6))
    assert rates_of([["cut off"]]) == (0.0, None, None)
    assert rates_of([["unclosed", "cut off"]]) == (0.5, 0.0, None)
    assert rates_of([["right", "cut off"]]) == (0.5, 1.0, 1.0)  # if cut off after its answer, too


def test_parts_by_hand():
    """0.5 x 0.5 x 0.4 = 0.1 becomes 1 x 0.8 x 0.5 = 0.4.

    finished: 0.5 (2 0.5 0.4 + 0.5 0.5 + 0.8 0.4 + 2 0.8 0.5) / 6 = 0.5 (1.77) / 6 = 0.1475
    readable: 0.3 (2 0.5 0.4 + 0.5 0.5 + 1 0.4 + 2 1 0.5) / 6 = 0.3 (2.05) / 6 = 0.1025
    correct:  0.1 (2 0.5 0.5 + 0.5 0.8 + 1 0.5 + 2 1 0.8) / 6 = 0.1 (3) / 6 = 0.05
    """
    found = split_rates(Rates(0.5, 0.5, 0.4), Rates(1.0, 0.8, 0.5))
    assert found == pytest.approx({"finished": 0.1475, "readable": 0.1025, "correct": 0.05})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("cut off", "right", (1, 1, 0, 0)),  # a base that never finishes
        ("no answer", "right", (1, 0, 1, 0)),  # one whose completions end and are random text
        ("wrong", "right", (1, 0, 0, 1)),
        ("right", "cut off", (-1, -1, 0, 0)),
        ("cut off", "unread", (0, 0, 0, 0)),
    ],
)
def test_the_extremes(before, after, expected):
    """The change of the score, and its parts."""
    found = split_change(rows_of([[before]] * 4), rows_of([[after]] * 4))
    assert tuple(found[name]["value"] for name in ("score", *PARTS)) == expected


def test_a_change_by_hand():
    same = ["right"] * 4
    before = [same, ["right", "wrong", "wrong", "unread"], ["right", "wrong", "cut off", "unread"]]
    before += [["unclosed", "no answer", "unread", "wrong"]]
    after = [same, ["right", "wrong", "wrong", "right"], ["right", "wrong", "right", "unread"]]
    after += [["wrong", "no answer", "unread", "wrong"]]
    found = split_change(rows_of(before), rows_of(after))
    assert values(found) == pytest.approx(
        values(split_change(rows_of(before)[::-1], rows_of(after)))
    )
    # Finished 15 -> 16 of 16, readable 10 of 15 -> 13 of 16, correct 6 of 10 -> 8 of 13.
    parts = split_rates(Rates(15 / 16, 10 / 15, 6 / 10), Rates(1.0, 13 / 16, 8 / 13))
    assert values(found) == pytest.approx({"score": 2 / 16} | parts)
    # By problem the score moves by 0, 1/4, 1/4, 0: s^2 = 4 (1/8)^2 / 3, stderr = s / 2.
    assert found["score"]["stderr"] == pytest.approx(math.sqrt(4 / 64 / 3) / 2)
    assert {part["n"] for part in found.values()} == {4}
    # 10 readable completions say too little.
    assert {found[part][key] for part in PARTS for key in ("stderr", "low", "high")} == {None}


def test_the_interval_of_a_part_is_as_wide_as_a_bootstrap_says():
    """A seeded bootstrap over problems: its standard error is within 15 % of the delta method's."""
    random = np.random.default_rng(0)
    sides = [
        [list(random.choice(OUTCOMES, 2, p=weights)) for _ in range(200)]
        for weights in ([0.2, 0.3, 0.1, 0.05, 0.05, 0.3], [0.5, 0.2, 0.1, 0.05, 0.05, 0.1])
    ]
    found = split_change(*map(rows_of, sides))
    shares = [problem_shares(rows_of(side)) for side in sides]
    drawn = []
    for _ in range(600):
        places = random.integers(0, 200, 200)
        both = [task_rates(side.iloc[places]) for side in shares]
        drawn.append([*split_rates(*both).values()])
    for part, spread in zip(PARTS, np.std(drawn, axis=0), strict=True):
        assert found[part]["stderr"] == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize(("num", "has_interval"), [(MIN_READABLE - 1, False), (MIN_READABLE, True)])
def test_few_readable_completions_give_no_interval(num, has_interval):
    before = [["right"]] * num + [["cut off"]] * 20
    found = split_change(rows_of(before), rows_of([["right"]] * (num + 20)))
    assert all((found[part]["low"] is not None) is has_interval for part in PARTS)
    assert found["score"]["low"] is not None


SAMPLES = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SAMPLES, SAMPLES), min_size=1, max_size=8))
def test_parts_sum_to_the_change_and_have_the_sign_of_their_rate(problems):
    before, after = ([*side] for side in zip(*problems, strict=True))
    found = values(split_change(rows_of(before), rows_of(after)))
    assert math.fsum(found[part] for part in PARTS) == pytest.approx(found["score"], abs=1e-9)
    for part, one, two in zip(PARTS, rates_of(before), rates_of(after), strict=True):
        if one is None or two is None:
            assert found[part] == 0
        else:
            assert found[part] * (two - one) >= 0
