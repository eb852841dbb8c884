"""The memory plan at the recipes' real shapes, against tensors without storage."""

from pathlib import Path

import pytest

from tests.integration.preflight.track_shape import compare

pytestmark = pytest.mark.integration
CONFIGS = Path(__file__).parents[3] / "configs"
LORA = str(CONFIGS / "lora.yaml")
# Recipe, stage, GPUs (more than one: FSDP 2), overlay. Others have the keys of one of these.
CASES = [
    ("grpo7b", "sft", 1, None),
    ("grpo7b", "grpo", 1, None),
    ("grpo7b", "sft", 1, LORA),
    ("grpo7b", "grpo", 1, LORA),
    ("llama3.1-8b", "sft", 1, None),
    ("llama3.1-8b", "grpo", 1, None),
    ("qwen2.5-1.5b", "sft", 1, None),
    ("qwen2.5-1.5b", "grpo", 1, None),
    ("qwen3-1.7b", "grpo", 1, None),
    ("perplexity", "sft", 1, None),
    ("perplexity", "grpo", 1, None),
    ("perplexity-gsm8k", "grpo", 1, None),
    ("rlite", "grpo", 8, None),
    ("rlite-packing", "grpo", 8, None),
    ("rlinf-1.5b", "grpo", 8, None),
    ("rlinf-7b", "grpo", 8, None),
    ("justrl-1.5b", "grpo", 8, None),
]
SMALL = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 3, "vocab_size": 9000}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2}


def check(name, stage, gpus, overlay, **changes):
    step, plan, tracked = compare(str(CONFIGS / name), stage, gpus, overlay, **changes)
    assert step.is_full is (overlay is None) and (step.engine == "fsdp2") is (gpus > 1)
    assert tracked > 2 * step.model.params / gpus  # something was tracked
    assert plan.peak / tracked == pytest.approx(1, abs=0.1), plan


@pytest.mark.parametrize(
    "case", [CASES[0], CASES[1], CASES[3], CASES[12]], ids=lambda case: f"{case[0]}-{case[1]}"
)
def test_the_plan_of_a_small_shape_is_within_ten_per_cent(case):
    check(*case, **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[0]}-{case[1]}{'-lora' * bool(case[3])}"
)
def test_the_plan_of_a_recipe_is_within_ten_per_cent(case):
    check(*case)
