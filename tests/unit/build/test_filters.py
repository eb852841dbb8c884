"""Languages, bands, mixes and bounds by level and pass rate."""

from collections import Counter

import pytest

from data_prep.build.filters import (
    LANGUAGES,
    Mix,
    Policies,
    check_problem,
    choose_mix,
    find_foreign,
    plan_counts,
)
from data_prep.build.recipe import check_bands, check_mix
from data_prep.config import UserError
from data_prep.schema import Problem
from data_prep.sources.base import Drop


@pytest.mark.parametrize(
    ("value", "level", "pass_rate", "expected"),
    [
        ("easy", None, None, "easy"),
        ("hard", 1, 1.0, "hard"),
        ({"by": "level", "medium": 3, "hard": 5}, 2, None, "easy"),
        ({"by": "level", "medium": 3, "hard": 5}, 3, None, "medium"),
        ({"by": "level", "medium": 3, "hard": 5}, 4.5, None, "medium"),
        ({"by": "level", "medium": 3, "hard": 5}, 5, None, "hard"),
        ({"by": "level", "medium": 3, "hard": 5}, None, 0.5, None),
        ({"by": "level", "medium": 3, "hard": 3}, 3, None, "hard"),  # nothing is medium
        ({"by": "pass_rate", "medium": 0.75, "hard": 0.25}, 9, 1.0, "easy"),
        ({"by": "pass_rate", "medium": 0.75, "hard": 0.25}, 9, 0.75, "medium"),
        ({"by": "pass_rate", "medium": 0.75, "hard": 0.25}, 9, 0.25, "hard"),
        ({"by": "pass_rate", "medium": 0.75, "hard": 0.25}, 9, 0.0, "hard"),
        ({"by": "pass_rate", "medium": 0.75, "hard": 0.25}, 9, None, None),
    ],
)
def test_bands(value, level, pass_rate, expected):
    assert check_bands(value, "x").find(level, pass_rate) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("simple", "difficulty: 'simple': write easy"),
        ({"by": "subject", "medium": 3, "hard": 4}, "write easy, medium or hard"),
        ({"by": "level", "medium": "3", "hard": 4}, "write easy, medium or hard"),
        ({"by": "level", "medium": 5, "hard": 3}, "medium: 5 is above hard"),
        ({"by": "pass_rate", "medium": 0.2, "hard": 0.7}, "medium: 0.2 is below hard"),
    ],
)
def test_bad_bands(value, words):
    with pytest.raises(UserError, match=words):
        check_bands(value, "sft: math")


@pytest.mark.parametrize(
    ("available", "shares", "size", "expected"),
    [
        # floor(3 / 0.3) = 10 is the least
        ({"easy": 100, "medium": 50, "hard": 3}, (0.2, 0.5, 0.3), None, (2, 5, 3)),
        ({"easy": 100, "medium": 50, "hard": 30}, (0.2, 0.5, 0.3), 10, (2, 5, 3)),
        # thirds of 10: 3.33 each, the largest remainder goes to the first by name
        ({"easy": 9, "medium": 9, "hard": 9}, (1 / 3, 1 / 3, 1 / 3), 10, (4, 3, 3)),
        ({"easy": 5, "medium": 0, "hard": 5}, (0.5, 0.0, 0.5), None, (5, 0, 5)),
        ({"easy": 5, "medium": 9, "hard": 0}, (0.5, 0.0, 0.5), None, (0, 0, 0)),
        # 7 easy and 2.5 hard are wanted of ten: N = floor(2 / 0.25) = 8
        ({"easy": 7, "medium": 0, "hard": 2}, (0.75, 0.0, 0.25), None, (6, 0, 2)),
    ],
)
def test_plan_counts(available, shares, size, expected):
    mix = Mix(dict(zip(("easy", "medium", "hard"), shares, strict=True)), size)
    counts = plan_counts(available, mix)
    assert tuple(counts.get(band, 0) for band in ("easy", "medium", "hard")) == expected
    assert all(counts[band] <= available[band] for band in counts)


def test_choose_mix_draws_the_same_for_one_seed_and_by_band():
    bands = ["easy"] * 40 + ["medium"] * 30 + ["hard"] * 30
    mix = check_mix({"easy": 0.5, "hard": 0.5, "size": 20}, "grpo")
    chosen = choose_mix(bands, mix, "0-grpo")
    assert Counter(bands[index] for index in chosen) == {"easy": 10, "hard": 10}
    assert choose_mix(bands, mix, "0-grpo") == chosen != choose_mix(bands, mix, "1-grpo")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "write {easy"),
        ({"easy": 0.5}, "add up to 0.5"),
        ({"easy": 1.5}, "1.5 is not a share"),
        ({"easy": True}, "True is not a share"),
        ({"easy": 1, "size": 0}, "size: 0 is not"),
        ({"easy": 1, "sise": 5}, "unknown key 'sise'"),
    ],
)
def test_bad_mixes(value, words):
    with pytest.raises(UserError, match=f"mix: sft: .*{words}"):
        check_mix(value, "sft")


@pytest.mark.parametrize(
    ("limits", "level", "pass_rate", "expected"),
    [
        ({}, None, None, None),
        ({"min_level": 3}, 3, None, None),
        ({"min_level": 3}, 2.5, None, "level"),
        ({"min_level": 3}, None, None, "level"),  # unknown is not known to be hard enough
        ({"max_level": 3}, 4, None, "level"),
        ({"min_pass_rate": 0.1, "max_pass_rate": 0.9}, 1, 0.9, None),
        ({"min_pass_rate": 0.1, "max_pass_rate": 0.9}, 1, 1.0, "pass_rate"),
        ({"min_pass_rate": 0.1, "max_pass_rate": 0.9}, 1, None, "pass_rate"),
    ],
)
def test_limits(limits, level, pass_rate, expected):
    problem = Problem("a", "math", "q", ("1",), level=level, pass_rate=pass_rate)
    found = check_problem(problem, Policies(is_training=True, **limits))
    drop = Drop(expected, str(getattr(problem, expected))) if expected else None
    assert found == (drop or ("1",))


FRENCH = "Trouver tous les entiers naturels dont la somme des chiffres est égale au produit."


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the sum of the first ten positive integers?", None),
        ("Write $4.3+3.88$ as a decimal.", None),
        ("Compute $\\sin 60^\\circ$.", None),
        ("$$x^2 + 3x = 5$$", None),
        ("", None),
        ("Express eleven in base 2.", None),
        ("设 $x$ 是实数。求 $x^2+1$ 的最小值。", "zh"),
        ("Let 李华 have $5$ apples and 王明 twice as many. How many have they together?", None),
        ("Найдите все целые числа $n$, для которых $n^2+1$ делится на $5$.", "ru"),
        (FRENCH, "fr"),
        ("Man ermittle alle diejenigen reellen Zahlen, für die der Term definiert ist.", "de"),
        ("Sea $ABC$ un triángulo rectángulo. Hallar la altura sobre la hipotenusa.", "es"),
        # Greek letters are mathematics.
        ("Given \u03b1 + \u03b2 = \u03c0, find the cosine of \u03b1 in terms of \u03b8.", None),
    ],
)  # fmt: skip
def test_only_english(question, expected):
    assert find_foreign(question, ("en",)) == expected


def test_more_languages_may_be_allowed():
    assert find_foreign(FRENCH, ("en", "fr")) is None
    assert find_foreign("How many integers have two digits that sum to nine?", ("zh",)) == "en"
    assert {"en", "zh"} < set(LANGUAGES)
