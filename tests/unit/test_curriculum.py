"""The curriculum: its posterior and its choices, on simulated policies."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from data_prep.config import UserError
from stages.trainer.curriculum import DRIFT, Curriculum

SIZE = 8  # rollouts in a group


def build(num=40, seed=0, peers=None, **keys):
    return Curriculum(peers or ["one"] * num, SIZE, seed, **keys)


def run(curriculum, pass_rates, batches, num_groups=8):
    """Choose, roll out and update.

    Args:
        pass_rates: of a policy, shape (N,); or a function of the batch that gives them.

    Returns:
        The problems of each batch, and the share of uniform groups in each.
    """
    rng, chosen, uniform = np.random.default_rng(7), [], []
    for batch in range(batches):
        rates = pass_rates(batch) if callable(pass_rates) else pass_rates
        curriculum.start_batch()
        chosen.append(curriculum.choose(num_groups))
        right = rng.binomial(SIZE, rates[chosen[-1]])
        curriculum.update(chosen[-1], right.tolist(), SIZE)
        uniform.append(np.isin(right, (0, SIZE)).mean())
    return chosen, np.array(uniform)


def sigmoid(eta):
    return 1 / (1 + np.exp(-eta))


# The pool of the benchmark's kind: 70 % always right or always wrong.
KINDS = ["easy"] * 180 + ["hard"] * 100 + ["useful"] * 120
SKEWED = np.where(np.array(KINDS) == "easy", 0.995, 0.005)
SKEWED[280:] = np.random.default_rng(1).uniform(0.25, 0.75, 120)


# Choosing


def test_the_same_numbers_on_every_process():
    rates = np.linspace(0.05, 0.95, 40)
    first, _ = run(build(seed=3), rates, 10)
    np.random.seed(1)  # nobody else's stream plays a part
    assert run(build(seed=3), rates, 10)[0] == first
    assert run(build(seed=4), rates, 10)[0] != first
    for chosen in first:
        assert len(chosen) == len(set(chosen)) == 8 and {type(i) for i in chosen} == {int}
    curriculum = build(seed=3)
    assert curriculum.choose(8) == curriculum.choose(8)
    again = curriculum.choose(8)
    curriculum.start_batch()
    assert curriculum.choose(8) != again


@pytest.mark.parametrize("is_predictive", [True, False])
def test_those_in_the_batch_come_last_and_the_draw_is_another(is_predictive):
    curriculum = build(20, is_predictive=is_predictive, rest=0)
    curriculum.start_batch()
    first = curriculum.choose(8)
    second = curriculum.choose(12, first)
    assert sorted(first + second) == list(range(20))
    third = curriculum.choose(15, first)
    assert sorted(third[:12]) == sorted(second) and {*third[12:]} < {*first}
    assert curriculum.choose(20, first + second) != curriculum.choose(20)
    # Rather one that rests than one that is in the batch.
    curriculum = build(10, is_predictive=is_predictive)
    curriculum.update([0, 1, 2], [4, 4, 4], SIZE)
    curriculum.start_batch()
    assert sorted(curriculum.choose(6, [3, 4, 5, 6])) == [0, 1, 2, 7, 8, 9]
    # With the first draw's numbers these would be its next four.
    curriculum = build(20, is_predictive=is_predictive)
    first = curriculum.choose(8)
    assert curriculum.choose(4, first[:4]) != first[4:]


def test_more_problems_than_there_are():
    curriculum = build(5)
    assert sorted(curriculum.choose(5)) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="6 problems are needed at a time, the pool has 5"):
        curriculum.choose(6)


def test_uniform_choice_is_uniform():
    chosen, _ = run(build(is_predictive=False), np.full(40, 0.99), 60)
    counts = np.bincount(np.ravel(chosen), minlength=40)
    assert counts.sum() == 480 and counts.min() >= 6 and counts.max() <= 18
    curriculum, chosen = build(is_predictive=False, rest=0), []
    for _ in range(1000):
        curriculum.start_batch()
        chosen += curriculum.choose(8)
    counts = np.bincount(chosen, minlength=40)  # 200 each, standard deviation 12.6
    assert counts.min() >= 150 and counts.max() <= 250


def use_gaps(chosen):
    """Batches between two uses of a problem, of all problems."""
    used = {}
    for batch, problems in enumerate(chosen):
        for problem in problems:
            used.setdefault(problem, []).append(batch)
    return [later - before for batches in used.values() for before, later in pairwise(batches)]


@pytest.mark.parametrize("is_predictive", [True, False])
def test_used_problems_rest(is_predictive):
    keys = {"is_predictive": is_predictive}
    rates = np.array([0.5] * 6 + [0.999] * 44)
    assert min(use_gaps(run(build(50, rest=3, **keys), rates, 25)[0])) == 4
    assert min(use_gaps(run(build(50, rest=0, **keys), rates, 25)[0])) == 1
    # No more than half of a small pool rests: of 32 problems two batches of 8, of 20 one.
    assert min(use_gaps(run(build(32, rest=3, **keys), rates[:32], 25)[0])) == 3
    assert min(use_gaps(run(build(20, rest=3, **keys), rates[:20], 25)[0])) == 2


def test_rest_leaves_a_choice_in_a_small_pool():
    """Half of the problems teach: were all others resting, every one would come round in turn."""
    rates = np.array([0.5] * 16 + [0.999] * 16)
    chosen, _ = run(build(32, rest=3, explore_share=0.0), rates, 60)
    assert np.mean([problem < 16 for problem in np.ravel(chosen[20:])]) > 0.6


@pytest.mark.parametrize(("share", "num_groups"), [(0.25, 8), (0.05, 8), (1.0, 7), (0.3, 4)])
def test_no_problem_is_forgotten(share, num_groups):
    """Each of N is used once in N / (share n) batches, though the policy is sure about most."""
    rates = np.array([0.5] * 8 + [0.999] * 22)
    window = math.ceil(30 / (share * num_groups)) + 1  # shares of a choice add up
    chosen, _ = run(build(30, explore_share=share, rest=0), rates, 2 * window, num_groups)
    assert {i for problems in chosen[:window] for i in problems} == {*range(30)}
    assert {i for problems in chosen[window:] for i in problems} == {*range(30)}


def test_without_exploration_some_are():
    rates = np.array([0.5] * 10 + [0.999] * 50)
    curriculum = build(60, explore_share=0.0, rest=0, peers=["a"] * 10 + ["b"] * 50)
    chosen, _ = run(curriculum, rates, 31)
    assert {i for problems in chosen for i in problems} != {*range(60)}


def test_exploring_takes_its_share_and_refills_explore_nothing():
    curriculum = build(peers=["useful"] * 20 + ["sure"] * 20, explore_share=0.25, rest=0)
    curriculum.learn_prior({i: (4, 8) if i < 20 else (64, 64) for i in range(40)})
    for batch in range(1, 5):
        curriculum.start_batch()
        chosen = curriculum.choose(8)
        assert chosen[0] != chosen[1] and all(i < 20 for i in chosen[2:])
        curriculum.update(chosen, [4 if i < 20 else 8 for i in chosen], SIZE)
        refill = curriculum.choose(8, chosen)
        assert not {*refill} & {*chosen} and sum(i < 20 for i in refill) >= 7, batch


# Learning


def test_useful_groups_by_what_the_peers_show():
    uniform = run(build(peers=KINDS, is_predictive=False), SKEWED, 10, 16)[1]
    assert uniform.mean() > 0.55
    uniform = run(build(peers=KINDS), SKEWED, 30, 16)[1]
    assert uniform.mean() < 0.2 and uniform[10:].mean() < 0.12


def test_useful_groups_by_what_each_problem_has_shown():
    """One peer group, so that only the offline pass rates tell which is which."""
    rng = np.random.default_rng(5)
    counts = {i: (int(rng.binomial(4, p)), 4) for i, p in enumerate(SKEWED)}
    curriculum = build(400)
    curriculum.learn_prior(counts)
    assert run(curriculum, SKEWED, 15, 16)[1].mean() < 0.2


def test_a_policy_that_gets_better_is_followed():
    """From 0.03 % to 30 % on the hardest level, from 73 to 99.9 % on the easiest."""
    levels = np.repeat([-8.0, -5.0, -2.0, 1.0], 100)
    base = levels + np.random.default_rng(2).normal(0, 0.7, 400)
    curriculum = build(peers=levels.tolist())
    chosen, uniform = run(curriculum, lambda batch: sigmoid(base + 0.1 * batch), 72, 12)
    assert all(part.mean() < 0.33 for part in np.split(uniform, 4))
    chosen = np.array(chosen)
    assert (levels[chosen[5:15]] > -3).mean() > 0.85
    assert (levels[chosen[-10:]] < -1).mean() > 0.85
    p = sigmoid(base + 3.6)  # half way, all problems alike
    assert (p**SIZE + (1 - p) ** SIZE).mean() > 0.5


def test_peers_rise_with_a_problem_and_others_do_not():
    curriculum = build(peers=["a", "a", "b"])
    curriculum.start_batch()
    assert curriculum.pass_rates([2, 0, 1]) == pytest.approx([0.5, 0.5, 0.5])
    curriculum.update([0], [8], SIZE)
    own, peer, other = curriculum.pass_rates([0, 1, 2])
    assert own > 0.85 and 0.6 < peer < own - 0.1 and other == pytest.approx(0.5)
    assert curriculum.pass_rates([2, 0]) == pytest.approx([other, own])
    curriculum.update([1], [0], SIZE)
    assert curriculum.pass_rates([1])[0] < 0.5 < curriculum.pass_rates([0])[0] < own


def test_an_update_is_that_of_two_normals_on_a_grid():
    """Moments of level and offset, each by itself, after 7 of 8: sums over a plane."""
    curriculum = build(peers=["a", "b"])
    curriculum.start_batch()
    before = curriculum.state_dict()
    (level_variance, _), (offset_variance, _) = before["level"][1], before["offset"][1]
    assert (level_variance, offset_variance) == (1.5**2 + DRIFT**2, 1.5**2)
    curriculum.update([0], [7], SIZE)
    after = curriculum.state_dict()
    level, offset = np.meshgrid(np.linspace(-9, 9, 301), np.linspace(-9, 9, 301))
    weights = np.exp(-(level**2) / (2 * level_variance) - offset**2 / (2 * offset_variance))
    p = sigmoid(level + offset)
    weights *= p**7 * (1 - p)
    weights /= weights.sum()
    for name, values in (("level", level), ("offset", offset)):
        mean = (weights * values).sum()
        variance = (weights * (values - mean) ** 2).sum()
        assert after[name][0][0] == pytest.approx(mean, abs=1e-3)
        assert after[name][1][0] == pytest.approx(variance, rel=1e-3)
        assert [after[name][i][1] for i in (0, 1)] == [before[name][i][1] for i in (0, 1)]


def test_how_much_peers_differ_is_estimated():
    rng, peers = np.random.default_rng(3), ["alike"] * 100 + ["unlike"] * 100
    base = np.where(np.arange(200) < 100, 0.0, rng.normal(0, 3, 200))
    curriculum = build(peers=peers, is_predictive=False)
    run(curriculum, sigmoid(base), 40, 16)
    sums, counts = curriculum.state_dict()["spread"]
    alike, unlike = (total / count for total, count in zip(sums, counts, strict=True))
    assert alike < 1 and unlike > 3
    assert sum(counts) == 2 * 20 + 40 * 16


def test_forgetting():
    curriculum = build(2, peers=["a", "b"], half_life=30.0)
    curriculum.update([0], [8], SIZE)
    before = curriculum.state_dict()
    total, count = (row[0] for row in before["spread"])
    for _ in range(30):
        curriculum.start_batch()
    after = curriculum.state_dict()
    assert after["offset"][0] == pytest.approx([before["offset"][0][0] / 2, 0.0])
    variance = before["offset"][1][0] / 4 + 3 / 4 * total / count
    assert after["offset"][1] == pytest.approx([variance, 1.5**2])
    # What the policy does to all of them alike is no matter of forgetting, only of doubt.
    assert after["level"][0] == before["level"][0]
    doubts = [variance + 30 * DRIFT**2 for variance in before["level"][1]]
    assert after["level"][1] == pytest.approx(doubts)
    for _ in range(600):
        curriculum.start_batch()
    end = curriculum.state_dict()["offset"]
    assert end[0] == pytest.approx([0, 0], abs=1e-4) and end[1][0] == pytest.approx(total / count)


# Going on


def test_a_curriculum_goes_on_exactly():
    rates = np.linspace(0.05, 0.95, 40)
    first, second = build(peers=list("abcd") * 10), build(peers=list("abcd") * 10)
    run(first, rates, 7)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    assert second.pass_rates(range(40)) == first.pass_rates(range(40))
    for curriculum in (first, second):
        run(curriculum, rates[::-1], 5)
    assert second.state_dict() == first.state_dict()
    assert second.choose(40) == first.choose(40)
    # A saved state is a copy.
    state = first.state_dict()
    saved = json.dumps(state)
    run(first, rates, 2)
    second.load_state_dict(state)
    run(second, rates, 2)
    assert json.dumps(state) == saved


def test_a_state_of_other_problems_is_refused():
    with pytest.raises(UserError, match="its curriculum has 41 problems, this one 40"):
        build().load_state_dict(build(41).state_dict())
