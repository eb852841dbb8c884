"""The policy update where it is not TRL's: no padding, early stop, rounded weights.

**Without padding** (`update_tokens`, docs/speed.md). TRL runs a micro-batch as one rectangle: B
rows of P prompt tokens, padded on the left, and C completion tokens, padded on the right. Both are
as long as the longest of the generation batch. Here each row is cut down to its own tokens, and
rows of similar length share a micro-batch. With `auto` it is one pass, as TRL's. Micro-batches
whose rows all have no gradient run under no_grad, so rows are sorted for that. With a number of
tokens a micro-batch runs in passes of at most so many before the one backward pass, and its rows
without a gradient in passes of their own.
The rows of a pass lie end to end, with FlashAttention or `rows_apart`; with any other attention
they are padded to the longest of their pass. With `rows_apart` the rollouts of a problem share
their prompt: it goes through the model once for all of them in a pass. The results are put back
where TRL expects them. Loss and gradient equal TRL's up to rounding.
Positions start at each row's first token, as in generation. TRL counts the padding before it, too;
this is the same only for models with relative positions (RoPE).
What decides about passes is asked of the device once for a generation batch, and for each scoring
of one (`rows_on_host`).

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
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import TrainerCallback
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from pipeline.errors import UserError
from stages.trainer.rows_apart import model_inputs, on_device

AUTO = "auto"  # a value of `update_tokens`
FIELDS = ("log_probs", "entropy")  # of TRL's fused head, one value for each token but a row's first
Tokens = tuple[int, ...]  # that a row has in common with others; () if it shares nothing
Pass = tuple[list[int], bool]  # rows that go through the model together; whether with a gradient


class Row(NamedTuple):
    """What the host knows of a row: the tokens of its prompt, the number of those after it."""

    prompt: Tokens
    num_completion: int
    has_gradient: bool = True  # can differ from 0

    @property
    def length(self) -> int:
        return len(self.prompt) + self.num_completion

    @property
    def start(self) -> Tokens:
        """What it may share with others: the prompt without the last token, if any is scored."""
        return self.prompt[:-1] if self.num_completion else ()


class Piece(NamedTuple):
    """Tokens that lie side by side in a pass: a row's, or the start that several rows share."""

    row: int
    first: int  # of the row's own tokens
    length: int
    after: int = -1  # the piece with the start of the row, whose tokens these see; -1: none


# Without padding


def rows_on_host(
    prompt_ids: torch.Tensor,
    prompt_mask: torch.Tensor,
    completion_mask: torch.Tensor,
    has_gradient: torch.Tensor | None = None,
) -> list[Row]:
    """The rows of tensors (B, P), (B, P), (B, C) and bool (B,), by one question to the device."""
    if has_gradient is None:
        has_gradient = prompt_mask.new_ones(len(prompt_mask))
    numbers = [prompt_mask.sum(1), completion_mask.sum(1), has_gradient.to(prompt_ids.dtype)]
    table = torch.cat([torch.stack(numbers, dim=1), prompt_ids], dim=1).tolist()
    width = prompt_ids.size(1)
    return [
        Row(tuple(ids[width - length :]), num_completion, bool(is_graded))
        for length, num_completion, is_graded, *ids in table
    ]


def order_rows(lengths: Sequence[int], starts: Sequence[Tokens]) -> list[int]:
    """The longest row first, each followed by the others of its start, longest first."""
    longest: dict[Tokens, int] = {}
    for start, length in zip(starts, lengths, strict=True):
        longest[start] = max(length, longest.get(start, 0))
    return sorted(
        range(len(lengths)), key=lambda row: (-longest[starts[row]], starts[row], -lengths[row])
    )


def fill_passes(
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


@dataclass(frozen=True)
class Planner:
    """Which rows go through the model together.

    Args:
        max_tokens: of a pass; None: all rows of a micro-batch are one.
        is_padded, shares_prompts: as `fill_passes` and `PackedForward` say.
        agree: each process's numbers of passes, (N, 2), int -> the highest of each. Sharded and
            replicated models exchange data in every pass, so all must make as many; those with
            fewer rows make them with two tokens.
    """

    max_tokens: int | None
    is_padded: bool
    shares_prompts: bool
    agree: Callable[[list[list[int]]], list[list[int]]]

    def passes(self, batches: list[list[Row]], needs_backward: Sequence[bool]) -> list[list[Pass]]:
        """The passes of each micro-batch, those with a gradient first.

        The order matters under autocast, which keeps the weights that it casts: cast without a
        gradient first, they would have none later in the same context.

        Args:
            needs_backward: whether a micro-batch has to give every weight a gradient, even of zero.
        """
        planned = [
            self._of_one(rows, is_needed)
            for rows, is_needed in zip(batches, needs_backward, strict=True)
        ]
        numbers = self.agree([[len(part) for part in parts] for parts in planned])
        made = []
        for parts, most in zip(planned, numbers, strict=True):
            if self.max_tokens is None:  # one pass for all, with a gradient if any process has one
                made.append([((parts[0] or parts[1])[0], most[0] > 0)])
                continue
            made.append([
                (part[i] if i < len(part) else [], is_graded)
                for part, number, is_graded in zip(parts, most, (True, False), strict=True)
                for i in range(number)
            ])  # fmt: skip
        return made

    def _of_one(self, rows: list[Row], is_needed: bool) -> tuple[list, list]:
        """Passes of this process with and without a gradient."""
        graded = [i for i, row in enumerate(rows) if row.has_gradient]
        if self.max_tokens is None:
            all_rows = [list(range(len(rows)))]
            return (all_rows, []) if graded or is_needed else ([], all_rows)
        if not graded and is_needed:  # every process has to go backward through every weight
            graded = [min(range(len(rows)), key=lambda i: rows[i].length)]
        others = [i for i in range(len(rows)) if i not in set(graded)]
        found = []
        for part in (graded, others):
            starts = [rows[i].start if self.shares_prompts else () for i in part]
            lengths = [rows[i].length for i in part]
            filled = fill_passes(lengths, self.max_tokens, self.is_padded, starts)
            found.append([[part[i] for i in members] for members in filled])
        return found[0], found[1]


def sort_rows(
    batches: list[dict[str, Any]],
    rows: list[list[Row]],
    window: int,
    by_prompt: bool = False,
    by_gradient: bool = False,
) -> tuple[list[dict[str, Any]], list[list[Row]]]:
    """The same micro-batches and rows, those of similar length together; longest first.

    Rows move only within `window` consecutive micro-batches, those of one optimizer step: the sum
    of their gradients stays what it was. `window` divides the number of micro-batches.

    Args:
        by_prompt: rows of one prompt stay together.
        by_gradient: rows without a gradient come before all others, longest first among
            themselves, and so fill micro-batches of their own.
    """
    ordered, ordered_rows = [], []
    size = len(rows[0])
    for first in range(0, len(batches), window):
        group = batches[first : first + window]
        found = [row for batch in rows[first : first + window] for row in batch]
        starts = [row.prompt if by_prompt else () for row in found]
        order = order_rows([row.length for row in found], starts)
        if by_gradient:
            order.sort(key=lambda i: found[i].has_gradient)
        for start in range(0, len(order), size):
            part = order[start : start + size]
            places = on_device(part, group[0]["prompt_mask"].device)
            ordered.append({key: _take([b[key] for b in group], part, places) for key in group[0]})
            ordered_rows.append([found[i] for i in part])
    return ordered, ordered_rows


def _take(values: list[Any], rows: list[int], places: torch.Tensor) -> Any:
    """Rows of the values of several micro-batches put together; what has no rows is the same.

    `places`: `rows` on the device.
    """
    if isinstance(values[0], torch.Tensor) and values[0].ndim:
        return torch.cat(values)[places]
    if isinstance(values[0], list):
        joined = [item for value in values for item in value]
        return [joined[row] for row in rows]
    return values[0]


@dataclass
class PackedForward:
    """Runs the model in several passes where TRL asks it for per-token log-probs.

    Args:
        rows: what TRL asks about, as the host knows it.
        passes: each row is in one of them; empty ones are there to keep in step with others.
        num_prompt: columns of TRL's rectangle that are the prompts'.
        is_packed: whether the rows of a pass lie end to end in one, told apart by `position_ids`;
            otherwise they are padded to the longest of the pass.
        backbone: of a mixture of experts, the part of the model that gives its routers' logits.
        shares_prompts: whether packed rows of a pass that start alike share the tokens before the
            last one of their prompt (`rows_apart.shares_prompts`).
    """

    model: Callable[..., Any]
    rows: list[Row]
    passes: list[Pass]
    num_prompt: int
    is_packed: bool
    backbone: torch.nn.Module | None = None
    shares_prompts: bool = False

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **kwargs
    ) -> SimpleNamespace:
        """Log-probs and, where the head gives it, entropy of every label, shapes (B, L - 1).

        All inputs have shape (B, L); the tokens of a row lie side by side.
        """
        parts: dict[str, list[torch.Tensor]] = {name: [] for name in FIELDS}
        places, gates = [], []
        # What a backward pass starts from where no row has a gradient.
        zero = torch.zeros((), device=input_ids.device, requires_grad=True)
        shares = self.shares_prompts and self.backbone is None
        for members, is_graded in self.passes:
            # Two tokens of the first row where there is nothing to do but to keep in step.
            pieces = cut(self.rows, members, shares) if members else [Piece(0, 0, 2)]
            layout = Layout(pieces, self.rows, input_ids.size(1), self.num_prompt, self.is_packed)
            with nullcontext() if is_graded else torch.no_grad():
                # (b, W - 1) each, or (1, T - 1) packed
                outputs, routed = self._run(layout, layout.inputs(input_ids, labels), kwargs)
            if not members:
                zero = zero + outputs.log_probs.sum() * 0.0
                continue
            gates.append(routed)
            scored = on_device(layout.scored, input_ids.device)
            for name in FIELDS:
                if getattr(outputs, name) is not None:
                    parts[name].append(getattr(outputs, name).flatten()[scored])
            places.append(layout.places)
        place = on_device(np.concatenate(places), input_ids.device)
        shape = (input_ids.size(0), input_ids.size(1) - 1)
        values = {
            name: part[0].new_zeros(shape[0] * shape[1]).index_put((place,), torch.cat(part))
            for name, part in parts.items()
            if part
        }
        entropy = values["entropy"].view(shape) if "entropy" in values else None
        log_probs = values["log_probs"].view(shape) + zero
        balance = _balance(self.backbone, gates) if self.backbone is not None else None
        return SimpleNamespace(log_probs=log_probs, entropy=entropy, aux_loss=balance)

    def _run(
        self, layout: "Layout", inputs: dict[str, Any], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple]:
        """One pass: its outputs, and the routers' logits of its tokens, (T, E) for each layer."""
        if self.backbone is None:
            return self.model(**inputs, **kwargs), ()
        found: list[Any] = []
        hook = self.backbone.register_forward_hook(lambda *call: found.append(call[2]))
        outputs = self.model(**inputs, **kwargs)
        hook.remove()
        tokens = on_device(np.flatnonzero(layout.is_token), inputs["input_ids"].device)
        return outputs, tuple(gate[tokens] for gate in found[0].router_logits)


def _balance(backbone: Any, gates: list[tuple]) -> torch.Tensor:
    """The experts' balance over the tokens of all passes, as TRL's over those of its one."""
    config = backbone.config.get_text_config()
    layers = tuple(torch.cat(layer) for layer in zip(*gates, strict=True))
    return load_balancing_loss_func(layers, config.num_experts, config.num_experts_per_tok)


class Layout:
    """Where the tokens of a pass are and come from, computed on the host.

    Args:
        pieces: of the pass, of some `rows`.
        width: L, columns of TRL's rectangle; its first `num_prompt` are those of the prompts.
        is_packed: whether the pieces lie end to end in one line, or each begins a line.

    Attributes:
        source: place of each token in the flat rectangle; of padding 0, shape (lines, W).
        position: of each token in its row, shape (lines, W).
        is_token, is_first: not padding; the first of its piece, shape (lines, W).
        scored: places in the pass's outputs, flat, of all tokens but each piece's first, (S,).
        places: where these belong in the flat outputs of the rectangle, (S,).
    """

    def __init__(
        self, pieces: list[Piece], rows: list[Row], width: int, num_prompt: int, is_packed: bool
    ) -> None:
        self.pieces, self.is_packed = pieces, is_packed
        lengths = np.array([piece.length for piece in pieces])
        size = (1, int(lengths.sum())) if is_packed else (len(pieces), int(lengths.max()))
        self.source = np.zeros(size[0] * size[1], dtype=np.int64)
        self.position, self.is_token = self.source.copy(), self.source.astype(bool)
        self.is_first = self.is_token.copy()
        scored, places = [], []
        for number, (piece, before) in enumerate(
            zip(pieces, np.cumsum(lengths) - lengths, strict=True)
        ):
            begin = int(before) if is_packed else number * size[1]
            span = slice(begin, begin + piece.length)
            column = num_prompt - len(rows[piece.row].prompt) + piece.first
            self.source[span] = piece.row * width + column + np.arange(piece.length)
            self.position[span] = piece.first + np.arange(piece.length)
            self.is_token[span], self.is_first[begin] = True, True
            line = 0 if is_packed else number  # each has one output less than tokens
            scored.append(begin - line + np.arange(piece.length - 1))
            places.append(piece.row * (width - 1) + column + np.arange(piece.length - 1))
        self.scored, self.places = np.concatenate(scored), np.concatenate(places)
        for name in ("source", "position", "is_token", "is_first"):
            setattr(self, name, getattr(self, name).reshape(size))

    def inputs(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        """The model's inputs: (lines, W) each."""
        table = np.stack([self.source, self.position, self.is_token, self.is_first])
        source, position, is_token, is_first = on_device(table, input_ids.device)
        # The row before cannot foretell a first token, and padding is nothing to foretell.
        is_out = (is_token == 0) | (is_first == 1)
        made = {
            "input_ids": input_ids.flatten()[source],
            "labels": labels.flatten()[source].masked_fill(is_out, -100),
        }
        if not self.is_packed:
            made["input_ids"] = made["input_ids"] * is_token
            return made | {"attention_mask": is_token}
        lengths, after = [p.length for p in self.pieces], [p.after for p in self.pieces]
        return made | {"position_ids": position} | model_inputs(lengths, after, input_ids.device)


def cut(rows: list[Row], members: list[int], shares: bool) -> list[Piece]:
    """The pieces of a pass: each row, and before the first of several that start alike, the start.

    Args:
        members: the rows of the pass.
        shares: whether rows may share their start.
    """
    pieces: list[Piece] = []
    known: dict[Tokens, int] = {}
    together = Counter(rows[i].start for i in members)
    for i in members:
        row = rows[i]
        size = len(row.start) if shares and together[row.start] > 1 else 0
        if size and row.start not in known:
            known[row.start] = len(pieces)
            pieces.append(Piece(i, 0, size))
        pieces.append(Piece(i, size, row.length - size, known[row.start] if size else -1))
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
