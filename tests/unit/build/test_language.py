"""The language filter: prose decides, formulas and names do not."""

import pytest

from data_prep.build.filters import LANGUAGES, find_foreign

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
