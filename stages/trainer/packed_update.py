"""The GRPO update without its padding: rows of similar length go through the model together.

TRL runs a micro-batch as one rectangle: B rows of P prompt tokens, padded on the left, and C
completion tokens, padded on the right, both as long as the longest of the generation batch. Here,
with `update_tokens`, each row is cut down to its own tokens, and what comes out is put back where
TRL expects it. Loss and gradient are TRL's but for the rounding. Metrics that TRL averages over
micro-batches (entropy, KL, clip shares) weigh the rows differently where they are sorted. Three
things save time:

- the rows of an optimizer step are sorted by length, so that a micro-batch holds similar ones;
- a micro-batch, of the update as of the old and the reference log-probs, is run in several forward
  passes of at most `update_tokens` tokens. They are kept until the one backward pass, so memory
  follows a micro-batch's own tokens. With FlashAttention a pass is packed and has no padding;
- rows whose advantage is 0 have no gradient where there is neither KL nor entropy bonus; they run
  under no_grad, for the metrics: 63 % of the groups in a published run.

Positions start at each row's first token, as in generation; TRL counts the padding before it, too,
which is the same only for models with relative positions (RoPE).
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

FIELDS = ("log_probs", "entropy")  # of TRL's fused head, one value for each token but a row's first


def plan_passes(lengths: Sequence[int], max_tokens: int, is_padded: bool) -> list[list[int]]:
    """Rows of each forward pass, longest first.

    Args:
        lengths: of each row, tokens.
        max_tokens: of one pass; a longer row goes alone.
        is_padded: whether the rows of a pass are padded to its longest and the padding counts.
    """
    passes: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        last = [*passes[-1], row] if passes else [row]
        size = lengths[last[0]] * len(last) if is_padded else sum(lengths[i] for i in last)
        if passes and size <= max_tokens:
            passes[-1].append(row)
        else:
            passes.append([row])
    return passes


def sort_rows(batches: list[dict[str, Any]], window: int) -> list[dict[str, Any]]:
    """The same rows with those of similar length in one micro-batch, longest first.

    Rows move only within `window` consecutive micro-batches, those of one optimizer step: the sum
    of their gradients stays what it was.

    Args:
        batches: micro-batches of TRL, all with the same keys and number of rows.
        window: micro-batches; divides their number.
    """
    ordered = []
    for first in range(0, len(batches), window):
        group = batches[first : first + window]
        num_rows = len(group[0]["completion_mask"])
        lengths = torch.cat([b["prompt_mask"].sum(1) + b["completion_mask"].sum(1) for b in group])
        order = lengths.argsort(descending=True, stable=True)
        for part in order.split(num_rows):
            ordered.append({key: take([b[key] for b in group], part) for key in group[0]})
    return ordered


def take(values: list[Any], rows: torch.Tensor) -> Any:
    """Rows of the values of several micro-batches put together; what has no rows is the same."""
    first = values[0]
    if isinstance(first, torch.Tensor) and first.ndim:
        return torch.cat(values)[rows]
    if isinstance(first, list):
        joined = [item for value in values for item in value]
        return [joined[row] for row in rows.tolist()]
    return first


@dataclass
class PackedForward:
    """Stands in for the model where TRL asks for per-token log-probs; runs it in several passes.

    Args:
        model: TRL's, with its fused head, wrapped or not.
        max_tokens: of a pass.
        is_packed: whether a pass is one row without padding, its parts told apart by
            `position_ids` (FlashAttention); otherwise rows are padded to the longest of the pass.
        agree: number of passes with and without gradient, shape (2,), int -> the highest of all
            processes. Sharded and replicated models exchange data in every pass, so all processes
            must make as many; those with fewer rows make them with two tokens.
        has_gradient: rows whose gradient can differ from 0, bool, shape (B,); None for all. The
            others go through without one.
    """

    model: Callable[..., Any]
    max_tokens: int
    is_packed: bool
    agree: Callable[[torch.Tensor], torch.Tensor]
    has_gradient: torch.Tensor | None = None
    num_passes: list[int] = field(default_factory=list)  # with and without gradient, last call

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **kwargs
    ) -> SimpleNamespace:
        """Log-probs and, where the head gives it, entropy of every label, shapes (B, L - 1).

        Args:
            input_ids, attention_mask: shape (B, L); the tokens of a row lie side by side.
            labels: shape (B, L), -100 where none is asked for.
            kwargs: for the model, in every pass.
        """
        lengths = attention_mask.sum(dim=1)  # (B,)
        starts = attention_mask.argmax(dim=1)  # (B,)
        offsets = torch.arange(input_ids.size(1), device=input_ids.device)
        columns = [offsets[:n] + start for n, start in zip(lengths.tolist(), starts, strict=True)]
        parts: dict[str, list[torch.Tensor]] = {name: [] for name in FIELDS}
        places, zero = [], 0.0
        for rows, is_graded in self._passes(lengths):
            # Two tokens of the first row where there is nothing to do but to keep in step.
            chosen = [(row, columns[row]) for row in rows] or [(0, columns[0][:2])]
            with nullcontext() if is_graded else torch.no_grad():
                outputs = self.model(
                    **self._inputs(input_ids, labels, chosen), **kwargs
                )  # (b, W - 1) each, or (1, T - 1) packed
            if not rows:
                zero = zero + outputs.log_probs.sum() * 0.0
                continue
            is_scored = self._is_scored(chosen, outputs.log_probs)
            for name in FIELDS:
                if getattr(outputs, name) is not None:
                    parts[name].append(getattr(outputs, name)[is_scored])
            places.extend((cols[1:] - 1) + row * (input_ids.size(1) - 1) for row, cols in chosen)
        place = torch.cat(places)
        shape = (input_ids.size(0), input_ids.size(1) - 1)
        values = {
            name: part[0]
            .new_zeros(shape)
            .flatten()
            .index_put((place,), torch.cat(part))
            .view(shape)
            for name, part in parts.items()
            if part
        }
        return SimpleNamespace(
            log_probs=values["log_probs"] + zero, entropy=values.get("entropy"), aux_loss=None
        )

    def _passes(self, lengths: torch.Tensor) -> list[tuple[list[int], bool]]:
        """Rows of each pass, and whether it has a gradient; those with one go first.

        The order matters under autocast, which keeps the weights that it casts: cast without a
        gradient first, they would have none later in the same context.
        """
        if self.has_gradient is None:
            graded = torch.ones_like(lengths, dtype=torch.bool)
        else:
            graded = self.has_gradient.clone()
            if not graded.any():  # every process has to go backward through every weight
                graded[lengths.argmin()] = True
        passes = []
        for mask in (graded, ~graded):
            rows = mask.nonzero().flatten().tolist()
            planned = plan_passes(lengths[rows].tolist(), self.max_tokens, not self.is_packed)
            passes.append([[rows[i] for i in members] for members in planned])
        counts = torch.tensor([len(part) for part in passes], device=lengths.device)
        self.num_passes = self.agree(counts).tolist()
        return [
            (part[i] if i < len(part) else [], is_graded)
            for part, number, is_graded in zip(passes, self.num_passes, (True, False), strict=True)
            for i in range(number)
        ]

    def _inputs(
        self,
        input_ids: torch.Tensor,
        labels: torch.Tensor,
        chosen: list[tuple[int, torch.Tensor]],
    ) -> dict[str, torch.Tensor]:
        """The model's inputs for these columns of these rows: (b, W) padded, or (1, T) packed."""
        tokens = [input_ids[row, cols] for row, cols in chosen]
        asked = [labels[row, cols] for row, cols in chosen]
        positions = [torch.arange(len(part), device=input_ids.device) for part in tokens]
        if self.is_packed:
            for part in asked:
                part[0] = -100  # the row before cannot foretell it
            return {
                "input_ids": torch.cat(tokens).unsqueeze(0),
                "position_ids": torch.cat(positions).unsqueeze(0),
                "labels": torch.cat(asked).unsqueeze(0),
            }
        return {
            "input_ids": pad_sequence(tokens, batch_first=True),
            "attention_mask": pad_sequence(
                [torch.ones_like(part) for part in tokens], batch_first=True
            ),
            "labels": pad_sequence(asked, batch_first=True, padding_value=-100),
        }

    def _is_scored(
        self, chosen: list[tuple[int, torch.Tensor]], log_probs: torch.Tensor
    ) -> torch.Tensor:
        """Which values of a pass are of a row's second to last token; in the order of `chosen`."""
        sizes = torch.tensor([len(cols) for _, cols in chosen], device=log_probs.device)
        if not self.is_packed:
            width = torch.arange(log_probs.size(1), device=log_probs.device)
            return width < (sizes - 1).unsqueeze(1)
        is_scored = torch.ones_like(log_probs, dtype=torch.bool)
        is_scored[0, sizes.cumsum(0)[:-1] - 1] = False  # from one row's end to the next's start
        return is_scored
