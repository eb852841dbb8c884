"""Which problems are kept, besides `functions.yaml`: kinds, languages, mixes, near duplicates."""

import random
import string
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from data_prep.builder import filters
from data_prep.builder.duplicates import find_near_duplicates, is_near_duplicate, signature
from data_prep.builder.filters import find_foreign
from data_prep.builder.sets import choose_mix
from data_prep.decontamination.text import tokenise
from tests.unit.builder.helpers import KINDS, ends


def test_choose_mix_draws_the_same_for_one_seed_and_by_band():
    bands = ["easy"] * 40 + ["medium"] * 30 + ["hard"] * 30
    mix = {"easy": 0.5, "hard": 0.5, "size": 20}
    chosen = choose_mix(bands, mix, "0-grpo")
    assert Counter(bands[index] for index in chosen) == {"easy": 10, "hard": 10}
    assert choose_mix(bands, mix, "0-grpo") == chosen != choose_mix(bands, mix, "1-grpo")


@pytest.mark.parametrize(
    ("text", "margin", "expected"),
    [
        ("a" * 40, 10.01, "de"),
        ("a" * 40, 10.0, None),  # not clear enough
        ("a" * 39, 99.0, None),  # too short
        ("\u0434" * 2 + "a" * 8, 99.0, None),  # a name in another script: a fifth
        ("\u0434" * 2 + "a" * 7, 0.1, "de"),
    ],
)
def test_where_a_question_is_foreign(monkeypatch, text, margin, expected):
    scores = [("de", -100.0 + margin), ("en", -100.0)]
    identifier = SimpleNamespace(rank=lambda prose: scores)
    monkeypatch.setattr(filters, "_language_identifier", lambda: identifier)
    assert find_foreign(text, ("en",)) == expected


@pytest.mark.parametrize(
    ("kind", "text"), [(k, text) for k, texts in KINDS.items() for text in texts]
)
def test_kinds(kind, text):
    ask = getattr(filters, kind.removeprefix("not "))
    assert ask(text) is not kind.startswith("not ")


def test_a_hostile_question_of_many_environments_ends():
    numbers = range(20_000)
    closing = "".join(rf"\end{{a{n}}}" for n in numbers)
    assert ends(closing + "".join(rf"\begin{{a{n}}}" for n in numbers))


def repeats(rows, same):
    """Which rows repeat which; `same` are the pairs that ask the same, null stands for all."""
    keys = np.array(rows, dtype=np.uint64).reshape(len(rows), -1 if rows else 2)
    return find_near_duplicates(keys, lambda a, b: same is None or [a, b] in same)


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
