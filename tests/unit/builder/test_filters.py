r"""Which problems are kept: kinds and golds, languages, bounds of the level, bands and mixes."""

import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_prep.builder import filters
from data_prep.builder.filters import (
    asks_for_proof,
    check_damage,
    check_problem,
    find_band,
    find_foreign,
    holds_several_answers,
    is_readable,
    points_to_image,
    shows_options,
)
from data_prep.builder.recipe import BANDS, LANGUAGES, ByLevel, Source
from data_prep.builder.sets import choose_mix, plan_counts
from data_prep.schema import Problem
from data_prep.sources.base import Drop, is_option, is_sentinel
from grading.compare import is_same_value

BY_LEVEL = ByLevel(by="level", medium=3, hard=5)


def check(problem, key="grpo", **bounds):
    """The golds that can serve, or why the problem is dropped."""
    try:
        return check_problem(problem, Source("math", **bounds), key)
    except Drop as drop:
        return drop


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
    mix = dict(zip(BANDS, shares, strict=True)) | ({"size": size} if size else {})
    counts = plan_counts(available, mix)
    assert tuple(counts.get(band, 0) for band in BANDS) == expected
    assert all(counts[band] <= available[band] for band in counts)


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


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the sum of the first ten positive integers?", None),
        ("Write $4.3+3.88$ as a decimal.", None),
        ("$$x^2 + 3x = 5$$", None),
        ("Express eleven in base 2.", None),
        ("设 $x$ 是实数。求 $x^2+1$ 的最小值。", "zh"),
        ("Let 李华 have $5$ apples and 王明 twice as many. How many have they together?", None),
        ("Найдите все целые числа $n$, для которых $n^2+1$ делится на $5$.", "ru"),
        (FRENCH, "fr"),
        ("Man ermittle alle diejenigen reellen Zahlen, für die der Term definiert ist.", "de"),
        # Greek letters are mathematics.
        ("Given \u03b1 + \u03b2 = \u03c0, find the cosine of \u03b1 in terms of \u03b8.", None),
    ],
)  # fmt: skip
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


# Function -> texts that are such; behind "not" those that are not.
KINDS = json.loads(Path(__file__).with_name("kinds.json").read_text(encoding="utf-8"))
ASKS = (
    is_option,
    is_sentinel,
    holds_several_answers,
    points_to_image,
    shows_options,
    asks_for_proof,
)


@pytest.mark.parametrize(
    ("kind", "text"), [(k, text) for k, texts in KINDS.items() for text in texts]
)
def test_kinds(kind, text):
    (ask,) = (ask for ask in ASKS if ask.__name__ == kind.removeprefix("not "))
    assert ask(text) is not kind.startswith("not ")


@pytest.mark.parametrize(
    ("question", "gold", "is_dropped"),
    [
        ("If x + 3 = 10, then x = 7.", "7", True),
        ("If $x + 3 = 10$, then $x = 7$", "7", True),
        ("The sum of 3 and 4 is 7.", "7", True),
        ("Ann has 3 pens. Ben has 4. Together the number of pens equals 7.", "7", True),
        ("If x + 3 = 10, then x is 7.", "7", True),
        ("Ann has 3 pens and buys 4 more. She now has 7 pens. How many has she?", "7", False),
        ("Convert the number of 7 pens.", "7", False),
        ("If x + 3 = 10, then x = 6.", "7", False),
        ("If x + 3 = 10, then what is x, when y = 7?", "7", False),
        ("Solve the equation: x = 7.", "7", False),
        ("Simplify $a = 7$.", "7", False),
        (r"If $x + 3 = 10$ and $y = 7$, then $x =$ $\qquad$.", "7", False),
        ("If x + 3 = 10, then x = ____ and y = 7", "7", False),
        ("Write the sum of 3 and 4, where 3 = 7.", "8", False),
    ],
)
def test_a_question_that_states_its_answer_as_a_fact(question, gold, is_dropped):
    found = check(Problem("a", "math", question, (gold,)))
    assert (getattr(found, "reason", None) == "shows_answer") is is_dropped


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        *[(f"There are {slot} birds. How many wings?", "unfilled_template")
          for slot in ("N_00", "n_01", "[num1]", "[NUM]", "number0", "NUM_1", "__num2__", "{name}",
                       "{{name1}}", "<number>", "value3", "temp_a", "${num1}", "{{num_birds}}",
                       "${total_eggs}", "[Insert number of birds]")],
        ("Ann has 3 pens. Ann has 3 pens. How many has she?", "repeated_text"),
        ("If Ann has 3 pens and 4 more, if Ann has 3 pens and 4 more, how many?", "repeated_text"),
        *[(text, None) for text in (
            "The number 0 is even. Is number 10?", "Let $N_0 = 5$ and $a_{01}$. Find $a_1$.",
            r"Simplify $x^{{2}}_{{ab}}$ in ${x}$ and [the numerator].",
            r"Evaluate $\log_{10} x$, $\log_28$ and $x_10$.", "[asy] pair number0; [/asy] Area?",
            "See [list] and <details>. Find $\\frac {m}{n}$.", "Find $x$ if $x = x$.",
            "Ann has 3 pens. Ann has 3 books. How many has she?", "Is 5 prime? Is 5 prime in $Z$?",
            "[P](https://example.org/File:Problem_02) Find it.")],
    ],
)  # fmt: skip
def test_what_a_template_left_is_dropped_by_name_in_every_set(question, reason):
    for key in ("grpo", "test"):
        found = check(Problem("a", "math", question, ("7",)), key)
        assert getattr(found, "reason", None) == reason


@pytest.mark.parametrize(
    "hostile",
    ["(A) x (B) x " * 20_000, "\nA: x\nB: x" * 20_000, "![" * 50_000, r"\text{" * 30_000,
     "http://" * 20_000, "[asy]" * 30_000, "prove " * 30_000, "A." * 50_000, "\n" * 100_000,
     "prove" + " " * 50_000 + "x", r"\[ x " * 40_000, r"\( x " * 40_000, "$ x $$ " * 30_000,
     r"\begin{a} " * 30_000, r"\boxed{" * 30_000, "answer: " * 30_000, "<<" * 30_000,
     "~a " * 30_000, "= 1 " * 30_000, "-" * 100_000, "number" * 20_000, "the answer is " * 10_000,
     "".join(rf"\end{{a{n}}}" for n in range(20_000))
     + "".join(rf"\begin{{a{n}}}" for n in range(20_000))],
)  # fmt: skip
def test_hostile_questions_end(hostile):
    start = time.process_time()
    for ask in ASKS:
        assert ask(hostile) in (True, False)
    with contextlib.suppress(Drop):
        check_damage(hostile)
    assert find_foreign(f"How many? {hostile}", ("en", "fr")) in (None, *LANGUAGES)
    for problem in (Problem("a", "math", hostile, ("1",), "x"),
                    Problem("a", "math", "How many?", ("1",), hostile),
                    Problem("a", "math", "How many?", (hostile,), "x")):  # fmt: skip
        check(problem, "sft")
    assert time.process_time() - start < 8  # it takes one second; what is quadratic, a minute


@pytest.mark.parametrize(
    ("gold", "number"),
    [("48 (legs)", "48"), ("about 48", "48"), ("x = 48 (legs)", "48"), ("1/2 (hour)", "1/2"),
     ("6 (cm)", "6"), ("1,200 (dollars)", "1200"), ("9 (apples)", "9"), ("3 hours", "3")],
)  # fmt: skip
def test_a_gold_of_a_number_and_words_is_matched_by_its_own_bare_number(gold, number):
    assert is_readable(gold) and is_same_value(number, gold)


def test_a_gold_that_is_a_sentence_is_not_readable():
    for gold in ("The answer is 132 apples.", r"\text{No, 7 are not enough}", "Ann has 5"):
        assert not is_readable(gold)
    assert is_readable(r"\text{October 30}") and is_readable("9 p.m.")


@pytest.mark.parametrize("gold", ["0", "-0", "007", "-12", "9" * 15, "-" + "9" * 15])
def test_the_grader_reads_every_integer(gold):
    """`check_problem` asks it about other golds only."""
    assert is_readable(gold)


@pytest.mark.parametrize(
    ("solution", "says"),
    [
        (r"3 + 4 = 7, so \boxed{7}", None),
        (r"first \boxed{3}, then \boxed{7.0}", None),
        ("3 + 4 = 7\n#### 7", None),
        ("3 + 4 is seven", None),
        (r"\boxed{}", None),
        (r"3 + 5 = 8, so \boxed{8}", "8"),
        ("3 + 5 = 8\n#### 8\nas asked", "8"),
        ("We add. 3+5=8. So the answer is 8.", "8"),
        ("We add. 3+5=8. So the answer is 8.\n#### 7", "8"),
        ("We add.\n\nAnswer: 8", "8"),
        ("Therefore, the answer is $8$ apples.", "8"),
        ("She adds 3 + 5 = $8", "8"),
        ("First 3 + 0 = 3.\nThen 3 + <<3+5=8>>5 = 8 apples in all.\n~user 7", "8"),
        (r"Hence $x = \frac{15}{2}$.", r"\frac{15}{2}"),
        ("<think>\n3 + 5 = 8\n</think>\nThe answer is 8.", "8"),
        ("<answer>8</answer>", "8"),
        ("3 + 5 = 8\n\nSo she has 8 apples.", "8"),
        ("Adding both, the number of apples is 8.", "8"),
        (r"\begin{align*}3 + 5 &= 8.\end{align*}", "8"),
        ("We add: 3 + 5 = 8.\n\nShe has 8 apples.", "8"),
        ("We add: 3 + 5 = 8.\n\nShe has 9 pens.", None),
        ("So she has 8 apples.\n\nI hope this helps!", "8"),
        ("So she has 7 apples.\n\nI hope this helps!", None),
        ("First there are 8. So the number of apples in 8 boxes is\n#### 7", None),
        ("First 3 + 5 = 8.\n#### Step 2: conclude\nSo there are 7 apples.", None),
        ("So there are 7 apples.", None),
        ("2x + 1 = 15", None),
        ("x = 8 - 3 / 2", None),
        ("She needs 4 x 2 = 8 of them.", "8"),
        ("So 8 of the 7 are gone.", None),
        ("We add. 3+4=7. So the answer is 7.", None),
        ("It takes 14 / 2 = 7 hours to earn 14.", None),
        ("We have 21 / 3 = 7 groups, so 21 is shared.", None),
        ("She pays 3 + 4 = $7.00 for them.", None),
        ("It is 700 / 100 = 700%.", None),
        ("About 20 / 3 = 6.67 buses.", None),
        ("So there are 7. (Note that 3 * 4 = 12.)", None),
        ("We take $a = 3$ and $b = 4$ and add them up to seven.", None),
        (r"The set of roots is $x = 3, y = 4$.", None),
    ],
)
def test_a_solution_with_another_answer_than_its_gold_is_no_lesson(solution, says):
    problem = Problem("a", "math", "What is 3 + 4?", ("7",), solution)
    assert check(problem, "sft") == (
        ("7",) if says is None else Drop("solution_disagrees", f"{says!r}, gold '7'")
    )
    assert check(problem) == ("7",)
