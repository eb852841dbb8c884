"""Values that no run can have are refused in one line."""

import pytest

from data_prep.config import UserError
from stages.settings.value_checks import check_values


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"dtype": "auto"},
        {"dtype": None, "temperature": None},
        {"dtype": "bfloat16", "use_peft": True, "lora_r": 1},
        {"use_peft": "false", "lora_r": 0},  # no LoRA
        {"temperature": "1e-3", "num_iterations": "1"},
    ],
)
def test_sound(values):
    check_values(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dtype": "bfloat61"}, "dtype: 'bfloat61' is none of auto, float32, bfloat16, float16;"),
        ({"use_peft": True, "lora_r": 0}, "lora_r: 0 is below 1; raise it .use_peft: false"),
        ({"use_peft": "yes", "lora_r": "-4"}, "lora_r: -4 is below 1"),
        ({"use_peft": True, "lora_r": "many"}, "lora_r: 'many' is no number"),
        ({"temperature": 0}, "temperature: 0 .*; set it above 0"),
        ({"temperature": "-0.5"}, "temperature: -0.5 .*; set it above 0"),
        ({"temperature": "nan"}, "temperature: nan .*; set it above 0"),
        ({"temperature": "hot"}, "temperature: 'hot' is no number"),
        ({"num_iterations": 0}, "num_iterations: 0 is below 1; raise it"),
        ({"num_iterations": [1]}, r"num_iterations: \[1\] is no number"),
    ],
)
def test_a_mistake_is_one_line(values, words):
    with pytest.raises(UserError, match=f"^{words}") as error:
        check_values(values)
    assert "\n" not in str(error.value)
