"""The policy update where it is not TRL's: no padding, early stop, rounded weights.

**Without padding** (`update_tokens`, docs/speed.md). TRL runs a micro-batch as one rectangle: B
rows of P prompt tokens, padded on the left, and C completion tokens, padded on the right. Both are
as long as the longest of the generation batch. Here each row is cut down to its own tokens. Rows of
similar length go through the model together, in passes of at most `update_tokens` tokens, before
the one backward pass. They lie end to end, with FlashAttention or `rows_apart`; with any other
attention they are padded to the longest of their pass. With `rows_apart` the rollouts of a problem
share their prompt: it goes through the model once for all of them in a pass. Rows without a
gradient run under no_grad. The results are put back where TRL expects them. Loss and gradient equal
TRL's up to rounding.
Positions start at each row's first token, as in generation. TRL counts the padding before it, too;
this is the same only for models with relative positions (RoPE).

**Early stop of a micro-batch** (`max_mean_ratio`, docs/grpo.md). The mean importance ratio of a
micro-batch's completion tokens, over all processes, may exceed the limit or be infinite. Then its
loss is replaced by zero. An optimizer step is skipped if its micro-batches were all dropped, or
if its gradient is not finite: with a gradient of zero Adam would still apply momentum and weight
decay.

**Stochastic rounding** (`stochastic_rounding`, docs/precision.md). torchao's 8-bit AdamW rounds a
new bf16 weight up or down at random, so that its mean is exact. Here every process draws the same
numbers, so that replicas stay equal. A resumed run draws those of an uninterrupted one. Sampling is
not affected.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import TrainerCallback
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from pipeline.errors import UserError
from stages.trainer.rows_apart import SHARED

FIELDS = ("log_probs", "entropy")  # of TRL's fused head, one value for each token but a row's first
Tokens = tuple[int, ...]  # that a row has in common with others; () if it shares nothing


class Piece(NamedTuple):
    """Tokens that lie side by side in a pass: a row's, or the start that several rows share."""

    row: int
    columns: torch.Tensor  # of its tokens, shape (n,)
    after: int = -1  # the piece with the start of the row, whose tokens these see; -1: none


# Without padding


def order_rows(lengths: Sequence[int], starts: Sequence[Tokens]) -> list[int]:
    """The longest row first, each followed by the others of its start, longest first."""
    longest: dict[Tokens, int] = {}
    for start, length in zip(starts, lengths, strict=True):
        longest[start] = max(length, longest.get(start, 0))
    return sorted(
        range(len(lengths)), key=lambda row: (-longest[starts[row]], starts[row], -lengths[row])
    )


def plan_passes(
    lengths: Sequence[int], max_tokens: int, is_padded: bool, starts: Sequence[Tokens] = ()
) -> list[list[int]]:
    """Rows of each forward pass of at most `max_tokens`, longest first; a longer row goes alone.

    Args:
        is_padded: whether the rows of a pass are padded to its longest and the padding counts.
        starts: what rows of a pass have in common counts once; nothing by default.
    """
    starts = starts or [()] * len(lengths)
    passes: list[list[int]] = []
    for row in order_rows(lengths, starts):
        last = [*passes[-1], row] if passes else [row]
        once = sum(map(len, {starts[i] for i in last}))
        packed = once + sum(lengths[i] - len(starts[i]) for i in last)
        size = lengths[last[0]] * len(last) if is_padded else packed
        if passes and size <= max_tokens:
            passes[-1].append(row)
        else:
            passes.append([row])
    return passes


def sort_rows(
    batches: list[dict[str, Any]], window: int, by_prompt: bool = False
) -> list[dict[str, Any]]:
    """The same rows with those of similar length in one micro-batch, longest first.

    Rows move only within `window` consecutive micro-batches, those of one optimizer step: the sum
    of their gradients stays what it was. `window` divides the number of micro-batches.
    `by_prompt`: rows of one prompt stay together.
    """
    ordered = []
    for first in range(0, len(batches), window):
        group = batches[first : first + window]
        lengths = torch.cat([b["prompt_mask"].sum(1) + b["completion_mask"].sum(1) for b in group])
        starts: list[Tokens] = [()] * len(lengths)
        if by_prompt:
            starts = [tuple(row) for b in group for row in b["prompt_ids"].tolist()]
        order = torch.tensor(order_rows(lengths.tolist(), starts), device=lengths.device)
        for rows in order.split(len(group[0]["completion_mask"])):
            ordered.append({key: _take([b[key] for b in group], rows) for key in group[0]})
    return ordered


def _take(values: list[Any], rows: torch.Tensor) -> Any:
    """Rows of the values of several micro-batches put together; what has no rows is the same."""
    if isinstance(values[0], torch.Tensor) and values[0].ndim:
        return torch.cat(values)[rows]
    if isinstance(values[0], list):
        joined = [item for value in values for item in value]
        return [joined[row] for row in rows.tolist()]
    return values[0]


@dataclass
class PackedForward:
    """Runs the model in several passes where TRL asks it for per-token log-probs.

    Args:
        is_packed: whether the rows of a pass lie end to end in one, told apart by `position_ids`;
            otherwise they are padded to the longest of the pass.
        agree: number of passes with and without gradient, shape (2,), int -> the highest of all
            processes. Sharded and replicated models exchange data in every pass, so all processes
            must make as many; those with fewer rows make them with two tokens.
        has_gradient: rows whose gradient can differ from 0, bool, shape (B,); None for all.
        backbone: of a mixture of experts, the part of the model that gives its routers' logits.
        shares_prompts: whether packed rows of a pass that start alike share the tokens before the
            last one of their prompt (`rows_apart.shares_prompts`).
    """

    model: Callable[..., Any]
    max_tokens: int
    is_packed: bool
    agree: Callable[[torch.Tensor], torch.Tensor]
    has_gradient: torch.Tensor | None = None
    backbone: torch.nn.Module | None = None
    shares_prompts: bool = False
    num_passes: list[int] = field(default_factory=list)  # with and without gradient, last call

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **kwargs
    ) -> SimpleNamespace:
        """Log-probs and, where the head gives it, entropy of every label, shapes (B, L - 1).

        All inputs have shape (B, L); the tokens of a row lie side by side.
        """
        lengths = attention_mask.sum(dim=1)  # (B,)
        firsts = attention_mask.argmax(dim=1).tolist()
        offsets = torch.arange(input_ids.size(1), device=input_ids.device)
        columns = [offsets[:n] + first for n, first in zip(lengths.tolist(), firsts, strict=True)]
        starts = self._starts(input_ids, labels, columns)
        parts: dict[str, list[torch.Tensor]] = {name: [] for name in FIELDS}
        places, zero, gates = [], 0.0, []
        for rows, is_graded in self._passes(lengths, starts):
            # Two tokens of the first row where there is nothing to do but to keep in step.
            pieces = cut(rows, columns, starts) or [Piece(0, columns[0][:2])]
            inputs = self._inputs(input_ids, labels, pieces, firsts)
            with nullcontext() if is_graded else torch.no_grad():
                outputs, routed = self._run(inputs, kwargs)  # (b, W - 1) each, or (1, T - 1) packed
            if not rows:
                zero = zero + outputs.log_probs.sum() * 0.0
                continue
            gates.append(routed)
            scored = self._scored(pieces, outputs.log_probs)
            for name in FIELDS:
                if getattr(outputs, name) is not None:
                    parts[name].append(getattr(outputs, name).flatten()[scored])
            width = input_ids.size(1) - 1
            places.extend(piece.columns[1:] - 1 + piece.row * width for piece in pieces)
        place, shape = torch.cat(places), (input_ids.size(0), input_ids.size(1) - 1)
        values = {
            name: part[0].new_zeros(shape[0] * shape[1]).index_put((place,), torch.cat(part))
            for name, part in parts.items()
            if part
        }
        entropy = values["entropy"].view(shape) if "entropy" in values else None
        log_probs = values["log_probs"].view(shape) + zero
        balance = self._balance(gates) if self.backbone is not None else None
        return SimpleNamespace(log_probs=log_probs, entropy=entropy, aux_loss=balance)

    def _run(self, inputs: dict[str, Any], kwargs: dict[str, Any]) -> tuple[Any, tuple]:
        """One pass: its outputs, and the routers' logits of its tokens, (T, E) for each layer."""
        if self.backbone is None:
            return self.model(**inputs, **kwargs), ()
        found: list[Any] = []
        hook = self.backbone.register_forward_hook(lambda *call: found.append(call[2]))
        outputs = self.model(**inputs, **kwargs)
        hook.remove()
        is_token = inputs.get("attention_mask", inputs["input_ids"] >= 0).flatten().bool()
        return outputs, tuple(gate[is_token] for gate in found[0].router_logits)

    def _balance(self, gates: list[tuple]) -> torch.Tensor:
        """The experts' balance over the tokens of all passes, as TRL's over those of its one."""
        config = self.backbone.config.get_text_config()
        layers = tuple(torch.cat(layer) for layer in zip(*gates, strict=True))
        return load_balancing_loss_func(layers, config.num_experts, config.num_experts_per_tok)

    def _starts(
        self, input_ids: torch.Tensor, labels: torch.Tensor, columns: list[torch.Tensor]
    ) -> list[Tokens]:
        """What each row may share: its prompt without the last token; nothing without a label."""
        if not self.shares_prompts or self.backbone is not None:
            return [()] * len(columns)
        is_scored = torch.stack([labels[row, cols[-1]] != -100 for row, cols in enumerate(columns)])
        first = (labels != -100).long().argmax(dim=1)  # (B,)
        ends = torch.where(is_scored, first - 1, 0).tolist()
        return [
            tuple(row[int(cols[0]) : end])
            for row, cols, end in zip(input_ids.tolist(), columns, ends, strict=True)
        ]

    def _passes(self, lengths: torch.Tensor, starts: list[Tokens]) -> list[tuple[list[int], bool]]:
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
            planned = plan_passes(
                lengths[rows].tolist(), self.max_tokens, not self.is_packed,
                [starts[row] for row in rows],
            )  # fmt: skip
            passes.append([[rows[i] for i in members] for members in planned])
        counts = torch.tensor([len(part) for part in passes], device=lengths.device)
        self.num_passes = self.agree(counts).tolist()
        return [
            (part[i] if i < len(part) else [], is_graded)
            for part, number, is_graded in zip(passes, self.num_passes, (True, False), strict=True)
            for i in range(number)
        ]

    def _inputs(
        self, input_ids: torch.Tensor, labels: torch.Tensor, pieces: list[Piece], firsts: list[int]
    ) -> dict[str, Any]:
        """The model's inputs for some pieces: (b, W) padded, or (1, T) packed.

        `firsts`: the column of each row's first token.
        """
        tokens = [input_ids[piece.row, piece.columns] for piece in pieces]
        asked = [labels[piece.row, piece.columns] for piece in pieces]
        if not self.is_packed:
            masks = [torch.ones_like(part) for part in tokens]
            return {
                "input_ids": pad_sequence(tokens, batch_first=True),
                "attention_mask": pad_sequence(masks, batch_first=True),
                "labels": pad_sequence(asked, batch_first=True, padding_value=-100),
            }
        for part in asked:
            part[0] = -100  # the row before cannot foretell it
        positions = [piece.columns - firsts[piece.row] for piece in pieces]
        packed = {"input_ids": tokens, "position_ids": positions, "labels": asked}
        inputs = {key: torch.cat(parts).unsqueeze(0) for key, parts in packed.items()}
        # Else each layer would ask the device for them.
        lengths = [len(part) for part in tokens]
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=input_ids.device)
        for side in "qk":
            inputs |= {f"cu_seq_lens_{side}": ends, f"max_length_{side}": max(lengths)}
        if any(piece.after >= 0 for piece in pieces):
            seen = [piece.after for piece in pieces]
            inputs[SHARED] = list(zip(lengths, seen, strict=True))
        return inputs

    def _scored(self, pieces: list[Piece], log_probs: torch.Tensor) -> torch.Tensor:
        """Where, in a pass's values laid end to end, those of second to last tokens are."""
        found, start = [], 0
        for piece in pieces:
            size = len(piece.columns)
            found.append(torch.arange(start, start + size - 1, device=log_probs.device))
            start += size if self.is_packed else log_probs.size(1)
        return torch.cat(found)


def cut(rows: list[int], columns: list[torch.Tensor], starts: list[Tokens]) -> list[Piece]:
    """The pieces of a pass: each row, and before the first of several that start alike, the start.

    `columns` and `starts` are of all rows.
    """
    pieces: list[Piece] = []
    known: dict[Tokens, int] = {}
    together = Counter(starts[row] for row in rows)
    for row in rows:
        size = len(starts[row]) if together[starts[row]] > 1 else 0
        if size and starts[row] not in known:
            known[starts[row]] = len(pieces)
            pieces.append(Piece(row, columns[row][:size]))
        pieces.append(Piece(row, columns[row][size:], known.get(starts[row], -1)))
    return pieces


# Early stop of a micro-batch


def ratio_totals(
    logps: torch.Tensor, old_logps: torch.Tensor | None, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of the importance ratios of one process's completion tokens, and their number.

        ratio_t = pi(o_t) / pi_old(o_t) = exp(logp_t - old_logp_t)

    All of shape (B, C); `old_logps` are None where the policy itself wrote the completions. The sum
    is inf or NaN where the ratio of a token that counts is.
    """
    logps = logps.detach().float()
    old_logps = logps if old_logps is None else old_logps.float()
    # Chosen, not multiplied, because padding may hold anything and NaN * 0 is NaN.
    ratios = torch.where(mask.bool(), torch.exp(logps - old_logps), 0.0)
    return ratios.sum(), mask.bool().sum().float()


def zero_loss(logps: torch.Tensor) -> torch.Tensor:
    """0.0 whatever the log-probs (B, C), with a gradient of 0 for each of them.

    The gradient must run through the model: DDP and FSDP wait for every parameter's. Where the
    model's own activations are not finite it is NaN, and then the whole step is left out.
    """
    return (torch.nan_to_num(logps) * 0.0).sum()


# Stochastic rounding


def use_stochastic_rounding(trainer: Any) -> None:
    """Give a trainer that has not started yet torchao's optimizer, rounding as this file says."""
    trainer.args.optim = "adamw_torch_8bit"  # transformers' name of torchao's AdamW8bit
    trainer.args.optim_args = "bf16_stochastic_round=True"
    trainer.add_callback(RoundingNumbers(trainer.args.device))


def rounds_stochastically(optimizer: Any) -> bool:
    """Whether an optimizer, or the one inside accelerate's wrapper, rounds at random."""
    return getattr(getattr(optimizer, "optimizer", optimizer), "bf16_stochastic_round", False)


class RoundingNumbers(TrainerCallback):
    """Gives each optimizer step random numbers of its own, the same on all processes."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._around = device, ExitStack()

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        if others := {p.dtype for p in weights} - {torch.bfloat16}:
            raise UserError(
                f"stochastic_rounding: true rounds bfloat16 weights, the optimizer has "
                f"{', '.join(map(str, others))}; remove the key"
            )

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        devices = [self._device] if self._device.type == "cuda" else []
        self._around.enter_context(torch.random.fork_rng(devices))
        if self._device.type == "cpu":  # torchao compiles its update; on a CPU that takes long
            self._around.enter_context(torch.compiler.set_stance("force_eager"))
        torch.manual_seed(args.seed * 1_000_003 + state.global_step)

    def on_optimizer_step(self, args, state, control, **kwargs):
        self._around.close()
