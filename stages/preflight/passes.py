"""Count the passes and tokens of GRPO's update before a run, beside those of TRL's update.

Lengths of completions are assumed, as in `roofline.generation_seconds`. Rows without a gradient and
shared prompts save more: it is not counted, as it is not known before a run.
"""

import math
import random
from dataclasses import dataclass
from typing import Any

from stages.arguments import steps_per_generation
from stages.preflight.capacity import longest_completion, pads
from stages.preflight.inputs import Recipe

PROMPT = 150  # mean tokens of a prompt, where nothing else is said
SHARE = 0.3  # of its limit that a completion has, where nothing else is said


@dataclass(frozen=True)
class Work:
    """Of one process in one optimizer step: forward passes, and tokens with padding in them."""

    passes: float
    tokens: float

    def __str__(self) -> str:
        return f"{self.passes:,.0f} passes, {self.tokens:,.0f} tokens"


def completion_lengths(num: int, mean: float, longest: float) -> list[int]:
    """Exponential lengths in tokens, cut at `longest`: the middle of each of `num` quantiles."""
    shares = [(i + 0.5) / num for i in range(num)]
    return [math.ceil(min(longest, -mean * math.log(1 - share))) for share in shares]


def count_update(
    values: Any, rows: int, prompt: float, mean: float, longest: float, is_padded: bool = False
) -> tuple[Work, Work]:
    """The update by `update_tokens`, and by TRL, which pads a generation batch to its longest row.

    Args:
        values: the recipe's keys of GRPO.
        rows: completions of a generation batch in one process.
        prompt, mean, longest: tokens of a prompt; of a completion in the mean, and at most.
        is_padded: whether the rows of a pass are padded to its longest.
    """
    batch, times = values.per_device_train_batch_size, values.gradient_accumulation_steps
    lengths = [round(prompt) + n for n in completion_lengths(rows, mean, longest)]
    trl = Work(times, times * batch * max(lengths))
    if not values.update_tokens:
        return trl, trl
    # The trainer sorts the rows of an optimizer step that are there at once.
    window = batch * math.gcd(max(1, rows // batch), times)
    random.Random(0).shuffle(lengths)
    steps = [sorted(lengths[i : i + window], reverse=True) for i in range(0, rows, window)]
    micro_batches = [step[i : i + batch] for step in steps for i in range(0, len(step), batch)]
    passes = [part for one in micro_batches for part in split(one, values.update_tokens, is_padded)]
    tokens = sum(len(part) * max(part) if is_padded else sum(part) for part in passes)
    share = times / len(micro_batches)
    return Work(share * len(passes), share * tokens), trl


def split(lengths: list[int], update_tokens: int | str, is_padded: bool) -> list[list[int]]:
    """The lengths of a micro-batch's rows by passes, the longest first."""
    if update_tokens == "auto":
        return [lengths]
    passes: list[list[int]] = [[]]
    for length in lengths:
        together = [*passes[-1], length]
        tokens = together[0] * len(together) if is_padded else sum(together)
        if len(together) == 1 or tokens <= int(update_tokens):
            passes[-1] = together
        else:
            passes.append([length])
    return passes


def update_of(
    recipe: Recipe, prompt: float = PROMPT, mean: float | None = None
) -> tuple[Work, Work]:
    """`count_update` of a recipe on its GPUs; `prompt`, `mean`: mean tokens."""
    values = recipe.settings["grpo"]
    longest = longest_completion(values, recipe.known_shape("grpo"))
    rows = values.per_device_train_batch_size * steps_per_generation(values, recipe.args.gpus)
    mean = min(longest, mean or SHARE * longest)
    return count_update(values, rows, prompt, mean, longest, pads(values, recipe.engine))


def describe(values: Any, work: Work, trl: Work) -> str:
    """Both in one line."""
    if not values.update_tokens:
        return f"update_tokens: unset: about {trl} a step in each process, as TRL"
    return f"update_tokens: {values.update_tokens}: about {work} a step in each process; TRL: {trl}"
