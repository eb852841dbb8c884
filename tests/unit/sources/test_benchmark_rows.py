"""Rows of the evaluation sets, in every shape that their copies have, become problems."""

import itertools
import random

import pytest

from data_prep.config import UserError
from data_prep.grading.answers import grade, is_parseable
from data_prep.schema import Problem
from data_prep.sources import aime, arc, gpqa, math
from data_prep.sources.base import Drop, find_value, get_question, get_text, own_id, repair_escapes

WRAPPED = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    'Find $x$.\n\nRemember to put your answer on its own line after "Answer:".'
)


@pytest.mark.parametrize(
    ("row", "columns", "found"),
    [
        ({"a": 1, "b": 2}, ("b", "a"), ("b", 2)),
        ({"a": None, "b": 2}, ("a", "b"), ("b", 2)),
        ({"a": None}, ("a", "b"), ("a", None)),
        ({"a": {"b": 0}}, ("c", "a.b"), ("a.b", 0)),
        ({"a": "text"}, ("a.b",), None),
        ({}, ("a",), None),
    ],
)
def test_first_column_that_holds_a_value(row, columns, found):
    assert find_value(row, columns) == found


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (27.0, "27"), (0.5, "0.5"), (float("inf"), "inf"), ("07", "07")]
)
def test_numbers_as_text(value, text):
    assert get_text({"a": value}, ("a",), "f:1", allows_numbers=True) == text


@pytest.mark.parametrize("value", [True, None, ["7"], 7])
def test_what_is_no_text(value):
    with pytest.raises(UserError, match=r"f:1: a: .* is not text; fix the row"):
        get_text({"a": value}, ("a",), "f:1", allows_numbers=value != 7)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ("$\frac{1}{2}$", r"$\frac{1}{2}$"),  # Python reads \f as form feed: that is the fault
        ("$5 \times 5$", r"$5 \times 5$"),
        ("$\triangle ABC$, $\theta$", r"$\triangle ABC$, $\theta$"),
        ("\textbf{(C)} \text{cm} \tan^2 x, n\to 0", r"\textbf{(C)} \text{cm} \tan^2 x, n\to 0"),
        ("\beta \bar{x} \angle \vec v \alpha", r"\beta \bar{x} \angle \vec v \alpha"),
        ("\right) \rho", r"\right) \rho"),
        (r"\frac12 \times \theta", r"\frac12 \times \theta"),
        ("{\n\treturn 2;\r\n\tdraw(a);", None),  # MATH's figures
        ("a\tequal\tperimeter\tThe \tfor \textra \timeshare \tan apple", None),
        ("one\rangle\rfloor\rtwo", None),
        ("page\f\nThe\f 1\b, the \first \fixed point", None),
    ],
)
def test_repair_escapes(broken, text):
    assert repair_escapes(broken) == (broken if text is None else text)
    assert repair_escapes(repair_escapes(broken)) == repair_escapes(broken)


@pytest.mark.parametrize(
    "prompt",
    [
        "Find $x$.",
        [{"from": "user", "value": " Find $x$.\n"}],
        [{"content": "Be brief.", "role": "system"}, {"content": "Find $x$.", "role": "user"}],
        [{"content": WRAPPED, "role": "user"}],
        WRAPPED,
    ],
)
def test_questions_of_every_prompt_shape(prompt):
    assert get_question({"prompt": prompt}, ("problem", "prompt"), "f:1") == "Find $x$."


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "no single user turn"),
        ([{"role": "assistant", "content": "x"}], "no single user turn"),
        ([{"role": "user", "content": "x"}] * 2, "no single user turn"),
        ([{"role": "user", "content": None}], "no single user turn"),
        ([["user", "x"]], "no single user turn"),
        (None, "is not text"),
        (5, "is not text"),
    ],
)
def test_bad_prompts(prompt, words):
    with pytest.raises(UserError, match=f"f:1: prompt: .*{words}"):
        get_question({"prompt": prompt}, ("problem", "prompt"), "f:1")


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, "aime-test-3"), (" ", "aime-test-3"), (0, "aime-test-0"), ("I-1", "aime-test-I-1")],
)
def test_own_id(value, name):
    assert own_id("aime-test-3", value) == name


# MATH -------------------------------------------------------------------------------------------

PLAIN = {
    "problem": "Find $x$.",
    "solution": r"First \boxed{1}, then \boxed{\frac{1}{2}}.",
    "answer": r"\frac{1}{2}",
    "subject": "Algebra",
    "level": 5,
    "unique_id": "test/algebra/12.json",
}
MATH = Problem(
    "math-test-algebra-12", "math", "Find $x$.", r"\frac{1}{2}", PLAIN["solution"], 5,
    subject="Algebra",
)  # fmt: skip
VERL = {
    "prompt": [{"content": "Find $x$.", "role": "user"}],
    "reward_model": {"ground_truth": r"\frac{1}{2}", "style": "rule"},
    "extra_info": {k: PLAIN[k] for k in ("solution", "unique_id")} | {"level": "5", "index": 0},
}


def changed(problem, **values):
    fields = ("id", "source", "question", "answer", "solution", "level", "subject")
    return Problem(**({name: getattr(problem, name) for name in fields} | values))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (PLAIN, MATH),
        (VERL, changed(MATH, subject="")),
        (VERL | {"extra_info": VERL["extra_info"] | {"subject": "Algebra"}}, MATH),
        (PLAIN | {"unique_id": "train/algebra/12.json", "level": "Level 5"}, MATH),
        (PLAIN | {"unique_id": "mine"}, changed(MATH, id="math-test-mine")),
        (PLAIN | {"unique_id": None, "level": None}, changed(MATH, id="math-test-7", level=None)),
        (PLAIN | {"answer": None, "level": "Level ?"}, changed(MATH, level=None)),
        (PLAIN | {"answer": "", "level": "5"}, MATH),
        (PLAIN | {"answer": 12}, changed(MATH, answer="12")),
        (
            {"problem": "Find $x$.", "level": "Level 3", "type": "Algebra", "idx": 4}
            | {"solution": PLAIN["solution"]},
            changed(MATH, id="math-test-7", level=3),
        ),
        (
            {"prompt": [{"from": "user", "value": "Find $x$."}], "final_answer": "p - q"},
            Problem("math-test-7", "math", "Find $x$.", "p - q"),
        ),
        ({"problem": "x", "answer": "\frac12"}, Problem("math-test-7", "math", "x", r"\frac12")),
    ],
)
def test_math_rows(row, problem):
    assert math.build_problem(row, "math-test-7", "f:1") == problem


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "x", "answer": ""},
        {"problem": "x", "answer": None, "solution": ""},
        {"problem": "x", "solution": "It is 5."},
        {"problem": "x", "solution": r"It is \boxed{5."},
    ],
)
def test_math_row_without_an_answer(row):
    assert math.build_problem(row, "math-test-7", "f:1") == Drop("no_answer")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"answer": "5"}, "missing column 'problem' or 'question' or 'prompt', found 'answer'"),
        ({"problem": "x"}, "missing column 'answer' or 'final_answer'"),
        (PLAIN | {"answer": ["5"]}, "answer: .* is not text"),
        (PLAIN | {"level": "hard"}, "level: 'hard' is not 1 to 5"),
        (PLAIN | {"level": 6}, "level: '6' is not"),
    ],
)
def test_math_faults(row, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        math.build_problem(row, "math-test-7", "f:1")


# AIME -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (70, "70"), (0, "0"), (999, "999"), (27.0, "27"), ("468", "468"), ("073", "73"),
        ("000", "0"), ("336^\\circ", "336"), ("$336^{\\circ}$", "336"), ("336\u00b0", "336"),
        (" 25 ", "25"), ("0025", "25"),
    ],
)  # fmt: skip
def test_aime_golds(gold, answer):
    problem = aime.build_problem({"problem": "Find x.", "answer": gold}, "aime-test-7", "f:1")
    assert problem == Problem("aime-test-7", "aime", "Find x.", answer)


@pytest.mark.parametrize(
    "gold", [1000, -1, 2.5, "1000", "m+n", " ", "12.", "1,000", "25 cm", True, "9" * 5000, []]
)
def test_aime_gold_out_of_range_or_unreadable(gold):
    with pytest.raises(UserError, match=r"f:1: answer: .* (is no integer from 0|is not text)"):
        aime.build_problem({"problem": "Find x.", "answer": gold}, "aime-test-7", "f:1")


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"ID": "2024-I-1", "Problem": "Find $x$.", "Solution": "s", "Answer": 73}, "2024-I-1"),
        ({"id": 60, "problem": "Find $x$.", "question": "", "answer": "073"}, "60"),
        ({"id": "0", "problem": "Find $x$.", "answer": 73}, "0"),
        ({"question": "Find $x$.", "answer": "73"}, "7"),
        ({"prompt": [{"from": "user", "value": "Find $x$."}], "final_answer": "73"}, "7"),
        (
            {
                "prompt": [{"content": WRAPPED, "role": "user"}],
                "reward_model": {"ground_truth": "73"},
                "extra_info": {"index": 2},
            },
            "2",
        ),
    ],
)
def test_aime_rows(row, name):
    problem = aime.build_problem(row, "aime-test-7", "f:1")
    solution = row.get("Solution", "")
    assert problem == Problem(f"aime-test-{name}", "aime", "Find $x$.", "73", solution)


# Multiple choice --------------------------------------------------------------------------------

GPQA = {
    "Question": "Which gas is lightest?\n",
    "Correct Answer": "hydrogen\n",
    "Incorrect Answer 1": "neon",
    "Incorrect Answer 2": "argon\n\nof any kind",
    "Incorrect Answer 3": "xenon",
    "Explanation": "It has one proton.",
    "Record ID": "recX",
}


def shown_options(problem):
    """`{letter: option}` of the lines between the question and the instruction."""
    lines = problem.question.split("\n\n")[-2].split("\n")
    return {line[0]: line[3:] for line in lines}


def test_gpqa_row():
    problem = gpqa.build_problem(GPQA, "gpqa-train-7", "f:1")
    lines = problem.question.split("\n")
    assert lines[:2] == ["Which gas is lightest?", ""]
    assert [line[:3] for line in lines[2:6]] == ["A. ", "B. ", "C. ", "D. "]
    assert lines[6:] == ["", "Answer with the letter of the right option."]
    options = shown_options(problem)
    assert set(options.values()) == {"hydrogen", "neon", "argon of any kind", "xenon"}
    assert options[problem.answer] == "hydrogen"
    assert (problem.id, problem.solution) == ("gpqa-train-recX", "It has one proton.")


def test_gpqa_order_is_the_questions_own():
    random.seed(1)
    first = gpqa.build_problem(GPQA, "a-b-1", "f:1")
    random.seed(2)
    for permuted in itertools.permutations(("neon", "argon\n\nof any kind", "xenon")):
        wrong = {f"Incorrect Answer {n}": text for n, text in enumerate(permuted, 1)}
        assert gpqa.build_problem(GPQA | wrong, "a-b-1", "f:1") == first
    assert first.answer == "B"  # a change here changes every score: the order must never move
    letters = [
        gpqa.build_problem(GPQA | {"Question": f"Which gas, {n}?"}, "a-b-1", "f:1").answer
        for n in range(400)
    ]
    assert all(70 <= letters.count(letter) <= 130 for letter in "ABCD")


def test_gpqa_copy_with_options_shows_the_same():
    options = ["xenon", "hydrogen", "neon", "argon of any kind"]
    row = {"id": 0, "ori_question": "Which gas is lightest?", "question": "Which …\n\nA. xenon"}
    built = gpqa.build_problem(row | {"options": options, "answer": "B"}, "gpqa-test-7", "f:1")
    upstream = gpqa.build_problem(GPQA, "gpqa-train-7", "f:1")
    assert (built.question, built.answer) == (upstream.question, upstream.answer)
    assert built.id == "gpqa-test-0"


def test_gpqa_options_that_read_the_same():
    twins = GPQA | {"Incorrect Answer 1": "hydrogen"}
    problem = gpqa.build_problem(twins, "gpqa-train-7", "f:1")
    assert shown_options(problem)[problem.answer] == "hydrogen"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"Question": "q"}, "missing column 'Correct Answer'"),
        ({"question": "q"}, "missing column 'Question' or 'ori_question'"),
        (GPQA | {"Incorrect Answer 2": " "}, "the answers: .* is not 4 texts"),
        ({"Question": "q", "options": ["a", "b"], "answer": "A"}, "options: .* is not 4 texts"),
        ({"Question": "q", "options": list("abcd"), "answer": "E"}, "answer: 'E' is none of A"),
        ({"Question": "q", "options": list("abcd"), "answer": ""}, "answer: '' is none of A"),
        ({"Question": "q", "options": list("abcd")}, "missing column 'answer'"),
    ],
)
def test_gpqa_faults(row, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        gpqa.build_problem(row, "gpqa-train-7", "f:1")


def arc_row(number=4, labels="ABCDE", key="B"):
    choices = {"text": [f"option {n}" for n in range(number)], "label": list(labels[:number])}
    return {"id": "M_1", "question": "Which?", "choices": choices, "answerKey": key}


@pytest.mark.parametrize(
    ("row", "answer", "last"),
    [
        (arc_row(), "B", "D. option 3"),
        (arc_row(labels="12345", key="4"), "D", "D. option 3"),
        (arc_row(number=3, key="C"), "C", "C. option 2"),
        (arc_row(number=5, labels="12345", key="5"), "E", "E. option 4"),
    ],
)
def test_arc_rows(row, answer, last):
    problem = arc.build_problem(row, "arc-test-7", "f:1")
    assert (problem.id, problem.source, problem.answer) == ("arc-test-M_1", "arc", answer)
    assert problem.question.startswith("Which?\n\nA. option 0\nB. option 1\n")
    assert problem.question.endswith(f"\n{last}\n\nAnswer with the letter of the right option.")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "q"}, "choices.text: None is not 3 to 5 texts"),
        (arc_row(number=2), "choices.text: .* is not 3 to 5 texts"),
        (arc_row() | {"choices": {"text": ["a", "b", "c"], "label": ["A"]}}, "choices.label: .* 3"),
        (arc_row(key="E"), "answerKey: 'E' is not one of the labels A, B, C, D"),
        (arc_row(labels="AABC", key="A"), "answerKey: 'A' is not one of"),
        ({k: v for k, v in arc_row().items() if k != "answerKey"}, "missing column 'answerKey'"),
    ],
)
def test_arc_faults(row, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        arc.build_problem(row, "arc-test-7", "f:1")


@pytest.mark.parametrize("letter", "ABCDE")
def test_the_grader_knows_a_letter_however_it_is_written(letter):
    assert is_parseable(letter)
    for written in (letter, f"({letter})", f"\\text{{{letter}}}", f"{letter}. dry palms"):
        completion = f"<think>\nwork\n</think>\n\n\\boxed{{{written}}}"
        assert grade(completion, letter).verdict == "right"
        assert grade(completion, "ABCDE"["ABCDE".index(letter) - 1]).verdict == "wrong"
