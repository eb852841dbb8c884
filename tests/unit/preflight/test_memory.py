"""The memory plan by hand: parameters, what is kept, who shares what, recipes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pipeline.errors import UserError
from stages.preflight import capacity
from stages.preflight.capacity import (
    GIB,
    build_step,
    check_cache,
    check_device,
    check_disk,
    check_host,
    is_lora_target,
    lower,
    num_kept,
    saved_bytes,
)
from stages.preflight.inputs import KEYS_OF, load_shape
from stages.preflight.memory import LINEARS, Model, Step, layer_bytes, mask_bytes, plan_step
from tests.settings import settings_of

SHAPE = {
    "model_type": "qwen2", "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10,
    "tie_word_embeddings": True,
}  # fmt: skip
ONE = Model(SHAPE)
FP32 = Step(ONE, rows=1, length=3, scored=3, weight=4, is_checkpointed=False, accumulates=False)
SEVEN_B = Model(load_shape("7B"))


def settings(stage, **values):
    own, hf, _ = KEYS_OF[stage]
    return settings_of(values, own, hf)


def sized(step):
    return {part.name: part.bytes for part in plan_step(step).parts}


@pytest.mark.parametrize(
    ("name", "number"),
    [  # as the models' own pages give them
        ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
    ],
)
def test_parameters_of_published_models(name, number):
    assert Model(load_shape(name)).params == number


@pytest.mark.parametrize(("kind", "text"), [("mamba", "no memory plan"), ("qwen2", "_size: miss")])
def test_a_model_that_has_no_plan_is_refused(kind, text):
    with pytest.raises(UserError, match=text):
        Model({"model_type": kind})


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        # Two norms: input, normalised input, 1/rms: 2 (4 x 4 + 4 x 4 + 4) = 72. Their outputs, of
        # which q, k, v share one and gate, up one: 2 x 4 x 4 = 32. q, k, v, output:
        # 4 (4 + 2 + 2 + 4) = 48, log-sums 8. gate, silu, up, product: 4 x 4 x 8 = 128.
        ({}, 72 + 32 + 48 + 8 + 128),
        # Five bf16 copies instead of two shared inputs; q, k, v, output and the MLP in bf16.
        ({"is_autocast": True}, 72 + 5 * 2 * 4 + 24 + 8 + 64),
        # The norm's input in fp32, its normalised input in bf16.
        ({"weight": 2}, 2 * (16 + 8 + 4) + 2 * 2 * 4 + 24 + 8 + 64),
    ],
)
def test_what_a_layer_keeps(changes, size):
    assert layer_bytes(replace(FP32, **changes)) == size


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"is_cuda": True}, 1),
        ({"is_cuda": False}, 4),  # fp32
        ({"is_cuda": True, "has_dropout": False}, 0),
    ],
)
def test_a_dropout_keeps_a_mask_of_each_input_of_lora(changes, number):
    lora = replace(FP32, lora_rank=3)
    # Four inputs of q, k, v, o, gate and up, eight of down: copies of 4 bytes, and the masks. Three
    # numbers of each of the seven pairs of matrices. The norms' weights are frozen.
    kept = 2 * (16 + 4) + 48 + 8 + 3 * 4 * 8 + (4 + number) * (6 * 4 + 8) + 7 * 4 * 3
    assert layer_bytes(replace(lora, **changes)) == kept


def test_norms_of_queries_and_keys_keep_their_inputs():
    # Qwen3, heads of 2: for the 4 + 2 numbers of q and k an fp32 and a normalised input, and
    # 1/rms for each of 2 + 1 heads.
    qwen3 = Model(SHAPE | {"model_type": "qwen3"})
    assert layer_bytes(replace(FP32, model=qwen3)) - layer_bytes(FP32) == 4 * 6 + 4 * 6 + 4 * 3


@pytest.mark.parametrize(
    ("asked", "modules"),
    [
        (None, ("q_proj", "v_proj")),
        ("all-linear", LINEARS),
        (["all-linear"], LINEARS),
        (["q_proj", "down_proj"], ("q_proj", "down_proj")),
        (["q_proj"], ()),  # TRL makes it a text, which peft fits to the whole path
        (r".*\.(q|o)_proj", ("q_proj", "o_proj")),
        (["q_porj", "c_attn"], ()),
    ],
)
def test_modules_of_lora(asked, modules):
    assert tuple(name for name in LINEARS if is_lora_target(asked, name)) == modules


def test_a_mask_repeats_keys_and_costs_its_square():
    step = replace(FP32, rows=2, length=5, is_masked=True)
    assert layer_bytes(step) - layer_bytes(FP32) == 4 * (2 + 2)
    assert mask_bytes(step) == 4 * 2 * 25
    assert mask_bytes(FP32) == 0


def test_the_end_of_a_step_has_every_gradient_and_the_tied_table_twice():
    inputs = 2 * 3 * 2 * 4 + 48 * 3 + 3 * 4 * 4  # rotary tables, ids and masks, output's gradient
    untied = Model(SHAPE | {"tie_word_embeddings": False})
    # Weights, two states of AdamW and gradients of 4 bytes each.
    assert plan_step(replace(FP32, model=untied)).moments["end"] == 16 * untied.params + inputs
    assert plan_step(FP32).moments["end"] == 16 * ONE.params + inputs + 4 * ONE.embedding


def test_zero_shares_states_and_ddp_adds_buckets():
    base = Step(SEVEN_B, rows=1, length=1024, scored=1024, weight=2, optimizer=8)
    engines = ("ddp", "zero2", "zero3", "zero3_offload")
    ddp, two, three, offloaded = (sized(replace(base, engine=e, processes=8)) for e in engines)
    params = SEVEN_B.params
    assert ddp["DDP's buckets"] == 2 * params
    assert two["weights"] == 2 * params and three["weights"] == 2 * params / 8
    for shared in (two, three):  # ZeRO: 12 bytes of fp32 master weights and AdamW, over all
        assert shared["optimizer"] + shared["master weights"] == 12 * params / 8
    assert not {"optimizer", "master weights", "weights"} & set(offloaded)
    assert offloaded["gathered weights"] == three["gathered weights"]


def test_gradients_of_a_pass_wait_for_those_of_the_others():
    base = Step(SEVEN_B, rows=4, length=1024, scored=1024, weight=2)
    one, four = plan_step(base), plan_step(replace(base, passes=4))
    assert sized(replace(base, passes=4))["gradients of other passes"] == 2 * SEVEN_B.params
    assert "later head" not in one.moments and four.moment == "later head"
    # The first pass to go backward has all activations, the next a quarter less.
    inputs = 4 * 1024 * 28 * 2 * 3584
    waits = four.moments["later head"] - four.moments["head"]
    assert waits == 2 * SEVEN_B.params - inputs / 4


def test_fsdp_has_whole_gradients_until_the_last_micro_batch():
    step = Step(
        SEVEN_B, rows=1, length=1024, scored=1024, weight=4, is_autocast=True, engine="fsdp2",
        processes=8,
    )  # fmt: skip
    params, parts = SEVEN_B.params, sized(step)
    assert parts["gradients of earlier micro-batches"] == 4 * params
    assert parts["weights"] == 4 * params / 8 and parts["optimizer"] == 8 * params / 8
    assert "bf16 copies of weights" not in parts  # what is gathered is bf16
    gathered = 2 * SEVEN_B.embedding
    assert plan_step(step).moments["optimizer"] == 16 * params / 8 + gathered
    alone = plan_step(replace(step, accumulates=False))
    assert alone.moments["head"] == plan_step(step).moments["head"] - 4 * params


@pytest.mark.parametrize(("key", "other"), [("fp16", "bf16"), ("bf16", "fp16")])
def test_copies_of_weights_are_of_the_recipe_s_type(key, other):
    values = settings("sft", dtype="float32", **{key: True, other: False})
    parts = sized(build_step("sft", SEVEN_B, values))
    assert f"{key} copies of weights" in parts and f"{other} copies of weights" not in parts


def test_lora_trains_its_matrices_alone():
    lora = {"use_peft": True, "lora_r": 8, "lora_target_modules": "all-linear"}
    step = build_step("sft", SEVEN_B, settings("sft", dtype="bfloat16", **lora))
    number = 28 * 8 * (2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944))
    parts = sized(step)
    assert parts["LoRA weights"] == 4 * number and parts["optimizer"] == 8 * number
    assert saved_bytes(step)[0] == 12 * number


@pytest.mark.parametrize(
    ("asked", "stored", "size"),
    [
        ("auto", {"dtype": "float32"}, 4),
        (None, {"torch_dtype": "float32"}, 4),
        ("auto", {"dtype": "bfloat16"}, 2),
        ("float32", {"dtype": "bfloat16"}, 4),
        ("bfloat16", {"dtype": "float32"}, 2),
    ],
)
def test_a_dtype_that_is_left_to_the_model_is_that_of_its_files(asked, stored, size):
    step = build_step("sft", Model(SHAPE | stored), settings("sft", dtype=asked))
    assert step.weight == size


SFT = {"per_device_train_batch_size": 4, "max_length": 100}
GRPO = {"per_device_train_batch_size": 6, "max_prompt_length": 50, "max_completion_length": 50}


@pytest.mark.parametrize(
    ("stage", "values", "longest", "expected"),
    [
        ("sft", SFT | {"packing": True}, 40, {"rows": 1, "length": 400, "is_masked": True}),
        ("sft", SFT, 40, {"rows": 4, "length": 40, "is_masked": True}),
        ("sft", SFT | {"max_length": None}, None, {"length": 1024}),  # nobody knows
        ("sft", SFT | {"attn_implementation": "flash_attention_2"}, 40, {"is_masked": False}),
        ("grpo", GRPO | {"update_tokens": 200, "beta": 0.1}, 30,
         {"length": 80, "passes": 3, "has_reference": True}),
        ("grpo", GRPO | {"beta": 0.1, "use_peft": True}, 30, {"has_reference": False}),
    ],
)  # fmt: skip
def test_rows_of_a_step_are_the_recipes_worst(stage, values, longest, expected):
    step = build_step(stage, ONE, settings(stage, **values), longest)
    assert {key: getattr(step, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.9199, "ok"), (0.9201, "warning"), (0.9999, "warning"), (1.0001, "error")],
)
def test_a_plan_near_a_devices_memory_is_a_warning_and_above_it_an_error(share, level):
    values = settings("sft", use_cpu=False)
    step = build_step("sft", SEVEN_B, values)
    limit = (plan_step(step).peak + 1.5 * GIB) / share
    recipe = SimpleNamespace(settings={"sft": values}, args=SimpleNamespace(gpu_memory=limit / GIB))
    (found,) = check_device(recipe, "sft", step, None)
    assert found.level == level and bool(found.remedy) == (level != "ok")


@pytest.mark.parametrize(("missing", "level"), [(0, "ok"), (1, "error")])
def test_a_plan_that_is_a_byte_above_a_hosts_memory_is_refused(monkeypatch, missing, level):
    values = settings("sft", use_cpu=True)
    plan = plan_step(build_step("sft", ONE, values))
    monkeypatch.setattr(capacity, "total_memory", lambda: plan.peak + 0.6 * GIB - missing)
    assert check_host("sft memory", values, plan).level == level


@pytest.mark.parametrize(("states", "is_lowered"), [(800, False), (799, True)])
def test_fewer_rows_help_where_activations_are_over_a_fifth(states, is_lowered):
    plan, values = SimpleNamespace(peak=1000, states=states), settings("sft", **SFT)
    assert ("per_device_train_batch_size" in lower(plan, values, False)) == is_lowered


@pytest.mark.parametrize(("use_cpu", "number"), [(False, 16), (True, 57)])
def test_the_8_bit_step_needs_scratch_for_the_largest_tensor(use_cpu, number):
    values = settings("sft", use_cpu=use_cpu, stochastic_rounding=True, dtype="bfloat16")
    assert build_step("sft", ONE, values).scratch == number * 10 * 4  # the table of tokens


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ({"save_strategy": "no", "save_total_limit": 2}, 0),
        ({"save_total_limit": 2}, 3),  # the new one is written before the oldest goes
        ({"max_steps": 100, "save_steps": 30}, 3),
        ({"max_steps": 100, "save_steps": 100}, 1),
        ({"max_steps": 100, "save_steps": 101}, 10),
        ({"max_steps": 100, "save_steps": 0.1}, 10),
    ],
)
def test_how_many_checkpoints_are_on_a_disk(values, number):
    assert num_kept(settings("sft", **values)) == number


@pytest.mark.parametrize(("missing", "level"), [(0, "ok"), (1, "error")])
def test_a_disk_that_is_a_byte_too_small_is_refused(monkeypatch, tmp_path, missing, level):
    values = settings("sft", use_cpu=True, save_total_limit=1, dtype="float32")
    recipe = SimpleNamespace(settings={"sft": values}, run=str(tmp_path))
    free = 2 * 12 * ONE.params + 4 * ONE.params - missing  # two checkpoints, the model
    monkeypatch.setattr(capacity.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    (found,) = check_disk(recipe, {"sft": build_step("sft", ONE, values)})
    assert found.level == level and bool(found.remedy) == bool(missing)


@pytest.mark.parametrize(("number", "is_named"), [(10, False), (10.01, True)])
def test_checkpoints_of_over_ten_gib_without_a_limit_are_a_warning(tmp_path, number, is_named):
    values = settings("sft", use_cpu=True, max_steps=4, save_steps=1)
    recipe = SimpleNamespace(settings={"sft": values}, run=str(tmp_path))
    model = SimpleNamespace(params=number * GIB / 4 / 12)
    found = check_disk(recipe, {"sft": replace(FP32, model=model)})
    assert ["save_total_limit" in one.text for one in found][:-1] == [True] * is_named


@pytest.mark.parametrize(("missing", "level"), [(0, "ok"), (1, "error")])
def test_a_cache_that_is_a_token_short_of_a_completion_is_refused(missing, level):
    values = settings("grpo", **GRPO, vllm_tensor_parallel_size=1, vllm_max_model_length=None)
    token = 4 * SEVEN_B.layers * SEVEN_B.key
    share = 2 * SEVEN_B.params + 2 * GIB + (50 + 50 - missing) * token
    assert check_cache("grpo memory", values, SEVEN_B, share, 50).level == level


@pytest.mark.parametrize(("missing", "level"), [(0, "ok"), (0.01, "error")])
def test_an_engine_beside_the_training_states_must_fit(missing, level):
    values = settings("grpo", **GRPO, use_cpu=False, use_vllm=True, vllm_mode="colocate",
                      vllm_gpu_memory_utilization=0.5, vllm_tensor_parallel_size=1,
                      vllm_enable_sleep_mode=True)  # fmt: skip
    step = build_step("grpo", SEVEN_B, values)
    gpu_memory = 2 * (plan_step(step).states / GIB + 1.5 - missing)
    recipe = SimpleNamespace(settings={"grpo": values}, args=SimpleNamespace(gpu_memory=gpu_memory))
    found = check_device(recipe, "grpo", step, 50)
    assert [one.level for one in found if "while vLLM generates" in one.text] == (
        ["error"] if missing else []
    )
