"""The recipe's key `stochastic_rounding`, and where it is refused; needs no torch."""

import importlib.util
import os
from dataclasses import dataclass, field
from typing import Any

from data_prep.config import UserError

KEY = "stochastic_rounding"
_YES = ("true", "yes", "1")


@dataclass(kw_only=True)
class RoundingArguments:
    """The key of `sft.yaml` and `grpo.yaml`."""

    stochastic_rounding: bool = field(
        default=False,
        metadata={"help": "round bfloat16 weights by chance, so that small updates are kept"},
    )


def check_rounding(values: dict[str, Any]) -> None:
    """Refuse the key where it would do nothing.

    Args:
        values: the flat recipe.

    Raises:
        UserError: weights that are not bfloat16 alone, an optimizer besides, or no torchao.
    """
    if str(values.get(KEY, False)).lower() not in _YES:
        return
    if (dtype := values.get("dtype", "float32")) != "bfloat16":
        raise UserError(
            f"{KEY}: true rounds bfloat16 weights, dtype is {dtype}, which loses nothing; remove "
            "the key, or set dtype: bfloat16"
        )
    if str(values.get("use_peft", False)).lower() in _YES:
        raise UserError(
            f"{KEY}: true would have no effect: LoRA's weights are float32; remove the key"
        )
    for key in ("optim", "optim_args"):
        if values.get(key):
            raise UserError(f"{KEY}: true sets {key} itself; remove {key}: {values[key]}")
    for engine in ("deepspeed", "fsdp"):
        if values.get(engine) or os.environ.get(f"ACCELERATE_USE_{engine.upper()}") == "true":
            raise UserError(
                f"{KEY}: true would have no effect: {engine} updates float32 weights of its own; "
                "set it to false"
            )
    if importlib.util.find_spec("torchao") is None:
        raise UserError(f"{KEY}: true needs the package torchao; pip install torchao==0.18.0")
