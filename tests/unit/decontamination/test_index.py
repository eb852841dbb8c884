# ruff: noqa: RUF001 - the apostrophe of GSM8K
"""Decontamination: what counts as an evaluation question seen in training, and what does not."""

import random
import re
import string
from pathlib import Path

import pytest
import yaml

from data_prep.decontamination.index import EvalIndex, is_retold, same_wording
from data_prep.schema import Problem

CASES = yaml.safe_load(Path(__file__).with_name("copies.yaml").read_text(encoding="utf-8"))
QUESTIONS = CASES["questions"]
EGGS, RATIO, PRIMES = (QUESTIONS[name][1] for name in ("eggs", "ratio", "primes"))


@pytest.fixture(scope="module")
def index():
    return EvalIndex(
        [Problem(name, "set", text, (gold,)) for name, (gold, text) in QUESTIONS.items()]
    )


def index_of(*questions):
    """Each question with the gold 18."""
    return EvalIndex([Problem(text, "set", text, ("18",)) for text in questions])


SPACED = EGGS.upper().replace(" ", "  ")


@pytest.mark.parametrize(
    ("case", "name", "gold", "question"),
    [*CASES["leaks"], ["spacing", "eggs", "18", SPACED], ["another gold", "eggs", "20", EGGS]],
)
def test_leaks_are_found(index, case, name, gold, question):
    match = index.find(question, [gold])
    assert match is not None and match.id == name
    assert match.benchmark == "set" and match.question == QUESTIONS[name][1]


@pytest.mark.parametrize(("case", "gold", "question"), CASES["clean"])
def test_clean_questions_are_not(index, case, gold, question):
    assert index.find(question, [gold]) is None


ASIDE = "Her neighbor Lena owns 12 cows and 9 goats."
INSTRUCTION = (
    " Use the following format. Step 1: what is known. Step 2: what is sought. Step 3: the plan. "
    "After that, write the result on a line of its own, in at most 50 words."
)
BAG = (
    "A bag of flour is divided into 7 portions of 2 kilograms each. How many kilograms of flour "
    "were in 3 such bags?"
)
MUFFINS = " and bakes muffins for her friends every day with four"


def shuffled(text):
    first, *others = re.split(r"(?<=[.?]) ", text)
    return " ".join([*others, first])


# A change, the question that is changed, and whether the copy counts whatever its gold.
COPIES = {
    "an aside, long": (lambda text: text.replace("She sells", f"{ASIDE} She sells"), EGGS, True),
    "an aside, middle": (lambda text: text.replace("How many", f"{ASIDE} How many"), BAG, True),
    "an aside within a sentence": (lambda text: text.replace("of 2", f"of {ASIDE} 2"), BAG, False),
    "shuffled": (shuffled, EGGS, True),
    "shuffled, two sentences": (shuffled, BAG, True),
    "the end is missing": (lambda text: text.rpartition(" How")[0], BAG, False),
    "the start is missing": (lambda text: text[len("A bag of flour is") :], BAG, False),
    "the middle is missing": (lambda text: text.replace(MUFFINS, ""), EGGS, False),
    "instruction after a short one": (lambda text: text + INSTRUCTION, PRIMES, True),
    "asides around a short one": (lambda text: f"{ASIDE} {text} {ASIDE}", PRIMES, True),
}


@pytest.mark.parametrize("case", COPIES)
def test_a_changed_copy_is_found_and_none_with_another_number(case):
    change, question, is_any_gold = COPIES[case]
    index = index_of(question)
    copy = change(question)
    assert copy != question and index.find(copy, ["18"]).kind in ("embedded", "reworded")
    assert (index.find(copy, ["20"]) is not None) == is_any_gold
    number = re.search(r"\d+", question)[0]
    for other in ("10", "9"):
        assert index.find(change(question.replace(number, other, 1)), ["18"]) is None


def test_numbers_that_changed_places_or_came_from_elsewhere_make_no_copy():
    swapped = BAG.replace("7", "x").replace("3 such", "7 such").replace("x", "3")
    cubes = "Find all of the roots of $(x - 3)^3 + (x - 7)^3 = (2x - 10)^3$ over the reals."
    aside = EGGS.replace("$2", "$5").replace("She sells", "Her 2 dogs bark. She sells")
    moved = shuffled(EGGS.replace("16", "17"))
    others = (swapped, shuffled(swapped), cubes.replace("3)", "13)", 1) + INSTRUCTION, aside, moved)
    for question in others:
        assert index_of(BAG, cubes, EGGS).find(question, ["18"]) is None


@pytest.mark.parametrize(
    "part", ["Janet's ducks lay 16 eggs per day.", "She eats three for breakfast. How much?"]
)
def test_a_part_of_few_words_or_of_little_of_the_question_is_no_copy(part):
    assert index_of(EGGS).find(part, ["18"]) is None


def test_a_number_that_only_moved_is_no_other_number():
    moved = BAG.replace(" into 7 portions of 2 kilograms each", " of 2 kilograms each, 7 portions")
    assert index_of(BAG).find(moved, ["18"]).kind == "reworded"


def test_the_gold_decides_about_a_reworded_question(index):
    reworded = EGGS.replace("bakes muffins for her friends every day", "gives her friends")
    reworded = reworded.replace("farmers' market daily", "market")
    assert index.find(reworded, ["18"]).kind == "reworded"
    assert index.find(reworded, ["20"]) is None


def test_kinds_and_scores(index):
    exact = index.find(EGGS, ["18"])
    assert (exact.kind, exact.score) == ("exact", 1.0)
    bare = Problem("1", "set", re.sub(r"[\\{}$]", "", RATIO), ("39/5",))
    assert index.find_repeated(bare).kind == "same letters"
    longer = index.find(f"{RATIO} Show every step that you take.", ["39/5"])
    assert (longer.kind, longer.score) == ("embedded", 1.0)


def test_a_prime_or_a_factorial_makes_another_question():
    texts = ("Let $f(x) = x^3$. Find $f'(2)$.", "Find the units digit of $n!$ where $n = 14$.")
    for text in texts:
        curly = Problem("1", "set", text.replace("'", "’"), ("18",))
        assert index_of(*texts).find_repeated(curly).kind == "exact"
        other = Problem("1", "set", re.sub("['!]", "", text), ("8",))
        assert index_of(*texts).find_repeated(other) is None


def test_the_best_of_several_matches_is_returned():
    index = index_of(EGGS.replace("fresh duck egg", "egg"), EGGS)
    assert index.find(EGGS + " Explain.", ["18"]).question == EGGS


def test_an_empty_index_finds_nothing():
    assert EvalIndex([]).find(EGGS, ["18"]) is None
    assert EvalIndex([Problem("1", "a", "", ())]).find("", []) is None


def test_a_table_in_place_of_a_figure_hides_no_copy():
    start = (
        "A bakery counts its loaves, rolls, buns, cakes and pies on each of 5 mornings, as shown."
    )
    end = (
        "The owner gives away the least popular kind on the third morning and doubles the most "
        "popular one. Find the total number of pieces that are sold over all of the mornings."
    )
    rows = (" | ".join(str(7 * row + col) for col in range(6)) for row in range(6))
    table = "\n".join(f"| {row} |" for row in rows)
    index = index_of(f"{start}\n[asy]draw((0,0));[/asy]\n{end}")
    found = index.find(f"{start}\n{table}\n{end}", ["18"])
    assert found and found.kind == "reworded" and found.score > 0.8
    # Another gold: the figure may have held other numbers.
    assert index.find(f"{start}\n{table}\n{end}", ["97"]) is None


def made_up(count):
    """Words of ten letters, none like another."""
    rng = random.Random(0)
    return ["".join(rng.choices(string.ascii_lowercase[:18], k=10)) for _ in range(count)]


def is_found(theirs, mine):
    return index_of(" ".join(theirs)).find(" ".join(mine), ["18"]) is not None


def with_others(words, places):
    """The words with another one at each of these places."""
    others = iter(made_up(60)[30:])
    return [next(others) if at in places else word for at, word in enumerate(words)]


@pytest.mark.parametrize(
    ("num_words", "num_changed", "expected"),
    [
        (20, 3, True),  # 34 of 40 words are aligned: 0.85
        (26, 4, False),  # 44 of 52: 0.846
        (15, 2, True),  # 26 of 30, of a question that is just long enough
        (14, 2, False),  # 24 of 28, but too short to lose a number
    ],
)
def test_how_much_of_a_copy_that_lost_a_number_must_be_the_same(num_words, num_changed, expected):
    theirs = made_up(num_words)
    theirs[4] = "57"
    places = range(4, 4 + 3 * num_changed, 3)
    assert is_found(theirs, with_others(theirs, places)) == expected


@pytest.mark.parametrize(("places", "expected"), [((4, 12, 8, 24), True), ((4, 12, 20, 8), False)])
def test_a_long_copy_may_have_lost_two_numbers(places, expected):
    """Four of thirty words change."""
    theirs = made_up(30)
    theirs[4], theirs[12], theirs[20] = "57", "58", "59"
    assert is_found(theirs, with_others(theirs, places)) == expected


@pytest.mark.parametrize(
    ("num_words", "places", "expected"),
    [(20, (0, 10, 11), True), (26, (0, 1, 13, 14), False)],  # 0.15 and 0.154 of the words
)
def test_how_many_words_may_be_in_no_piece(num_words, places, expected):
    theirs = made_up(num_words)
    mine = with_others(theirs, places)
    half = num_words // 2
    assert is_found(theirs, mine[half:] + mine[:half]) == expected


@pytest.mark.parametrize(("signs", "score"), CASES["bars"])
def test_a_copy_on_either_side_of_each_bar(signs, score):
    words, others, theirs, mine = made_up(70), iter(made_up(140)[70:]), [], []
    for sign, word in zip(signs, words, strict=False):
        theirs += [word] * (sign != "+")
        mine += [word] * (sign == "=") + [next(others)] * (sign in "x+")
    match = index_of(" ".join(theirs)).find(" ".join(mine), ["18"])
    assert match.score == score if score else match is None


@pytest.mark.parametrize(("size", "expected"), [(3, True), (2, False)])
def test_pieces_of_three_words_may_be_in_another_order(size, expected):
    theirs = made_up(24)
    pieces = [theirs[at : at + size] for at in range(6, 24, size)]
    assert is_found(theirs, sum(pieces[::-1], theirs[:6])) == expected


@pytest.mark.parametrize(("num_questions", "expected"), [(40, True), (41, False)])
def test_words_that_more_than_forty_questions_share_are_a_stock_phrase(num_questions, expected):
    words = made_up(12 + 3 * num_questions + 3)
    shared, own = words[:12], words[12:]
    questions = [" ".join(shared + own[3 * at : 3 * at + 3]) for at in range(num_questions)]
    found = index_of(*questions).find(" ".join(shared + own[-3:]), ["18"])
    assert (found is not None) == expected


@pytest.mark.parametrize(("num_nearer", "expected"), [(5, True), (6, False)])
def test_the_six_nearest_questions_are_looked_at(num_nearer, expected):
    """The nearer ones, with another gold, are no copies."""
    words, others = made_up(20), made_up(60)[30:]
    near = [[*words[:18], *others[2 * at : 2 * at + 2]] for at in range(num_nearer)]
    found = [Problem(f"{at}", "set", " ".join(one), ("20",)) for at, one in enumerate(near)]
    far = Problem("far", "set", " ".join([*words[:16], *others[-4:]]), ("18",))
    match = EvalIndex([*found, far]).find(" ".join(words), ["18"])
    assert (match is not None) == expected


SIX, SEVEN = " ".join(made_up(6)), " ".join(made_up(7))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("planes", "planet", True),  # a slip in a word of six letters
        ("plane", "plant", False),
        ("abcd wxyz", "wxyz abcd", True),  # names of a formula have up to three letters
        ("abc xyz", "xyz abc", False),
        (SIX, SIX.replace(" ", "s ") + "s", True),
        (SEVEN, SEVEN.replace(" ", "s ") + "s", False),
    ],
)
def test_which_words_are_slips_and_which_names(first, second, expected):
    assert same_wording(first.split(), second.split()) == expected


@pytest.mark.parametrize(
    ("num_formula", "num_shared", "num_words", "expected"),
    [
        (8, 18, 20, True),
        (7, 18, 20, False),
        (8, 17, 19, False),
        (8, 34, 40, True),  # 0.85
        (8, 33, 39, False),
    ],
)
def test_a_problem_is_retold_by_a_long_run_with_a_long_formula(
    num_formula, num_shared, num_words, expected
):
    words, num_own = made_up(100), num_words - num_shared
    shared = [*"abcdefgh"[:num_formula], *words[: num_shared - num_formula]]
    first, second = shared + words[40 : 40 + num_own], shared + words[70 : 70 + num_own]
    assert is_retold(first, second) == expected
