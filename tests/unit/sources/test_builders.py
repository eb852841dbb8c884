"""Rows of every data set, in the shapes that their copies have, become problems or named drops."""

import contextlib
import itertools
import time
from decimal import Decimal

import pytest

from data_prep.schema import Problem
from data_prep.sources.base import Drop, lost_digits
from data_prep.sources.registry import BUILDERS
from pipeline.errors import UserError

WRAPPED = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    'Find $x$.\n\nRemember to put your answer on its own line after "Answer:".'
)
R1 = "<\uff5cUser\uff5c>{}<\uff5cAssistant\uff5c><think>\n"
NUMINA = {"problem": "Find $x$.", "solution": r"So \boxed{5}."}
NUMINA_15 = NUMINA | {
    "answer": "5", "problem_type": "Algebra", "question_type": "math-word-problem",
    "problem_is_valid": "Yes", "solution_is_valid": "Yes", "source": "olympiads",
}  # fmt: skip
DEEPMATH = {
    "question": "Find $x$.", "final_answer": r"\frac{1}{2}", "difficulty": 5.5,
    "topic": "Mathematics -> Algebra -> Group Theory",
    "r1_solution_1": "Hmm, a half.\n</think>\n\nThus\n\\boxed{0.5}",
    "r1_solution_2": "<think>\nSo \\boxed{7}, no, a half.\n</think>\n\\boxed{\\dfrac12}",
    "r1_solution_3": "Hmm, a third.\n</think>\n\\boxed{\\frac{1}{3}}",
}  # fmt: skip
MATH = {
    "problem": "Find $x$.", "solution": r"First \boxed{1}, then \boxed{\frac{1}{2}}.",
    "answer": r"\frac{1}{2}", "subject": "Algebra", "level": 5,
    "unique_id": "test/algebra/12.json",
}  # fmt: skip
CONTEST = {
    "problem_idx": 3, "problem": "Find $x$.\n", "answer": r"\frac{1}{2}",
    "problem_type": ["Algebra"],
}  # fmt: skip
SVAMP = {
    "Body": "A pack of  dvds costs $ 76. If there is a discount of $ 25", "Type": "Subtraction",
    "Question": "How much is each pack ?", "Answer": 51.0, "Equation": "( 76.0 - 25.0 )",
    "ID": "chal-1", "idx": 900,
}  # fmt: skip
SVAMP_QUESTION = "A pack of dvds costs $76. If there is a discount of $25, how much is each pack?"
DVDS = {"id": "svamp-train-chal-1", "question": SVAMP_QUESTION, "subject": "Subtraction"}
MAWPS = {"input": "it is n't Mike 's . how many are there now ?", "target": 43.0, "type": "addsub"}
GPQA = {
    "Question": "Which gas is lightest?\n", "Correct Answer": "hydrogen\n",
    "Incorrect Answer 1": "neon", "Incorrect Answer 2": "argon\n\nof any kind",
    "Incorrect Answer 3": "xenon", "Explanation": "It has one proton.", "Record ID": "recX",
}  # fmt: skip
TRACE = {
    "id": "gsm8k-train-7", "source": "gsm8k", "question": "Find $x$.", "answers": ["5"],
    "solution": "Five.", "trace": 1, "level": None, "subject": "",
}  # fmt: skip


def chat(question, **extra):
    """A prompt of one user turn."""
    return [{"role": "user", "content": question} | extra]


def verl(question, gold, **extra):
    """A row of verl's parquet files."""
    return {
        "prompt": chat(question), "reward_model": {"ground_truth": gold, "style": "rule"},
        "extra_info": {"index": 0} | extra,
    }  # fmt: skip


def orz(truth, question="Find $x$."):
    """A training row of ORZ, as it is read."""
    human = {"from": "human", "value": question}
    return {"conversations": [human, {"from": "assistant", "ground_truth": truth}]}


def arc(number=4, labels="ABCDE", key="B", **changes):
    """A row of ARC with so many options."""
    choices = {"text": [f"option {n}" for n in range(number)], "label": list(labels[:number])}
    row = {"id": "M_1", "question": "Which?", "choices": choices, "answerKey": key}
    return row | changes


BOX = r"Please reason step by step, and put your final answer within \boxed{}."
USER = [{"from": "user", "value": "Find $x$."}]
SYSTEM = {"role": "system", "content": "Hi"}
PREFILL = {"role": "assistant", "content": "<think>\n"}
PLAIN = {"problem": "Find $x$.", "answer": "5"}
FIRST_MATH = {"problem": "Find $x$.", "solution": MATH["solution"]}
NO_GOLD = (None, "")


def build(name, row, **options):
    if name == "generic":
        options = {"prompt_key": "p", "answer_key": "a"} | options
    return BUILDERS[name](row, f"{name}-train-7", "f:1", **options)


def reason_of(name, row, **options):
    """Why a row is dropped."""
    with pytest.raises(Drop) as caught:
        build(name, row, **options)
    return caught.value.reason


def fields_of(problem):
    """What is neither empty nor as in most rows."""
    names = Problem.__dataclass_fields__
    usual = {"question": "Find $x$.", "answers": ("5",), "solution": "", "subject": "", "trace": 0}
    usual |= {"level": None, "raw_prompt": ""}
    found = {name: getattr(problem, name) for name in names}
    return {n: v for n, v in found.items() if n not in usual or v != usual[n]}


HALF = {"answers": (r"\frac{1}{2}",)}
ALGEBRA = {"id": "math-train-algebra-12", "subject": "Algebra"}
WORKED = {"solution": MATH["solution"], **HALF}
SO = {"solution": r"So \boxed{5}."}
DEEP = {"level": 5.5, "subject": "Group Theory", **HALF}
SO_BARE = {"solution": "So."}
ROWS = [
    # (source, row, options, fields that are not those of most rows)
    ("gsm8k", {"question": " How many? ", "answer": "48/2 = <<48/2=24>>24 clips\n#### 1,024"}, {},
     {"question": "How many?", "answers": ("1024",), "solution": "48/2 = 24 clips"}),
    ("gsm8k", {"question": "How many?", "answer": "6<<2+2*2=6>>, 3 is <<2*-1.5=-3>>\n#### -3"},
     {"thought": "equation"}, {"question": "How many?", "answers": ("-3",), "level": 3,
                               "solution": "2 * 2 = 4\n2 + 4 = 6\n2 * (-1.5) = -3"}),
    ("svamp", SVAMP, {}, {"answers": ("51",), **DVDS}),
    ("svamp", SVAMP | {"Answer": "51"}, {"thought": "equation"},  # as on the hub
     {"answers": ("51",), "solution": "76 - 25 = 51", "level": 1, **DVDS}),
    ("svamp", SVAMP | {"Equation": "( 60.0 * ( 55.0 / 15.0 ) )", "Answer": 220.0},
     {"thought": "equation"}, {"answers": ("220",), "level": 2, **DVDS,
                               "solution": "55 / 15 = 11/3\n60 * (11/3) = 220"}),
    ("svamp", SVAMP | {"Equation": "8.0", "Answer": 8.0}, {"thought": "equation"},
     {"answers": ("8",), "solution": "8", "level": 1, **DVDS}),
    ("svamp", {"Body": "There are 7 teachers", "Question": "How many?", "Answer": 5.0}, {},
     {"question": "There are 7 teachers. How many?"}),
    ("svamp", {"Body": "There were 3. ", "Question": "How many?", "Answer": 5.0}, {},
     {"question": "There were 3. How many?"}),
    ("mawps", MAWPS, {}, {"question": "It isn't Mike's. How many are there now?",
                          "answers": ("43",), "subject": "addsub"}),
    ("mawps", {"input": "How many are .5 of it?", "target": -0.6666666667}, {},
     {"question": "How many are .5 of it?", "answers": ("-0.6666666667", "-2/3")}),
    ("mawps", {"input": "How many?", "target": 0.6180339887}, {},  # of no small fraction
     {"question": "How many?", "answers": ("0.6180339887",)}),
    ("mawps", {"id": "mawps__1", "question": "How many?", "result": "3_000", "result_float": 3e3},
     {}, {"id": "mawps-train-mawps__1", "question": "How many?", "answers": ("3000",)}),
    ("mawps", {"question": "How many?", "result_float": 0.6666666666666666}, {},
     {"question": "How many?", "answers": ("0.6666666666666666", "2/3")}),
    ("numinamath", NUMINA, {}, SO),
    ("numinamath", {"instruction": "Find $x$.", "response": r"One \boxed{1}, so \boxed{5}."}, {},
     {"solution": r"One \boxed{1}, so \boxed{5}."}),
    ("numinamath", NUMINA_15, {}, {"subject": "Algebra", **SO}),
    ("numinamath", NUMINA_15 | {"problem_type": None}, {}, {"subject": "olympiads", **SO}),
    ("numinamath", NUMINA_15 | {"answer": "proof"}, {},
     {"answers": ("proof",), "subject": "Algebra", **SO}),
    ("numinamath", NUMINA_15 | {"solution_is_valid": "Incomplete"}, {}, {"subject": "Algebra"}),
    ("areal_boba", {"prompt": R1.format(f"Find $x$.\n{BOX}"), "solutions": [r"\boxed{5}"]}, {}, {}),
    ("areal_boba", {"prompt": "Find $x$.", "task": "math", "query_id": "xx", "level": 3,
                    "solutions": [None, "", r"\boxed{5}", r"\boxed{ 5 }", r"\boxed{\frac{10}{2}}"]},
     {}, {"answers": ("5", r"\frac{10}{2}")}),
    ("deepmath", DEEPMATH, {}, {"solution": DEEPMATH["r1_solution_1"], **DEEP}),
    ("deepmath", DEEPMATH, {"trace": 2}, {"id": "deepmath-train-7-t1", "trace": 1,
                                         "solution": DEEPMATH["r1_solution_2"], **DEEP}),
    ("deepmath", DEEPMATH, {"trace": 3}, {"id": "deepmath-train-7-t2", "trace": 2, **DEEP}),
    ("deepmath", DEEPMATH | {"difficulty": -1.0, "topic": "Calculus"}, {},
     {"solution": DEEPMATH["r1_solution_1"], "subject": "Calculus", **HALF}),
    ("orz", orz({"value": "n = 4"}), {}, {"answers": ("n = 4",)}),
    ("orz", orz({"value": " 45^\\circ ", "pass_at_n": 0.75}), {}, {"answers": ("45^\\circ",)}),
    ("orz", {"prompt": USER, "final_answer": "5"}, {}, {}),
    ("deepscaler", PLAIN | {"solution": " So 5. "}, {}, {"solution": "So 5."}),
    ("deepscaler", PLAIN | {"difficulty": 4.5, "type": "Algebra"}, {},
     {"level": 4.5, "subject": "Algebra"}),
    ("deepscaler", verl("Find $x$.", ["5", "5.0"]), {}, {"answers": ("5", "5.0")}),
    ("dapo", verl(WRAPPED, "5", index="9a9b6eb4"), {}, {}),
    ("dapo", {"prompt": chat(WRAPPED), "label": "5"}, {}, {}),
    ("dapo", {"prompt": WRAPPED, "answer": 5, "source": "math_dapo", "id": "1"}, {}, {}),
    ("generic", {"p": "Find $x$.", "a": "5"}, {"solution_key": "s", "level_key": "l"}, {}),
    ("generic", {"p": R1.format(f"Find $x$.\n{BOX}"), "a": r"\boxed{5}"},
     {"apply_chat_template": False}, {"raw_prompt": R1.format(f"Find $x$.\n{BOX}")}),
    ("generic", {"p": [SYSTEM, *chat("Find $x$."), PREFILL], "a": 5.0},
     {"apply_chat_template": True}, {}),
    ("generic", {"p": USER, "a": ["5", "$5$"]}, {}, {"answers": ("5", "$5$")}),
    ("generic", {"p": "Find $x$.", "a": "It is\n#### 5", "s": "So.", "l": "3"},
     {"solution_key": "s", "level_key": "l"}, {"solution": "So.", "level": 3.0}),
    ("generic", {"p": "Find $x$.", "a": r"The mass left is \boxed{2} kg."}, {},
     {"answers": (r"2 \text{ kg}",)}),
    ("generic", {"p": "Find $x$.", "a": "So.\n#### 5\nI hope it is correct."}, {}, {}),
    ("gsm8k", {"question": "Find $x$.", "answer": "So.\n#### 5\nI hope so."}, {}, SO_BARE),
    *[("generic", {"p": "Find $x$.", "a": gold}, {}, {"answers": ("5", "5.0")})
      for gold in ('["5", "5.0"]', '["5", 5.0]', "['5', '5.0']",
                   '[ "5",\n"5.0" ]', ['["5"]', "5.0"])],
    ("dapo", verl("Find $x$.", '["5"]'), {}, {}),
    *[("generic", {"p": "Find $x$.", "a": gold}, {}, {"answers": (gold,)})
      for gold in ("[0, 1]", "[5]", "['1' '2']", "[[1, 0], [0, 1]]")],  # mathematics, numpy
    *[("generic", {"p": "Find $x$.", "a": gold}, {}, {"answers": (text,)}) for gold, text in (
        (Decimal("2.50"), "2.5"), (Decimal("1" * 35 + ".50"), "1" * 35 + ".5"),
        (Decimal("1E+3"), "1000"),
        (12345678901234567891, "12345678901234567891"), (1e23, "1" + "0" * 23), (2.5, "2.5"))],
    ("generic", {"p": "Find $x$.", "a": Decimal("5.00")}, {}, {}),
    *[("generic", {"p": "Find $x$.", "a": "5", "l": level}, {"level_key": "l"}, {"level": number})
      for level, number in (("Level 3", 3.0), ("level: 2.5", 2.5),
                            (Decimal("3"), 3.0))],
    ("generic", {"p": "Find $x$.", "a": "5", "l": "Level ?"}, {"level_key": "l"}, {}),
    ("generic", {"p": "Find\r\n$x$.", "a": "\r\n5\r\n", "s": "So.\r\n5"}, {"solution_key": "s"},
     {"question": "Find\n$x$.", "solution": "So.\n5"}),
    ("generic", {"p": chat("Find\r\n$x$."), "a": "5"}, {}, {"question": "Find\n$x$."}),
    *[("generic", {"p": "Find $x$.", "a": "5", "s": several}, {"solution_key": "s"}, SO)
      for several in ([SO["solution"], "No."], [r"\boxed{4}", SO["solution"]],
                      [None, "", SO["solution"]], '["So \\\\boxed{5}."]')],
    ("generic", {"p": "Find $x$.", "a": "5", "s": []}, {"solution_key": "s"}, {}),
    ("generic", {"p": [*chat("Find $x$."), PREFILL], "a": "5"}, {}, {}),
    # Beside options that are no options of this gold:
    *[("generic", {"p": "Find $x$.", "a": "5"} | others, {}, {}) for others in (
        {"choices": ["3", "4"]}, {"options": None}, {"choices": ["5"]}, {"tags": list("abcdefg")},
        {"numbers": list(range(9))}, {"r1_solution_1": "a", "r1_solution_2": "b"},
        {"generations": ["x"] * 9}, {"options": {"n": 9}}, {"choices": ["3", "4", "5", "6", "7"]},
        {"options": dict(zip("ABCDE", "56789", strict=True))},
        {"choices": [{"message": {"content": "5"}}] * 9}, {"level_1": 1, "level_2": 2})],
    ("generic", {"r": {"q": "Find $x$.", "g": {"t": "5"}}},
     {"prompt_key": "r.q", "answer_key": "r.g.t"}, {}),
    ("traces", TRACE | {"answers": ["5", "5.0"], "level": 2, "subject": "Algebra"}, {},
     {"id": "gsm8k-train-7-t1", "source": "gsm8k", "solution": "Five.", "trace": 1,
      "answers": ("5", "5.0"), "level": 2, "subject": "Algebra"}),
    ("math", MATH, {}, {"level": 5, **ALGEBRA, **WORKED}),
    ("math", verl("Find $x$.", r"\frac{1}{2}", solution=MATH["solution"], level="5",
                  unique_id="train/algebra/12.json", subject="Algebra"), {},
     {"level": 5, **ALGEBRA, **WORKED}),
    ("math", MATH | {"answer": "", "level": "Level ?"}, {}, {**ALGEBRA, **WORKED}),
    ("math", FIRST_MATH | {"level": "Level 3", "type": "Algebra", "idx": 4}, {},
     {"level": 3, "subject": "Algebra", **WORKED}),
    ("math", {"prompt": USER, "final_answer": "p - q"}, {}, {"answers": ("p - q",)}),
    ("math", {"problem": "Find $x$.", "answer": "\frac12"}, {}, {"answers": (r"\frac12",)}),
    ("aime", {"ID": "2024-I-1", "Problem": "Find $x$.", "Solution": "s", "Answer": 5}, {},
     {"id": "aime-train-2024-I-1", "solution": "s"}),
    ("aime", {"id": 60, "problem": "Find $x$.", "question": "", "answer": "005"}, {},
     {"id": "aime-train-60"}),
    ("aime", {"prompt": USER, "final_answer": "5"}, {}, {}),
    ("aime", verl(WRAPPED, "5", index=2), {}, {"id": "aime-train-2"}),
    ("math", CONTEST, {}, {"id": "math-train-3", **HALF}),
    ("math", CONTEST | {"answer": 5}, {}, {"id": "math-train-3"}),
    *[("aime", {"problem": "Find $x$.", "answer": gold}, {}, {"answers": (answer,)})
      for gold, answer in (
          (70, "70"), (0, "0"), (999, "999"), (27.0, "27"), ("468", "468"), ("073", "73"),
          ("000", "0"), ("336^\\circ", "336"), ("$336^{\\circ}$", "336"), ("336\u00b0", "336"),
          (" 25 ", "25"), ("0025", "25"))],
    *[("numinamath", NUMINA | {"solution": rf"\boxed{{{gold}}}"}, {},
       {"answers": (gold,), "solution": rf"\boxed{{{gold}}}"})
      for gold in (
          r"140 \text{ meters}", r"\text{3}", "A=30^{\\circ}", "3R", r"0 \text{ or } -3",
          r"\begin{pmatrix} 4.5 \\ -4.5 \end{pmatrix}",
          # What the filters decide on, for all sources alike:
          "B", r"\textbf{(C) }8", r"A \text{ and } D", "proof", r"\text{notfound}", r"4 \mid n")],
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "options", "fields"), ROWS)
def test_rows_become_problems(name, row, options, fields):
    built = build(name, row, **options)
    assert isinstance(built, Problem)
    assert fields_of(built) == {"id": f"{name}-train-7", "source": name} | fields


DROPS = [
    *[("svamp", SVAMP | {"Answer": gold}, "no_answer") for gold in NO_GOLD],
    ("mawps", MAWPS | {"target": None}, "no_answer"),
    *[("aime", {"problem": "q", "answer": gold}, "no_answer") for gold in NO_GOLD],
    ("math", CONTEST | {"answer": ""}, "no_answer"),
    *[("orz", orz({"value": gold}), "no_answer") for gold in (*NO_GOLD, " ", [])],
    *[(name, verl("q", gold), "no_answer") for name in ("dapo", "deepscaler")
      for gold in (*NO_GOLD, float("nan"), "\\boxed{}")],
    *[("generic", {"p": "q", "a": gold}, "no_answer")
      for gold in (*NO_GOLD, [], "so\n#### ", ["", None])],
    *[("areal_boba", {"prompt": "q", "solutions": gold}, "no_answer")
      for gold in ([], [r"\boxed{}"], None)],
    ("areal_boba", {"prompt": "q", "solutions": ["5"], "task": "code"}, "not_math"),
    ("deepmath", DEEPMATH | {"final_answer": ""}, "no_answer"),
    ("traces", TRACE | {"answers": []}, "no_answer"),
    ("math", {"problem": "x", "answer": None, "solution": ""}, "no_answer"),
    ("math", {"problem": "x", "solution": r"It is \boxed{5."}, "no_answer"),
    *[("numinamath", NUMINA | {"solution": solution}, reason) for solution, reason in (
        ("It is 5.", "no_boxed_answer"), (None, "no_boxed_answer"),
        (r"\boxed{1} then \boxed{\frac12", "unbalanced_box"), (r"\boxed{\; }", "empty_box"),
        (r"\boxed{\text{Nikolay}}", "text_answer"), (r"\boxed{True}", "text_answer"))],
    *[("numinamath", NUMINA_15 | changes, reason) for changes, reason in (
        ({"problem_is_valid": "Incomplete"}, "invalid_problem"),
        ({"question_type": "proof", "answer": "proof"}, "proof"),
        ({"question_type": "MCQ", "answer": "notfound"}, "multiple_choice"),
        ({"answer": ""}, "no_answer"), ({"answer": None}, "no_answer"),
        ({"answer": "Nikolay wins"}, "text_answer"))],
]  # fmt: skip


TEN = ["10", "11", "12", "9"]
OPTIONS = [
    *[({"choices": TEN}, gold) for gold in (1, "1", 4, "B", "b", "(b)", 0, 1.0)],
    ({"options": TEN}, "1"),
    ({"options": [10, 11, 12, 9]}, "1"),
    ({"options": "['10', '11', '12', '9']"}, "1"),
    ({"options": "a ) 10 , b ) 11 , c ) 12 , d ) 9"}, "b"),
    ({"choices": ["A) 10", "B) 11", "C) 12"]}, "B"),
    ({"choices": {"text": TEN, "label": list("ABCD")}}, "B"),
    ({"choices": {"text": TEN, "label": list("1234")}}, "2"),
    ({"candidates": dict(zip("ABCD", TEN, strict=True))}, "b"),
    (dict(zip("ABCD", TEN, strict=True)), "B"),
    (dict(zip("ABCD", TEN, strict=True)), 1),
    ({f"option_{label}": text for label, text in zip("abcd", TEN, strict=True)}, "option_b"),
    ({f"op{label}": text for label, text in zip("abcd", TEN, strict=True)}, 1),
    ({f"option{number}": text for number, text in enumerate(TEN, 1)}, "2"),
    ({"extra_info": {"choices": TEN}}, 1),
    ({"choices": ["1", "2", "3"]}, 2),  # an index is a number, the options are texts
    ({"options": {"A": "10", "B": "11", "C": "12"}}, "B"),
    *[({"opts": TEN}, gold) for gold in ("Option B", "option_2", "2)", "#2", "B.")],
    *[({"choices": text}, 1) for text in (
        '["10", "11", "12"]', "10; 11; 12", "10, 11, 12", "(A) 10 (B) 11 (C) 12",
        "A. 10\nB. 11\nC. 12")],
    ({"options": [{"label": "A", "text": "10"}, {"label": "B", "text": "11"}]}, "B"),
    ({f"answer{label}": text for label, text in zip("ABCD", TEN, strict=True)}, "B"),
]  # fmt: skip


@pytest.mark.parametrize(("others", "gold"), OPTIONS)
def test_a_gold_that_names_an_option_of_the_row_is_multiple_choice(others, gold):
    question = "Which of these is the sum of 5 and 6?"
    for name, row in (
        ("generic", {"p": question, "a": gold}), ("dapo", {"prompt": question, "label": gold}),
    ):  # fmt: skip
        assert reason_of(name, row | others) == "multiple_choice"


def test_the_letter_of_an_option_that_the_question_shows_is_an_answer():
    row = {"p": "Which?\n(A) 10\n(B) 11", "a": "B", "choices": ["10", "11"]}
    assert build("generic", row).answers == ("B",)


@pytest.mark.parametrize(
    "hostile",
    [" x" * 50_000, "x" + " " * 100_000 + "x", "A. " * 50_000, "[" * 50_000, '["' * 50_000,
     "; " * 50_000, "1 ) " * 50_000, "\n" * 100_000],
)  # fmt: skip
def test_hostile_options_and_golds_end(hostile):
    start = time.process_time()
    for row in (
        {"a": "1", "options": hostile},
        {"a": hostile},
        {"a": "1", "choices": [hostile] * 2},
    ):
        with contextlib.suppress(Drop):
            build("generic", {"p": "Find $x$."} | row)
    assert time.process_time() - start < 4


def test_options_in_a_row_nested_deeply():
    row = {"p": "Find $x$.", "a": 2.0**70}
    for _ in range(900):
        row = {"p": "Find $x$.", "a": 2.0**70, "more": row}
    golds = build("generic", row).answers
    assert golds == ("1180591620717411300000",) and lost_digits(row, golds)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (SVAMP | {"Answer": 50.0}, "solution_disagrees"),
        *[(SVAMP | {"Equation": equation}, "no_solution")
          for equation in (None, "", "X=76-25", "9**9**9", "__import__('os').getpid()", "'7'*9",
                           "51 if 1 else 0", "1/0", "True", "51j", "51" + " " * 200)],
    ],
)  # fmt: skip
def test_an_equation_that_is_none_or_another_s_is_a_named_drop(row, reason):
    assert build("svamp", row).solution == ""
    assert reason_of("svamp", row, thought="equation") == reason


@pytest.mark.parametrize(("name", "row", "reason"), DROPS)
def test_rows_without_a_usable_gold_are_named_drops(name, row, reason):
    assert reason_of(name, row) == reason


TURN = chat("q")
FAULTS = [
    ("gsm8k", {"question": "q"}, {}, r"missing column 'answer', found 'question'"),
    ("gsm8k", {"question": "q", "answer": 5}, {}, r"answer: 5 is not text"),
    ("gsm8k", {"question": "q", "answer": "it is 5"}, {}, r"answer: 'it is 5' has 0 '####'"),
    ("gsm8k", {"question": "q", "answer": "so\n#### five"}, {}, r".*'five' .* is not a number"),
    ("svamp", {"Question": "q", "Answer": 5.0}, {}, "missing column 'Body' or 'body'"),
    ("svamp", SVAMP | {"Answer": {}}, {}, "Answer: {} is not text"),
    ("mawps", {"input": "q"}, {}, "missing column 'target' or 'result_float' or"),
    ("numinamath", {"problem": "q"}, {}, "missing column 'solution' or 'response', found 'prob"),
    ("numinamath", NUMINA_15 | {"problem_is_valid": True}, {}, "problem_is_valid: True is not"),
    ("areal_boba", {"prompt": "q"}, {}, "missing column 'solutions'"),
    ("areal_boba", {"prompt": R1.format("q") + R1.format("r"), "solutions": ["5"]}, {},
     "prompt: no single question"),
    ("deepmath", DEEPMATH, {"trace": 4}, "trace: 4 is not 1 to 3"),
    *[("deepmath", DEEPMATH | {"difficulty": level}, {}, "difficulty: .* is not a number")
      for level in ("hard", [5], True, float("inf"))],
    ("orz", {"conversations": "text"}, {}, "conversations: 'text' has no single turn with a gr"),
    ("orz", orz({}), {}, "missing column .*'ground_truth.value'"),
    ("generic", {"a": "5"}, {}, "missing column 'p', found 'a'; set prompt_key"),
    ("generic", {"p": "q", "b": "5"}, {}, "missing column 'a', found 'p', 'b'; set answer_key"),
    ("generic", {"p": "q", "a": "5"}, {"prompt_key": None, "question": "{p} {r}"},
     "missing column 'r', found 'p', 'a'; set question"),
    ("generic", {"p": TURN, "a": "5"}, {"apply_chat_template": False},
     "p: .* is not text; set apply_chat_template to true, or leave it out"),
    ("areal_boba", {"prompt": "q", "solutions": ["5"]}, {"apply_chat_template": True},
     "prompt: 'q' is not a list of messages; set apply_chat_template to false"),
    ("generic", {"p": "q", "a": "5"}, {"apply_chat_template": True},
     "p: 'q' is not a list of messages; set apply_chat_template to false"),
    ("generic", {"p": "q", "a": {"v": 5}}, {}, "a: .* is not text"),
    ("generic", {"p": "q", "a": "5", "l": "hard"}, {"level_key": "l"}, "l: 'hard' is not a number"),
    ("traces", TRACE | {"trace": -1}, {}, "trace: -1 is not"),
    ("math", {"answer": "5"}, {}, "missing column 'problem' or 'question' or 'prompt', found 'a"),
    ("math", {"problem": "x"}, {}, "missing column 'answer' or 'final_answer'"),
    ("math", MATH | {"answer": ["5"]}, {}, "answer: .* is not text"),
    ("math", MATH | {"level": "hard"}, {}, "level: 'hard' is not 1 to 5"),
    *[("aime", {"problem": "q", "answer": gold}, {}, "answer: .* is not (an integer from 0|te)")
      for gold in (1000, -1, 2.5, "1000", "m+n", "12.", "1,000", "25 cm", True, ["5", "6"])],
    ("gpqa", {"Question": "q"}, {}, "missing column 'Correct Answer'"),
    ("gpqa", GPQA | {"Incorrect Answer 2": " "}, {}, "the answers: .* is not 4 texts"),
    ("gpqa", {"Question": "q", "options": ["a", "b"], "answer": "A"}, {}, "options: .* 4 texts"),
    *[("gpqa", {"Question": "q", "options": list("abcd"), "answer": gold}, {},
       "answer: .* is none of A") for gold in ("E", "", "AB")],
    ("arc", {"question": "q"}, {}, "choices.text: None is not 3 to 5 texts"),
    ("arc", arc(choices={"text": ["a", "b", "c"], "label": ["A"]}), {}, "choices.label: .* 3"),
    ("arc", arc(key="E"), {}, "answerKey: 'E' is not one of the labels A, B, C, D"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "options", "words"), FAULTS)
def test_damaged_rows_are_named_by_place_and_column(name, row, options, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        build(name, row, **options)


def test_gpqa_row():
    problem = build("gpqa", GPQA)
    assert problem.question == (
        "Which gas is lightest?\n\nA. neon\nB. hydrogen\nC. xenon\nD. argon of any kind\n\n"
        "Answer with the letter of the right option."
    )
    assert (problem.id, problem.solution) == ("gpqa-train-recX", "It has one proton.")


def test_gpqa_order_is_the_questions_own():
    first = build("gpqa", GPQA)
    for permuted in itertools.permutations(("neon", "argon\n\nof any kind", "xenon")):
        wrong = {f"Incorrect Answer {n}": text for n, text in enumerate(permuted, 1)}
        assert build("gpqa", GPQA | wrong) == first
    assert first.answers[0] == "B"  # a change here changes every score: the order must never move
    letters = [
        build("gpqa", GPQA | {"Question": f"Which gas, {n}?"}).answers[0] for n in range(400)
    ]
    assert all(70 <= letters.count(letter) <= 130 for letter in "ABCD")


def test_gpqa_copy_with_options_shows_the_same():
    options = ["xenon", "hydrogen", "neon", "argon of any kind"]
    row = {"id": 0, "ori_question": "Which gas is lightest?", "question": "Which …\n\nA. xenon"}
    built = build("gpqa", row | {"options": options, "answer": "B"})
    upstream = build("gpqa", GPQA)
    assert (built.question, built.answers[0]) == (upstream.question, upstream.answers[0])
    assert built.id == "gpqa-train-0"


@pytest.mark.parametrize(
    ("row", "answer", "last"),
    [
        (arc(), "B", "D. option 3"),
        (arc(labels="12345", key="4"), "D", "D. option 3"),
        (arc(number=3, key="C"), "C", "C. option 2"),
        (arc(number=5, labels="12345", key="5"), "E", "E. option 4"),
    ],
)
def test_arc_rows(row, answer, last):
    problem = build("arc", row)
    assert (problem.id, problem.source, problem.answers[0]) == ("arc-train-M_1", "arc", answer)
    assert problem.question.startswith("Which?\n\nA. option 0\nB. option 1\n")
    assert problem.question.endswith(f"\n{last}\n\nAnswer with the letter of the right option.")
