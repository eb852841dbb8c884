"""Attention of rows that lie end to end in one, by torch's SDPA and without a mask of T x T.

transformers' `sdpa` keeps such rows apart by a dense mask, whose cost grows with the square of all
T tokens, and which only slow kernels of SDPA take. FlashAttention is a package of its own. Here
each row is a call of SDPA, so that the work is that of the rows alone. All else is as with `sdpa`.
"""

from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from pipeline.console import is_main_process

NAME = "sdpa_by_row"  # as a model's attn_implementation
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
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' `sdpa`; rows end to end, (1, H, T, D), attend each to itself.

    Args:
        attention_mask: what `lengths_or_mask` gave.
    """
    if attention_mask is None or attention_mask.ndim > 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    window, *lengths = attention_mask.tolist()
    rows = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
    found = [
        sdpa_attention_forward(module, q, k, v, window_mask(q, window), **kwargs)[0]
        for q, k, v in rows
    ]
    return torch.cat(found, dim=1), None


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
    is_set = model.config._attn_implementation == NAME
    is_apart = is_set and is_main_process() and keeps_rows_apart(model)
    (is_apart,) = broadcast_object_list([is_apart])
    if not is_apart:
        model.set_attn_implementation("sdpa")
    return is_apart


@torch.no_grad()
def keeps_rows_apart(model: Any) -> bool:
    """Whether rows end to end get the hidden states that each gets alone."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    rows = [torch.arange(3, 3 + n, device=device).unsqueeze(0) for n in LENGTHS]
    positions = [torch.arange(n, device=device).unsqueeze(0) for n in LENGTHS]
    try:
        alone = [model.base_model(input_ids=row, use_cache=False)[0] for row in rows]
        together = model.base_model(
            input_ids=torch.cat(rows, 1), position_ids=torch.cat(positions, 1), use_cache=False
        )[0]
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
        return False  # it takes no positions, or reads masks itself
    finally:
        model.train(was_training)
    difference = (torch.cat(alone, 1) - together).abs().max()
    return bool(difference <= TOLERANCE.get(together.dtype, EXACT) * together.abs().max())
