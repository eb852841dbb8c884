"""Near duplicates: keys of questions, and rows that meet in one."""

import random
import string

import numpy as np
import pytest

from data_prep.builder.duplicates import find_near_duplicates, is_near_duplicate, signature
from data_prep.decontamination.text import tokenise


@pytest.mark.parametrize(
    ("rows", "is_same", "dropped"),
    [
        # 1 meets 0 in the first band, 3 meets 1 in the second, 2 meets nobody.
        (((7, 1), (7, 2), (8, 3), (9, 2)), lambda a, b: True, {1: 0, 3: 0}),
        (((7, 1), (7, 2), (7, 3)), lambda a, b: (a, b) == (0, 2), {2: 0}),
        # First band: 2 repeats 1. Second band: 1 repeats 0.
        (((1, 5), (2, 5), (2, 6)), lambda a, b: True, {1: 0, 2: 0}),
        ((), lambda a, b: True, {}),
        # A row is compared with the first four of its group, no more.
        (((7,),) * 6, lambda a, b: (a, b) == (3, 5), {5: 3}),
        (((7,),) * 6, lambda a, b: (a, b) == (4, 5), {}),
    ],
)
def test_the_first_of_its_kind_is_kept_over_all_bands(rows, is_same, dropped):
    keys = np.array(rows, dtype=np.uint64).reshape(len(rows), -1 if rows else 2)
    assert find_near_duplicates(keys, is_same) == dropped


@pytest.mark.parametrize(
    ("num_shared", "num_own", "low", "high"),
    [
        (20, 10, 0.52, 0.58),  # half of the triples of both: 1 - (1 - 0.5^3)^6 = 0.55
        (12, 14, 0.12, 0.18),  # three tenths: 1 - (1 - 0.3^3)^6 = 0.15
    ],
)
def test_questions_meet_as_often_as_six_bands_of_three_say(num_shared, num_own, low, high):
    rng, num_pairs = random.Random(0), 1500

    def draw(count):
        return ["".join(rng.choices(string.ascii_lowercase, k=9)) for _ in range(count)]

    meet = 0
    for _ in range(num_pairs):
        shared = draw(num_shared + 2)  # n words have n - 2 triples
        first, second = (signature(shared + draw(num_own)) for _ in range(2))
        meet += bool((first == second).any())
    assert low < meet / num_pairs < high


def test_editions_are_found_among_many_questions():
    rng, words = random.Random(0), ["circle", "square", "radius", "length", "area", "point", "line"]
    rows = [
        f"{' '.join(rng.choices(words, k=25))} {rng.randrange(99)} and {rng.randrange(99)}"
        for _ in range(300)
    ]
    rows += [f"12. What is the {question}?" for question in rows[:100]]
    keys = np.stack([signature(tokenise(question)) for question in rows])
    found = find_near_duplicates(keys, lambda a, b: is_near_duplicate(rows[a], rows[b]))
    assert found == {300 + at: at for at in range(100)}
