"""Rows longer than the positions that a model has learned are refused before torch."""

import json
from types import SimpleNamespace

import numpy
import pytest
from safetensors.numpy import save_file

from stages.arguments import completion_room
from stages.host import check_positions
from tests.unit.stages.helpers import grpo, named, sft


@pytest.fixture
def model(tmp_path):
    save_file({"wpe.weight": numpy.zeros((64, 4), numpy.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    return {"model_name_or_path": str(tmp_path)}


@pytest.mark.parametrize(
    ("build", "values", "refused"),
    [
        (sft, {"max_length": 64}, None),
        (sft, {"max_length": 65}, "max_length"),
        (sft, {"max_length": None}, "max_length"),
        (grpo, {"max_prompt_length": 32, "max_completion_length": 32}, None),
        (grpo, {"max_prompt_length": 33, "max_completion_length": 32}, "max_prompt_length"),
        (grpo, {"max_prompt_length": None, "max_completion_length": 32}, "max_prompt_length"),
        (grpo, {"max_prompt_length": 8, "max_completion_length": 64}, "max_completion_length"),
        (grpo, {"max_prompt_length": 63, "max_completion_length": None}, None),
        (grpo, {"max_prompt_length": 64, "max_completion_length": None}, "max_prompt_length"),
    ],
)
def test_rows_fit_into_the_positions(model, build, values, refused):
    assert named(lambda: check_positions(build(model | values))) == refused


def test_other_models_have_no_limit(model, tmp_path):
    save_file(
        {"lm_head.weight": numpy.zeros((8, 4), numpy.float32)}, tmp_path / "model.safetensors"
    )
    assert named(lambda: check_positions(sft(model | {"max_length": 1000}))) is None
    assert named(lambda: check_positions(sft({"model_name_or_path": "owner/name"}))) is None


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
