"""FlashAttention on a CPU: transformers' own path to it, and kernels that do what its kernels do.

    attn_implementation: flash_on_cpu

What transformers makes of masks, positions and packed rows is its own code, as on a GPU; only the
two functions at its end are these. They take the arguments of flash-attn's, and refuse what a
kernel would read beyond.
"""

from itertools import pairwise

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import modeling_flash_attention_utils as flash
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import flash_attention_mask

NAME = "flash_on_cpu"


def attend(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    """Of shape (B, L, H, D); the last query sees the last key."""
    mask = None
    if causal:
        mask = torch.ones(q.size(1), k.size(1), dtype=torch.bool).tril(k.size(1) - q.size(1))
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    more = {"dropout_p": dropout_p, "scale": softmax_scale, "enable_gqa": True}
    return scaled_dot_product_attention(q, k, v, mask, **more).transpose(1, 2)


def install(monkeypatch):
    """Make `flash_on_cpu` known; returns what grows by the rows' lengths at each packed call."""
    calls = []

    def attend_packed(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        dropout_p=0.0, softmax_scale=None, causal=False,
    ):  # fmt: skip
        """Of shape (T, H, D)."""
        parts, sides = [], ((q, cu_seqlens_q, max_seqlen_q), (k, cu_seqlens_k, max_seqlen_k))
        for tokens, ends, longest in sides:
            assert ends.dtype == torch.int32 and (ends[0], ends[-1]) == (0, len(tokens))
            assert longest >= ends.diff().max()
        calls.append(cu_seqlens_q.diff().tolist())
        for (a, b), (c, d) in zip(*(pairwise(side[1].tolist()) for side in sides), strict=True):
            row = [part.unsqueeze(0) for part in (q[a:b], k[c:d], v[c:d])]
            parts.append(attend(*row, dropout_p, softmax_scale, causal).squeeze(0))
        return torch.cat(parts)

    AttentionInterface.register(NAME, flash_attention_forward)
    AttentionMaskInterface.register(NAME, flash_attention_mask)
    kernels = attend, attend_packed, None, flash._pad_input, flash._unpad_input
    monkeypatch.setattr(flash, "_lazy_imports", lambda *_, **__: kernels)
    monkeypatch.setattr(flash, "_loaded_implementation", None)
    return calls
