"""Reward functions by name. Each is a pure function of completions and golds.

A recipe lists names under `reward_funcs` and, in the same order, weights under `reward_weights`.
TRL calls each with lists of one entry per completion and sums the weighted results.
"""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import TYPE_CHECKING

from data_prep.answers import grade, is_well_formed
from data_prep.prompts import wants_answer_tags

if TYPE_CHECKING:
    from stages.arguments import GrpoArguments

Completion = list[dict[str, str]]  # what TRL hands over for a conversational prompt


def correctness_reward(
    prompts: list[list[dict[str, str]]],
    completions: list[Completion],
    answer: list[str],
    *,
    think_prefilled: bool,
    **_,
) -> list[float]:
    """1.0 where the final answer equals the gold, else 0.0 (range {0, 1}).

    Graded by `data_prep.answers`, the same code that checks data and scores evaluation.
    """
    return [
        float(
            grade(c[-1]["content"], gold, think_prefilled, wants_answer_tags(p)).verdict == "right"
        )
        for p, c, gold in zip(prompts, completions, answer, strict=True)
    ]


def think_format_reward(
    completions: list[Completion], *, think_prefilled: bool, **_
) -> list[float]:
    """1.0 for exactly one non-empty `<think>…</think>` with text after it, else 0.0."""
    return [float(is_well_formed(c[-1]["content"], think_prefilled)) for c in completions]


def soft_length_penalty(
    completion_ids: list[list[int]], *, args: "GrpoArguments", **_
) -> list[float]:
    """0 up to `length_penalty_start` tokens, then linear to `-length_penalty_max` at the end.

        r(n) = -max * clip((n - start) / (end - start), 0, 1)

    `n` counts completion tokens with EOS. Range [-length_penalty_max, 0].
    """
    start, end = args.length_penalty_start, args.length_penalty_end
    shares = (min(max((len(ids) - start) / (end - start), 0.0), 1.0) for ids in completion_ids)
    return [-args.length_penalty_max * share if share else 0.0 for share in shares]


REWARDS: dict[str, Callable[..., list[float]]] = {
    f.__name__: f for f in (correctness_reward, think_format_reward, soft_length_penalty)
}


def build_rewards(args: "GrpoArguments", think_prefilled: bool) -> list[Callable]:
    """The recipe's reward functions, ready for TRL (which logs them by `__name__`).

    Args:
        args: names and options.
        think_prefilled: whether the rendered prompt already ends with `<think>`.
    """
    return [
        update_wrapper(partial(REWARDS[n], args=args, think_prefilled=think_prefilled), REWARDS[n])
        for n in args.reward_funcs
    ]
