"""The curriculum: its posterior and its choices on simulated policies, and what it starts from."""

import json
import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from stages.arguments import MODES, GrpoArguments
from stages.trainer.curriculum import (
    PredictiveCurriculum,
    Refill,
    add_binomial,
    build_curriculum,
    check_choice,
    expected_rate,
    find_peers,
    keep_by_pass_rate,
    useful_chance,
)
from stages.trainer.resume import states_of
from stages.trainer.rollouts import Groups
from tests.files import write_rows

SIZE = 8  # rollouts in a group


def build(num=40, seed=0, peers=None, **keys):
    return PredictiveCurriculum(peers or ["one"] * num, SIZE, seed, **keys)


def run(curriculum, pass_rates, batches, num_groups=8, components=None):
    """Choose, roll out and update.

    Args:
        pass_rates: of a policy, shape (N,); or a function of the batch that gives them.
        components: of the prompts, (N, D), which are read as a trainer reads them.

    Returns:
        The problems of each batch, and the share of uniform groups in each.
    """
    rng, chosen, uniform = np.random.default_rng(7), [], []
    for batch in range(batches):
        rates = pass_rates(batch) if callable(pass_rates) else pass_rates
        if components is not None:
            read = np.zeros((len(components), 1))
            read[curriculum.candidates(num_groups)] = 1
            curriculum.see(components * read)
        chosen.append(curriculum.choose(num_groups) or curriculum.draw(num_groups))
        assert components is None or read[chosen[-1]].all()
        right = rng.binomial(SIZE, rates[chosen[-1]])
        curriculum.observe(chosen[-1], right.tolist(), SIZE)
        uniform.append(np.isin(right, (0, SIZE)).mean())
    return chosen, np.array(uniform)


def sigmoid(eta):
    return 1 / (1 + np.exp(-np.clip(eta, -700, 700)))


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
    assert curriculum.draw(8) == curriculum.draw(8)
    again = curriculum.draw(8)
    curriculum.choose(1)
    assert curriculum.draw(8) != again


def test_problems_are_drawn_with_the_eighth_power_of_their_chance():
    curriculum = build(2)
    state = curriculum.state_dict()
    state["offset"] = [[0.0, 1.5], [1.0, 1.0]]  # means, variances
    curriculum.load_state_dict(state)
    # The one weight, of both, has mean 0 and variance 1.5^2.
    chances = useful_chance(np.array([0.0, 1.5]), np.array([3.25, 3.25]), SIZE)
    assert 0.8 < chances[1] / chances[0] < 0.9
    num, drawn = 4000, 0
    for curriculum.seed in range(num):
        drawn += curriculum.draw(1) == [0]
    expected = chances[0] ** 8 / (chances**8).sum()
    assert drawn / num == pytest.approx(expected, abs=0.012)


@pytest.mark.parametrize("is_predictive", [True, False])
def test_those_in_the_batch_come_last_and_the_draw_is_another(is_predictive):
    curriculum = build(20, is_predictive=is_predictive, rest=0)
    curriculum.choose(1)
    first = curriculum.draw(8)
    second = curriculum.draw(12, first)
    assert sorted(first + second) == list(range(20))
    third = curriculum.draw(15, first)
    assert sorted(third[:12]) == sorted(second) and {*third[12:]} < {*first}
    assert curriculum.draw(20, first + second) != curriculum.draw(20)
    # Rather one that rests than one that is in the batch.
    curriculum = build(10, is_predictive=is_predictive)
    curriculum.observe([0, 1, 2], [4, 4, 4], SIZE)
    curriculum.choose(1)
    assert sorted(curriculum.draw(6, [3, 4, 5, 6])) == [0, 1, 2, 7, 8, 9]
    # With the first draw's numbers these would be its next four.
    curriculum = build(20, is_predictive=is_predictive)
    first = curriculum.draw(8)
    assert curriculum.draw(4, first[:4]) != first[4:]


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


@pytest.mark.parametrize("num", [30, 120])
@pytest.mark.parametrize(("share", "num_groups"), [(0.25, 8), (0.05, 8), (1.0, 7), (0.3, 4)])
def test_no_problem_is_forgotten(share, num_groups, num):
    """Each of N is used once in N / (share n) batches, though the policy is sure about most."""
    rates = np.array([0.5] * 8 + [0.999] * (num - 8))
    window = math.ceil(num / (share * num_groups)) + 1  # shares of a choice add up
    curriculum = build(num, explore_share=share, rest=0, num_components=1)
    chosen, _ = run(curriculum, rates, 2 * window, num_groups, np.zeros((num, 1)))
    assert {i for problems in chosen[:window] for i in problems} == {*range(num)}
    assert {i for problems in chosen[window:] for i in problems} == {*range(num)}


def test_candidates_grow_with_every_batch():
    """Three batches' problems or components, then two batches' more, until all are read."""
    curriculum, sizes = build(100, num_components=9), []
    for _ in range(6):
        sizes.append(len({*curriculum.candidates(8)}))
        curriculum.choose(8)
    assert sizes == [27, 43, 59, 75, 91, 100]
    # Offline pass rates are of all problems, and worth more than the seconds of reading.
    curriculum = build(100, num_components=9)
    curriculum.learn_prior({0: (1, 8)})
    assert len(curriculum.candidates(8)) == 100


# Learning


def test_useful_groups_by_what_the_peers_show():
    uniform = run(build(peers=KINDS, is_predictive=False), SKEWED, 10, 16)[1]
    assert uniform.mean() > 0.55
    uniform = run(build(peers=KINDS), SKEWED, 30, 16)[1]
    assert uniform.mean() < 0.2 and uniform[10:].mean() < 0.12


def test_an_update_is_that_of_two_normals_on_a_grid():
    """Moments of a weight and an offset, each by itself, after 7 of 8: sums over a plane."""
    curriculum = build(2, num_components=1)
    curriculum.see(np.array([[1.0], [-1.0]]))
    curriculum.choose(1)
    before = curriculum.state_dict()
    weight_variance, offset_variance = 1.5**2 + 0.1**2, 3.0**2
    assert before["covariance"] == [[weight_variance, 0.0], [0.0, weight_variance]]
    curriculum.observe([0], [7], SIZE)
    after = curriculum.state_dict()
    # eta is the sum of two weights, whose sum has twice the variance, and of the offset.
    both, offset = np.meshgrid(np.linspace(-14, 14, 501), np.linspace(-20, 20, 501))
    weights = np.exp(-(both**2) / (4 * weight_variance) - offset**2 / (2 * offset_variance))
    p = sigmoid(both + offset)
    weights *= p**7 * (1 - p)
    weights /= weights.sum()
    mean = (weights * offset).sum()
    assert after["offset"][0] == pytest.approx([mean, 0.0], rel=2e-3)
    variance = (weights * (offset - mean) ** 2).sum()
    assert after["offset"][1] == pytest.approx([variance, offset_variance], rel=2e-3)
    assert np.sum(after["mean"]) == pytest.approx((weights * both).sum(), rel=2e-3)
    variance = (weights * (both - np.sum(after["mean"])) ** 2).sum()
    assert np.sum(after["covariance"]) == pytest.approx(variance, rel=2e-3)
    # The difference of the weights, which eta does not depend on, is as unknown as before.
    one = np.array([1.0, -1.0])
    assert one @ after["covariance"] @ one == pytest.approx(2 * weight_variance)


def test_forgetting():
    curriculum = build(2, half_life=30.0)
    assert curriculum.state_dict()["spread"] == [20 * 3.0**2, 20]  # as if 20 problems were known
    curriculum.observe([0], [8], SIZE)
    before = curriculum.state_dict()
    prior = np.divide(*before["spread"])
    for _ in range(30):
        curriculum.choose(1)
    after = curriculum.state_dict()
    assert after["offset"][0] == pytest.approx([before["offset"][0][0] / 2, 0.0])
    found = [variance / 4 + 3 / 4 * prior for variance in before["offset"][1]]
    assert after["offset"][1] == pytest.approx(found)
    # What the policy does to all of them alike is no matter of forgetting, only of doubt.
    assert after["mean"] == before["mean"]
    assert after["covariance"][0][0] == pytest.approx(before["covariance"][0][0] + 30 * 0.1**2)
    for _ in range(600):
        curriculum.choose(1)
    end = curriculum.state_dict()["offset"]
    assert end[0] == pytest.approx([0, 0], abs=1e-4) and end[1] == pytest.approx([prior, prior])


def test_a_group_teaches_about_every_problem_like_it():
    """Without labels: half of the difficulty is in the components, half in each problem alone."""
    rng = np.random.default_rng(3)
    components = rng.normal(size=(600, 4))
    known = components @ np.array([2.0, -2.0, 1.0, 1.0])  # deviation 3.2, as that of the rest
    rates = sigmoid(known + rng.normal(0, 3.2, 600) - 2)
    seeing, blind = build(600, num_components=4), build(600)
    seeing.see(components)
    uniform = {one: run(one, rates, 30, 16)[1][5:].mean() for one in (seeing, blind)}
    assert uniform[seeing] < uniform[blind] - 0.08
    unseen = np.array(seeing.state_dict()["last_used"]) < 0
    found = np.array(seeing.pass_rates(np.flatnonzero(unseen)))
    assert unseen.sum() > 200 and np.corrcoef(found, rates[unseen])[0, 1] > 0.5
    assert np.ptp(blind.pass_rates(np.flatnonzero(unseen))) > 0  # those that it has used


# Going on


def test_a_curriculum_goes_on_exactly():
    """After two batches, when a part of the prompts has been read."""
    components = np.random.default_rng(0).normal(size=(60, 2))
    rates, keys = np.linspace(0.05, 0.95, 60), {"peers": list("abcd") * 15, "num_components": 2}
    first, second = build(**keys), build(**keys)
    run(first, rates, 2, components=components)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    for curriculum in (first, second):
        run(curriculum, rates[::-1], 5, components=components)
    assert second.state_dict() == first.state_dict()
    assert second.draw(40) == first.draw(40)


def test_a_state_of_other_problems_is_refused():
    with pytest.raises(UserError, match=r"curriculum has 41 problems .* this one 40, 1;"):
        build().load_state_dict(build(41).state_dict())
    seeing, older = build(num_components=2), build().state_dict()
    seeing.see(np.zeros((40, 2)))
    del older["mean"]  # of a version with levels
    for state in (seeing.state_dict(), older):
        with pytest.raises(UserError, match="its curriculum has 40 problems and"):
            build().load_state_dict(state)
    with pytest.raises(UserError, match="has 41 rows, the run began with 40;"):
        build(41, num_components=2).see(np.zeros((40, 2)))


# The posterior of a logit, against dense sums over a fine grid

MEANS = np.array([0.0, 1.5, -4.0, 12.0])


def on_grid(mean, variance, right=0, total=0):
    """Points and normalised weights of the density, on a grid that is fine and wide enough."""
    reach = 12 * variance**0.5
    low, high = mean - reach - variance * (total - right), mean + reach + variance * right
    eta = np.linspace(low, high, 20_001)
    log_density = -((eta - mean) ** 2) / (2 * variance)
    log_density += right * np.log(sigmoid(eta)) + (total - right) * np.log(sigmoid(-eta))
    weights = np.exp(log_density - log_density.max())
    return eta, weights / weights.sum()


@pytest.mark.parametrize("variance", [0.01, 2.25, 4.5, 10.0, 30.0])
def test_expectations_agree_with_a_fine_grid(variance):
    variances = np.full(4, variance)
    # The curriculum's priors start at 4.5; beyond 10, 31 nodes are coarse for a step of width 1.
    tolerance = 0.003 if variance <= 10 else 0.015
    rates = expected_rate(MEANS, variances)
    chances = {size: useful_chance(MEANS, variances, size) for size in (2, 4, 8, 16)}
    for number, mean in enumerate(MEANS):
        eta, weights = on_grid(mean, variance)
        p = sigmoid(eta)
        assert rates[number] == pytest.approx(weights @ p, abs=tolerance), mean
        for size, found in chances.items():
            expected = weights @ (1 - p**size - (1 - p) ** size)
            assert found[number] == pytest.approx(expected, abs=tolerance), (mean, size)


@pytest.mark.parametrize("variance", [0.01, 0.3, 2.25, 4.5, 30.0])
@pytest.mark.parametrize(
    ("right", "total"), [(0, 8), (1, 8), (4, 8), (8, 8), (0, 1), (32, 64), (1000, 1000)]
)
def test_add_binomial_agrees_with_a_fine_grid(variance, right, total):
    given = [np.full(4, float(number)) for number in (variance, right, total)]
    found = add_binomial(MEANS, *given)
    for mean, new_mean, new_variance in zip(MEANS, *found, strict=True):
        eta, weights = on_grid(mean, variance, right, total)
        expected = weights @ eta
        spread = weights @ (eta - expected) ** 2
        assert new_mean == pytest.approx(expected, abs=0.03 * spread**0.5), mean
        assert new_variance == pytest.approx(spread, rel=0.02), mean


# What it starts from


ROWS = [{"id": name} for name in "abcdefg"]
COUNTS = {  # g was not measured
    "a": (0, 4), "b": (1, 4), "c": (3, 8), "d": (2, 4), "e": (3, 4), "f": (4, 4),
}  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "kept"),
    [(0.25, 0.5, "bcd"), (0.26, 0.49, "c"), (0.0, 1.0, "abcdef"), (0.8, 0.9, "")],
)
def test_keep_by_pass_rate(low, high, kept):
    assert keep_by_pass_rate(ROWS, COUNTS, low, high) == [{"id": name} for name in kept]


def test_offline_pass_rates_give_levels_and_spread():
    rng, levels = np.random.default_rng(4), np.repeat([-2.0, 0.0, 3.0], 300)
    rates = 1 / (1 + np.exp(-levels - rng.normal(0, 1, 900)))
    measured = rng.permutation(900)[:800]
    counts = {int(i): (int(rng.binomial(8, rates[i])), 8) for i in measured}
    curriculum = PredictiveCurriculum([*levels.tolist(), "unseen"], SIZE, 0)
    curriculum.learn_prior(counts)
    state = curriculum.state_dict()
    weights = np.array(state["mean"])
    assert weights[0] + weights[1:4] == pytest.approx([-2.0, 0.0, 3.0], abs=0.25)
    assert weights[4] == 0.0 and state["covariance"][4][4] == pytest.approx(1.5**2)
    assert 0.8 < np.divide(*state["spread"]) < 1.8  # the prior's 9 still counts
    found = np.array(curriculum.pass_rates(range(900)))
    unmeasured = np.setdiff1d(range(900), measured)
    doubts = np.array(state["offset"])[1, unmeasured]
    assert doubts == pytest.approx(np.divide(*state["spread"]))
    for level in (-2.0, 0.0, 3.0):  # where nothing is known of a problem, its peers tell
        others = found[unmeasured[levels[unmeasured] == level]]
        assert np.ptp(others) < 1e-9
        assert others[0] == pytest.approx(rates[levels == level].mean(), abs=0.05)
    assert np.abs(found - rates)[measured].mean() < 0.11
    # Components that come later are fitted to the same counts.
    hidden = build(900, num_components=1)
    hidden.learn_prior(counts)
    hidden.see((levels - levels.mean())[:, None] / levels.std())
    assert np.corrcoef(np.array(hidden.pass_rates(unmeasured)), rates[unmeasured])[0, 1] > 0.85


def test_peers_are_of_one_source_and_level():
    rows = [{"source": "a", "level": n % 3} for n in range(6)] + [{"source": "b", "level": None}]
    assert find_peers(rows) == [*[("a", n % 3) for n in range(6)], ("b", None)]
    rows = [{"source": "a", "level": n / 7} for n in range(80)] + [{"source": "a", "level": None}]
    peers = find_peers(rows)
    assert [peers.count(("a", part)) for part in range(8)] == [10] * 8 and peers[-1] == ("a", None)
    for num_levels, num_kinds in ((16, 16), (17, 8)):
        rows = [{"source": "a", "level": level} for level in range(num_levels)]
        assert len({*find_peers(rows)}) == num_kinds


POOL = [{"id": f"p{n}", "source": "a", "level": 1} for n in range(6)]


@pytest.fixture
def build_mode(tmp_path):
    """Function: mode, rows to train on, (id, correct, samples) of pass rates -> a curriculum."""

    def call(mode, rows, *counts):
        path = tmp_path / "pass_rates.jsonl"
        names = ("id", "num_right", "num_samples")
        write_rows(path, [dict(zip(names, one, strict=True)) for one in counts])
        file = str(path) if counts else None
        args = GrpoArguments(train_file="f", curriculum=mode, pass_rates=file)
        return build_curriculum(rows, args, 8, 0)

    return call


@pytest.mark.parametrize("mode", MODES)
def test_what_a_recipe_builds(build_mode, mode):
    found = build_mode(mode, POOL, *[("p0", 1, 4)] * (mode == "offline"))
    assert (found is None) == (mode in ("off", "offline"))
    if found is not None:
        assert (found.max_rounds > 0) == ("refill" in mode)
        assert (found.choose(6) is not None) == ("predictive" in mode)


def test_pass_rates_are_a_start(build_mode):
    """Also where the file has other problems."""
    found = build_mode("predictive", POOL, ("p8", 8, 8), ("p1", 1, 8), ("p0", 0, 8))
    rates = found.pass_rates(range(6))
    assert rates[0] < rates[1] < 0.3 and rates[2:] == pytest.approx([rates[2]] * 4)


def test_rows_that_do_not_fit_are_refused(build_mode):
    with pytest.raises(UserError, match="train_file: two rows have the same id"):
        build_mode("predictive", [*POOL, POOL[0]])
    with pytest.raises(UserError, match="has none of the ids of train_file"):
        build_mode("predictive", POOL, ("x", 1, 4))


# Refill


def groups_of(problems, uniform, world_size=1):
    """Groups of two rollouts of which some are all right."""
    correctness = [x for flag in uniform for x in ((1.0, 1.0) if flag else (1.0, 0.0))]
    right = torch.tensor(correctness)
    return Groups(torch.tensor(problems), right.unsqueeze(1), right, world_size)


def test_refill_asks_for_as_many_as_the_rank_with_most_uniform_groups():
    refill = Refill(build(20, rest=0), max_rounds=2)
    first = refill.choose(4)
    second = refill.next_round(groups_of(first, [1, 1, 0, 1], 2))
    assert len(second) == 4 and not {*first} & {*second}
    third = refill.next_round(groups_of(first, [1, 0, 0, 0], 2))
    assert len(third) == 2 and not {*first, *second} & {*third}
    assert refill.max_rounds == 2
    again = refill.choose(4)
    assert refill.next_round(groups_of(again, [0] * 4)) is None
    assert refill.state_dict() == refill.curriculum.state_dict()


# A curriculum of the user's own


@pytest.mark.parametrize("chosen", [[0], "ab", {0: 1, 1: 2}, [-1, 0], [4, 0], [0, True], [0, 1.0]])
def test_a_choice_that_is_not_so_many_rows_is_refused(chosen):
    check_choice("Mine.choose", [0, 3], 2, 4)
    check_choice("Mine.choose", np.array([0, 3]), 2, 4)
    with pytest.raises(UserError, match=r"^curriculum: Mine\.choose "):
        check_choice("Mine.choose", chosen, 2, 4)


@pytest.mark.parametrize("state", [{"weight": 1j}, {"seen": [{7: 1}]}, {"a": {"b": ({None: 1},)}}])
def test_a_state_that_json_does_not_keep_is_refused(state):
    part = SimpleNamespace(state_dict=lambda: state)
    with pytest.raises(UserError, match=r"^curriculum: state_dict\(\) of SimpleNamespace "):
        states_of({"curriculum": part})
