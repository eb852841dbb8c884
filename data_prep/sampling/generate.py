"""Generation with transformers' models that does not repeat work; the fast way without vLLM.

`model.generate` stays the entry: it reads the settings and builds the logits processors, and hands
its loop over to `decode` (its argument `custom_generate`). Three things differ there:

- A prompt that stands in several rows, as the rollouts of a group, is read once.
- A row that has ended leaves the batch. transformers computes it until the last row has ended.
- Keys and values are written into room that is there. transformers copies all of them for each
  token. With grouped-query attention it copies them again, for each head of the queries.

Greedy completions are equal up to the arithmetic of the model, and sampled ones have the same
distribution. They are other samples for the same seed.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    Cache,
    DynamicCache,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)
from transformers.cache_utils import DynamicLayer
from transformers.integrations import is_deepspeed_zero3_enabled, is_fsdp_managed_module
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from pipeline.models import dropout

NAME = "sdpa_by_key_head"  # as a model's attn_implementation
ROOM = 128  # tokens by which the room for keys and values grows
# What the settings may ask for; with any other, such as beams, transformers' own loop is used.
KNOWN_SETTINGS = {
    "max_new_tokens", "do_sample", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "suppress_tokens", "sequence_bias", "bos_token_id", "eos_token_id", "pad_token_id",
    "disable_compile", "transformers_version", "_from_model_config", "_commit_hash",
}  # fmt: skip
ROW_BY_ROW = (TemperatureLogitsWarper, TopPLogitsWarper)  # processors that a caller may add
KNOWN_ARGUMENTS = {"input_ids", "attention_mask", "generation_config", "logits_processor"}
NEEDED = {"attention_mask", "position_ids", "past_key_values", "logits_to_keep"}  # of `forward`


class RowProcessor(LogitsProcessor):
    """A logits processor that knows the rows of the batch apart."""

    def keep(self, rows: torch.Tensor) -> None:
        """The batch is now these of its rows, in this order."""
        raise NotImplementedError


def generate(model: Any, **kwargs: Any) -> torch.Tensor:
    """As `model.generate`, by `decode` where that can be."""
    return model.generate(**kwargs, **loop_of(model, kwargs))


@contextmanager
def fast_generate(model: Any) -> Iterator[None]:
    """Let calls of `model.generate` within the block, TRL's for one, be as those of `generate`."""
    before = model.generate

    def call(**kwargs: Any) -> torch.Tensor:
        return before(**kwargs, **loop_of(model, kwargs))

    is_changed = "generate" in vars(model)  # by someone else
    model.generate = call
    try:
        yield
    finally:
        del model.generate
        if is_changed:
            model.generate = before


def loop_of(model: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What to add to the arguments of a model's `generate`."""
    return {"custom_generate": decode} if applies(model, kwargs) else {}


def applies(model: Any, kwargs: dict[str, Any]) -> bool:
    """Whether `decode` can stand in for transformers' loop with a model and these arguments.

    It needs a decoder whose whole state are the keys and values of all tokens: no encoder, sliding
    window or recurrent state. The weights must be whole on this process.
    """
    config = model.config.get_text_config(decoder=True)
    settings, values = kwargs.get("generation_config"), dict(kwargs)
    asked = {name for name in values if hasattr(GenerationConfig(), name)}
    for one in (settings, model.generation_config):
        asked |= one.to_diff_dict().keys() if one is not None else set()
    processors = kwargs.get("logits_processor") or ()
    prepare = type(model).prepare_inputs_for_generation  # Phi-3's may drop the cache
    rotary = getattr(config, "rope_parameters", None) or {}
    return (
        asked <= KNOWN_SETTINGS
        and values.keys() - asked <= KNOWN_ARGUMENTS
        and values.keys() >= {"input_ids", "attention_mask"}
        and all(isinstance(one, (RowProcessor, *ROW_BY_ROW)) for one in processors)
        and type(model).generate is GenerationMixin.generate
        and prepare is GenerationMixin.prepare_inputs_for_generation
        and config is model.config  # else it also reads images or sound
        and not config.is_encoder_decoder
        and not model._is_stateful
        # Rotary positions that depend on the batch's longest row, which may leave.
        and rotary.get("rope_type") not in ("longrope", "dynamic")
        and inspect.signature(model.forward).parameters.keys() >= NEEDED
        and all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
        # Dropout would drop the same of all rollouts that share a prompt.
        and not (model.training and (model.is_gradient_checkpointing or dropout.find(model)))
        and not is_deepspeed_zero3_enabled()
        and not is_fsdp_managed_module(model)  # nor by accelerate's FSDP2:
        and not any(isinstance(weight, DTensor) for weight in model.parameters())
    )


class Room(DynamicLayer):
    """Keys and values of one layer, in tensors with room for more tokens: (B, heads, room, D)."""

    def __init__(self, prompts: DynamicLayer, rows: list[int]) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = prompts.dtype, prompts.device, True
        self._hold(prompts.keys[rows], prompts.values[rows])

    def _hold(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put T tokens of B rows, (B, heads, T, D), into new room."""
        self._length = keys.size(2)
        self._rooms = []
        for part in (keys, values):
            num_rows, num_heads, _, size = part.shape
            room = part.new_empty(num_rows, num_heads, self._length + ROOM, size)
            room[:, :, : self._length] = part
            self._rooms.append(room)
        self._show(len(keys))

    def _show(self, num_rows: int) -> None:
        self.keys, self.values = (room[:num_rows, :, : self._length] for room in self._rooms)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the next token's, (B, heads, 1, D); returns those of all tokens."""
        if self._length == self._rooms[0].size(2):
            self._hold(self.keys, self.values)
        num_rows = len(key_states)
        for room, states in zip(self._rooms, (key_states, value_states), strict=True):
            room[:num_rows, :, self._length] = states[:, :, 0]
        self._length += 1
        self._show(num_rows)
        return self.keys, self.values

    def keep(self, num_rows: int, holes: torch.Tensor, last: torch.Tensor) -> None:
        """Keep the first rows, the `holes` among them filled with the rows `last`."""
        for part in (self.keys, self.values):
            part[holes.to(part.device)] = part[last.to(part.device)]
        self._show(num_rows)


def decode(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: Any,
    generation_config: GenerationConfig,
    **kwargs: Any,
) -> torch.Tensor:
    """What transformers' `generate` calls for its loop.

    Args:
        input_ids: prompts, padded on the left, (B, P).
        kwargs: `attention_mask` and `position_ids`, (B, P), and the empty cache.

    Returns:
        Prompts and completions, padded on the right, (B, P + C).
    """
    num_rows, prompt_length = input_ids.shape
    mask, positions = kwargs["attention_mask"], kwargs["position_ids"]
    rows = torch.cat([input_ids, mask], dim=1).tolist()
    found: dict[tuple[int, ...], int] = {}
    prompt_of = [found.setdefault(tuple(row), len(found)) for row in rows]  # B numbers below N
    first = [prompt_of.index(number) for number in range(len(found))]
    cache: Cache = kwargs["past_key_values"]

    def next_logits(**inputs: torch.Tensor) -> torch.Tensor:
        how = {"use_cache": True, "logits_to_keep": 1, "return_dict": True}
        out = model(**inputs, past_key_values=cache, **how)
        return out.logits[:, -1].to(input_ids.device, torch.float32)

    logits = next_logits(
        input_ids=input_ids[first], attention_mask=mask[first], position_ids=positions[first]
    )[prompt_of]  # (B, V)
    cache.layers = [Room(layer, prompt_of) for layer in cache.layers]

    num_new = generation_config.max_length - prompt_length
    pad = generation_config.pad_token_id
    whole = input_ids.new_full((num_rows, prompt_length + num_new), pad or 0)
    whole[:, :prompt_length] = input_ids
    mask = torch.cat([mask, mask.new_ones(num_rows, num_new)], dim=1)
    live = torch.arange(num_rows, device=input_ids.device)  # the rows of the batch, (B',)
    with grouped_attention(model):
        for length in range(prompt_length, prompt_length + num_new):
            scores = logits_processor(whole[live, :length], logits)
            is_sampled = generation_config.do_sample
            tokens = draw(scores) if is_sampled else scores.argmax(dim=-1)  # (B',)
            whole[live, length] = tokens
            is_done = stopping_criteria(whole[live, : length + 1], scores)
            if is_done.all():
                break
            if is_done.any():
                kept = leave(is_done, cache)
                live, tokens = live[kept], tokens[kept]
                for one in logits_processor:
                    if isinstance(one, RowProcessor):
                        one.keep(kept)
            logits = next_logits(
                input_ids=tokens[:, None],
                attention_mask=mask[live, : length + 1],
                position_ids=positions[live, -1:] + (length + 1 - prompt_length),
            )
    return whole[:, : length + 1]


def leave(is_done: torch.Tensor, cache: Cache) -> torch.Tensor:
    """Take the rows that are done, bool (B,), out of the cache; returns the rows kept, in order."""
    num_rows = int((~is_done).sum())
    kept = torch.arange(num_rows, device=is_done.device)
    # The last rows fill the holes of the first, so that few keys and values are copied.
    holes = is_done[:num_rows].nonzero().flatten()
    last = num_rows + (~is_done[num_rows:]).nonzero().flatten()
    kept[holes] = last
    for layer in cache.layers:
        layer.keep(num_rows, holes, last)
    return kept


def draw(scores: torch.Tensor) -> torch.Tensor:
    """A token for each row of scores, (B, V) -> (B,), with probability softmax(scores).

        token = min { v : P(0) + ... + P(v) > u }        u ~ U[0, 1)

    `torch.multinomial` draws a number for each token of the vocabulary, this one for each row. On
    a CPU that matters; other devices may lack float64.
    """
    probabilities = scores.softmax(dim=-1)
    if scores.device.type != "cpu":
        return torch.multinomial(probabilities, num_samples=1).squeeze(1)
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)  # (B, V)
    if not cumulative[:, -1].isfinite().all():  # in the words of torch.multinomial
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    uniform = torch.rand(len(scores), 1, dtype=torch.float64)
    tokens = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
    return tokens.squeeze(1).clamp(max=scores.size(1) - 1)


@contextmanager
def grouped_attention(model: Any) -> Iterator[None]:
    """Let a model with `sdpa` attend by `attend_by_key_head` within the block."""
    before = model.config._attn_implementation
    if "sdpa" not in before or not model._can_set_attn_implementation():
        yield
        return
    AttentionInterface.register(NAME, attend_by_key_head)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def attend_by_key_head(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' `sdpa`, for one new token of each row, without a copy of keys or values.

    The H query heads that share a key head are its R = H / K queries:
    query (B, H, 1, D) as (B, K, R, D), with keys (B, K, T, D) and a mask (B, 1, 1, T).
    """
    num_rows, num_heads, num_tokens, size = query.shape
    if num_tokens != 1 or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
    by_key_head = query.reshape(num_rows, key.size(1), -1, size)
    if attention_mask is not None:
        attention_mask = attention_mask.expand(-1, -1, by_key_head.size(2), -1)
    output = torch.nn.functional.scaled_dot_product_attention(
        by_key_head, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )  # (B, K, R, D)
    return output.reshape(num_rows, 1, num_heads, -1), None
