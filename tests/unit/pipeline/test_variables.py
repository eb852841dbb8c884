"""Goals, flags and variables of a command line."""

import pytest

from pipeline.errors import UserError
from pipeline.variables import read


@pytest.mark.parametrize(
    "words",
    [
        ["grpo", "--recipe", "grpo7b", "--num_processes", "8"],
        ["grpo", "--recipe=grpo7b", "--num-processes=8"],
        ["grpo", "RECIPE=grpo7b", "NUM_PROCESSES=8"],
        ["RECIPE=grpo7b", "NUM_PROCESSES=8", "grpo"],
    ],
)
def test_a_variable_may_be_written_as_for_make(words):
    found = read(words, {})
    assert found.goals == ("grpo",)
    assert found.values == {"recipe": "grpo7b", "num_processes": "8"}


def test_keys_of_a_stage_go_through_as_they_are():
    found = read(["grpo", "RECIPE=grpo7b", "--", "--system", "X=1", "LORA=1"], {})
    assert found.values == {"recipe": "grpo7b", "args": "--system X=1 LORA=1"}


def test_an_unknown_one_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="did you mean --recipe"):
        read(["grpo", "RECIPPE=grpo7b"], {})
