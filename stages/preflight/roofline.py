"""Seconds of generation and of updates on a GPU, from its speed, its bandwidth and the lengths.

The time of a pass is the larger of operations / reached speed and bytes / reached bandwidth. The
constants below are calibrated on published measurements; docs/results/plan.md has them, and the
errors on others.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

HALF = 1e9  # parameters of a model that reaches half of its device's `reached`
BANDWIDTH = 0.75  # share of the memory's bandwidth that decoding reaches
OVERHEAD, EACH = 0.005, 4e-5  # seconds of a decoding step beside it: scheduling, sampling a row
# Seconds of the host for a layer of a forward pass, at most: beside an H200 an update of 8 passes,
# each worth 4 forward passes, took 1.21 s with 24 layers (docs/results/gpu.md).
LAUNCH = 1.5e-3
# Seconds of a layer in a step of transformers' loop, at least: with 24 layers an H200 wrote 64
# completions of 512 tokens in 10.5 s (docs/results/gpu.md).
LOOP = 8.5e-4
SYNC = 5.0  # seconds a generation batch: new weights, the engine's sleep and waking, rewards
LOW, HIGH = 0.8, 1.7  # measured / planned seconds of the runs that the constants were chosen on
PIECES = 64  # of the end of a generation, whose completions become fewer


@dataclass(frozen=True)
class Model:
    """Counts of a model.

    Args:
        linear: numbers of the matrices that a token goes through, with the LM head's.
        query: numbers of a token's queries in a layer.
        cached: bytes of a token's keys and values in all layers, in 16 bits.
    """

    params: int
    linear: int
    layers: int
    query: int
    cached: int


def read_model(shape: Mapping[str, Any]) -> Model:
    """Count a model by its config.json."""
    return count_model(json.dumps(shape, sort_keys=True, default=str))


@cache
def count_model(shape: str) -> Model:
    """The same, of the text; the model is built on the meta device."""
    import torch
    from torch import nn

    from stages.preflight.memory import planned
    from stages.preflight.step import Step
    from stages.preflight.tracker import build, read_config

    step = Step(shape, rows=1, length=1, scored=1)
    with planned(step), torch.device("meta"):
        model = build(step, read_config(step))
    config = model.config.get_text_config()
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    used = getattr(config, "num_experts_per_tok", None) or 1
    linear: float = model.get_output_embeddings().weight.numel()
    counted = {id(model.get_output_embeddings().weight)}
    for module in model.modules():
        for weight in () if isinstance(module, nn.Embedding) else module.parameters(recurse=False):
            if weight.ndim > 1 and id(weight) not in counted:
                counted.add(id(weight))
                is_routed = weight.ndim == 3 and weight.size(0) == experts
                linear += weight.numel() * (used / weight.size(0) if is_routed else 1)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return Model(
        params=sum(weight.numel() for weight in model.parameters()),
        linear=int(linear),
        layers=config.num_hidden_layers,
        query=config.num_attention_heads * width,
        cached=4 * config.num_hidden_layers * heads * width,
    )


@dataclass(frozen=True)
class Device:
    """A GPU.

    Args:
        flops: dense bf16 operations a second.
        bandwidth: bytes a second.
        memory: GiB.
        reached: share of `flops` that training, scoring and prefill reach with a very large model.
    """

    flops: float
    bandwidth: float
    memory: float
    reached: float

    def speed(self, model: Model) -> float:
        """Operations a second that a model reaches: small ones leave more of the GPU idle."""
        return self.flops * self.reached * model.params / (model.params + HALF)


DEVICES = {  # NVIDIA's data sheets; no run on an L40S is published
    "h100": Device(989e12, 3.35e12, 80, 0.45),
    "h100-nvl": Device(835e12, 3.9e12, 94, 0.45),
    "h200": Device(989e12, 4.8e12, 141, 0.45),
    "a100": Device(312e12, 2.04e12, 80, 0.60),
    "l40s": Device(362e12, 0.864e12, 48, 0.45),
}


def padding(rows: int) -> float:
    """Positions over tokens of a padded micro-batch, fitted to docs/speed.md's 2 to 32 rows."""
    return 1 + 0.28 * math.log2(max(1, rows))


def forward_flops(model: Model, length: float) -> float:
    """Operations a token of one forward pass over rows of `length` tokens, causal attention."""
    return 2 * model.linear + 2 * model.layers * model.query * length


def pass_seconds(model: Model, gpu: Device, tokens: float, length: float, passes: float) -> float:
    """Seconds for so many times a forward pass over `tokens` of one GPU, backward counts two."""
    return passes * tokens * forward_flops(model, length) / gpu.speed(model)


def update_passes(is_checkpointed: bool, is_full: bool = True) -> int:
    """Forward passes that an update is worth; LoRA needs no gradient of the frozen weights."""
    return 2 + is_full + is_checkpointed


def cache_tokens(model: Model, gpu: Device, share: float, parallel: int = 1) -> float:
    """Tokens whose keys and values fit an engine that has `share` of each of its GPUs."""
    room = parallel * (share * gpu.memory - 2) * 2**30 - 2 * model.params
    return max(0.0, room / model.cached)


def generation_seconds(
    model: Model,
    gpu: Device,
    num: float,
    prompt: float,
    mean: float,
    longest: float,
    cache: float,
    parallel: int = 1,
) -> float:
    """Seconds in which one engine of `parallel` GPUs writes `num` completions.

    Args:
        prompt: tokens of a prompt.
        mean: tokens of a completion; lengths are taken as exponential, cut at `longest`.
        cache: tokens that its cache holds: fewer completions than `num` may run together.
    """
    speed = gpu.speed(model) * parallel
    together = max(1.0, min(num, cache / (prompt + mean)))

    def step(running: float, context: float) -> float:
        return step_bound(model, gpu, running, context, parallel) + OVERHEAD + EACH * running

    full = (num - together) * mean / together * step(together, prompt + mean)
    end = last_end(together, mean, longest)
    times = [(n + 0.5) * end / PIECES for n in range(PIECES)]
    tail = sum(step(together * math.exp(-t / mean), prompt + t) for t in times)
    return num * prompt * forward_flops(model, prompt) / speed + full + tail * end / PIECES


def loop_seconds(
    model: Model, gpu: Device, num: float, rows: int, prompt: float, mean: float, longest: float
) -> float:
    """Seconds in which transformers writes `num` completions, `rows` at a time.

    A batch lasts until its longest completion ends; the next one starts after it.
    """
    rows = max(1, min(rows, math.ceil(num)))
    end = last_end(rows, mean, longest)
    step = max(LOOP * model.layers, step_bound(model, gpu, rows, prompt + end / 2))
    prefill = num * prompt * forward_flops(model, prompt) / gpu.speed(model)
    return prefill + math.ceil(num / rows) * end * step


def step_bound(
    model: Model, gpu: Device, running: float, context: float, parallel: int = 1
) -> float:
    """Seconds of one token of each running completion, by bandwidth or operations alone."""
    read = 2 * model.params + model.cached * running * context
    computed = running * forward_flops(model, 0) / gpu.speed(model)
    return max(read / (BANDWIDTH * gpu.bandwidth), computed) / parallel


def last_end(num: float, mean: float, longest: float) -> float:
    """Expected tokens of the longest of `num` completions of exponential lengths."""
    return min(longest, mean * (math.log(num) + 0.5772))
