"""Attention of rows that lie end to end in one, by torch's SDPA and without a mask of T x T.

transformers' `sdpa` keeps such rows apart by a dense mask, whose cost grows with the square of all
T tokens, and which only slow kernels of SDPA take. FlashAttention is a package of its own. Here
each row is a call of SDPA, so that the work is that of the rows alone. All else is as with `sdpa`.

Rows that start alike can share the start: it lies before them once, and each row sees it and
itself.
"""

from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from pipeline.console import is_main_process

NAME = "sdpa_by_row"  # as a model's attn_implementation
SHARED = "shared_starts"  # argument of a model: `(length, index of its start or -1)` of each piece
LENGTHS = (5, 1, 8)  # of the rows that `keeps_rows_apart` compares
# Of the last hidden states, relative to their largest. Real models differ by much more where rows
# see each other.
EXACT = 1e-4
TOLERANCE = {torch.float16: 0.02, torch.bfloat16: 0.05}


def lengths_or_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., torch.Tensor] = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    allow_is_causal_skip: bool = True,
    **kwargs: Any,
) -> torch.Tensor | None:
    """Window and lengths of rows end to end, int, (1 + rows,); else what `sdpa` would get.

    transformers tells such rows by positions that start again, and says so only within
    `mask_function`: a token that does not see the one before it begins a row. Window 0 is none.
    """
    if batch_size == 1 and attention_mask is None and not allow_is_causal_skip and not q_offset:
        later = torch.arange(1, q_length, device=kwargs.get("device"))
        begins = (~mask_function(0, 0, later, later - 1)).nonzero().flatten() + 1
        bounds = torch.cat([begins.new_zeros(1), begins, begins.new_tensor([q_length])])
        longest = int(bounds.diff().argmax())
        row = torch.arange(int(bounds[longest]), int(bounds[longest + 1]), device=begins.device)
        seen = mask_function(0, 0, row[-1], row)  # by the last token of the longest row
        window = 0 if seen.all() else int(seen.sum())
        if not window or seen[-window:].all():  # else it is no window, such as chunks
            return torch.cat([bounds.new_tensor([window]), bounds.diff()]).cpu()
    return sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
        kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
        allow_is_causal_skip=allow_is_causal_skip, **kwargs,
    )  # fmt: skip


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    shared_starts: list[tuple[int, int]] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' `sdpa`; rows end to end, (1, H, T, D), attend each to itself.

    Args:
        attention_mask: what `lengths_or_mask` gave.
        shared_starts: length of each piece, and which piece it sees before itself; -1: none.
    """
    if shared_starts:
        return attend_with_starts(module, query, key, value, shared_starts, **kwargs), None
    if attention_mask is None or attention_mask.ndim > 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    window, *lengths = attention_mask.tolist()
    rows = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
    found = [
        sdpa_attention_forward(module, q, k, v, window_mask(q, window), **kwargs)[0]
        for q, k, v in rows
    ]
    return torch.cat(found, dim=1), None


def attend_with_starts(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    pieces: list[tuple[int, int]],
    **kwargs: Any,
) -> torch.Tensor:
    """Attention of pieces end to end, shape (1, T, H, D); `pieces` as of `attend`.

    The queries of a start come along with each row that sees it, so that no row needs a mask: what
    is shared is the work of all other layers.
    """
    lengths = [length for length, _ in pieces]
    parts = [part.split(lengths, dim=2) for part in (query, key, value)]
    found = []
    for i, (_, start) in enumerate(pieces):
        own = [i] if start < 0 else [start, i]
        q, k, v = (torch.cat([part[at] for at in own], dim=2) for part in parts)
        seen = sdpa_attention_forward(module, q, k, v, None, **kwargs)[0]  # (1, L, H, D)
        found.append(seen[:, q.size(2) - lengths[i] :])
    return torch.cat(found, dim=1)


def window_mask(query: torch.Tensor, window: int) -> torch.Tensor | None:
    """Which of a row's L tokens see which, bool, (1, 1, L, L); None where they see all before."""
    length = query.size(2)
    if not window or length <= window:
        return None
    seen = torch.ones(1, 1, length, length, dtype=torch.bool, device=query.device)
    return seen.tril().triu(1 - window)


def use(model: Any) -> bool:
    """Let a model with `sdpa` keep rows apart; whether it does.

    A model that has its own ideas of masks, or a state that goes from token to token, is left as it
    is. So is one under ZeRO-3, whose weights are elsewhere. The main process decides, as all must
    make the same passes; others may not have the weights yet.
    """
    if is_deepspeed_zero3_enabled() or model.config._attn_implementation != "sdpa":
        return False
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, lengths_or_mask)
    model.set_attn_implementation(NAME)
    is_apart = model.config._attn_implementation == NAME and all_agree(keeps_rows_apart, model)
    if not is_apart:
        model.set_attn_implementation("sdpa")
    return is_apart


def all_agree(ask: Callable[[Any], bool], model: Any) -> bool:
    """The main process's answer, on all processes."""
    (answer,) = broadcast_object_list([is_main_process() and ask(model)])
    return answer


def shares_prompts(model: Any) -> bool:
    """Whether rows of a model that `use` has changed can share their starts, too.

    A window would have to be counted from each row's own tokens, so models that have one do not.
    """
    caches = DynamicCache(config=model.config.get_text_config()).layers
    sees_all = all(type(layer) is DynamicLayer for layer in caches)
    return sees_all and all_agree(shares_starts, model)


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
    shared = {}
    if any(start >= 0 for *_, start in pieces):
        shared[SHARED] = [(length, start) for _, length, start in pieces]
    try:
        together = model.base_model(
            input_ids=torch.cat(tokens, 1), position_ids=torch.cat(positions, 1), use_cache=False,
            **shared,
        )[0]  # fmt: skip
        parts = together.split(lengths, dim=1)
        for row in rows:
            ids = torch.cat([tokens[i] for i in row], 1)
            alone = model.base_model(input_ids=ids, use_cache=False)[0]
            difference = (alone - torch.cat([parts[i] for i in row], 1)).abs().max()
            if not difference <= TOLERANCE.get(alone.dtype, EXACT) * alone.abs().max():
                return False
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
        return False  # it takes no positions, or reads masks itself
    finally:
        model.train(was_training)
    return True
