"""The memory plan against the measured peak of TRL's trainers on a CPU."""

import pytest

from benchmarks.memory import TOLERANCE, Case, describe, measure
from stages.preflight import memory

pytestmark = pytest.mark.integration

SMALL = {
    "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 3000,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 20000,
    "tie_word_embeddings": False,
}  # fmt: skip
TINY = [
    Case(),
    Case(batch=4, length=256, checkpointing=True, accumulation=2, padded=True),
    Case(batch=4, length=256, bf16=True),
    Case(stage="grpo", batch=8, length=160, update_tokens=640),
]
WIDE = {"hidden_size": 320, "intermediate_size": 900, "num_attention_heads": 5,
        "num_key_value_heads": 1, "num_hidden_layers": 4, "vocab_size": 40_000}  # fmt: skip
# Of models that the plan was not made with.
OTHERS = [
    Case(changes=LLAMA, batch=2, length=64, bf16=True, accumulation=2),
    Case(changes=WIDE | {"tie_word_embeddings": False}, batch=1, length=40, accumulation=3),
    Case(changes=WIDE, batch=2, length=200, dtype="bfloat16", lora_rank=8, lora_dropout=0.05),
    Case(changes=WIDE, batch=6, length=96, stage="grpo", update_tokens=192, checkpointing=True),
]


def name(case):
    return f"{case.stage}-{case.batch}x{case.length}-{describe(case)}".replace(" ", "-")


@pytest.mark.parametrize(
    "case", [*TINY, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)], ids=name
)
def test_plan_is_near_the_measured_peak(case):
    assert case.plan().peak == pytest.approx(measure(case), rel=TOLERANCE)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_plan_of_the_layers(checkpointing, monkeypatch):
    """On a CPU the LM head's scratch hides what the layers need: with small tiles it does not."""
    import trl.kernels.chunked_logprob as kernel
    import trl.trainer.utils as utils

    monkeypatch.setattr(kernel, "TOKEN_CHUNK_SIZE", 64)
    monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", 128)
    monkeypatch.setattr(memory, "HEAD_TOKENS", 64)
    monkeypatch.setattr(memory, "HEAD_VOCAB", 128)
    case = Case(changes=SMALL, batch=4, length=128, checkpointing=checkpointing)
    plan = case.plan()
    assert "layer" in plan.moment
    assert plan.peak == pytest.approx(measure(case), rel=0.05)


def test_tiles_of_the_fused_head_are_trls():
    import trl.kernels.chunked_logprob as kernel
    import trl.trainer.utils as utils

    assert memory.HEAD_TOKENS == kernel.TOKEN_CHUNK_SIZE
    assert memory.HEAD_VOCAB == utils._CHUNKED_LOGPROB_CHUNK_SIZE
