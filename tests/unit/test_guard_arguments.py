"""Guards that roll back, and values this stage cannot work with: refused before torch is loaded."""

import pytest

from data_prep.config import UserError, check_value
from stages.settings.arguments import check_grpo_numbers
from stages.settings.guard_arguments import check_rollback, look_back

ROLLBACK = {"guard_eos": "rollback"}


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        ({}, 14),  # 10 recent steps, patience 3, and one
        ({"guard_patience": 5}, 16),
        ({"gradient_accumulation_steps": 8}, 14),
        ({"steps_per_generation": 4}, 53),  # rollouts are judged every fourth step
        ({"steps_per_generation": 4, "num_iterations": 2}, 105),
        ({"steps_per_generation": 4, "gradient_accumulation_steps": 4}, 14),
        ({"steps_per_generation": 1, "gradient_accumulation_steps": 4}, 14),
    ],
)
def test_look_back_in_optimizer_steps(values, steps):
    assert look_back(values) == steps


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"save_steps": 20, "save_total_limit": 2}, None),
        ({"save_steps": 7, "save_total_limit": 3}, None),
        ({"save_steps": 7, "save_total_limit": 2}, "distrusts up to 14 steps; use 3 or more"),
        ({"save_steps": 20, "save_total_limit": 2, "steps_per_generation": 4}, "use 4 or more"),
        ({"save_steps": 1, "save_total_limit": None}, None),
        ({"save_steps": 1, "save_total_limit": 0}, None),  # Hugging Face keeps all
        ({"save_steps": 0.5}, "save_steps: 0.5 with guard_eos: rollback must be a number of steps"),
        ({"save_strategy": "epoch"}, "guard_eos: rollback needs checkpoints"),
    ],
)
def test_checkpoints_that_a_rollback_needs(values, message):
    if message is None:
        check_rollback(ROLLBACK | values)
    else:
        with pytest.raises(UserError, match=message):
            check_rollback(ROLLBACK | values)


@pytest.mark.parametrize("key", ["guard_max_rollbacks", "guard_rollback_lr_factor"])
def test_keys_of_a_rollback_that_no_guard_does(key):
    check_rollback({key: 1, "guard_length": "rollback"})
    with pytest.raises(UserError, match=f"{key}: 1 would have no effect"):
        check_rollback({key: 1, "guard_length": "stop"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sync_ref_model": True}, "sync_ref_model: no checkpoint holds"),
        ({"seed": -1}, "seed: -1 is below 0"),
        ({"resume_from_checkpoint": "none/here"}, "resume_from_checkpoint: none/here is no folder"),
        ({"max_prompt_length": 0}, "max_prompt_length: 0 must be at least 1"),
    ],
)
def test_values_the_stage_cannot_work_with(values, message):
    with pytest.raises(UserError, match=message):
        check_grpo_numbers(values)


def test_values_it_can_work_with():
    check_grpo_numbers({"eval_strategy": "no", "seed": 3, "max_prompt_length": 5})
    check_grpo_numbers({"eval_strategy": False, "resume_from_checkpoint": None})


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (None, "float", "x: is empty"),
        (None, "list[str]", "x: is empty"),
        ([5], "float | None", r"x: \[5\] is not one value"),
        ({"a": 1}, "int", "is not one value"),
        (float("inf"), "int", "not a whole number"),
        (float("nan"), "int", "not a whole number"),
    ],
)
def test_values_of_the_wrong_shape(value, annotation, message):
    with pytest.raises(UserError, match=message):
        check_value("x", value, annotation, "file")


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (None, "float | None"),
        ([1.0], "list[float] | None"),
        (["a"], "list[str]"),
        (float("inf"), "float"),
    ],
)
def test_values_of_the_right_shape(value, annotation):
    check_value("x", value, annotation, "file")
