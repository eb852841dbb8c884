"""Rewards: weights, limits of `overlong`, own functions."""

from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.own_code import check_own


def check_rewards(settings: Settings) -> None:
    """Refuse weights that do not fit, `overlong` without limits, own code that nobody allowed."""
    check_own(settings, "reward_funcs")
    weights, funcs = settings.reward_weights, settings.reward_funcs
    if weights is not None and len(weights) != len(funcs):
        raise UserError(
            f"reward_weights: {weights} has {len(weights)} entries, reward_funcs has "
            f"{len(funcs)}; give one weight per function"
        )
    if "overlong" not in funcs:
        return
    limit, cache = settings.max_completion_length, settings.overlong_cache
    for key, value in (("max_completion_length", limit), ("overlong_cache", cache)):
        if value is None:
            raise UserError(f"{key}: missing; the reward overlong needs it, in tokens")
    if not 1 <= cache <= limit:
        raise UserError(
            f"overlong_cache: must be within 1..{limit}, the max_completion_length (got {cache})"
        )
