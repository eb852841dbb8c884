"""The rivals' rules against cases worked out from their formulas, and what all must keep."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

from benchmarks.rivals import RIVALS, Greso, Mopps, MoppsNoDecay, Uniform
from stages.trainer.rollouts import Groups, pick_groups

SIZE = 4  # rollouts in a group
NUM = 40  # problems


def groups_of(problems, num_right, world_size=1):
    rows = [float(n < right) for right in num_right for n in range(SIZE)]
    correctness = torch.tensor(rows)
    return Groups(torch.tensor(problems), correctness[:, None], correctness, world_size)


def play(rival, batches, seed=0):
    """Choose, roll out and observe, with all further rounds; gives every list of problems."""
    rng, rates = np.random.default_rng(seed), np.linspace(0, 1, NUM)
    asked = []
    for _ in range(batches):
        problems, rounds, num_right = rival.choose(8), [], []
        while problems:
            rounds += problems
            asked.append(problems)
            num_right += (right := rng.binomial(SIZE, rates[problems]).tolist())
            rival.observe(problems, right, SIZE)
            picked = pick_groups(groups_of(rounds, num_right).is_uniform(), 8)[0]
            batch = [(rounds[n], num_right[n]) for n in picked]
            problems = rival.next_round(groups_of(*zip(*batch, strict=True)))
    return asked


# What all keep


@pytest.mark.parametrize("name", RIVALS)
def test_processes_agree_and_a_saved_state_goes_on(name):
    first, second = (RIVALS[name]([{}] * NUM, SIZE, 3) for _ in range(2))
    assert play(first, 12) == play(second, 12)
    assert play(RIVALS[name]([{}] * NUM, SIZE, 4), 12) != play(
        RIVALS[name]([{}] * NUM, SIZE, 3), 12
    )
    resumed = RIVALS[name]([{}] * NUM, SIZE, 99)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert play(resumed, 9, seed=5) == play(first, 9, seed=5)
    assert resumed.state_dict() == first.state_dict()


@pytest.mark.parametrize("name", RIVALS)
def test_problems_of_a_batch_differ_and_are_plain_numbers(name):
    for problems in play(RIVALS[name]([{}] * NUM, SIZE, 0), 20):
        assert len({*problems}) == len(problems) and {*map(type, problems)} == {int}
        assert {*problems} <= {*range(NUM)}


# Uniform


def test_uniform_goes_through_all_problems_pass_by_pass():
    rival = Uniform([{}] * 12, SIZE, 0)
    batches = [rival.choose(5) for _ in range(12)]
    assert all(len({*batch}) == 5 for batch in batches)
    assert Counter(n for batch in batches for n in batch) == dict.fromkeys(range(12), 5)
    assert batches[0] != sorted(batches[0])


def test_more_problems_than_there_are_come_again():
    rival = Uniform([{}] * 3, SIZE, 0)
    assert {*rival.choose(1), *rival._next(2)} == {0, 1, 2}
    assert len(rival._next(4)) == 4


# MoPPS


def test_mopps_posterior():
    """a = d a + (1 - d) + s: from 1, with 3 of 4: 4; then with 0 of 4: 2 + 0.5 (d = 0.5)."""
    rival = Mopps([{}] * 3, SIZE, 0)
    rival.observe([1, 2], [3, 0], SIZE)
    assert rival.state_dict()["counts"] == [[1, 4, 1], [1, 2, 5]]
    rival.observe([1], [0], SIZE)
    assert rival.state_dict()["counts"] == [[1, 2.5, 1], [1, 5.5, 5]]
    keeps = MoppsNoDecay([{}] * 3, SIZE, 0)
    keeps.observe([1], [3], SIZE)
    keeps.observe([1], [0], SIZE)
    assert keeps.state_dict()["counts"] == [[1, 4, 1], [1, 6, 1]]


def test_mopps_takes_the_candidates_nearest_to_one_half():
    rival = MoppsNoDecay([{}] * NUM, SIZE, 0)
    middle = [7, 30]
    for problem in range(NUM):
        right = 2 if problem in middle else 4 * (problem % 2)
        rival.observe([problem] * 500, [right] * 500, SIZE)
    assert {*rival.choose(2)} == {*middle}  # of 32 candidates, where both happen to be
    few = Mopps([{}] * NUM, SIZE, 0)
    few.ratio = 2
    candidates = Uniform([{}] * NUM, SIZE, 0).choose(6)  # the same pass
    assert {*few.choose(3)} < {*candidates}


# GRESO


def test_greso_skips_by_the_visits_without_signal():
    """1 - max(p^n, 0.01): three all right at p = 0.5 are 7/8, seven 0.99; anything mixed is 0."""
    rival = Greso([{}] * 3, SIZE, 0)
    for _ in range(3):
        rival.observe([0, 1, 2], [4, 0, 2], SIZE)
    assert [rival.skip_chance(n) for n in range(3)] == [0.875, 0.875, 0]
    rival.observe([0, 1], [0, 1], SIZE)  # all wrong now: the first visit of that kind
    assert [rival.skip_chance(n) for n in range(3)] == [0.5, 0, 0]
    for _ in range(7):
        rival.observe([2], [4], SIZE)
    assert rival.skip_chance(2) == 0.99
    rival._keep = {"easy": 0.9, "hard": 0.2}
    assert rival.skip_chance(0) == 0.8


def test_greso_moves_what_it_keeps_from_the_second_pass_on():
    """Targets: 8.3 % of the groups all right, 16.7 % all wrong."""
    rival = Greso([{}] * 8, SIZE, 0)
    rival.choose(8)
    rival.observe(range(8), [4, 0, 2, 2, 2, 2, 2, 2], SIZE)  # 12.5 % each
    rival.choose(8)  # begins the second pass; until now nothing has moved
    assert rival._keep == {"easy": 0.5, "hard": 0.5}
    rival.observe(range(8), [4, 0, 2, 2, 2, 2, 2, 2], SIZE)
    rival.choose(8)
    assert rival._keep == {"easy": 0.49, "hard": 0.51}
    rival._keep = {"easy": 0.05, "hard": 0.95}
    rival.observe(range(8), [4, 0, 2, 2, 2, 2, 2, 2], SIZE)
    rival.choose(8)
    assert rival._keep == {"easy": 0.05, "hard": 0.95}


@pytest.mark.parametrize(
    ("num_right", "world_size", "num", "is_last"),
    [
        ([2] * 8, 1, 0, None),
        ([4] + [2] * 7, 1, 2, True),  # 1.25 * 1 / (7/8) = 1.4; a quarter of a batch is 2
        ([4] * 4 + [2] * 4, 1, 10, True),  # 1.25 * 4 / (1/2)
        ([0] * 6 + [2] * 2, 1, 12, False),  # 1.25 * 6 / (1/4) = 30; at most 12
        ([0] * 8, 1, 12, False),  # no yield to go by
        ([4] * 3 + [2] * 5, 2, 12, True),  # the first rank lacks 3 of 4: 1.25 * 3 / (5/8) = 6
    ],
)
def test_greso_fills_the_batch_up(num_right, world_size, num, is_last):
    rival = Greso([{}] * NUM, SIZE, 0)
    problems = rival.choose(8)
    rival.observe(problems, num_right, SIZE)
    groups = groups_of(problems, num_right, world_size)
    new = rival.next_round(groups)
    if not num:
        assert new is None
        return
    assert len(new) == num and not {*new} & {*problems}
    rival.observe(new, [2] * num, SIZE)
    again = rival.next_round(groups)
    assert (again is None) == is_last
    assert is_last or not {*again} & {*problems, *new}
