"""Weights in float16 are not trained themselves: AdamW's moments underflow there."""

import json

import pytest

from stages.checks.precision import (
    check_dtype,
    check_model_dtype,
    sampler_dtype,
    trained_dtype,
)
from stages.preflight.batches import check_precision
from stages.rules import check_rules
from tests.unit.stages.helpers import grpo, named, sft

LORA = {"use_peft": True}


@pytest.mark.parametrize("build", [sft, grpo])
@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"dtype": "float16"}, "dtype"),
        ({"dtype": "float16", "bf16": True}, "dtype"),
        ({"dtype": "float16"} | LORA, None),
        ({"dtype": "float32", "fp16": True, "bf16": False}, None),
        ({"dtype": "bfloat16"}, None),
        ({"dtype": "auto"}, None),
        ({"dtype": None}, None),
    ],
)
def test_float16_is_refused_without_lora(build, values, refused):
    assert named(check_dtype, build(values)) == refused


def test_deepspeed_updates_copies(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    assert named(check_dtype, sft({"dtype": "float16"})) is None


@pytest.mark.parametrize("asked", ["auto", None])
@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ({"dtype": "float16"}, "dtype"),
        ({"torch_dtype": "float16"}, "dtype"),
        ({"text_config": {"dtype": "float16"}}, "dtype"),
        ({"dtype": "bfloat16", "text_config": {"dtype": "float16"}}, None),
        ({}, None),
    ],
)
def test_the_models_own_dtype_counts_where_the_recipe_leaves_it(tmp_path, asked, config, refused):
    (tmp_path / "config.json").write_text(json.dumps(config))
    values = {"model_name_or_path": str(tmp_path), "dtype": asked}
    assert named(check_model_dtype, sft(values)) == refused
    assert named(check_model_dtype, sft(values | LORA)) is None
    assert named(check_model_dtype, sft(values | {"dtype": "float32"})) is None


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
