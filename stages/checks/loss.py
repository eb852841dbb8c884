"""Keys of the loss and of the advantages that do not go together."""

from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.arguments import SCALES


def check_loss(settings: Settings) -> None:
    """Refuse keys that together make another loss than `loss_type` names; TRL at most warns."""
    loss, level, cap = settings.loss_type, settings.importance_sampling_level, settings.epsilon_high
    fitting = {"luspo": "sequence", "grpo": level, "sapo": level}.get(loss, "token")
    if level != fitting:
        raise UserError(
            f"importance_sampling_level: {level} does not go with loss_type: {loss}; use "
            f"{fitting}, or loss_type: grpo for GSPO"
        )
    if loss == "cispo" and (cap or 0) < 1:
        raise UserError(
            f"epsilon_high: loss_type: cispo caps ratios there; use 1 or more (got {cap})"
        )
    least, most = settings.entropy_coef_min, settings.entropy_coef_max
    if settings.use_adaptive_entropy and least > most:
        raise UserError(f"entropy_coef_min: {least} is above entropy_coef_max, {most}; lower it")
    is_corrected = settings.use_vllm and settings.vllm_importance_sampling_correction
    mode = settings.vllm_importance_sampling_mode
    if loss == "vespo" and is_corrected and not mode.startswith("token_"):
        raise UserError(
            f"vllm_importance_sampling_mode: {mode} does not go with loss_type: vespo; use "
            "token_truncate or token_mask"
        )
    if settings.sync_ref_model and (settings.use_peft or not settings.beta):
        raise UserError(
            "sync_ref_model: true needs a reference model: beta above 0 and use_peft: false"
        )


def _least(name: str, weight: float, settings: Settings) -> float:
    """The least that a reward function can add to the sum; 0 for one of the user's own."""
    cosine = [
        getattr(settings, f"cosine_{end}_value_{kind}")
        for end in ("min", "max")
        for kind in ("wrong", "correct")
    ]
    low, high = {
        "rlinf_reward": (-5.0, 5.0),
        "cosine_scaled_reward": (min(cosine), max(cosine)),
        "soft_length_penalty": (-settings.length_penalty_max, 0.0),
        "repetition_penalty": (-settings.repetition_max_penalty, 0.0),
        "overlong": (-1.0, 0.0),
    }.get(name, (0.0, 1.0))
    return min(weight * low, weight * high)


def check_scale(settings: Settings) -> None:
    """Refuse a `scale_rewards` that is none, and keys that would replace its sum."""
    scale = {True: "group", False: "none"}.get(settings.scale_rewards, settings.scale_rewards)
    if scale not in SCALES:
        raise UserError(f"scale_rewards: must be one of {', '.join(SCALES)} (got {scale!r})")
    if scale == "mean":
        weights = settings.reward_weights or [1.0] * len(settings.reward_funcs)
        for name, weight in zip(settings.reward_funcs, weights, strict=False):
            if (least := _least(name, weight, settings)) < 0:
                raise UserError(
                    "scale_rewards: mean divides by the mean reward of a group, so none may be "
                    f"negative; {name} can be {least:g}: take it out of reward_funcs, or use group"
                )
    if settings.multi_objective_aggregation != "normalize_then_sum":
        return
    for key, is_own in (
        ("curriculum", settings.curriculum in ("refill", "predictive+refill")),
        ("scale_rewards", scale != "group"),
        ("dead_groups", settings.dead_groups == "drop"),
    ):
        if is_own:
            raise UserError(
                "multi_objective_aggregation: normalize_then_sum would have no effect with "
                f"{key}: {getattr(settings, key)}; remove one of them"
            )
