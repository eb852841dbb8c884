# ruff: noqa: RUF001 - the apostrophe of GSM8K
"""Decontamination: what counts as an evaluation question seen in training, and what does not."""

import random
import re
import string

import pytest

from data_prep.decontamination.index import EvalIndex, is_retold, same_wording
from data_prep.schema import Problem

PERIMETER = (
    "Triangle $ABC$ is isosceles, with $AB=AC$ and altitude $AM=11.$ Suppose that there is a point "
    "$D$ on $\\overline{AM}$ with $AD=10$ and $\\angle BDC=3\\angle BAC.$ Find the perimeter of "
    "triangle $ABC.$\n\n[asy]\ndraw((0,11)--(5,0));\n[/asy]"
)
EGGS = (
    "Janet’s ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes "
    "muffins for her friends every day with four. She sells the remainder at the farmers' market "
    "daily for $2 per fresh duck egg. How much in dollars does she make every day at the farmers' "
    "market?"
)
RATIO = (
    "Let $x$ and $y$ be positive real numbers with $x+y=7$ and $xy=5$. The value of "
    "$\\frac{x}{y}+\\frac{y}{x}$ can be written as a fraction in lowest terms. Find it."
)
SINE = "Compute $\\sin 60^\\circ$."
ROOTS = (
    "What is the smallest positive integer $n$ such that all the roots of $z^4 + z^2 + 1 = 0$ are "
    "$n^{\\text{th}}$ roots of unity?"
)
PRIMES = "How many two-digit primes have a digit sum of 8?"
FIGURE = "Find $x$ in the diagram."
QUESTIONS = {
    "perimeter": (PERIMETER, "11\\sqrt{5}+11"),
    "eggs": (EGGS, "18"),
    "ratio": (RATIO, "\\frac{39}{5}"),
    "sine": (SINE, "\\frac{\\sqrt{3}}{2}"),
    "roots": (ROOTS, "6"),
    "primes": (PRIMES, "3"),
    "figure": (FIGURE, "12"),
}


@pytest.fixture(scope="module")
def index():
    return EvalIndex(
        [Problem(name, "set", text, (gold,)) for name, (text, gold) in QUESTIONS.items()]
    )


LEAKS = {
    "spacing and case": ("eggs", EGGS.upper().replace(" ", "  "), "18"),
    "a few words": ("eggs", EGGS.replace("fresh duck egg", "egg").replace(" daily", ""), "18"),
    "another gold": ("eggs", EGGS, "20"),
    "no figure": ("perimeter", PERIMETER.partition("\n")[0], "11+11\\sqrt5"),
    "integer answer": (
        "perimeter",
        PERIMETER.partition(" Find")[0] + " Then the perimeter of $\\triangle ABC$ may be written "
        "as $a+\\sqrt b$, where $a$ and $b$ are integers. Find $a+b$.",
        "616",
    ),
    "other LaTeX": ("ratio", RATIO.replace("\\frac{x}{y}", "\\dfrac xy"), "39/5"),
    "short, reworded": ("primes", "How many two-digit prime numbers have a digit sum of 8?", "3"),
    "prose before a short question": (
        "primes",
        "This was asked at a school contest last spring. Read it carefully and think about every "
        f"step before you begin to write. {PRIMES}",
        "3",
    ),
    "options after": ("primes", PRIMES + "\n(A) 1\n(B) 2\n(C) 3\n(D) 4", "C"),
    "figure, same gold": ("figure", "What is $x$ in the diagram?", "12"),
}


@pytest.mark.parametrize("case", LEAKS)
def test_leaks_are_found(index, case):
    name, question, gold = LEAKS[case]
    match = index.find(question, [gold])
    assert match is not None and match.id == name
    assert match.benchmark == "set" and match.question == QUESTIONS[name][0]


CLEAN = {
    "other numbers, same gold": (EGGS.replace("16", "17").replace("four", "five"), "18"),
    "another operator": (ROOTS.replace("+ z^2", "- z^2"), "12"),
    "another question of one figure": (
        PERIMETER.replace("Find the perimeter of triangle", "Find the length of the altitude from"),
        "7",
    ),
    "another function": (SINE.replace("sin", "cos"), "\\frac{1}{2}"),
    "a longer problem around a short one": ("Compute $\\sin 60^\\circ + \\cos 30^\\circ$.", "2"),
    "another sign of the same letters": (RATIO.replace("x+y", "x-y"), "12"),
    "a figure alone": (FIGURE, "5"),
    "another word": (PRIMES.replace("primes", "squares"), "2"),
    "a short one with a word exchanged, same gold": (PRIMES.replace("sum", "product"), "3"),
    "stock phrases": (
        "The value can be written as a fraction in lowest terms $\\frac{m}{n}$, where $m$ and $n$ "
        "are relatively prime positive integers. Find $m+n$.",
        "44",
    ),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("case", CLEAN)
def test_clean_questions_are_not(index, case):
    question, gold = CLEAN[case]
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
    "the middle is missing": (
        lambda text: text.replace(" and bakes muffins for her friends every day with four", ""),
        EGGS,
        False,
    ),
    "instruction after a short one": (lambda text: text + INSTRUCTION, PRIMES, True),
    "asides around a short one": (lambda text: f"{ASIDE} {text} {ASIDE}", PRIMES, True),
}


@pytest.mark.parametrize("case", COPIES)
def test_a_changed_copy_is_found_and_none_with_another_number(case):
    change, question, is_any_gold = COPIES[case]
    index = EvalIndex([Problem("1", "set", question, ("18",))])
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
    index = EvalIndex([Problem(text, "set", text, ("18",)) for text in (BAG, cubes, EGGS)])
    moved = shuffled(EGGS.replace("16", "17"))
    others = (swapped, shuffled(swapped), cubes.replace("3)", "13)", 1) + INSTRUCTION, aside, moved)
    for question in others:
        assert index.find(question, ["18"]) is None


def test_a_part_of_few_words_or_of_little_of_the_question_is_no_copy():
    index = EvalIndex([Problem("1", "set", EGGS, ("18",))])
    for part in ("Janet's ducks lay 16 eggs per day.", "She eats three for breakfast. How much?"):
        assert index.find(part, ["18"]) is None


def test_a_number_that_only_moved_is_no_other_number():
    index = EvalIndex([Problem("1", "set", BAG, ("18",))])
    moved = BAG.replace(" into 7 portions of 2 kilograms each", " of 2 kilograms each, 7 portions")
    assert index.find(moved, ["18"]).kind == "reworded"


def test_the_gold_decides_about_a_reworded_question(index):
    reworded = EGGS.replace("bakes muffins for her friends every day", "gives her friends").replace(
        "farmers' market daily", "market"
    )
    assert index.find(reworded, ["18"]).kind == "reworded"
    assert index.find(reworded, ["20"]) is None


def test_kinds_and_scores(index):
    assert index.find(EGGS, ["18"]).kind == "exact"
    assert index.find(EGGS, ["18"]).score == 1.0
    bare = Problem("1", "set", re.sub(r"[\\{}$]", "", RATIO), ("39/5",))
    assert index.find_repeated(bare).kind == "same letters"
    longer = index.find(f"{RATIO} Show every step that you take.", ["39/5"])
    assert (longer.kind, longer.score) == ("embedded", 1.0)


def test_a_prime_or_a_factorial_makes_another_question():
    texts = ("Let $f(x) = x^3$. Find $f'(2)$.", "Find the units digit of $n!$ where $n = 14$.")
    index = EvalIndex([Problem(text, "set", text, ("12",)) for text in texts])
    for text in texts:
        curly = Problem("1", "set", text.replace("'", "’"), ("12",))
        assert index.find_repeated(curly).kind == "exact"
        other = Problem("1", "set", re.sub("['!]", "", text), ("8",))
        assert index.find_repeated(other) is None


def test_the_best_of_several_matches_is_returned():
    near = EGGS.replace("fresh duck egg", "egg")
    index = EvalIndex([Problem("1", "a", near, ("18",)), Problem("1", "b", EGGS, ("18",))])
    assert index.find(EGGS + " Explain.", ["18"]).benchmark == "b"


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
    table = "\n".join(
        "| " + " | ".join(f"{7 * row + col}" for col in range(6)) + " |" for row in range(6)
    )
    index = EvalIndex(
        [Problem("1", "aime25", f"{start}\n[asy]draw((0,0));[/asy]\n{end}", ("118",))]
    )
    found = index.find(f"{start}\n{table}\n{end}", ["118"])
    assert found and found.kind == "reworded" and found.score > 0.8
    # Another gold: the figure may have held other numbers.
    assert index.find(f"{start}\n{table}\n{end}", ["97"]) is None


def made_up(count):
    """Words of ten letters, none like another."""
    rng = random.Random(0)
    return ["".join(rng.choices(string.ascii_lowercase[:18], k=10)) for _ in range(count)]


def is_found(theirs, mine):
    index = EvalIndex([Problem("1", "set", " ".join(theirs), ("18",))])
    return index.find(" ".join(mine), ["18"]) is not None


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
    theirs, others = made_up(num_words), made_up(60)[30:]
    theirs[4] = "57"
    mine = [*theirs]
    for place in range(4, 4 + 3 * num_changed, 3):
        mine[place] = others[place]
    assert is_found(theirs, mine) == expected


@pytest.mark.parametrize(("num_lost", "expected"), [(2, True), (3, False)])
def test_how_many_numbers_a_long_copy_may_have_lost(num_lost, expected):
    theirs, others = made_up(30), made_up(60)[30:]
    theirs[4], theirs[12], theirs[20] = "57", "58", "59"
    mine = [*theirs]
    for place in (4, 12, 20)[:num_lost] + (8, 24)[: 4 - num_lost]:  # 26 of 30 words stay
        mine[place] = others[place]
    assert is_found(theirs, mine) == expected


@pytest.mark.parametrize(
    ("num_words", "num_left", "expected"),
    [(20, 3, True), (26, 4, False)],  # 0.15 and 0.154 of the words
)
def test_how_many_words_may_be_in_no_piece(num_words, num_left, expected):
    theirs, others = made_up(num_words), made_up(60)[30:]
    first, second = theirs[: num_words // 2], theirs[num_words // 2 :]
    num_first = num_left // 2
    first[:num_first] = others[:num_first]
    second[: num_left - num_first] = others[10 : 10 + num_left - num_first]
    assert is_found(theirs, second + first) == expected


# A word of the question: = stands in the copy too, x has another one in its place, - is left out.
# + is a word of the copy alone. What counts is the score, None where it is no copy.
ROWS = [
    ("====x" * 5, 0.8),  # runs of four words make a candidate, of three none
    ("===x" * 6, None),
    ("=====x===x===x===x===x=", 0.7826),  # 2 of 20 n-grams are shared: 0.1
    ("=====x===x===x===x===x==", None),  # 2 of 21
    ("=====xxxxx=====xxxxx=====", 0.6),
    ("======xxxxxx=======xxxxxxx======", None),  # 19 of 32: 0.594
    ("=======x=======x====" + "-" * 20, 0.45),  # 18 of 20 words of a part: 0.9
    ("=======x=======x===" + "-" * 20, None),  # 17 of 19: 0.895
    ("======------", 0.5),  # a part of six words
    ("=====-------", None),
    ("=" * 16 + "-" * 24, 0.4),  # of a longer question two fifths
    ("=" * 15 + "-" * 25, None),
    ("=" * 20 + "-" * 40, 0.3333),  # or twenty words
    ("=" * 19 + "-" * 41, None),
    ("++++++=========", 1.0),  # six words around nine
    ("+++++++=========", None),
    ("+++++++==========", 1.0),  # seven around ten
    ("====+++++++================", 1.0),  # four words pay for a gap of seven
    ("====++++++++================", 0.8),
]


@pytest.mark.parametrize(("signs", "score"), ROWS)
def test_a_copy_on_either_side_of_each_bar(signs, score):
    words, others, theirs, mine = made_up(70), iter(made_up(140)[70:]), [], []
    for sign, word in zip(signs, words, strict=False):
        theirs += [word] * (sign != "+")
        mine += [word] * (sign == "=") + [next(others)] * (sign in "x+")
    index = EvalIndex([Problem("1", "set", " ".join(theirs), ("18",))])
    match = index.find(" ".join(mine), ["18"])
    assert match.score == score if score else match is None


@pytest.mark.parametrize(("size", "expected"), [(3, True), (2, False)])
def test_pieces_of_three_words_may_be_in_another_order(size, expected):
    theirs = made_up(24)
    pieces = [theirs[at : at + size] for at in range(6, 24, size)]
    assert is_found(
        theirs, theirs[:6] + [word for piece in reversed(pieces) for word in piece]
    ) == (expected)


@pytest.mark.parametrize(("num_questions", "expected"), [(40, True), (41, False)])
def test_words_that_more_than_forty_questions_share_are_a_stock_phrase(num_questions, expected):
    words = made_up(12 + 3 * num_questions + 3)
    shared, own = words[:12], words[12:]
    index = EvalIndex(
        [
            Problem(f"{at}", "set", " ".join(shared + own[3 * at : 3 * at + 3]), ("18",))
            for at in range(num_questions)
        ]
    )
    assert (index.find(" ".join(shared + own[-3:]), ["18"]) is not None) == expected


@pytest.mark.parametrize(("num_nearer", "expected"), [(5, True), (6, False)])
def test_the_six_nearest_questions_are_looked_at(num_nearer, expected):
    words, others = made_up(20), made_up(60)[30:]
    near = [[*words[:18], *others[2 * at : 2 * at + 2]] for at in range(num_nearer)]
    far = [*words[:16], *others[-4:]]
    found = [Problem(f"{at}", "set", " ".join(one), ("20",)) for at, one in enumerate(near)]
    index = EvalIndex([*found, Problem("far", "set", " ".join(far), ("18",))])
    assert (index.find(" ".join(words), ["18"]) is not None) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("planes", "planet", True),  # a slip in a word of six letters
        ("plane", "plant", False),
        ("abcd wxyz", "wxyz abcd", True),  # names of a formula have up to three letters
        ("abc xyz", "xyz abc", False),
        (" ".join(made_up(6)), " ".join(f"{word}s" for word in made_up(6)), True),
        (" ".join(made_up(7)), " ".join(f"{word}s" for word in made_up(7)), False),
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
    assert is_retold(shared + words[40 : 40 + num_own], shared + words[70 : 70 + num_own]) == (
        expected
    )
