"""Reward functions by name: a recipe's `reward_funcs`, weighted by its `reward_weights`.

TRL calls each with lists of one entry per completion and sums the weighted results.

No function returns None. TRL 1.16 adds nothing to the sum for None, so beside other rewards it
counts as 0. A completion for which every function returns None is left out: it counts in no mean
and its advantage is 0. Either would favour a completion that cannot be read over an incorrect one
that is penalised. Such a completion counts as incorrect.
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment

from grading.extract import is_well_formed
from grading.grade import VERDICTS, Golds, grade_rollouts
from pipeline.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN
from stages.arguments import REWARD_FUNCS
from stages.own_reward import logged_names, own_reward

if TYPE_CHECKING:
    from transformers import TrainerState
    from trl import GRPOConfig

    from stages.arguments import GrpoArguments

Completion = list[dict[str, str]] | str  # what TRL hands over: text alone for a raw prompt
Ids = list[list[int]]  # tokens of each completion


def written(completion: Completion) -> str:
    """The text of a completion."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


class BatchGrader:
    """The verdicts of a batch, graded and logged once, however many functions ask for them.

    It logs the share of each verdict but "right" as `rollout/verdict/<name>`. Time-outs are also in
    """

    def __init__(self, think_prefilled: bool, final_number: bool) -> None:
        self._form: dict[str, Any] = {
            "think_prefilled": think_prefilled,
            "final_number": final_number,
        }
        self._batch: list[Completion] | None = None
        self._verdicts: list[str] = []

    def verdicts(
        self,
        /,  # a column may have this name
        completions: list[Completion],
        answers: list[Golds],
        answer_form: list[str],
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list], None],
        question: list[str] | None = None,
        own_grader: list[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """One of `VERDICTS` for each completion."""
        if completions is not self._batch:  # TRL hands the same list to every function
            texts = [*map(written, completions)]
            columns = texts, answers, answer_form, question
            grades = grade_rollouts(*columns, own_graders=own_grader, **self._form)
            self._batch, self._verdicts = completions, [grade.verdict for grade in grades]
            shares = {name: self._verdicts.count(name) / len(texts) for name in VERDICTS}
            # Zeros too: TRL takes the mean over the processes that logged the name.
            for name in VERDICTS:
                if name != "right":
                    log_metric(f"rollout/verdict/{name}", shares[name])
            log_extra("verdict", self._verdicts)
        return self._verdicts


class Coin:
    """Random bits that seed, rank and training step decide, and nothing else.

    They do not come from the interpreter's own generator. vLLM, started inside the trainer, seeds
    that again: with a number that ignores the recipe's seed and is equal on ranks that share a
    model.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self._seed, self._rank = seed, rank
        self._step: int | str = -1

    def toss(self, step: int | str) -> bool:
        """The next bit of a step; a resumed run starts its first step as any other does."""
        if step != self._step:
            self._step, self._random = step, random.Random(f"{self._seed} {self._rank} {step}")
        return self._random.random() < 0.5


def correctness_reward(*, grader: BatchGrader, **batch: Any) -> list[float]:
    """1.0 where the final answer equals a gold, else 0.0.

        r = 1[verdict = right]        range {0, 1}, source: the grpo7b recipe

    `grade_rollouts` grades it, the code that also checks data and scores evaluation. Never None: no
    answer, no thought and what cannot be read all count as incorrect.
    """
    return [float(verdict == "right") for verdict in grader.verdicts(**batch)]


def rlinf_reward(*, grader: BatchGrader, **batch: Any) -> list[float]:
    """+5.0 where the final answer equals a gold, else -5.0.

        r = 5 if verdict = right else -5        range {-5, 5}, source: RLinf's maths recipe

    RLinf also grades an answer that is a plain number without a box: set `final_number: true`.
    Never None: a time-out would be left out, or earn 5 more than an incorrect answer.
    """
    return [5.0 if verdict == "right" else -5.0 for verdict in grader.verdicts(**batch)]


def cosine_scaled_reward(
    completion_ids: Ids,
    *,
    grader: BatchGrader,
    args: "GrpoArguments",
    config: "GRPOConfig",
    **batch: Any,
) -> list[float]:
    """A shorter correct answer earns more, and a shorter incorrect one less.

        r(n) = cosine(n / L, at 0 tokens, at L tokens); L = `cosine_max_len`
        correct: from `cosine_max_value_correct` down to `cosine_min_value_correct`
        incorrect: from `cosine_min_value_wrong` up to `cosine_max_value_wrong`

    `n` counts completion tokens with EOS. Above 0 for a correct answer alone. Source:
    "Demystifying Long Chain-of-Thought", arXiv:2502.03373, with the values of TRL's
    `get_cosine_scaled_reward`. That one grades inside, by math-verify; here our grader does. The
    paper has one more value for a completion that reaches L; TRL has none, and so it is here.
    Never None: a time-out counts as incorrect.
    """
    most = args.cosine_max_len or config.max_completion_length
    correct = args.cosine_max_value_correct, args.cosine_min_value_correct
    wrong = args.cosine_min_value_wrong, args.cosine_max_value_wrong
    return [
        cosine(len(ids) / most, *(correct if verdict == "right" else wrong))
        for verdict, ids in zip(grader.verdicts(**batch), completion_ids, strict=True)
    ]


def cosine(progress: float, start: float, end: float) -> float:
    """Half a cosine wave from `start` at progress 0 to `end` at 1, and `end` from there on.

    c(p) = end + (start - end) * (1 + cos(pi * min(p, 1))) / 2
    """
    return end + (start - end) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


def think_format_reward(
    completions: list[Completion],
    answer_form: list[str],
    *,
    think_prefilled: bool,
    args: "GrpoArguments",
    **_: Any,
) -> list[float]:
    """1.0 for one thought and then one answer in the form that the prompt asks for, else 0.0.

    Range {0, 1}; source: the grpo7b recipe. Never None. TRL's function of this name also rewards an
    empty thought, a missing answer and several answers. It rewards nothing where the template has
    opened the thought. Published runs with a loose form of this reward ended in repeated empty
    blocks; with a strict one accuracy fell too.
    """
    flags = {"think_prefilled": think_prefilled, "final_number": args.final_number}
    return [
        float(is_well_formed(written(completion), answer_form=form, **flags))
        for completion, form in zip(completions, answer_form, strict=True)
    ]


def loose_think_format_reward(
    completions: list[Completion], *, think_prefilled: bool, **_: Any
) -> list[float]:
    """1.0 for a closed `<think>` block and a closed `<answer>` block anywhere, else 0.0.

    Range {0, 1}. Never None. Blocks may be empty, repeated and in any order, so a model can earn it
    with blocks that say nothing. Use it to repeat the collapse that Perplexity's write-up on Llama
    3.1 8B reports for its loose format reward; use `think_format_reward` for training.
    """
    texts = [*map(written, completions)]
    if think_prefilled:
        texts = [THINK_OPEN + text for text in texts]
    tags = (THINK_OPEN, THINK_CLOSE), (ANSWER_OPEN, ANSWER_CLOSE)
    return [float(all(_has_block(text, *pair) for pair in tags)) for text in texts]


def _has_block(text: str, opening: str, closing: str) -> bool:
    """Whether a closing tag follows an opening one."""
    return closing in text.partition(opening)[2]


def soft_length_penalty(completion_ids: Ids, *, args: "GrpoArguments", **_: Any) -> list[float]:
    """0 up to `length_penalty_start` tokens, then linear to `-length_penalty_max` at the end.

        r(n) = -max * clip((n - start) / (end - start), 0, 1)

    `n` counts completion tokens with EOS. Range [-length_penalty_max, 0]; source: the grpo7b
    recipe. Never None.
    """
    start, end, most = args.length_penalty_start, args.length_penalty_end, args.length_penalty_max
    shares = (min(max((len(ids) - start) / (end - start), 0.0), 1.0) for ids in completion_ids)
    return [-most * share if share else 0.0 for share in shares]


def repetition_penalty(completion_ids: Ids, *, args: "GrpoArguments", **_: Any) -> list[float]:
    """The share of repeated n-grams, times `-repetition_max_penalty`.

        r = -max * (1 - distinct n-grams / all n-grams)

    Over token ids, EOS among them, with n = `repetition_ngram_size`. Range (-max, 0]; 0 for a
    completion shorter than n. TRL's function, after arXiv:2502.03373, appendix C.2; the paper
    penalises the repeated tokens, this the whole completion. Never None.
    """
    size, most = args.repetition_ngram_size, args.repetition_max_penalty
    return get_repetition_penalty_reward(size, -most)(completion_ids)


def overlong(
    completion_ids: Ids, *, args: "GrpoArguments", config: "GRPOConfig", **_: Any
) -> list[float]:
    """0 until `overlong_cache` tokens before the limit, then linear to -1 at the limit.

        r(n) = 0 for n <= L - cache, else (L - cache - n) / cache; L = `max_completion_length`

    `n` counts completion tokens with EOS; a completion that is cut off has n = L. Range [-1, 0].
    TRL's function: DAPO (arXiv:2503.14476), eq. 13, with L = 20,480 and a cache of 4,096 there.
    Never None.
    """
    penalty = get_soft_overlong_punishment(config.max_completion_length, args.overlong_cache)
    return penalty(completion_ids)


def random_reward(
    completions: list[Completion], *, coin: Coin, trainer_state: "TrainerState", **batch: Any
) -> list[float]:
    """1.0 or 0.0 at random, whatever is written, for control runs.

        P(r = 1) = 1/2        range {0, 1}, source: "Spurious Rewards", arXiv:2506.10947

    The recipe's `seed` decides. A resumed run gets the same values as an uninterrupted one. List
    `correctness_reward` with weight 0 beside it to see how accuracy changes. Never None.
    """
    step = trainer_state.global_step
    # An evaluation must not use up the training's random numbers; only its rows have this column.
    key = f"{step} held out" if "held_out" in batch else step
    return [float(coin.toss(key)) for _ in completions]


# TRL or the trainer passes something else than a column of the data under these names.
TAKEN = {
    *("prompts", "completion", "completions", "completion_ids"),
    *("trainer_state", "log_metric", "log_extra", "environments"),
    *("curriculum_row", "held_out"),
}


def reward_columns(*parts: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows of each part with every column of any part but `TAKEN`; None where one lacks it."""
    names = dict.fromkeys(key for rows in parts for row in rows for key in row if key not in TAKEN)
    return [[{name: row.get(name) for name in names} for row in rows] for rows in parts]


REWARDS: dict[str, Callable[..., list[float]]] = {name: globals()[name] for name in REWARD_FUNCS}


def bind(function: Callable[..., list[float]], bound: dict[str, Any]) -> Callable[..., list[float]]:
    """The function with arguments that no column of the same name can replace."""

    @wraps(function)
    def reward(**batch: Any) -> list[float]:
        return function(**batch | bound)

    return reward


def build_rewards(
    args: "GrpoArguments",
    config: "GRPOConfig",
    think_prefilled: bool,
    grader: BatchGrader | None = None,
) -> list[Callable]:
    """The recipe's reward functions, ready for TRL (which logs them by `__name__`).

    Args:
        think_prefilled: whether the rendered prompt already ends with `<think>`.
        grader: one to share; their own without it.
    """
    bound = {
        "args": args,
        "config": config,
        "think_prefilled": think_prefilled,
        "grader": grader or BatchGrader(think_prefilled, args.final_number),
        "coin": Coin(config.seed, config.process_index),
    }
    names = logged_names(args.reward_funcs)
    return [
        bind(REWARDS[name], bound) if name in REWARDS else own_reward(name, logged_as, config)
        for name, logged_as in zip(args.reward_funcs, names, strict=True)
    ]
