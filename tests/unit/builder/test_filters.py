"""Which problems are kept: kinds and golds, languages, bounds of the level, bands and mixes."""

import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from data_prep.builder import filters
from data_prep.builder.filters import check_damage, check_problem, find_band, find_foreign
from data_prep.builder.recipe import BANDS, LANGUAGES, ByLevel, Source
from data_prep.builder.sets import choose_mix, plan_counts
from data_prep.schema import Problem
from data_prep.sources.base import Drop
from grading.compare import is_same_value

HERE = Path(__file__).parent
CASES = yaml.safe_load((HERE / "filters.yaml").read_text(encoding="utf-8"))
# Function -> texts that are such; behind "not" those that are not.
KINDS = json.loads((HERE / "kinds.json").read_text(encoding="utf-8"))
BY_LEVEL = ByLevel(by="level", medium=3, hard=5)


def check(problem, key="grpo", **bounds):
    """The golds that can serve, or why the problem is dropped."""
    try:
        return check_problem(problem, Source("math", **bounds), key)
    except Drop as drop:
        return drop


def reason_of(question, gold="7", key="grpo"):
    """Why a problem is dropped, None where it stays."""
    return getattr(check(Problem("a", "math", question, (gold,)), key), "reason", None)


@pytest.mark.parametrize(
    ("difficulty", "level", "expected"),
    [
        (None, 3, None), ("easy", None, "easy"), ("hard", 1, "hard"), (BY_LEVEL, 2, "easy"),
        (BY_LEVEL, 3, "medium"), (BY_LEVEL, 4.5, "medium"), (BY_LEVEL, 5, "hard"),
        (BY_LEVEL, None, None), (ByLevel(by="level", medium=3, hard=3), 3, "hard"),
    ],
)  # fmt: skip
def test_bands(difficulty, level, expected):
    assert find_band(difficulty, level) == expected


@pytest.mark.parametrize(
    ("available", "shares", "size", "expected"),
    [
        # floor(3 / 0.3) = 10 is the least
        ((100, 50, 3), (0.2, 0.5, 0.3), None, (2, 5, 3)),
        ((100, 50, 30), (0.2, 0.5, 0.3), 10, (2, 5, 3)),
        # thirds of 10: 3.33 each, the largest remainder goes to the first by name
        ((9, 9, 9), (1 / 3, 1 / 3, 1 / 3), 10, (4, 3, 3)),
        ((5, 0, 5), (0.5, 0.0, 0.5), None, (5, 0, 5)),
        ((5, 9, 0), (0.5, 0.0, 0.5), None, (0, 0, 0)),
        # 7 easy and 2.5 hard are wanted of ten: N = floor(2 / 0.25) = 8
        ((7, 0, 2), (0.75, 0.0, 0.25), None, (6, 0, 2)),
    ],
)
def test_plan_counts(available, shares, size, expected):
    mix = dict(zip(BANDS, shares, strict=True)) | ({"size": size} if size else {})
    counts = plan_counts(dict(zip(BANDS, available, strict=True)), mix)
    assert tuple(counts.get(band, 0) for band in BANDS) == expected


def test_choose_mix_draws_the_same_for_one_seed_and_by_band():
    bands = ["easy"] * 40 + ["medium"] * 30 + ["hard"] * 30
    mix = {"easy": 0.5, "hard": 0.5, "size": 20}
    chosen = choose_mix(bands, mix, "0-grpo")
    assert Counter(bands[index] for index in chosen) == {"easy": 10, "hard": 10}
    assert choose_mix(bands, mix, "0-grpo") == chosen != choose_mix(bands, mix, "1-grpo")


@pytest.mark.parametrize(
    ("limits", "level", "is_kept"),
    [
        ({}, None, True), ({"min_level": 3}, 3, True), ({"min_level": 3}, 2.5, False),
        ({"min_level": 3}, None, False),  # unknown is not known to be hard enough
        ({"min_level": 0}, -1, False), ({"max_level": 3}, 4, False), ({"max_level": 0}, 0, True),
    ],
)  # fmt: skip
def test_bounds_of_the_level(limits, level, is_kept):
    problem = Problem("a", "math", "q", ("1",), level=level)
    assert check(problem, **limits) == (("1",) if is_kept else Drop("level", str(level)))


FRENCH = "Trouver tous les entiers naturels dont la somme des chiffres est égale au produit."


@pytest.mark.parametrize(("question", "expected"), CASES["languages"])
def test_only_english(question, expected):
    assert find_foreign(question, ("en",)) == expected


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("$", "$"), ("$$", "$$"), (r"\[", r"\]"), (r"\(", r"\)"), ("[asy]", "[/asy]"),
     (r"\begin{x*}", r"\end{x} \end{x*}")],
)  # fmt: skip
def test_what_stands_between_delimiters_has_no_language(opening, closing):
    assert find_foreign(f"How many? {opening} {FRENCH} {closing} And 5?", ("en",)) is None
    assert find_foreign(f"{opening} x {closing} {FRENCH} $y$", ("en",)) == "fr"
    assert find_foreign(f"{opening} {FRENCH}", ("en",)) == "fr"


def test_more_languages_may_be_allowed():
    assert find_foreign(FRENCH, ("en", "fr")) is None
    assert find_foreign("How many integers have two digits that sum to nine?", ("zh",)) == "en"


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


@pytest.mark.parametrize(("question", "gold", "is_dropped"), CASES["stated"])
def test_a_question_that_states_its_answer_as_a_fact(question, gold, is_dropped):
    assert (reason_of(question, gold) == "shows_answer") is is_dropped


@pytest.mark.parametrize(("question", "reason"), CASES["damaged"])
def test_what_a_template_left_is_dropped_by_name_in_every_set(question, reason):
    assert reason_of(question) == reason_of(question, key="test") == reason


HOSTILE = [
    "(A) x (B) x " * 20_000, "\nA: x\nB: x" * 20_000, "![" * 50_000, r"\text{" * 30_000,
    "http://" * 20_000, "[asy]" * 30_000, "prove " * 30_000, "A." * 50_000, "\n" * 100_000,
    "prove" + " " * 50_000 + "x", r"\[ x " * 40_000, "$ x $$ " * 30_000, r"\begin{a} " * 30_000,
    r"\boxed{" * 30_000, "answer: " * 30_000, "<<" * 30_000, "= 1 " * 30_000, "number" * 20_000,
    "the answer is " * 10_000,
    "".join(rf"\end{{a{n}}}" for n in range(20_000))
    + "".join(rf"\begin{{a{n}}}" for n in range(20_000)),
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_questions_end(hostile):
    start = time.process_time()
    for kind in KINDS:
        if not kind.startswith("not "):
            assert getattr(filters, kind)(hostile) in (True, False)
    with contextlib.suppress(Drop):
        check_damage(hostile)
    assert find_foreign(f"How many? {hostile}", ("en", "fr")) in (None, *LANGUAGES)
    for question, gold, solution in (
        (hostile, "1", "x"), ("How many?", "1", hostile), ("How many?", hostile, "x"),
    ):  # fmt: skip
        check(Problem("a", "math", question, (gold,), solution), "sft")
    assert time.process_time() - start < 8  # it takes one second; what is quadratic, a minute


@pytest.mark.parametrize(
    ("gold", "number"),
    [("48 (legs)", "48"), ("about 48", "48"), ("x = 48 (legs)", "48"), ("1/2 (hour)", "1/2"),
     ("1,200 (dollars)", "1200"), ("3 hours", "3")],
)  # fmt: skip
def test_a_gold_of_a_number_and_words_is_matched_by_its_own_bare_number(gold, number):
    assert filters.is_readable(gold) and is_same_value(number, gold)


def test_a_gold_that_is_a_sentence_is_not_readable():
    for gold in ("The answer is 132 apples.", r"\text{No, 7 are not enough}", "Ann has 5"):
        assert not filters.is_readable(gold)
    assert filters.is_readable(r"\text{October 30}") and filters.is_readable("9 p.m.")


@pytest.mark.parametrize("gold", ["0", "-0", "007", "-12", "9" * 15, "-" + "9" * 15])
def test_the_grader_reads_every_integer(gold):
    """`check_problem` asks it about other golds only."""
    assert filters.is_readable(gold)


@pytest.mark.parametrize(("solution", "says"), CASES["solutions"])
def test_a_solution_with_another_answer_than_its_gold_is_no_lesson(solution, says):
    problem = Problem("a", "math", "What is 3 + 4?", ("7",), solution)
    expected = Drop("solution_disagrees", f"{says!r}, gold '7'") if says else ("7",)
    assert check(problem, "sft") == expected
    assert check(problem) == ("7",)
