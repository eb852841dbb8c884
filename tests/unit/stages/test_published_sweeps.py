"""Published scores of sweeps: found by recipe and keys, looked up by the values of a run."""

import pytest

from stages.published_sweeps import find, read_all
from tests.recipes import FULL

RECIPE = "perplexity-gsm8k"


def test_a_sweep_is_found_by_its_keys_in_any_order():
    grid = find(RECIPE, ["beta", "learning_rate"])
    assert list(grid.keys) == ["learning_rate", "beta"] and len(grid.scores) == 12
    assert find(RECIPE, ["learning_rate"]) is None
    assert find("grpo7b", ["learning_rate", "beta"]) is None


@pytest.mark.parametrize(
    "values, score",
    [
        ({"learning_rate": "8e-8", "beta": "0.1"}, 0.426),
        ({"beta": "0.010", "learning_rate": "1.0e-7", "seed": "3"}, 0.492),
        ({"learning_rate": 5e-7, "beta": 0.001}, 0.486),
        ({"learning_rate": "8e-7", "beta": "0.1"}, None),
        ({"learning_rate": "8e-8"}, None),
        ({"learning_rate": "none", "beta": "0.1"}, None),
    ],
)
def test_a_run_has_the_score_of_its_values(values, score):
    assert find(RECIPE, ["learning_rate", "beta"]).score(values) == score


def test_a_sweep_of_one_key():
    row = find(RECIPE, ["temperature"])
    assert list(row.scores.values()) == [0.502, 0.48, 0.452, 0.442, 0.184, 0.082]
    assert row.score({"temperature": "1.0"}) == 0.452


def test_each_is_of_a_shipped_recipe_and_says_what_it_is():
    for one in read_all():
        assert one.recipe in FULL and one.source and one.metric
        assert "ended early" in one.note
