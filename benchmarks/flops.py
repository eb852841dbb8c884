"""Model FLOPs of training a decoder, for MFU: what the model needs, not what the machine does.

PaLM (arXiv:2204.02311, appendix B) counts per token 6 N + 12 L H Q T: N weights that multiply,
L layers, H heads of size Q, T tokens. Three things are counted more strictly here. Of the
attention only the half that a causal mask leaves. Of the LM head only the positions whose token is
scored. And no padding. Recomputation (gradient checkpointing) does not count, as in PaLM.
"""

import time
from collections.abc import Iterable
from typing import Any


def layer_weights(config: Any) -> int:
    """Weights of one decoder layer that multiply each token; biases and norms left out.

    Args:
        config: transformers' config of a dense Llama- or Qwen-like decoder.
    """
    hidden = config.hidden_size
    head = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    query, key_value = config.num_attention_heads * head, config.num_key_value_heads * head
    return hidden * (2 * query + 2 * key_value) + 3 * hidden * config.intermediate_size


def forward_flops(config: Any, length: int, scored: int) -> int:
    """FLOPs of one forward pass over one row, a multiplication and an addition counted as two.

        2 (L w T + V h S) + 4 L H Q T (T + 1) / 2        w weights of a layer, h hidden size

    Args:
        length: T, tokens of the row, padding left out.
        scored: S, positions whose next token is scored by the LM head (V tokens).
    """
    layers = config.num_hidden_layers
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    linear = layers * layer_weights(config) * length
    linear += config.vocab_size * config.hidden_size * scored
    attention = 2 * layers * config.num_attention_heads * head * length * (length + 1)
    return 2 * linear + attention


def training_flops(config: Any, rows: Iterable[tuple[int, int]]) -> int:
    """FLOPs of forward and backward, which takes twice the forward, over rows (length, scored)."""
    return 3 * sum(forward_flops(config, length, scored) for length, scored in rows)


def peak_flops(device_name: str, dtype: str) -> float | None:
    """Dense peak of a GPU, FLOP/s, from TRL's table of the makers' figures; None if not in it.

    Args:
        device_name: as `torch.cuda.get_device_name` gives it.
        dtype: "bfloat16", "float16".
    """
    from trl.trainer.utils import get_peak_flops

    return get_peak_flops(device_name, dtype)


def measured_peak(dtype: Any, size: int = 2048, repeats: int = 8) -> float:
    """FLOP/s of this CPU in the fastest of a few square matrix products; no table has a figure.

    Seconds are the process's own, so torch must be on one thread.

    Args:
        dtype: torch's.
        size: side of the matrices.
    """
    import torch

    left, right = (torch.randn(size, size).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        torch.matmul(left, right)
        best = min(best, time.process_time() - started)
    return 2 * size**3 / best
