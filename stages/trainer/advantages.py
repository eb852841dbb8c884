"""Advantages from rewards, one pure function for each baseline and scale.

Every one takes the rewards of whole groups in order, gathered over the processes, and leaves out
completions whose reward is NaN (no reward function scored them): they count in no mean and in no
deviation, and their advantage is 0. "group", "none" and "batch" equal what TRL computes with
`scale_rewards` of that name, to the last bit. Shapes: N problems, G = `num_generations` rollouts of
each, F reward functions.
"""

from torch import Tensor, isnan, nan_to_num, nanmean, sqrt

EPSILON = 1e-4  # TRL's; what it adds to every deviation it divides by


def sum_rewards(rewards_per_func: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums over the reward functions; NaN where none of them scored the completion.

        r_i = sum_f w_f r_if        a function that did not score it (NaN) adds nothing

    Args:
        rewards_per_func: shape (N*G, F).
        weights: shape (F,).

    Returns:
        Shape (N*G,).
    """
    sums = (rewards_per_func * weights).nansum(dim=1)
    return sums.masked_fill(isnan(rewards_per_func).all(dim=1), float("nan"))


def _nan_std(values: Tensor, dim: int) -> Tensor:
    """Unbiased standard deviation (n - 1) of what is not NaN; NaN where that is fewer than two."""
    mean = nanmean(values, dim=dim, keepdim=True)
    variance = nanmean((values - mean) ** 2, dim=dim, keepdim=True)
    count = (~isnan(values)).sum(dim=dim, keepdim=True)
    # 1/0 is inf and 0 * inf NaN, as it should be for one value.
    return sqrt(variance * (count / (count - 1))).squeeze(dim)


def _centred(rewards: Tensor, num_generations: int) -> Tensor:
    """Reward minus the mean of its group, shape (N*G,); NaN where the reward is."""
    means = nanmean(rewards.view(-1, num_generations), dim=1)  # (N,)
    return rewards - means.repeat_interleave(num_generations)


def group_advantages(rewards: Tensor, num_generations: int) -> Tensor:
    """Advantages in units of the group's own standard deviation.

        A_i = (r_i - mean_g r) / (std_g r + 1e-4)      source: GRPO, arXiv:2402.03300, section 4.1.2

    Every group with any variance weighs the same: a group that differs only by a length term of
    0.01 pushes as hard as one with right and wrong answers.

    Args:
        rewards: weighted sums, NaN where nothing scored the completion, shape (N*G,).
        num_generations: G.

    Returns:
        Shape (N*G,).
    """
    stds = _nan_std(rewards.view(-1, num_generations), dim=1)  # (N,)
    centred = _centred(rewards, num_generations)
    return nan_to_num(centred / (stds.repeat_interleave(num_generations) + EPSILON), nan=0.0)


def centred_advantages(rewards: Tensor, num_generations: int) -> Tensor:
    """Advantages in the rewards' own units, without the per-problem scale.

        A_i = r_i - mean_g r        source: Dr. GRPO, arXiv:2503.20783

    Dividing by std_g weighs problems that are nearly always or nearly never solved more than those
    in between; without it a problem weighs what its rollouts differ by.

    Args, Returns: see `group_advantages`.
    """
    return nan_to_num(_centred(rewards, num_generations), nan=0.0)


def batch_advantages(rewards: Tensor, num_generations: int) -> Tensor:
    """Advantages in units of the standard deviation of the whole batch.

        A_i = (r_i - mean_g r) / (std_batch r + 1e-4)    source: arXiv:2508.08221

    One scale for all problems, as with `centred_advantages`, but of about unit size.

    Args, Returns: see `group_advantages`; the batch is all N*G rewards of all processes.
    """
    centred = _centred(rewards, num_generations)
    return nan_to_num(centred / (_nan_std(rewards, dim=0) + EPSILON), nan=0.0)


def posterior_advantages(
    rewards: Tensor,
    correctness: Tensor,
    pass_rates: Tensor,
    num_generations: int,
    correctness_weight: float,
) -> Tensor:
    """Advantages over the pass rate each problem was believed to have before the group was drawn.

        A_i = w * (c_i - p) + (s_i - mean_{j != i} s_j),    s = r - w * c

    with c the correctness, w its weight in the reward, p the problem's pass rate and s the rest of
    the reward (format, length). All right on a problem thought hard gives w * (1 - p) to each, all
    wrong on one thought easy -w * p: a group without variance still teaches. Sources: a baseline
    that tracks each problem, SPO, arXiv:2509.13232 (which then scales by the batch); leave-one-out,
    RLOO, arXiv:2402.14740.

    Unbiased: a baseline that does not depend on the completion itself leaves the expected policy
    gradient as it is (Williams 1992), and neither p nor the mean of the *others* does; that is why
    p must date from before the group. A p that lags behind the policy costs variance, not bias: it
    is a better baseline than the mean of the others while it is off by less than
    sqrt(p (1 - p) / (G - 1)), 0.29 for p = 0.5 and G = 4, 0.11 for p = 0.1 and G = 8. The posterior
    after the others, (k p + sum_{j != i} c_j) / (k + G - 1), is unbiased too and better than both
    where k tells how far p is to be trusted; that falls as the policy moves, nobody measures it,
    and the mixture takes the share (G - 1) / (k + G - 1) from what uniform groups teach.

    No scale. Dividing by sqrt(p (1 - p)) would bring back the unequal weight of problems that
    `centred_advantages` removes, and blow up the advantage just where p was most wrong (right at
    p = 0.02: 7 instead of 0.98). Adam takes a constant factor out of the gradient anyway; compare
    sizes with "none" before setting `beta`.

    Args:
        rewards: weighted sums, NaN where nothing scored the completion, shape (N*G,).
        correctness: 1 for right and 0 for the rest, shape (N*G,).
        pass_rates: p of each problem, 0..1, shape (N,).
        num_generations: G.
        correctness_weight: reward of right minus reward of wrong, w.

    Returns:
        Shape (N*G,).
    """
    assert ((pass_rates >= 0) & (pass_rates <= 1)).all(), "a pass rate is a share"
    expected = pass_rates.to(rewards.dtype).repeat_interleave(num_generations)  # (N*G,)
    rest = rewards - correctness_weight * correctness
    scored = (~isnan(rest)).view(-1, num_generations).sum(dim=1)  # (N,)
    # s_i - mean of the others = (s_i - mean of all) * n / (n - 1); a lone one has no others.
    others = (scored / (scored - 1).clamp(min=1)).repeat_interleave(num_generations)
    alone = correctness_weight * (correctness - expected)
    return nan_to_num(alone + _centred(rest, num_generations) * others, nan=0.0)


def advantages(
    kind: str,
    rewards: Tensor,
    num_generations: int,
    *,
    correctness: Tensor | None = None,
    pass_rates: Tensor | None = None,
    correctness_weight: float | None = None,
) -> Tensor:
    """Advantages of the kind that the recipe's key `advantage` names.

    Args:
        kind: one of `stages.settings.curriculum_arguments.ADVANTAGES`.
        correctness, pass_rates, correctness_weight: needed by "posterior", see there; the others
            do not look at them.

    Returns:
        Shape (N*G,).
    """
    if kind == "posterior":
        return posterior_advantages(
            rewards, correctness, pass_rates, num_generations, correctness_weight
        )
    functions = {"group": group_advantages, "none": centred_advantages, "batch": batch_advantages}
    return functions[kind](rewards, num_generations)
