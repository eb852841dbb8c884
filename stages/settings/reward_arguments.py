"""Keys of `grpo.yaml` on what is paid, and their checks; `stages.rewards` has the functions."""

from dataclasses import dataclass, field
from typing import Any

from data_prep.config import UserError

MAX_COMPLETION_LENGTH = 512  # TRL's default, for a recipe that leaves it out

# Names of the functions in `stages.rewards`.
REWARD_FUNCS = (
    "correctness_reward", "rlinf_reward", "think_format_reward", "soft_length_penalty",
    "repetition_penalty", "overlong", "random_reward",
)  # fmt: skip
# The rewards that are above 0 for right and for nothing else, and what right is worth over wrong.
GRADED = {"correctness_reward": 1.0, "rlinf_reward": 10.0}


@dataclass(kw_only=True)
class RewardArguments:
    """Reward functions by name and what they take; `reward_weights` is TRL's own key."""

    reward_funcs: list[str] = field(
        default_factory=lambda: [
            "correctness_reward",
            "think_format_reward",
            "soft_length_penalty",
        ],
        metadata={"help": "reward functions by name; `reward_weights` gives their weights"},
    )
    length_penalty_start: int = field(
        default=500,
        metadata={"help": "completion length, tokens, up to which nothing is taken off"},
    )
    length_penalty_end: int = field(
        default=800,
        metadata={"help": "completion length, tokens, from which the full penalty holds"},
    )
    length_penalty_max: float = field(
        default=0.1, metadata={"help": "the full penalty, a positive number that is subtracted"}
    )
    repetition_ngram_size: int = field(
        default=3, metadata={"help": "n of the n-grams that repetition_penalty counts, tokens"}
    )
    repetition_max_penalty: float = field(
        default=1.0,
        metadata={"help": "penalty where all repeats, a positive number that is subtracted"},
    )
    overlong_cache: int | None = field(
        default=None,
        metadata={"help": "tokens before max_completion_length in which overlong sets in"},
    )
    final_number: bool = field(
        default=False,
        metadata={"help": "where there is no box, the plain number at the end is the answer"},
    )

    def __post_init__(self) -> None:
        for name in self.reward_funcs:
            if name not in REWARD_FUNCS:
                raise ValueError(f"reward_funcs: {name!r} is none of {', '.join(REWARD_FUNCS)}")
        if not 0 <= self.length_penalty_start < self.length_penalty_end:
            raise ValueError(
                f"length_penalty_start: {self.length_penalty_start} must lie below "
                f"length_penalty_end, {self.length_penalty_end}"
            )
        if self.length_penalty_max < 0:
            raise ValueError(
                f"length_penalty_max: {self.length_penalty_max} must not be negative; "
                "it is subtracted"
            )
        if self.repetition_ngram_size < 1:
            raise ValueError(f"repetition_ngram_size: {self.repetition_ngram_size} must be above 0")
        if self.repetition_max_penalty < 0:
            raise ValueError(
                f"repetition_max_penalty: {self.repetition_max_penalty} must not be negative; "
                "it is subtracted"
            )


def check_rewards(values: dict[str, Any]) -> None:
    """Refuse weights that do not fit the functions, and `overlong` without its limits."""
    weights, funcs = values.get("reward_weights"), values.get("reward_funcs")
    if funcs is None:
        funcs = RewardArguments.__dataclass_fields__["reward_funcs"].default_factory()
    # One value on the command line comes as text, not as a list.
    weights, funcs = ([x] if isinstance(x, str | int | float) else x for x in (weights, funcs))
    if weights is not None and len(weights) != len(funcs):
        raise UserError(
            f"reward_weights: {weights} has {len(weights)} entries, reward_funcs has {len(funcs)}; "
            "give one weight per function"
        )
    if "overlong" in funcs:
        check_overlong(values)


def check_overlong(values: dict[str, Any]) -> None:
    """Refuse the reward `overlong` without a limit and a cache that fits below it."""
    limit = values.get("max_completion_length", MAX_COMPLETION_LENGTH)
    cache = values.get("overlong_cache")
    for key, value in (("max_completion_length", limit), ("overlong_cache", cache)):
        if value is None:
            raise UserError(f"{key}: missing; the reward overlong needs it, in tokens")
    if not 1 <= int(float(cache)) <= int(float(limit)):
        raise UserError(
            f"overlong_cache: {cache} must lie within 1..{limit}, the max_completion_length"
        )
