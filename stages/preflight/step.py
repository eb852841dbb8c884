"""What the memory of a training step is planned from: the step, its model's counts, its peaks."""

from collections import Counter
from dataclasses import dataclass

Peaks = dict[tuple[str, int, int], Counter[str]]  # moment, pass, micro-batch -> kind -> bytes


@dataclass(frozen=True)
class Step:
    """What a training process does in one optimizer step.

    `rows` of `length` tokens go through the model in `passes` forward passes before one backward
    pass; `scored` tokens of a row have a loss.
    """

    shape: str  # the model's config.json
    rows: int
    length: int
    scored: int
    dtype: str = "bfloat16"  # of the weights
    autocast: str = "no"  # bf16 or fp16: the precision of matrix products, whatever the weights are
    attention: str | None = None  # attn_implementation
    is_checkpointed: bool = True
    is_masked: bool = False  # rows padded or packed, without FlashAttention: a mask of L^2
    accumulates: bool = True  # gradients of earlier micro-batches are there
    optimizer: float = 8  # bytes of its states per trained parameter
    passes: int = 1
    lora: str | None = None  # arguments of peft's LoraConfig, as JSON
    is_cuda: bool = True
    scratch: float = 0  # bytes for each number of the largest tensor while the optimizer steps
    engine: str = "none"  # none, ddp, zero2, zero3, zero3_offload, fsdp2
    processes: int = 1
    has_reference: bool = False  # a frozen reference model


@dataclass(frozen=True)
class Size:
    """Counts of a step's whole model.

    Args:
        weights: bytes of all weights, with LoRA's.
        trained: parameters with a gradient.
        gradients: bytes of their gradients.
        largest: numbers of the largest tensor that is trained.
        gathered: bytes of two layers or the embedding, which ZeRO-3 has whole.
    """

    weights: int
    trained: int
    gradients: int
    largest: int
    gathered: int
    layers: int


def extrapolate(short: Peaks, long: Peaks, fewest: int, layers: int) -> Peaks:
    """The peaks of a model of so many layers: each moment and kind is linear in the layers.

    Args:
        short, long: of a model with `fewest` layers, and with twice as many.
    """
    times = (layers - 2 * fewest) / fewest
    found: Peaks = {}
    for moment, more in long.items():
        less = short.get(moment, more)
        kinds = less.keys() | more.keys()
        found[moment] = Counter({k: more[k] + times * (more[k] - less[k]) for k in kinds})
    return found
