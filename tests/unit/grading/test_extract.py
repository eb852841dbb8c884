"""Extraction, strict and lenient: structure first, and nothing that hedges is paid."""

import functools
import itertools
from pathlib import Path

import pytest

from grading.boxes import last_boxed
from grading.extract import extract, extract_short, is_well_formed
from grading.grade import grade, grade_short_all
from grading.lenient import grade_leniently
from tests.files import read_rows

TABLE = Path(__file__).parent / "tables/readings.jsonl"  # form, text, status, prediction


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{4}", "4"), (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"), (r"\boxed {3}", "3"),
        (r"\boxed{7} and \boxed{\frac12", "7"),  # the last one never closes
        (r"\boxed{\boxed{4}}", r"\boxed{4}"),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right."),  # an escaped brace is print
        (r"\boxed{}", ""), (r"\boxed{\frac12", None), (r"\boxed 4", "4"), (r"\fbox{4}", None),
        ("", None),
    ],
)  # fmt: skip
def test_last_boxed(text, expected):
    assert last_boxed(text) == expected


READERS = {
    "box": extract,
    "answer_tags": functools.partial(extract, answer_form="tags"),
    "bare_box": functools.partial(extract, answer_form="bare_box"),
    "hashes": functools.partial(extract, answer_form="hashes"),
    "final_number": functools.partial(extract, final_number=True),
    "short": extract_short,
}
ROWS = read_rows(TABLE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['form']}: {row['text']}")
def test_what_each_reader_finds(row):
    found = READERS[row["form"]](row["text"])
    assert (found.status, found.prediction) == (row["status"], row["prediction"])
    if "well_formed" in row:
        assert is_well_formed(row["text"]) is row["well_formed"]


PARTS, WHOLE = ("$3+{}$", "$3 - {}$", "$x^2+{}$", "$2\\cdot{}$"), ("{}", "${}$", "**{}**")


@pytest.mark.parametrize(("part", "whole"), [*itertools.product(PARTS, WHOLE)])
def test_a_part_beside_a_whole_box_still_counts_as_a_second_answer(part, whole):
    start = "<think>so</think> " + part.format(r"\boxed{5}") + " so "
    assert extract(start + whole.format(r"\boxed{5}")).prediction == "5"
    assert extract(start + whole.format(r"\boxed{8}")).prediction is None


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


@pytest.mark.parametrize(
    ("text", "gold", "verdict"),
    [
        (r"$\boxed{18}$.", "18", "right"),
        (r"\boxed{18} dollars", "18", "right"),
        (r"$x=-\boxed{18}$", "-18", "no_answer"),
        (r"-\boxed{18}", "18", "no_answer"),
        (r"\boxed{18} cm", "18 m", "wrong"),
        (r"It is not \boxed{18}; it is 19.", "18", "no_answer"),
        (r"$3+\boxed{18}$", "18", "no_answer"),
        (r"2^{\boxed{18}}", "18", "no_answer"),
        (r"\boxed{18} million", "18", "no_answer"),
        (r"\boxed{} 18", "18", "no_answer"),
    ],
)
def test_every_form_reads_a_box_alike(text, gold, verdict):
    places = {"box": "{}", "bare_box": "{}", "tags": "<answer>{}</answer>", "hashes": "#### {}"}
    for form, place in places.items():
        completion = "<think>so</think> " + place.replace("{}", text)
        assert grade(completion, gold, answer_form=form).verdict == verdict
        assert is_well_formed(completion, answer_form=form) is (r"\boxed{}" not in text)
    assert grade_short_all([text], [gold])[0].verdict == verdict


def test_a_short_answer_is_read_by_its_question():
    questions = ["How many dozen eggs are there?", "How many eggs are there?"]
    grades = grade_short_all([r"\boxed{7} dozen"] * 2, ["7"] * 2, questions)
    assert [grade.verdict for grade in grades] == ["right", "no_answer"]


def test_a_part_in_one_pair_of_tags_counts_beside_an_answer_in_another():
    part = r"<think>so</think> <answer>$2\boxed{18}$</answer> <answer>%s</answer>"
    for other in (r"\boxed{19}", "19"):
        assert grade(part % other, "19", answer_form="tags").verdict == "several_answers"
    assert grade(part % "18", "18", answer_form="tags").verdict == "right"


def test_the_lenient_reader_finds_answers_without_their_form():
    graded = {
        "The answer is approximately 7.": "right",
        "She needs 7 cm": "right",
        "I am lost.": None,
        "So 8.": "wrong",
        "\\boxed{7} is the total": "right",
    }
    assert grade_leniently(graded, ["7"] * len(graded)) == list(graded.values())
    assert grade_leniently(["So 8."], [["7", "8"]]) == ["right"]
    assert grade_leniently(["Answer: B", "9^{9^{9^9}} = $9^{9^{9^9}}$"], ["B", "7"]) == [
        "right",
        "wrong",
    ]
    assert grade_leniently([], []) == []


@pytest.mark.parametrize(
    "spam",
    [
        "1 2 3 4 5 6 7", "Maybe 1, 2, 3, 4, 5, 6, 7", "It is 6 or 7", "The answer is 5, 6 or 7.",
        " ".join(rf"\boxed{{{i}}}" for i in range(8)),
        ", ".join(rf"\boxed{{{i}}}" for i in range(-90, 8)), "<answer>6, 7</answer>",
        " ".join(map(str, range(1, 5000))) + " 7", "= 5, 6, 7", "= 7 apples or 6 apples",
    ],
)  # fmt: skip
def test_offering_many_answers_is_not_right(spam):
    completion = f"<think>a</think> {spam}"
    assert grade(completion, "7", final_number=True).verdict != "right"
    assert grade_short_all([spam], ["7"])[0].verdict != "right"


HOSTILE = [
    r"\boxed{", r"\boxed", "$", "answer is ", "answer ", "=", "(", "####", "<answer>", "</answer>",
    "(B)", "(A) or ", r"\[", "1", "1/", "<think>", "</think>", "{", "}", "*", "<<", "[", "\\",
    "not 7 ", "or ", "\n=", "$$a", " ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_read_to_the_end(piece):
    # 100,000 characters: a search that is quadratic in them would not return.
    text = piece * (100_000 // len(piece))
    for completion in (text, f"</think>{text} so 7", f"\\boxed{{{text}}}"):
        extract_short(completion)
        extract("<think>" + completion + "</think>" + completion, final_number=True)
