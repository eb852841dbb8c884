"""How long a completion may be where the recipe sets no limit."""

from types import SimpleNamespace

import pytest

from stages.arguments import completion_room


@pytest.mark.parametrize(
    ("limit", "engine", "positions", "room"),
    [
        (20, None, 64, 20),
        (None, None, 64, 54),
        (None, 32, 64, 22),
        (None, None, 8, 1),
        (None, None, None, None),
    ],
)
def test_without_a_limit_a_completion_may_fill_the_context(limit, engine, positions, room):
    keys = SimpleNamespace(max_completion_length=limit, vllm_max_model_length=engine)
    assert completion_room(keys, positions, prompt=10) == room
