"""torch's `varlen_attn` on a CPU, in plain torch, by what its documentation promises.

It refuses what the kernel would read beyond, and types that it does not take.
"""

from itertools import pairwise

import torch
from torch.nn.functional import scaled_dot_product_attention


def varlen_attn(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *,
    scale=None, window_size=(-1, -1), enable_gqa=False, end_aligned=True,
):  # fmt: skip
    """Of shape (T, H, D). The last query sees the last key, or else the first the first."""
    for tokens, ends, longest in ((query, cu_seq_q, max_q), (key, cu_seq_k, max_k)):
        assert ends.dtype == torch.int32 and (ends[0], ends[-1]) == (0, len(tokens))
        assert longest == ends.diff().max() and tokens.stride(-1) == 1
    assert query.dtype == key.dtype == value.dtype and len(key) == len(value)
    if query.size(1) != key.size(1) and not enable_gqa:
        raise ValueError("Expect query and key/value to have the same number of heads")
    parts, (left, right) = [], window_size
    for (a, b), (c, d) in zip(
        pairwise(cu_seq_q.tolist()), pairwise(cu_seq_k.tolist()), strict=True
    ):
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (query[a:b], key[c:d], value[c:d]))
        late = (d - c) - (b - a) if end_aligned else 0
        distance = torch.arange(d - c) - torch.arange(b - a).unsqueeze(1) - late  # of key to query
        seen = torch.ones_like(distance, dtype=torch.bool)
        if right >= 0:
            seen &= distance <= right
        if left >= 0:
            seen &= distance >= -left
        found = scaled_dot_product_attention(q, k, v, seen, scale=scale, enable_gqa=enable_gqa)
        parts.append(found.squeeze(0).transpose(0, 1))
    return torch.cat(parts)


def install(monkeypatch, **changes):
    """Let `rows_apart` take it on a CPU and in float32; returns what grows by each call's rows."""
    from stages.trainer import rows_apart

    calls = []

    def counted(query, key, value, cu_seq_q, *args, **kwargs):
        calls.append(cu_seq_q.diff().tolist())
        return varlen_attn(query, key, value, cu_seq_q, *args, **kwargs, **changes)

    monkeypatch.setattr(rows_apart, "varlen_attn", counted)
    monkeypatch.setattr(rows_apart, "has_varlen", lambda device, dtype: True)
    return calls
