"""Which problems are kept, besides `functions.yaml`: kinds, languages, the draw of a mix."""

from collections import Counter
from types import SimpleNamespace

import pytest

from data_prep.builder import filters
from data_prep.builder.filters import find_foreign
from data_prep.builder.sets import choose_mix
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
