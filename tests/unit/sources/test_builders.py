"""Rows of every data set, in the shapes that their copies have, become problems or named drops."""

import contextlib
import itertools
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from data_prep.schema import Problem
from data_prep.sources.base import Drop, lost_digits
from data_prep.sources.registry import BUILDERS
from pipeline.errors import UserError

CASES = yaml.safe_load(Path(__file__).with_name("builders.yaml").read_text(encoding="utf-8"))
SVAMP, GPQA = CASES["shared"]["svamp"], CASES["shared"]["gpqa"]
USUAL = {
    "question": "Find $x$.", "answers": ("5",), "solution": "", "subject": "", "trace": 0,
    "level": None, "raw_prompt": "",
}  # fmt: skip


def build(name, row, **options):
    if name == "generic":
        options = {"prompt_key": "p", "answer_key": "a"} | options
    return BUILDERS[name](row, f"{name}-train-7", "f:1", **options)


def reason_of(name, row, **options):
    """Why a row is dropped."""
    with pytest.raises(Drop) as caught:
        build(name, row, **options)
    return caught.value.reason


@pytest.mark.parametrize(("name", "row", "options", "fields"), CASES["problems"])
def test_rows_become_problems(name, row, options, fields):
    expected = USUAL | {"id": f"{name}-train-7", "source": name} | fields
    expected["answers"] = tuple(expected["answers"])
    assert build(name, row, **options) == Problem(**expected)


@pytest.mark.parametrize(
    ("gold", "text"), [("5.00", "5"), ("2.50", "2.5"), ("1" * 35 + ".5", None), ("1E+3", "1000")]
)
def test_decimals_of_parquet_are_written_with_all_their_digits(gold, text):
    row = {"p": "Find $x$.", "a": Decimal(gold), "l": Decimal("3")}
    built = build("generic", row, level_key="l")
    assert (built.answers, built.level) == ((text or gold,), 3.0)


@pytest.mark.parametrize(("name", "row", "reason"), CASES["drops"])
def test_rows_without_a_usable_gold_are_named_drops(name, row, reason):
    assert reason_of(name, row) == reason


@pytest.mark.parametrize(("others", "golds"), CASES["options"])
def test_a_gold_that_names_an_option_of_the_row_is_multiple_choice(others, golds):
    question = "Which of these is the sum of 5 and 6?"
    for gold in golds:
        assert reason_of("generic", {"p": question, "a": gold} | others) == "multiple_choice"
        assert reason_of("dapo", {"prompt": question, "label": gold} | others) == "multiple_choice"


def ends(hostile):
    """As options, as a gold, as a choice."""
    for row in ({"a": "1", "options": hostile}, {"a": hostile}, {"a": "1", "choices": [hostile]}):
        with contextlib.suppress(Drop):
            build("generic", {"p": "Find $x$."} | row)
    return True


def test_options_in_a_row_nested_deeply():
    row = {"p": "Find $x$.", "a": 2.0**70}
    for _ in range(900):
        row = {"p": "Find $x$.", "a": 2.0**70, "more": row}
    golds = build("generic", row).answers
    assert golds == ("1180591620717411300000",) and lost_digits(row, golds)


@pytest.mark.parametrize("equation", [*CASES["equations"], "51" + " " * 200])
def test_an_equation_that_is_none_is_no_solution(equation):
    assert build("svamp", SVAMP | {"Equation": equation}).solution == ""
    row = SVAMP | {"Equation": equation}
    assert reason_of("svamp", row, thought="equation") == "no_solution"


def test_an_equation_of_another_answer_disagrees():
    assert build("svamp", SVAMP | {"Answer": 50.0}).solution == ""
    row = SVAMP | {"Answer": 50.0}
    assert reason_of("svamp", row, thought="equation") == "solution_disagrees"


@pytest.mark.parametrize(("name", "row", "options", "words"), CASES["faults"])
def test_damaged_rows_are_named_by_place_and_column(name, row, options, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        build(name, row, **options)


def test_gpqa_has_one_order_of_options_whatever_the_copy():
    first = build("gpqa", GPQA)
    assert first.question == (
        "Which gas is lightest?\n\nA. neon\nB. hydrogen\nC. xenon\nD. argon of any kind\n\n"
        "Answer with the letter of the right option."
    )
    assert (first.id, first.solution) == ("gpqa-train-recX", "It has one proton.")
    assert first.answers[0] == "B"  # a change here changes every score: the order must never move
    for permuted in itertools.permutations(("neon", "argon\n\nof any kind", "xenon")):
        wrong = {f"Incorrect Answer {n}": text for n, text in enumerate(permuted, 1)}
        assert build("gpqa", GPQA | wrong) == first
    copy = {"id": 0, "ori_question": "Which gas is lightest?", "question": "Which …\n\nA. xenon"}
    copy |= {"options": ["xenon", "hydrogen", "neon", "argon of any kind"], "answer": "B"}
    built = build("gpqa", copy)
    assert (built.id, built.question) == ("gpqa-train-0", first.question)
    assert built.answers == first.answers


def test_gpqa_answers_are_spread_over_the_letters():
    rows = [GPQA | {"Question": f"Which gas, {n}?"} for n in range(400)]
    letters = [build("gpqa", row).answers[0] for row in rows]
    assert all(70 <= letters.count(letter) <= 130 for letter in "ABCD")


@pytest.mark.parametrize(
    ("labels", "key", "answer"), [("ABCD", "B", "B"), ("123", "3", "C"), ("12345", "5", "E")]
)
def test_arc_rows(labels, key, answer):
    texts = [f"option {n}" for n in range(len(labels))]
    row = {"id": "M_1", "question": "Which?", "answerKey": key}
    problem = build("arc", row | {"choices": {"text": texts, "label": [*labels]}})
    assert (problem.id, problem.source, problem.answers[0]) == ("arc-train-M_1", "arc", answer)
    assert problem.question.startswith("Which?\n\nA. option 0\nB. option 1\n")
    last = f"{'ABCDE'[len(labels) - 1]}. {texts[-1]}"
    assert problem.question.endswith(f"\n{last}\n\nAnswer with the letter of the right option.")
