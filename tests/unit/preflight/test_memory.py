"""The memory plan by hand: how it is put together, the worst rows, devices, disks and caches."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from stages.preflight import capacity
from stages.preflight.capacity import (
    GIB,
    build_step,
    check_cache,
    check_device,
    check_disk,
    check_host,
    gpu_need,
    lora_config,
    lower,
    num_kept,
    saved_bytes,
)
from stages.preflight.inputs import KEYS_OF, load_shape
from stages.preflight.memory import Plan, model_size, plan_step, states
from stages.preflight.roofline import read_model
from stages.preflight.step import Size, Step, extrapolate
from tests.refused import refused
from tests.settings import settings_of
from tests.tables import tables_beside

table = tables_beside(__file__)

SHAPE = {
    "model_type": "qwen2", "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10,
    "tie_word_embeddings": True,
}  # fmt: skip
PARAMS = 2 * (4 * (2 * 4 + 2 * 2) + 3 * 4 * 8 + 4 + 2 * 2 + 2 * 4) + 10 * 4 + 4
SEVEN = load_shape("7B")
STEP = Step(json.dumps(SHAPE), rows=1, length=3, scored=3)
PLAN = Plan("head", 30 * GIB, 10 * GIB, 5 * GIB, 0, 15 * GIB, {"head": 60 * GIB})


def settings(stage, **values):
    own, hf, _ = KEYS_OF[stage]
    return settings_of(values, own, hf)


@pytest.fixture
def planned(monkeypatch):
    """A plan of 60 GiB for every step, 35 of them states."""
    monkeypatch.setattr(capacity, "plan_step", lambda step: PLAN)


@table
def test_parameters_of_published_models(name, number):
    assert read_model(load_shape(name)).params == number


def test_an_unknown_model_is_one_line():
    step = replace(STEP, shape=json.dumps({"model_type": "banana"}))
    refused(r"^banana: no memory plan: ", plan_step, step)


def test_each_kind_of_a_moment_is_linear_in_the_layers():
    moment = ("head", 0, 0)
    short = {moment: Counter(weights=10, activations=7)}
    long = {moment: Counter(weights=18, activations=9)}
    found = extrapolate(short, long, fewest=4, layers=28)
    assert found == {moment: Counter(weights=10 + 6 * 8, activations=7 + 6 * 2)}


@table
def test_what_each_process_has_of_the_states(engine, expected):
    size = Size(weights=200, trained=100, gradients=200, largest=40, gathered=80, layers=2)
    assert states(replace(STEP, engine=engine, processes=4), size) == tuple(expected)
    both = states(replace(STEP, engine=engine, processes=4, has_reference=True), size)
    assert both == (2 * expected[0], *expected[1:])


def test_a_model_is_counted_with_and_without_lora():
    size = model_size(STEP)
    assert (size.weights, size.trained, size.gradients) == (2 * PARAMS, PARAMS, 2 * PARAMS)
    assert (size.largest, size.layers) == (40, 2)
    lora = {"use_peft": True, "lora_r": 3, "lora_target_modules": "all-linear"}
    step = build_step("sft", SHAPE, settings("sft", dtype="bfloat16", **lora))
    number = 2 * 3 * (2 * (4 + 4) + 2 * (4 + 2) + 3 * (4 + 8))
    found = model_size(step)
    assert (found.trained, found.gradients) == (number, 4 * number)
    assert found.weights == 2 * PARAMS + 4 * number
    assert saved_bytes(step) == (12 * number, 2 * PARAMS + 4 * number)


@table
def test_targets_of_lora_are_handed_on_as_trl_does(asked, targets):
    found = lora_config(settings("sft", use_peft=True, lora_target_modules=asked))
    assert json.loads(found)["target_modules"] == targets
    assert lora_config(settings("sft")) is None


def test_targets_that_fit_nothing_are_refused_in_the_words_of_peft():
    lora = {"use_peft": True, "lora_target_modules": ["q_porj", "c_attn"]}
    refused("q_porj", plan_step, build_step("sft", SHAPE, settings("sft", **lora)))


@table
def test_a_dtype_that_is_left_to_the_model_is_that_of_its_files(asked, stored, dtype):
    assert build_step("sft", SHAPE | stored, settings("sft", dtype=asked)).dtype == dtype


SFT = {"per_device_train_batch_size": 4, "max_length": 100}
GRPO = {"per_device_train_batch_size": 6, "max_prompt_length": 50, "max_completion_length": 50}


@table
def test_rows_of_a_step_are_the_recipes_worst(stage, values, longest, expected):
    step = build_step(stage, SHAPE, settings(stage, **values), longest)
    assert {key: getattr(step, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.9199, "ok"), (0.9201, "warning"), (0.9999, "warning"), (1.0001, "error")],
)
def test_a_plan_near_a_devices_memory_is_a_warning_and_above_it_an_error(share, level, planned):
    values = settings("sft", use_cpu=False)
    limit = (PLAN.peak + 1.5 * GIB) / share
    recipe = SimpleNamespace(settings={"sft": values}, args=SimpleNamespace(gpu_memory=limit / GIB))
    (found,) = check_device(recipe, "sft", STEP, None)
    assert found.level == level and bool(found.remedy) == (level != "ok")


TO_THE_BYTE = pytest.mark.parametrize(("missing", "level"), [(0, "ok"), (1, "error")])


@TO_THE_BYTE
def test_a_plan_that_is_a_byte_above_a_hosts_memory_is_refused(monkeypatch, missing, level):
    monkeypatch.setattr(capacity, "total_memory", lambda: PLAN.peak + 0.6 * GIB - missing)
    assert check_host("sft memory", settings("sft", use_cpu=True), PLAN).level == level


@pytest.mark.parametrize(("states", "is_lowered"), [(800, False), (799, True)])
def test_fewer_rows_help_where_activations_are_over_a_fifth(states, is_lowered):
    plan, values = SimpleNamespace(peak=1000, states=states), settings("sft", **SFT)
    assert ("per_device_train_batch_size" in lower(plan, values, False)) == is_lowered


@pytest.mark.parametrize(("use_cpu", "number"), [(False, 9), (True, 57)])
def test_the_8_bit_step_needs_scratch_for_the_largest_tensor(use_cpu, number):
    values = settings("sft", use_cpu=use_cpu, stochastic_rounding=True, dtype="bfloat16")
    assert build_step("sft", SHAPE, values).scratch == number


@table
def test_how_many_checkpoints_are_on_a_disk(values, number):
    assert num_kept(settings("sft", **values)) == number


@TO_THE_BYTE
def test_a_disk_that_is_a_byte_too_small_is_refused(monkeypatch, tmp_path, missing, level):
    values = settings("sft", use_cpu=True, save_total_limit=1, dtype="float32")
    recipe = SimpleNamespace(settings={"sft": values}, run=str(tmp_path))
    free = 2 * 12 * PARAMS + 4 * PARAMS - missing  # two checkpoints, the model
    monkeypatch.setattr(capacity.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    (found,) = check_disk(recipe, {"sft": build_step("sft", SHAPE, values)})
    assert found.level == level and bool(found.remedy) == bool(missing)


@pytest.mark.parametrize(("number", "is_named"), [(10, False), (10.01, True)])
def test_checkpoints_of_over_ten_gib_without_a_limit_are_a_warning(
    monkeypatch, tmp_path, number, is_named
):
    values = settings("sft", use_cpu=True, max_steps=4, save_steps=1)
    recipe = SimpleNamespace(settings={"sft": values}, run=str(tmp_path))
    monkeypatch.setattr(capacity, "saved_bytes", lambda step: (number * GIB / 4, GIB))
    found = check_disk(recipe, {"sft": STEP})
    assert ["save_total_limit" in one.text for one in found][:-1] == [True] * is_named


@TO_THE_BYTE
def test_a_cache_that_is_a_token_short_of_a_completion_is_refused(missing, level):
    values = settings("grpo", **GRPO, vllm_tensor_parallel_size=1, vllm_max_model_length=None)
    seven = read_model(SEVEN)
    assert seven.cached == 4 * 28 * 512
    share = 2 * seven.params + 2 * GIB + (50 + 50 - missing) * seven.cached
    step = replace(STEP, shape=json.dumps(SEVEN))
    assert check_cache("grpo memory", values, step, share, 50).level == level


COLOCATED = GRPO | {
    "use_cpu": False, "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.5,
    "vllm_tensor_parallel_size": 1, "vllm_enable_sleep_mode": True,
}  # fmt: skip


@pytest.mark.parametrize(("sleeps", "update"), [(True, 61.5), (False, 101.5)])
def test_an_engine_stands_beside_the_training_states(planned, sleeps, update):
    values = settings("grpo", **COLOCATED | {"vllm_enable_sleep_mode": sleeps})
    need = gpu_need(values, STEP, 80 * GIB)
    assert (need.update, need.generation) == (update * GIB, (35 + 40 + 1.5) * GIB)
    assert need.total == max(need.update, need.generation)


@pytest.mark.parametrize(("missing", "level"), [(0, "warning"), (0.01, "error")])
def test_an_engine_beside_the_training_states_must_fit(planned, missing, level):
    values = settings("grpo", **COLOCATED)
    gpu_memory = 2 * (35 + 1.5 - missing)
    recipe = SimpleNamespace(settings={"grpo": values}, args=SimpleNamespace(gpu_memory=gpu_memory))
    found, _ = check_device(recipe, "grpo", STEP, 50)
    assert "while vLLM generates" in found.text and found.level == level
    assert "vllm_gpu_memory_utilization" in found.remedy
