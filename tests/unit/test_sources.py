"""Sources and cleaning: rows become problems, or are dropped for a named reason."""

import pytest

from data_prep.clean import clean, normalise_question
from data_prep.config import UserError
from data_prep.reading import read_rows
from data_prep.schema import Problem
from data_prep.sources import Drop, gsm8k, numinamath


def test_gsm8k_row():
    row = {"question": " How many? ", "answer": "48/2 = <<48/2=24>>24 clips\n#### 1,024"}
    assert gsm8k.build_problem(row, "id", "f:1") == Problem(
        "id", "gsm8k", "How many?", "1024", "48/2 = 24 clips"
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "q"}, r"f:7: missing column 'answer', found 'question'"),
        ({"problem": "q", "answer": "#### 1"}, r"f:7: missing column 'question'"),
        ({"question": "q", "answer": 5}, r"f:7: answer: 5 is not text"),
        ({"question": "q", "answer": "it is 5"}, r"f:7: answer: 'it is 5' has 0 '####'"),
        ({"question": "q", "answer": "#### 5 #### 6"}, r"has 2 '####'"),
        ({"question": "q", "answer": "so\n#### five"}, r"the gold 'five' .* is not a number"),
        ({"question": "q", "answer": "so\n#### "}, r"the gold '' .* is not a number"),
    ],
)
def test_gsm8k_faults(row, words):
    with pytest.raises(UserError, match=words):
        gsm8k.build_problem(row, "id", "f:7")


@pytest.mark.parametrize("names", [("problem", "solution"), ("instruction", "response")])
def test_numinamath_row_under_both_schemas(names):
    row = dict(zip(names, ("Find x.", r"One \boxed{1}, so \boxed{\frac{1}{2}}."), strict=True))
    problem = numinamath.build_problem(row, "id", "f:1")
    assert problem == Problem("id", "numinamath", "Find x.", r"\frac{1}{2}", row[names[1]])


@pytest.mark.parametrize(
    ("question", "solution", "reason"),
    [
        ("Find x.", "It is 5.", "no_boxed_answer"),
        ("Find x.", r"\boxed{1} then \boxed{\frac12", "unbalanced_box"),
        ("Find x.", r"\boxed{\; }", "empty_box"),
        ("Prove that 1 < 2.", r"\boxed{1 < 2}", "proof"),
        ("See ![fig](a.png)", r"\boxed{1}", "image"),
        ("Which?", r"\boxed{B}", "multiple_choice"),
        ("Which?", r"\boxed{\text{(A)}}", "multiple_choice"),
        ("Which?", r"\boxed{\textbf{(C) }8}", "multiple_choice"),
        ("Which?", r"\boxed{40\textbf{ (B)}}", "multiple_choice"),
        ("Which?", r"\boxed{C: 16m^3}", "multiple_choice"),
        ("Which?", r"\boxed{A \text{ and } D}", "multiple_choice"),
        ("Who?", r"\boxed{\text{Nikolay}}", "text_answer"),
        ("Is it?", r"\boxed{True}", "text_answer"),
        ("Find x.", r"\boxed{4 \mid \sigma(n)}", "gold_not_parseable"),
        ("Find x.", r"\boxed{n \text{ is even}}", "gold_not_parseable"),
    ],
)
def test_numinamath_drops(question, solution, reason):
    built = numinamath.build_problem({"problem": question, "solution": solution}, "id", "f:1")
    assert isinstance(built, Drop) and built.reason == reason


@pytest.mark.parametrize(
    "gold",
    ["5", r"\$26", r"140 \text{ meters}", r"\text{3}", "x = 2", "A=30^{\\circ}", "(0, 1]", "3R",
     r"\begin{pmatrix} 4.5 \\ -4.5 \end{pmatrix}", r"0 \text{ or } -3"],
)  # fmt: skip
def test_numinamath_keeps(gold):
    row = {"problem": "Find it.", "solution": f"\\boxed{{{gold}}}"}
    assert numinamath.build_problem(row, "id", "f:1").answer == gold


def test_numinamath_missing_column():
    with pytest.raises(UserError, match=r"missing column 'solution' or 'response', found 'prob"):
        numinamath.build_problem({"problem": "q"}, "id", "f:1")


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("What is  2 + 2?", "what is 2+2", True),
        ("Tom\u2019s 1,000 pens.", "Tom's 1000 pens", True),
        ("Find\u00a0$x$.", "find x", True),
        ("Find 3-2.", "Find 3+2.", False),
        ("Find 1.5.", "Find 15.", False),
        ("Find 5!", "Find 5", False),
        ("Find f(1,2).", "Find f(12).", False),
    ],
)
def test_normalise_question(first, second, same):
    assert (normalise_question(first) == normalise_question(second)) is same


def test_clean_names_every_drop():
    def problem(question, answer="1", solution="s"):
        return Problem("id", "x", question, answer, solution)

    rows = [
        problem("What is a?"), problem("what  is a"), problem(" ?"), problem("In the test!"),
        problem("Bad gold", answer=r"\frac{1}{"), problem("No work", solution=""),
    ]  # fmt: skip
    kept, dropped = clean(rows, {normalise_question("in the test")}, needs_solution=True)
    assert kept == rows[:1]
    assert dropped == dict.fromkeys(
        ["duplicate_question", "empty_question", "in_eval_set", "gold_not_parseable",
         "no_solution"], 1
    )  # fmt: skip
    assert rows[5] in clean(rows)[0]  # without needs_solution


@pytest.mark.parametrize(("file", "num_rows"), [("train", 7473), ("test", 1319)])
def test_no_gsm8k_row_is_lost(shared_data, file, num_rows):
    rows = read_rows(shared_data / f"gsm8k/{file}.jsonl")
    kept, dropped = clean([gsm8k.build_problem(row, w, w) for w, row in rows], needs_solution=True)
    assert len(kept) == num_rows and not dropped
    assert not any("<<" in p.solution or "####" in p.solution for p in kept)
