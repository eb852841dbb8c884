"""Metrics of one problem, by hand and against brute force."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.harness import metrics
from eval.harness.metrics import (
    greedy_metrics,
    majority_at_k,
    pass_at_k,
    pass_sizes,
    sampled_metrics,
)


def votes(*predictions, gold="4"):
    """Records that vote as told; `"4"` and what is spelled `"=4"` are right, None abstains."""
    return [
        {"verdict": "no_answer", "prediction": None}
        if prediction is None
        else {
            "verdict": "right" if prediction.lstrip("=") == gold else "wrong",
            "prediction": prediction,
        }
        for prediction in predictions
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(right, data):
    k = data.draw(st.integers(1, len(right)))
    subsets = list(combinations(right, k))
    expected = sum(map(any, subsets)) / len(subsets)
    assert pass_at_k(len(right), sum(right), k) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 2), (4, -1, 2), (0, 0, 1)])
def test_pass_at_k_refuses_what_it_cannot_estimate(n, c, k):
    with pytest.raises(ValueError, match="completions"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("k", "expected"),
    [(1, []), (2, [2]), (3, [2, 3]), (4, [2, 4]), (6, [2, 4, 6]), (16, [2, 4, 8, 16])],
)
def test_pass_sizes(k, expected):
    assert pass_sizes(k) == expected


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (votes("4", "4", "5"), 1.0),
        (votes("4", "5", "5"), 0.0),
        (votes("4", "5"), 1 / 2),
        (votes("4", "5", "6"), 1 / 3),
        (votes("4", "=4", "5", "5"), 1 / 2),  # the right ones are one class, however spelled
        (votes("4", "4", "0.5", "\\frac12", "1/2"), 0.0),  # the wrong ones by value
        (votes("4", "4", "5", " 5", "6"), 1 / 2),
        (votes("4", None, None, None), 1.0),  # who has no readable answer abstains
        (votes(None, None), 0.0),
        (votes("5", "6"), 0.0),
    ],
)
def test_majority_by_hand(records, expected):
    assert majority_at_k(records) == pytest.approx(expected)


ANSWERS = st.sampled_from(["4", "=4", "5", "5.0", "1/2", "0.5", "x+1", "1+x", None])


@settings(max_examples=60, deadline=None)
@given(st.lists(ANSWERS, min_size=1, max_size=9), st.randoms())
def test_majority_does_not_depend_on_the_order(predictions, random):
    expected = majority_at_k(votes(*predictions))
    random.shuffle(predictions)
    assert majority_at_k(votes(*predictions)) == expected
    assert 0 <= expected <= 1


def test_majority_compares_each_answer_with_a_few_classes_only(monkeypatch):
    calls = []
    monkeypatch.setattr(metrics, "is_same_value", lambda *pair: bool(calls.append(pair)))
    scattered = [f"x^{i}" for i in range(255)]
    assert majority_at_k(votes("4", *scattered)) == pytest.approx(1 / 256)
    assert len(calls) <= 255 * metrics.MAX_CLASSES
    calls.clear()
    # Nothing to compare where the result is known: no right vote, or too few wrong ones.
    assert majority_at_k(votes(*scattered)) == 0.0
    assert majority_at_k(votes(*["4"] * 3, *scattered[:2])) == 1.0
    assert not calls


def record(verdict="right", prediction="4", lenient="right", **fields):
    known = {"verdict": verdict, "prediction": prediction, "lenient": lenient, "num_tokens": 10}
    return known | {"completion": "", "well_formed": True, "cut_off": False} | fields


def test_sampled_metrics_by_hand():
    records = [
        record(num_tokens=20),
        record("wrong", "5", "wrong", num_tokens=24),
        record("unclosed_think", None, None, num_tokens=32, well_formed=False, cut_off=True),
        record("no_answer", None, "right", num_tokens=20),
    ]
    assert sampled_metrics(records) == {
        "avg@4": 1 / 4,
        "pass@2": 1 / 2,
        "pass@4": 1.0,
        "maj@4": 1 / 2,
        "format_rate": 3 / 4,
        "cut_off_rate": 1 / 4,
        "completion_length": 24.0,
        "answer_right": 2 / 4,
    }
    assert list(sampled_metrics(records[:1]))[:2] == ["avg@1", "maj@1"]
    # A right box that a stray reading misses is right all the same.
    assert sampled_metrics([record(lenient="wrong")])["answer_right"] == 1.0


def test_the_number_of_completions_is_checked():
    with pytest.raises(ValueError, match="without completions"):
        sampled_metrics([])
    with pytest.raises(ValueError, match="not 2"):
        greedy_metrics([record(), record()])
