"""Weights in float16 are not trained themselves: AdamW's moments underflow there."""

import pytest

from stages.precision import sampler_dtype, trained_dtype
from stages.preflight.batches import check_precision
from stages.rules import check_rules
from tests.unit.stages.helpers import grpo, named, sft

LORA = {"use_peft": True}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"fp16": True, "bf16": False}, ("float16", "fp16: true")),
        ({"fp16": True, "dtype": "bfloat16"} | LORA, ("float16", "fp16: true")),
        ({}, ("bfloat16", "bf16: true")),  # TRL's default
        ({"bf16": False, "dtype": "bfloat16"}, ("bfloat16", "dtype: bfloat16")),
        ({"bf16": False, "dtype": "auto"}, ("", "")),
        ({"bf16": False}, ("", "")),
    ],
)
def test_vllm_samples_in_what_the_trainer_computes_in(values, found):
    settings = grpo(values)
    assert sampler_dtype(settings, settings.dtype) == found


def test_preflight_keeps_no_float16_updates():
    for values, config, level in [
        ({"dtype": "float16"}, {}, "error"),
        ({"dtype": "auto"}, {"dtype": "float16"}, "error"),
        ({"dtype": "auto"}, {"dtype": "float32"}, "ok"),
        ({"dtype": "float16"} | LORA, {}, "ok"),
        ({"dtype": "bfloat16"}, {}, "ok"),
    ]:
        settings = sft({"learning_rate": 1e-3} | values)
        dtype = trained_dtype(settings.dtype, config)
        assert check_precision("sft", settings, "ddp", dtype).level == level, values


def test_rounding_waits_for_the_model_where_the_recipe_leaves_its_dtype():
    for dtype, refused in [("auto", None), (None, None), ("float16", "stochastic_rounding")]:
        settings = sft({"stochastic_rounding": True, "dtype": dtype})
        assert named(check_rules, "sft", settings) == refused
