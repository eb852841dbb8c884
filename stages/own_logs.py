"""What a reward function of the user's own may log: TRL's `log_metric`, checked.

TRL takes anything. What it cannot log fails minutes later, in a line that names no reward, and a
name of its own metrics replaces them.
"""

from collections.abc import Callable

from stages.blame import BadResultError

# Metrics of TRL, transformers and our trainer; those of an evaluation are logged behind `eval_`.
_METRICS = """
    reward reward_std frac_reward_zero_std loss policy_loss aux_loss kl entropy entropy_coef
    cispo_clip_ratio num_tokens step_time learning_rate grad_norm epoch step num_input_tokens_seen
    total_flos train_loss train_runtime train_samples_per_second train_steps_per_second
    train_tokens_per_second
    runtime samples_per_second steps_per_second model_preparation_time response_length cut_off_rate
    rollout/rewards rollout/response_length rollout/cut_off_rate rollout/correctness
    rollout/uniform_groups rollout/grader_timeout_rate"""
METRICS = {*_METRICS.split()}
# Beginnings of further names; TensorBoard and W&B put `train/` before those of TRL.
GROUPS = (
    *("rewards/", "completions/", "sampling/", "clip_ratio/", "tools/", "vespo/"),
    *("train/", "guard/", "rollout/verdict/", "eval_", "avg@"),
)


def check_metric(log_metric: Callable[[str, float], None], name: str, value: float) -> None:
    """TRL's `log_metric`, which takes anything and fails when it logs.

    Raises:
        BadResultError: the name is no text, or a metric of the trainer's, or the value no number.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = None
    if not isinstance(name, str) or number is None or isinstance(value, str | bytes):
        shown = f"{name!r:.40}, {value!r:.40}"
        raise BadResultError(f"called log_metric({shown}); give it a text and a number") from None
    if name in METRICS or name.startswith(GROUPS):
        raise BadResultError(
            f"called log_metric({name!r:.60}), a metric of the trainer's; use another name, such "
            f"as {'own/' + name!r:.60}"
        )
    log_metric(name, number)
