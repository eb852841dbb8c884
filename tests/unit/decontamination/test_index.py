# ruff: noqa: RUF001 - the apostrophe of GSM8K
"""Decontamination: words of a question, and what counts as one that was seen in training."""

import random
import re
import string
from pathlib import Path

import pytest
import yaml

from data_prep.decontamination.index import EvalIndex, is_retold, same_wording
from data_prep.decontamination.text import content, normalise_question, tokenise
from data_prep.schema import Problem

CASES = yaml.safe_load(Path(__file__).with_name("copies.yaml").read_text(encoding="utf-8"))
QUESTIONS = CASES["questions"]
EGGS, RATIO = (QUESTIONS[name][1] for name in ("eggs", "ratio"))


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
    ("case", "name", "gold", "question", "kind"),
    [
        *CASES["leaks"],
        ["spacing", "eggs", "18", SPACED, "exact"],
        ["another gold", "eggs", "20", EGGS, "exact"],
    ],
)
def test_leaks_are_found(index, case, name, gold, question, kind):
    match = index.find(question, [gold])
    assert match is not None and (match.id, match.kind) == (name, kind)
    assert match.benchmark == "set" and match.question == QUESTIONS[name][1]


@pytest.mark.parametrize(("case", "gold", "question"), CASES["clean"])
def test_clean_questions_are_not(index, case, gold, question):
    assert index.find(question, [gold]) is None


@pytest.mark.parametrize(("case", "name", "old", "new", "is_any_gold"), CASES["changed"])
def test_a_changed_copy_is_found_and_none_with_another_number(case, name, old, new, is_any_gold):
    question = QUESTIONS[name][1]
    index, copy = index_of(question), re.sub(old, new, question)
    assert copy != question and index.find(copy, ["18"]).kind in ("embedded", "reworded")
    assert (index.find(copy, ["20"]) is not None) == is_any_gold
    number = re.search(r"\d+", question)[0]
    for other in ("10", "9"):
        another = re.sub(old, new, question.replace(number, other, 1))
        assert index.find(another, ["18"]) is None


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


@pytest.mark.parametrize("bar", CASES["bars"])
def test_a_copy_on_either_side_of_each_bar(bar):
    signs, score, *order = bar
    words, others, numbers = iter(made_up(70)), iter(made_up(140)[70:]), iter(["57", "58", "59"])
    theirs, pieces = [], []
    for piece in signs.split("|"):
        mine = []
        for sign in piece:
            word = next(numbers) if sign in "9#" else next(words)
            if sign != "+":
                theirs.append(word)
            if sign in "=9":
                mine.append(word)
            elif sign != "-":
                mine.append(next(others))
        pieces.append(mine)
    if order:
        pieces = [pieces[at] for at in order[0]]
    copy = " ".join(word for mine in pieces for word in mine)
    match = index_of(" ".join(theirs)).find(copy, ["18"])
    if score is True or score is None:
        assert (match is not None) == bool(score)
    else:
        assert match.score == score


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


def shares_run(num_formula, num_shared, num_words):
    """Whether texts with a run of words, a formula in front, are one problem that is retold."""
    words, num_own = made_up(100), num_words - num_shared
    shared = [*"abcdefgh"[:num_formula], *words[: num_shared - num_formula]]
    first, second = shared + words[40 : 40 + num_own], shared + words[70 : 70 + num_own]
    return is_retold(first, second)


def has_tokens(text):
    return all(tokenise(text))


def same_tokens(first, second):
    return tokenise(first) == tokenise(second)


def same_text(first, second):
    return normalise_question(first) == normalise_question(second)


def same_content(first, second):
    return content(tokenise(first)) == content(tokenise(second))


def is_wording(first, second):
    return same_wording(content(tokenise(first)), content(tokenise(second)))


def is_another_text(text, sign):
    return not same_text(f"Find ${text}=2$.", f"Find ${text}{sign}=2$.")


def is_other_content(text, sign):
    return not same_content(f"Find ${text}=2$.", f"Find ${text}{sign}=2$.")


POLYGON = (
    "The solutions of $z^4+4z^3i-6z^2-4zi-i=0$ are vertices of a convex polygon of the plane. "
)


def is_polygon_retold(first, second):
    """Behind one long statement."""
    return is_retold(content(tokenise(POLYGON + first)), content(tokenise(POLYGON + second)))


def test_templates_are_not_retold():
    one = content(tokenise(POLYGON))
    for old, new in (("4zi-i", "4zi+i"), ("z^4+4z^3i-6", "(z^2)^2+(4+i)z^3i-6"), ("6z", "7z")):
        assert not is_retold(one, content(tokenise(POLYGON.replace(old, new))))
    assert not is_retold(one[:12], one[:12])
