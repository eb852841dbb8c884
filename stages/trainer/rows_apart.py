"""Attention of rows that lie end to end in one, without padding and without a mask of T x T.

transformers' `sdpa` keeps such rows apart by a dense mask, whose cost grows with the square of all
T tokens, and which only slow kernels of SDPA take. FlashAttention is a package of its own. Here are
two ways without either:

- `varlen`: torch's own `varlen_attn` (torch 2.13), one call a layer for all rows. It runs on CUDA
  in 16 bit. A trial on the device at hand decides whether it is taken.
- `sdpa_by_row`: one call of SDPA for each row, everywhere.

Rows that start alike can share the start: it lies before them once, and each row sees it and
itself. Where a row ends is known on the host, so no layer has to ask the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from pipeline.console import is_main_process

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before torch 2.13, which a GPU host may bring
    varlen_attn = None

BY_ROW, VARLEN = "sdpa_by_row", "varlen"  # as a model's attn_implementation
NAMES = (BY_ROW, VARLEN)
LENGTHS = (5, 1, 8)  # of the rows that `keeps_rows_apart` compares
FAR = 1 << 17  # tokens, longer than any window
SHORT = 3  # tokens, the longest window in a trial, so that rows are longer
# Of the last hidden states, relative to their largest. Real models differ by much more where rows
# see each other.
EXACT = 1e-4
TOLERANCE = {torch.float16: 0.02, torch.bfloat16: 0.05}


@dataclass(frozen=True)
class Pieces:
    """Tokens that lie end to end in one row: rows, or the starts and ends of rows.

    Args:
        lengths: tokens of each piece.
        after: which piece each sees before itself, the start of its row; -1: none.
        keys: places of the tokens that the pieces see, piece by piece, on the device, shape (K,);
            None where each piece sees itself alone.
    """

    lengths: list[int]
    after: list[int]
    keys: torch.Tensor | None = None


class EndToEnd(torch.Tensor):
    """A mask of ones, (1, T): no token is padding, and `Pieces` has the rows."""


def on_device(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A copy of the host's values; neither waits for the other."""
    found = torch.as_tensor(values, dtype=dtype)
    if device.type == "cuda":  # from other memory the driver may wait for the stream
        found = found.pin_memory()
    return found.to(device, non_blocking=True)


def model_inputs(lengths: list[int], after: list[int], device: torch.device) -> dict[str, Any]:
    """Arguments of a model that say where the pieces of its one row are; see `Pieces`.

    Four are those of transformers and TRL for FlashAttention: ends of the queries and the keys,
    int32, (1 + pieces,), and the longest of each.
    """
    ends = list(accumulate(lengths))
    seen = [n + (lengths[at] if at >= 0 else 0) for n, at in zip(lengths, after, strict=True)]
    keys = None
    if any(at >= 0 for at in after):
        spans = [range(end - n, end) for n, end in zip(lengths, ends, strict=True)]
        parts = [[*(spans[at] if at >= 0 else ()), *spans[i]] for i, at in enumerate(after)]
        keys = on_device([place for part in parts for place in part], device)
    return {
        "cu_seq_lens_q": on_device([0, *ends], device, torch.int32),
        "cu_seq_lens_k": on_device([0, *accumulate(seen)], device, torch.int32),
        "max_length_q": max(lengths),
        "max_length_k": max(seen),
        "pieces": Pieces(lengths, after, keys),
    }


def say_end_to_end(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple:
    """Before a model's layers: no mask has to be made from positions, which lie on the device."""
    positions = kwargs.get("position_ids")
    is_ours = module.config._attn_implementation in NAMES and "cu_seq_lens_q" in kwargs
    if is_ours and positions is not None and kwargs.get("attention_mask") is None:
        ones = torch.ones(positions.shape, dtype=torch.bool, device=positions.device)
        kwargs["attention_mask"] = ones.as_subclass(EndToEnd)
    return args, kwargs


def window_or_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., torch.Tensor] = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    **kwargs: Any,
) -> torch.Tensor | None:
    """The window of rows end to end, int, (1,), on the host; 0: none. Else what `sdpa` would get.

    transformers says which tokens a layer sees within `mask_function` alone.
    """
    if isinstance(attention_mask, EndToEnd):
        tokens = torch.arange(FAR)
        seen = mask_function(0, 0, tokens[-1], tokens)
        window = 0 if seen.all() else int(seen.sum())
        if window:  # the one behind the first `window` tokens must see all of them but the first
            seen_early = mask_function(0, 0, tokens[window], tokens[: window + 1])
            if not seen[-window:].all() or int(seen_early.sum()) != window:
                raise ValueError("this attention has another form than a window, such as chunks")
        return torch.tensor([window])
    return sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
        kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask, **kwargs,
    )  # fmt: skip


def by_row(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    pieces: Pieces | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' `sdpa`; pieces end to end, (1, H, T, D), each by a call of its own.

    The queries of a start come along with each row that sees it, so that no row needs a mask: what
    is shared is the work of all other layers.

    Args:
        attention_mask: what `window_or_mask` gave.
        pieces: missing where the caller knows none but rows, such as TRL's of SFT.
    """
    if attention_mask is None or attention_mask.ndim > 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    if pieces is None:
        lengths = kwargs["cu_seq_lens_q"].diff().tolist()
        pieces = Pieces(lengths, [-1] * len(lengths))
    parts = [part.split(pieces.lengths, dim=2) for part in (query, key, value)]
    found = []
    for i, (length, start) in enumerate(zip(pieces.lengths, pieces.after, strict=True)):
        q, k, v = (
            part[i] if start < 0 else torch.cat([part[start], part[i]], dim=2) for part in parts
        )
        mask = window_mask(q, int(attention_mask))
        seen = sdpa_attention_forward(module, q, k, v, mask, **kwargs)[0]  # (1, L, H, D)
        found.append(seen[:, q.size(2) - length :])
    return torch.cat(found, dim=1), None


def window_mask(query: torch.Tensor, window: int) -> torch.Tensor | None:
    """Which of a row's L tokens see which, bool, (1, 1, L, L); None where they see all before."""
    length = query.size(2)
    if not window or length <= window:
        return None
    seen = torch.ones(1, 1, length, length, dtype=torch.bool, device=query.device)
    return seen.tril().triu(1 - window)


def by_varlen(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    pieces: Pieces | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    max_length_q: int = 0,
    max_length_k: int = 0,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As `by_row`, all pieces in one call: each completion's queries see its prompt's keys."""
    if attention_mask is None or attention_mask.ndim != 1 or dropout:
        given = {"cu_seq_lens_q": cu_seq_lens_q, "dropout": dropout, "scaling": scaling, **kwargs}
        return by_row(module, query, key, value, attention_mask, pieces, **given)
    half = query.dtype
    if torch.is_autocast_enabled(query.device.type):  # which knows SDPA, but not this
        half = torch.get_autocast_dtype(query.device.type)
    q, k, v = (part[0].transpose(0, 1).to(half) for part in (query, key, value))  # (T, H, D)
    if pieces is not None and pieces.keys is not None:
        k, v = k[pieces.keys], v[pieces.keys]
    window = int(attention_mask)
    left = window - 1 if 0 < window < max_length_k else -1
    found = varlen_attn(
        q, k, v, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k, scale=scaling,
        window_size=(left, 0), enable_gqa=q.size(1) != k.size(1),
    )  # fmt: skip
    return found.unsqueeze(0), None


def has_varlen(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch can have `varlen_attn` there at all."""
    return varlen_attn is not None and device.type == "cuda" and dtype in TOLERANCE


class Trial:
    """Attention by row that also tries `varlen` on the same heads, on the device of the training.

    Args:
        device, dtype: what the layers will compute on and in.

    Attributes:
        is_equal: whether outputs and gradients of all calls were equal, up to rounding.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.is_equal = has_varlen(device, dtype)

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        pieces: Pieces | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """As `by_row`."""
        if pieces is not None and self.is_equal:
            given = kwargs | model_inputs(pieces.lengths, pieces.after, self.device)
            window = attention_mask.clamp(max=SHORT)  # type: ignore[union-attr]
            try:
                one, other = (
                    self._outputs_and_gradients(
                        attend, (query, key, value), module, window, **given
                    )
                    for attend in (by_row, by_varlen)
                )
                self.is_equal = all(are_close(*pair) for pair in zip(other, one, strict=True))
            except (RuntimeError, ValueError, NotImplementedError):  # a head size that it refuses
                self.is_equal = False
        return by_row(module, query, key, value, attention_mask, pieces, **kwargs)

    def _outputs_and_gradients(
        self, attend: Callable[..., tuple], parts: Sequence[torch.Tensor], module: Any, mask: Any,
        **kwargs: Any,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Outputs, and gradients of queries, keys and values, each flat."""
        with torch.enable_grad():
            copies = [part.detach().to(self.device, self.dtype).requires_grad_() for part in parts]
            output = attend(module, *copies, mask, **kwargs)[0]
            weights = torch.linspace(-1, 1, output.numel(), device=self.device, dtype=self.dtype)
            (output.flatten() * weights).sum().backward()
        return [output.detach().flatten(), *(copy.grad.flatten() for copy in copies)]


def are_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether values are equal up to the rounding of their precision; what is not finite is not."""
    allowed = TOLERANCE.get(expected.dtype, EXACT) * expected.abs().max()
    return bool((found - expected).abs().max() <= allowed)


def use(model: Any, device: torch.device, dtype: torch.dtype) -> bool:
    """Let a model with `sdpa` keep rows apart, by `varlen` where that works; whether it does.

    A model that has its own ideas of masks, or a state that goes from token to token, is left as it
    is. So is one under ZeRO-3, whose weights are elsewhere.

    Args:
        device, dtype: what its layers will compute on and in.
    """
    if is_deepspeed_zero3_enabled() or model.config._attn_implementation != "sdpa":
        return False
    if name := best_attention(model, keeps_rows_apart, device, dtype):
        set_attention(model, name)
    return bool(name)


def shares_prompts(model: Any, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether rows of a model that `use` has changed can share their starts, too.

    A window would have to be counted from each row's own tokens, so models that have one do not.
    With `varlen` the device must have shown that it lets the last query see the last key.
    """
    caches = DynamicCache(config=model.config.get_text_config()).layers
    sees_all = all(type(layer) is DynamicLayer for layer in caches)
    allowed = (VARLEN, model.config._attn_implementation)
    return sees_all and best_attention(model, shares_starts, device, dtype) in allowed


def best_attention(
    model: Any, is_equal: Callable[[Any], bool], device: torch.device, dtype: torch.dtype
) -> str:
    """`varlen`, else `sdpa_by_row` where that alone passes `is_equal`, else "".

    The main process decides, as all must make the same passes; others may not have the weights yet.
    """
    found, before = "", model.config._attn_implementation
    if is_main_process():
        trial = Trial(device, dtype)
        set_attention(model, BY_ROW, trial.attend)
        if model.config._attn_implementation == BY_ROW and is_equal(model):
            found = VARLEN if trial.is_equal else BY_ROW
        set_attention(model, before)
    return broadcast_object_list([found])[0]


def computed_in(args: Any, model: Any) -> torch.dtype:
    """What a model's layers compute in, given the `TrainingArguments`."""
    if args.bf16 or args.fp16:
        return torch.bfloat16 if args.bf16 else torch.float16
    return model.dtype


def set_attention(model: Any, name: str, attend_by_row: Callable[..., tuple] = by_row) -> None:
    """Give a model the attention `name`, one of `NAMES` or one of transformers."""
    for ours, attend in ((BY_ROW, attend_by_row), (VARLEN, by_varlen)):
        AttentionInterface.register(ours, attend)
        AttentionMaskInterface.register(ours, window_or_mask)
    model.set_attn_implementation(name)
    base = model.base_model
    if say_end_to_end not in base._forward_pre_hooks.values():
        base.register_forward_pre_hook(say_end_to_end, with_kwargs=True)


def all_agree(ask: Callable[[Any], bool], model: Any) -> bool:
    """The main process's answer, on all processes."""
    (answer,) = broadcast_object_list([is_main_process() and ask(model)])
    return answer


def keeps_rows_apart(model: Any) -> bool:
    """Whether rows end to end get the hidden states that each gets alone."""
    pieces = [(0, n, -1) for n in LENGTHS]
    return are_equal(model, pieces, [[i] for i in range(len(pieces))])


def shares_starts(model: Any) -> bool:
    """Whether rows that share a start get the hidden states that each gets alone."""
    return are_equal(model, [(0, 5, -1), (5, 3, 0), (5, 8, 0)], [[0, 1], [0, 2]])


@torch.no_grad()
def are_equal(model: Any, pieces: list[tuple[int, int, int]], rows: list[list[int]]) -> bool:
    """Whether pieces that lie end to end get the hidden states that each row gets alone.

    Args:
        pieces: first position, number of tokens, and the piece that it sees before itself or -1.
        rows: the pieces of each row.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    tokens, positions = [], []
    for i, (first, length, _) in enumerate(pieces):
        tokens.append(torch.arange(3 + i, 3 + i + length, device=device).unsqueeze(0))
        positions.append(torch.arange(first, first + length, device=device).unsqueeze(0))
    lengths = [length for _, length, _ in pieces]
    try:
        together = model.base_model(
            input_ids=torch.cat(tokens, 1), position_ids=torch.cat(positions, 1), use_cache=False,
            **model_inputs(lengths, [after for *_, after in pieces], device),
        )[0]  # fmt: skip
        parts = together.split(lengths, dim=1)
        for row in rows:
            ids = torch.cat([tokens[i] for i in row], 1)
            alone = model.base_model(input_ids=ids, use_cache=False)[0]
            if not are_close(torch.cat([parts[i] for i in row], 1), alone):
                return False
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, KeyError):
        return False  # it takes no positions, reads masks itself, or does not hand `pieces` on
    finally:
        model.train(was_training)
    return True
