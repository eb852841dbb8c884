"""Our own keys of the SFT and GRPO recipes.

Everything else in `sft.yaml` and `grpo.yaml` is TRL's `SFTConfig`, `GRPOConfig` and `ModelConfig`.
The types of the fields say which values a key takes. A dataclass checks its own keys against each
other. `stages.rules` checks our keys together with Hugging Face's.
"""

import math
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, Literal, NoReturn, get_args

from pydantic import Field

from pipeline.own_code import OwnCode
from pipeline.settings import setting
from pipeline.stages import STAGES
from pipeline.values import Count, Natural, NotNegative, NotPositive, OneOf, Positive, Share
from stages.trainer.guards import GuardSettings

# Hugging Face's defaults: no tracker; in plain DDP a search for unused parameters, with a warning.
DEFAULTS = {"report_to": "tensorboard", "ddp_find_unused_parameters": False}
SFT, GRPO = STAGES["sft"].hf, STAGES["grpo"].hf  # names of Hugging Face's classes

Mode = Literal["off", "offline", "predictive", "refill", "predictive+refill"]
MODES = get_args(Mode)
# Names of the functions in `stages.rewards`.
REWARD_FUNCS = (
    "correctness_reward",
    "rlinf_reward",
    "cosine_scaled_reward",
    "think_format_reward",
    "loose_think_format_reward",
    "soft_length_penalty",
    "repetition_penalty",
    "overlong",
    "random_reward",
)
# The rewards that are above 0 for a correct answer alone.
GRADED = ("correctness_reward", "rlinf_reward", "cosine_scaled_reward")
DeadGroups = Literal["keep", "drop"]
DEAD_GROUPS = get_args(DeadGroups)


def steps_per_generation(settings: Any, num_processes: int) -> int:
    """Micro-batches that one generation serves, as TRL works them out of its three keys."""
    if whole := settings.generation_batch_size:
        return whole // (settings.per_device_train_batch_size * num_processes)
    return settings.steps_per_generation or settings.gradient_accumulation_steps


def steps_per_epoch(settings: Any, num_rows: int, num_processes: int) -> int:
    """GRPO's optimizer steps of one epoch; TRL's sampler drops the last part of a batch.

    TRL's `RepeatSampler` gives whole generation batches alone, each `num_iterations` times.
    """
    served = steps_per_generation(settings, num_processes)
    completions = settings.per_device_train_batch_size * served * num_processes
    batches = num_rows // (completions // settings.num_generations)
    micro_batches = batches * served * settings.num_iterations
    return max(1, math.ceil(micro_batches / settings.gradient_accumulation_steps))


def keeps_old_logps(settings: Any, num_steps: int) -> bool:
    """Whether TRL keeps the old policy's log-probs: several updates, or vLLM's correction.

    `num_steps` is `steps_per_generation`.
    """
    uses = num_steps * settings.num_iterations
    is_corrected = settings.use_vllm and settings.vllm_importance_sampling_correction
    return is_corrected or settings.gradient_accumulation_steps % uses != 0


def row_limits(settings: Any, own: Any) -> dict[str, int | None]:
    """Tokens of the longest row by the keys that limit it; a completion has at least one.

    Args:
        settings: with TRL's keys of SFT or GRPO. own: with ours.
    """
    if hasattr(settings, "max_length"):
        return {"max_length": settings.max_length}
    return {
        "max_prompt_length": own.max_prompt_length,
        "max_completion_length": settings.max_completion_length or 1,
    }


def completion_room(settings: Any, positions: int | None, prompt: int) -> int | None:
    """Tokens of the longest completion, 1 or more; None where no limit is known.

    Without a `max_completion_length` a completion may fill the context behind the prompt.

    Args:
        settings: the recipe's keys, of TRL's `GRPOConfig`.
        positions: tokens of the model's context, None where its config.json does not say.
        prompt: tokens of the longest prompt.
    """
    if settings.max_completion_length is not None:
        return settings.max_completion_length
    context = settings.vllm_max_model_length or positions
    return max(1, context - prompt) if context else None


_ROUNDING = "round bfloat16 weights up or down at random, so that small updates are not lost"
_BATCH = (
    "GPUs for which the YAML has its batch: on another number of processes gradient_accumulation_"
    "steps and steps_per_generation change, so that a step keeps its rows"
)
_REWARDS = ["correctness_reward", "think_format_reward", "soft_length_penalty"]


@dataclass(kw_only=True)
class SftArguments:
    """Keys of `sft.yaml` that are ours."""

    train_file: str = field(metadata={"help": "JSON lines with `prompt` and `completion`"})
    eval_file: str | None = setting(
        None, "held-out rows of the same form: their loss is logged as eval_strategy says"
    )
    stochastic_rounding: bool = setting(False, _ROUNDING)
    batch_for_gpus: Count | None = setting(None, _BATCH)


# `guard_` before each name of `GuardSettings`.
_GuardKeys = make_dataclass(
    "_GuardKeys",
    [
        (f"guard_{f.name}", f.type, field(default=f.default, metadata=dict(f.metadata)))
        for f in fields(GuardSettings)
    ],
    kw_only=True,
)


@dataclass(kw_only=True)
class GrpoArguments(_GuardKeys):  # type: ignore[valid-type, misc]  # made, not written
    """Keys of `grpo.yaml` that are ours: these, and one `guard_...` per setting of the guards."""

    train_file: str = field(
        metadata={"help": "JSON lines with `id`, `prompt`, `answers` and `answer_form`"}
    )
    max_prompt_length: Count | None = setting(None, "drop problems with a longer prompt, in tokens")
    disable_dropout: bool | None = setting(
        None, "false: with the model's dropout; true: without LoRA's, too"
    )
    stochastic_rounding: bool = setting(False, _ROUNDING)
    batch_for_gpus: Count | None = setting(None, _BATCH)
    update_tokens: Count | Literal["auto"] | None = setting(
        None,
        "the update without padding. auto: one pass a micro-batch, as TRL, for GPUs. a number: "
        "passes of at most so many tokens. unset: all rows padded to the longest",
    )

    # Which problems are used, and how a group becomes a gradient.
    curriculum: Mode | OwnCode = setting(
        "off",
        "which problems to train on. off: all, shuffled. offline: those with a pass rate within "
        "min_pass_rate..max_pass_rate. predictive: those likely to give correct and incorrect "
        "completions. refill: replace zero-variance groups. predictive+refill: both. module:Class: "
        "your own subclass of stages.trainer.Curriculum",
    )
    pass_rates: str | None = setting(
        None, "pass_rates.jsonl of make difficulty; offline needs it, predictive can start from it"
    )
    min_pass_rate: Share = setting(0.25, "offline: least pass rate of a problem, 0..1")
    max_pass_rate: Share = setting(0.5, "offline: greatest pass rate of a problem, 0..1")
    prompt_components: Natural = setting(
        16,
        "predictive: components of the model's hidden states of the prompts, by which it compares "
        "problems; 0: by source and level alone",
    )
    explore_share: Share = setting(
        0.05, "predictive: share of choices for the problems unused for longest, 0..1"
    )
    rest_batches: Natural = setting(
        3, "predictive: generation batches before a problem is chosen again"
    )
    half_life: Positive = setting(
        100.0, "predictive: generation batches until half of an observation is forgotten"
    )
    max_refill_rounds: Count = setting(
        2, "refill: most times that the zero-variance groups of a batch are replaced"
    )
    dead_groups: DeadGroups = setting(
        "keep", "groups whose rewards are all equal: keep, or drop them from the loss"
    )
    max_mean_ratio: Annotated[float, Field(gt=1)] | None = setting(
        None, "drop a micro-batch whose mean importance ratio is above, such as 5.0"
    )

    # Rewards; `reward_weights` is TRL's own key.
    reward_funcs: list[Annotated[str, OneOf(REWARD_FUNCS)] | OwnCode] = setting(
        _REWARDS,
        f"reward functions, weighted by reward_weights: {', '.join(REWARD_FUNCS)}, or your own as "
        "module:function or module.function",
    )
    cosine_max_len: Count | None = setting(
        None, "cosine_scaled_reward: tokens of the longest completion; unset: max_completion_length"
    )
    cosine_min_value_wrong: NotPositive = setting(
        -1.0, "cosine_scaled_reward: an incorrect answer of no length"
    )
    cosine_max_value_wrong: NotPositive = setting(
        -0.5, "cosine_scaled_reward: an incorrect answer of full length"
    )
    cosine_min_value_correct: Positive = setting(
        0.5, "cosine_scaled_reward: a correct answer of full length"
    )
    cosine_max_value_correct: Positive = setting(
        1.0, "cosine_scaled_reward: a correct answer of no length"
    )
    length_penalty_start: Natural = setting(
        500, "soft_length_penalty: completion tokens up to which there is no penalty"
    )
    length_penalty_end: Count = setting(
        800, "soft_length_penalty: completion tokens from which the penalty is full"
    )
    length_penalty_max: NotNegative = setting(
        0.1, "soft_length_penalty: the full penalty, a positive number to subtract"
    )
    repetition_ngram_size: Count = setting(3, "repetition_penalty: n of the n-grams, in tokens")
    repetition_max_penalty: NotNegative = setting(
        1.0, "repetition_penalty: the full penalty, a positive number to subtract"
    )
    overlong_cache: Count | None = setting(
        None, "overlong: tokens before max_completion_length at which the penalty starts"
    )
    final_number: bool = setting(
        False, "where there is no box, the number at the end of the text is the answer"
    )

    fast_generation: bool | None = setting(
        None,
        "without vLLM: shared prompts read once, ended completions dropped; unset: if faster",
    )
    vllm_call_timeout: Positive = setting(
        1200.0, "a vLLM call that takes longer ends the run, seconds"
    )

    # Evaluation during training. When, and how many completions a problem: Hugging Face's
    # `eval_strategy`, `eval_steps`, `eval_on_start` and TRL's `num_generations_eval`.
    eval_file: str | None = setting(
        None, "validation problems; unset: eval_problems problems are taken out of train_file"
    )
    eval_problems: Annotated[int, Field(ge=2)] | None = setting(
        None, "number of validation problems; unset: all of eval_file"
    )
    eval_temperature: Annotated[float, Field(gt=0, le=2)] | None = setting(
        None, "validation's; unset: temperature"
    )
    eval_top_p: Annotated[float, Field(gt=0, le=1)] | None = setting(
        None, "validation's; unset: top_p"
    )
    eval_top_k: Natural | None = setting(None, "validation's; unset: top_k")
    validate_only: bool = setting(False, "true: only measure on them, keep no output_dir/best")

    def __post_init__(self) -> None:
        start, end = self.length_penalty_start, self.length_penalty_end
        least_wrong, most_wrong = self.cosine_min_value_wrong, self.cosine_max_value_wrong
        least_correct, most_correct = self.cosine_min_value_correct, self.cosine_max_value_correct
        if not least_wrong <= most_wrong:
            self._refuse(
                "cosine_min_value_wrong", f"be at most cosine_max_value_wrong, {most_wrong}"
            )
        if not least_correct <= most_correct:
            rule = f"be at most cosine_max_value_correct, {most_correct}"
            self._refuse("cosine_min_value_correct", rule)
        if not start < end:
            self._refuse("length_penalty_start", f"lie below length_penalty_end, {end}")
        if not self.min_pass_rate <= self.max_pass_rate:
            self._refuse("min_pass_rate", f"be at most max_pass_rate, {self.max_pass_rate}")
        if self.curriculum == "offline" and not self.pass_rates:
            self._refuse("pass_rates", "be set: offline needs it")
        if self.follows_pass_rates() and not {*GRADED} & {*self.reward_funcs}:
            raise ValueError(
                f"reward_funcs: {', '.join(self.reward_funcs)}: none says which answers are "
                f"correct, as curriculum: {self.curriculum} needs; add correctness_reward, with "
                "reward_weights 0 if it should not count"
            )

    def _refuse(self, key: str, rule: str) -> NoReturn:
        raise ValueError(f"{key}: must {rule} (got {getattr(self, key)!r})")

    def follows_pass_rates(self) -> bool:
        """Whether a curriculum observes which rollouts of each problem are correct."""
        return self.curriculum not in ("off", "offline")

    def guard_settings(self) -> GuardSettings:
        """The settings of the guards."""
        values = {f.name: getattr(self, f"guard_{f.name}") for f in fields(GuardSettings)}
        return GuardSettings(**values)

    def eval_sampling(self) -> dict[str, float]:
        """The values with which validation samples, where they are not those of training."""
        values = {name: getattr(self, f"eval_{name}") for name in ("temperature", "top_p", "top_k")}
        return {name: value for name, value in values.items() if value is not None}
