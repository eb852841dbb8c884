"""Values of a recipe that Hugging Face takes and fails with once torch and the model are loaded."""

from collections.abc import Mapping
from typing import Any

from data_prep.config import UserError
from stages.settings.eval_arguments import is_set

DTYPES = ("auto", "float32", "bfloat16", "float16")


def check_values(values: Mapping[str, Any]) -> None:
    """Refuse a dtype, LoRA rank, temperature or number of iterations that no run can have.

    Args:
        values: the flat recipe of either stage; absent keys have Hugging Face's defaults.

    Raises:
        UserError: names key, value and remedy.
    """
    dtype = values.get("dtype")
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"dtype: {dtype!r} is none of {', '.join(DTYPES)}; set it to one of them")
    if is_set(values.get("use_peft")):
        _check_least(values, "lora_r", "use_peft: false for no LoRA")
    _check_least(values, "num_iterations", "1 uses each generation once")
    temperature = values.get("temperature")
    if temperature is not None and not _number(values, "temperature") > 0:
        raise UserError(
            f"temperature: {temperature} gives all completions of a group the same text, with "
            "nothing to compare; set it above 0"
        )


def _check_least(values: Mapping[str, Any], key: str, meaning: str) -> None:
    if values.get(key) is not None and _number(values, key) < 1:
        raise UserError(f"{key}: {values[key]} is below 1; raise it ({meaning})")


def _number(values: Mapping[str, Any], key: str) -> float:
    try:
        return float(values[key])
    except (TypeError, ValueError):
        raise UserError(f"{key}: {values[key]!r} is no number; give one") from None
