"""What stands around a box: arithmetic, a scale word or a denial makes it no answer."""

import itertools

import pytest

from grading.extract import extract
from grading.grade import grade


def prediction(text):
    return extract(f"<think>so</think> {text}").prediction


BOX = "\\boxed{5}"
PARTS = [
    "$3+{}$",
    "$3 - {}$",
    "$x^2+{}$",
    "$2\\cdot{}$",
    "$2 \\times {}$",
    "$6/{}$",
    "$2^{{{}}}$",
    "$(2){}^2$",
    "${}+1$",
    "${} - 3$",
    "${}\\cdot 3$",
    "${}/2$",
    "${}^2$",
    "${}-x$",
    "${}!$",
    "$\\frac{{{}}}{{2}}$",
    "$\\frac{{2}}{{{}}}$",
    "$\\dfrac{{{}}}{{2}}$",
    "$\\sqrt{{{}}}$",
    "$\\sqrt[3]{{{}}}$",
    "${}\\text{{ million}}$",
    "{} million people",
    "${}$ thousand",
    "${}$ dozen",
    "${}\\,$ hundred",
    "The answer is not {}.",
    "It isn't ${}$.",
    "It cannot be {}.",
    "It is never ${}$.",
    "$x \\ne {}$",
    "$x\\neq {}$",
    "It does not equal ${}$.",
    "It is NOT ${}$.",
    "${}$ is wrong.",
    "{} is not the answer.",
    "{} isn't right.",
    "2{}",
    "$|{}|$",
    "$a{}$",
    "$({}, 4)$",
    "$0.{}$",
    "${}:5$",
    "${}\\%\\times 80$",
    "minus ${}$",
    "half of {}",
    "{} hundredths",
    "$\\pm {}$",
    "$-({})$",
    "$\\left({}\\right)^2$",
    "$\\log_2 {}$",
    "${}\\sqrt{{2}}$",
    "${}\\pi$",
]
WHOLE = [
    "{}",
    "${}$",
    "**{}**",
    "* {}",
    "- {}",
    "- ${}$",
    "Answer - {}",
    "1. {}",
    "2) {}",
    "$x = {}$",
    "$2+3={}$",
    "$\\therefore {}$",
    "$\\Rightarrow {}$",
    "$\\approx {}$",
    "${}\\%$",
    "${}\\text{{ cm}}$",
    "${}^\\circ$",
    "${}^{{\\circ}}$",
    "It is {}!",
    "{}.",
    "${}$ - a prime",
    "It is not 4 but {}.",
    "$y = 2x$, so ${}$",
    "${}$ millimetres",
    "${}$ is correct.",
    "$\\log_2 32 = {}$",
    "${}\\frac{{\\text{{ m}}}}{{\\text{{ s}}}}$",
]


@pytest.mark.parametrize("text", PARTS)
def test_a_part_of_something_else_is_no_answer(text):
    assert prediction(text.format(BOX)) is None


@pytest.mark.parametrize("text", WHOLE)
def test_what_stands_for_itself_is(text):
    assert prediction(text.format(BOX)) == "5"


@pytest.mark.parametrize(
    "text",
    ["$-{}$", "$x=-{}$", "\\[ -{} \\]", "\\( -{} \\)", "$\\Rightarrow -{}$", "-{}", "$ - {}$"],
)
def test_a_leading_minus_belongs_to_it(text):
    assert prediction(text.format(BOX)) == "-5"


def test_a_part_next_to_a_whole_one_still_counts_as_a_second_answer():
    for part, whole in itertools.product(PARTS[:4], WHOLE[:3]):
        assert prediction(f"{part.format(BOX)} so {whole.format(BOX)}") == "5"
        assert prediction(f"{part.format(BOX)} so {whole.format(BOX.replace('5', '8'))}") is None


@pytest.mark.parametrize(
    ("boxes", "gold", "verdict"),
    [
        ("12", "1,2", "right"),
        ("21", r"\{1, 2\}", "right"),
        ("12", r"x=1 \text{ or } x=2", "right"),
        ("123", "3,1,2", "right"),
        (["1", "2", "1, 2"], "1,2", "right"),
        (["1", "2", "1, 3"], "1,3", "several_answers"),
        ("12", "2", "several_answers"),  # hedging
        ("12", "1,3", "several_answers"),
        ("123", "1,2", "several_answers"),
        ("12", "(1,2)", "several_answers"),
        ("12", "1:2", "several_answers"),
    ],
)
def test_several_boxes_are_the_golds_list_or_nothing(boxes, gold, verdict):
    text = " and ".join(f"$\\boxed{{{one}}}$" for one in boxes)
    assert grade(f"<think>so</think> {text}", gold).verdict == verdict
