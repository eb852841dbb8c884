"""The memory plan by hand: parameters, what is kept, who shares what, whole recipes."""

import dataclasses

import pytest

from data_prep.config import UserError
from stages.preflight.memory_activations import layer_bytes, mask_bytes
from stages.preflight.memory_model import LINEARS, Model, Step, read_model
from stages.preflight.memory_plan import plan_step
from stages.preflight.memory_recipe import (
    GIB,
    Launch,
    checkpoint_bytes,
    generation_bytes,
    grpo_step,
    lora_modules,
    plan_engine,
    sft_step,
)
from stages.preflight.model_shapes import load_shape

ONE = Model(
    hidden=4, inner=8, layers=2, query=4, key=2, heads=2, vocab=10, is_tied=True, has_bias=True,
    head_norms=0,
)  # fmt: skip
FP32 = Step(rows=1, length=3, scored=3, weight=4, is_checkpointed=False, is_cuda=True)


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
    assert read_model(load_shape(name)).params == number


def test_a_model_that_has_no_plan_is_refused():
    with pytest.raises(UserError, match="'mamba' has no memory plan"):
        read_model({"model_type": "mamba"})
    with pytest.raises(UserError, match="hidden_size"):
        read_model({"model_type": "llama", "num_attention_heads": 2})


def test_what_a_layer_keeps_in_fp32():
    # Two norms: input, normalised input, 1/rms: 2 (4 x 4 + 4 x 4 + 4) = 72. Their outputs, of
    # which q, k, v share one and gate, up one: 2 x 4 x 4 = 32. q, k, v, output:
    # 4 (4 + 2 + 2 + 4) = 48, log-sums 8. gate, silu, up, product: 4 x 4 x 8 = 128.
    assert layer_bytes(ONE, FP32) == 72 + 32 + 48 + 8 + 128


def test_what_a_layer_keeps_in_mixed_precision():
    # Five bf16 copies instead of two shared inputs; q, k, v, output and the MLP in bf16.
    step = dataclasses.replace(FP32, is_autocast=True)
    assert layer_bytes(ONE, step) == 72 + 5 * 2 * 4 + 24 + 8 + 64


def test_what_a_layer_keeps_in_bf16():
    # The norm's input in fp32, its normalised input in bf16.
    step = dataclasses.replace(FP32, weight=2)
    assert layer_bytes(ONE, step) == 2 * (16 + 8 + 4) + 2 * 2 * 4 + 24 + 8 + 64


def test_norms_of_queries_and_keys_keep_their_inputs():
    # Qwen3, heads of 2: for the 4 + 2 numbers of q and k an fp32 and a normalised input, and
    # 1/rms for each of 2 + 1 heads.
    qwen3 = dataclasses.replace(ONE, head_norms=4)
    assert layer_bytes(qwen3, FP32) - layer_bytes(ONE, FP32) == 4 * 6 + 4 * 6 + 4 * 3
    lora = dataclasses.replace(FP32, lora_rank=1)
    assert layer_bytes(qwen3, lora) - layer_bytes(ONE, lora) == 4 * 6 + 4 * 3


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
    assert lora_modules({"lora_target_modules": asked}) == modules


def test_a_mask_repeats_keys_and_costs_its_square():
    step = dataclasses.replace(FP32, rows=2, length=5, is_masked=True)
    assert layer_bytes(ONE, step) - layer_bytes(ONE, FP32) == 4 * (2 + 2)
    assert mask_bytes(step) == 4 * 2 * 25
    assert mask_bytes(FP32) == 0


def test_the_end_of_a_step_has_every_gradient_and_the_tied_table_twice():
    plan = plan_step(ONE, dataclasses.replace(FP32, accumulates=False))
    states = (4 + 8 + 4) * ONE.params  # weights, AdamW, gradients
    assert plan.moments["end"] > states + 4 * ONE.embedding
    untied = dataclasses.replace(ONE, is_tied=False)
    plan = plan_step(untied, dataclasses.replace(FP32, accumulates=False))
    inputs = 2 * 3 * 2 * 4 + 48 * 3 + 3 * 4 * 4  # rotary tables, ids and masks, output's gradient
    assert plan.moments["end"] == 16 * untied.params + inputs


def test_the_plan_is_the_highest_moment():
    plan = plan_step(ONE, FP32)
    assert plan.peak == max(plan.moments.values()) == plan.moments[plan.moment]


def test_checkpointing_lowers_and_rows_raise_it():
    model = read_model(load_shape("7B"))
    base = Step(rows=4, length=2048, scored=2048, is_checkpointed=False)
    peaks = [
        plan_step(model, step).peak
        for step in (
            dataclasses.replace(base, is_checkpointed=True),
            base,
            dataclasses.replace(base, rows=8),
        )
    ]
    assert peaks == sorted(peaks) and peaks[0] < peaks[1] < peaks[2]


def test_zero_shares_states_and_ddp_adds_buckets():
    model = read_model(load_shape("7B"))
    base = Step(rows=1, length=1024, scored=1024, weight=2, optimizer=8)
    alone = plan_step(model, base)

    def parts(engine):
        plan = plan_step(model, dataclasses.replace(base, engine=engine, processes=8))
        return {part.name: part.bytes for part in plan.parts}

    assert parts("ddp")["DDP's buckets"] == 2 * model.params
    two, three = parts("zero2"), parts("zero3")
    assert two["weights"] == 2 * model.params and three["weights"] == 2 * model.params / 8
    for shared in (two, three):  # ZeRO: 12 bytes of fp32 master weights and AdamW, over all
        assert shared["optimizer"] + shared["master weights"] == 12 * model.params / 8
    assert sum(three.values()) < sum(two.values()) < alone.peak
    offloaded = parts("zero3_offload")
    assert not {"optimizer", "master weights", "weights"} & set(offloaded)
    assert offloaded["gathered weights"] == three["gathered weights"]


def test_published_7b_run_in_fp32_needs_112_gb_of_states():
    model = read_model(load_shape("7B"))
    step = sft_step(model, {"dtype": "float32", "bf16": True}, Launch(), None)
    states = sum(
        p.bytes for p in plan_step(model, step).parts if p.name in ("weights", "optimizer")
    )
    assert states + 4 * model.params == pytest.approx(16 * 7.6156e9, rel=1e-3)


def test_lora_trains_its_matrices_alone():
    model = read_model(load_shape("7B"))
    values = {
        "dtype": "bfloat16",
        "use_peft": True,
        "lora_r": 8,
        "lora_target_modules": "all-linear",
    }
    step = sft_step(model, values, Launch(), None)
    number = 28 * 8 * (2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944))
    parts = {part.name: part.bytes for part in plan_step(model, step).parts}
    assert parts["LoRA weights"] == 4 * number and parts["optimizer"] == 8 * number
    assert checkpoint_bytes(model, step)[0] == 12 * number


def test_rows_of_a_step_are_the_recipes_worst():
    model = read_model(load_shape("tiny"))
    values = {"per_device_train_batch_size": 4, "max_length": 100, "packing": True}
    step = sft_step(model, values, Launch(), 40)
    assert (step.rows, step.length, step.is_masked) == (1, 400, True)
    step = sft_step(model, values | {"packing": False}, Launch(), 40)
    assert (step.rows, step.length, step.is_masked) == (4, 40, True)
    flash = values | {"attn_implementation": "flash_attention_2"}
    assert not sft_step(model, flash, Launch(), 40).is_masked
    values = {
        "per_device_train_batch_size": 6,
        "max_prompt_length": 50,
        "max_completion_length": 50,
    }
    step = grpo_step(model, values | {"update_tokens": 200, "beta": 0.1}, Launch(), 30)
    assert (step.length, step.passes, step.reference) == (80, 3, model.params)
    assert grpo_step(model, values | {"beta": 0.1, "use_peft": True}, Launch(), 30).reference == 0


def test_the_engines_cache():
    model = read_model(load_shape("7B"))
    values = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.5}
    engine = plan_engine(model, values, Launch(gpu_memory=80))
    assert engine.share == 40 * GIB and engine.token == 2 * 2 * 28 * 512
    assert engine.tokens == (40 * GIB - 2 * model.params - 2 * GIB) // 57_344
    assert plan_engine(model, values | {"vllm_mode": "server"}, Launch()) is None
    assert plan_engine(model, {}, Launch()) is None


def test_generation_without_an_engine():
    values = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3,
              "max_prompt_length": 10, "max_completion_length": 20}  # fmt: skip
    size, text = generation_bytes(ONE, values, None)
    assert size == 6 * 30 * (2 * 4 * 2 * 2) + 6 * 10 * 16
    assert "6 completions x 30 tokens" in text
    values["generation_batch_size"] = 16  # of all processes
    size, _ = generation_bytes(ONE, values, None, processes=4)
    assert size == 4 * 30 * (2 * 4 * 2 * 2) + 4 * 10 * 16
