"""Rewards: own functions, none listed twice, weights, limits of `overlong`."""

from typing import Any

from pipeline.errors import UserError
from pipeline.own_code import check_own, is_own, load_own
from pipeline.settings import Settings


def check_rewards(settings: Settings) -> None:
    """Refuse weights that do not fit, `overlong` without limits, own code that nobody allowed."""
    check_own(settings, "reward_funcs")
    if ":" in settings.curriculum:
        from stages.trainer.curriculum import Curriculum  # late: numpy costs every other run time

        check_own(settings, "curriculum", Curriculum)
    weights, funcs = settings.reward_weights, settings.reward_funcs
    check_different(funcs)
    if weights is not None and len(weights) != len(funcs):
        raise UserError(
            f"reward_weights: {weights} has {len(weights)} entries, reward_funcs has "
            f"{len(funcs)}; give one weight per function"
        )
    if weights is not None and not any(weights):
        raise UserError(
            f"reward_weights: {weights}: every reward would be 0, and nothing would be learned; "
            "give one of them a weight"
        )
    if settings.remove_unused_columns:
        raise UserError(
            "remove_unused_columns: true would take the answers from the rewards; remove it"
        )
    limit, cache = settings.max_completion_length, settings.overlong_cache
    if "cosine_scaled_reward" in funcs and limit is None and settings.cosine_max_len is None:
        raise UserError(
            "cosine_max_len: missing; the reward cosine_scaled_reward needs it, or a "
            "max_completion_length, in tokens"
        )
    if "overlong" not in funcs:
        return
    for key, value in (("max_completion_length", limit), ("overlong_cache", cache)):
        if value is None:
            raise UserError(f"{key}: missing; the reward overlong needs it, in tokens")
    if not 1 <= cache <= limit:
        raise UserError(
            f"overlong_cache: must be within 1..{limit}, the max_completion_length (got {cache})"
        )


def check_different(reward_funcs: list[str]) -> None:
    """Refuse a function that is listed twice, an own one under two names too."""
    seen: list[Any] = []
    for name in reward_funcs:
        function = load_own(name, "reward_funcs") if is_own(name) else name
        if function in seen:
            raise UserError(
                f"reward_funcs: {name} is listed twice; list it once, with the sum of its "
                "reward_weights"
            )
        seen.append(function)
