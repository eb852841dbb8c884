"""The commands' own values where none are given."""

from benchmarks.curriculum import BenchArguments
from benchmarks.study import StudyArguments


def test_lists_of_seeds_are_lists():
    for kind, keys in (
        (StudyArguments, {"grpo_config": "g", "recipe_run": "r"}),
        (BenchArguments, {"grpo_config": "g", "recipe_run": "r", "out": "o"}),
    ):
        assert kind(**keys).seeds == [0, 1, 2, 3, 4]
