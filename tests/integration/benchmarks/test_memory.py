"""The memory plan against the measured peak of TRL's trainers on a CPU."""

import pytest

from benchmarks.gpu_verdicts import MEMORY
from benchmarks.memory import Case, measure

pytestmark = pytest.mark.integration

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 20000,
    "tie_word_embeddings": False,
}  # fmt: skip
TINY = {
    "sft": Case(),
    "padded": Case(batch=4, length=256, checkpointing=True, accumulation=2, padded=True),
    "bf16": Case(batch=4, length=256, bf16=True),
    "grpo": Case(stage="grpo", batch=8, length=160, update_tokens=640),
}
WIDE = {"hidden_size": 320, "intermediate_size": 900, "num_attention_heads": 5,
        "num_key_value_heads": 1, "num_hidden_layers": 4, "vocab_size": 40_000}  # fmt: skip
# Of models that the plan was not made with.
OTHERS = {
    "llama": Case(changes=LLAMA, batch=2, length=64, bf16=True, accumulation=2),
    "untied": Case(
        changes=WIDE | {"tie_word_embeddings": False}, batch=1, length=40, accumulation=3
    ),
    "lora": Case(
        changes=WIDE, batch=2, length=200, dtype="bfloat16", lora_rank=8, lora_dropout=0.05
    ),
    "wide-grpo": Case(
        changes=WIDE, batch=6, length=96, stage="grpo", update_tokens=192, checkpointing=True
    ),
}
SLOW = [pytest.param(case, id=name, marks=pytest.mark.slow) for name, case in OTHERS.items()]


@pytest.mark.parametrize("case", [*(pytest.param(TINY[name], id=name) for name in TINY), *SLOW])
def test_plan_is_near_the_measured_peak(case):
    assert case.plan().peak == pytest.approx(measure(case), rel=MEMORY)
