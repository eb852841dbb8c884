"""The training sources: rows in every shape that their copies have become problems or drops."""

import pytest

from data_prep.config import UserError
from data_prep.reading.rows import read_rows
from data_prep.schema import Problem
from data_prep.sources import (
    aime,
    areal_boba,
    dapo,
    deepmath,
    deepscaler,
    generic,
    gsm8k,
    numinamath,
    orz,
    traces,
)
from data_prep.sources.base import Drop, clean_gold, thought_of

BOX = r"Please reason step by step, and put your final answer within \boxed{}."
R1 = "<\uff5cUser\uff5c>{}<\uff5cAssistant\uff5c><think>\n"


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
        ({"question": ["q"], "answer": "#### 5"}, r"question: .* no single user turn"),
    ],
)
def test_gsm8k_faults(row, words):
    with pytest.raises(UserError, match=words):
        gsm8k.build_problem(row, "id", "f:7")


@pytest.mark.parametrize("answer", [None, ""])
def test_gsm8k_row_without_an_answer(answer):
    row = {"question": "q", "answer": answer}
    assert gsm8k.build_problem(row, "id", "f:1") == Drop("no_answer")


@pytest.mark.parametrize(("file", "num_rows"), [("train", 7473), ("test", 1319)])
def test_no_gsm8k_row_is_lost(shared_data, file, num_rows):
    rows = read_rows(shared_data / f"gsm8k/{file}.jsonl")
    built = [gsm8k.build_problem(row, w, w) for w, row in rows]
    assert len(built) == num_rows and all(isinstance(p, Problem) for p in built)
    assert not any("<<" in p.solution or "####" in p.solution or not p.solution for p in built)


def test_aime_row_without_an_answer():
    row = {"problem": "Find x.", "answer": None}
    assert aime.build_problem(row, "id", "f:1") == Drop("no_answer")


# Golds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        (" 5\n", "5"),
        (r"\boxed{5}", "5"),
        (r"$\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"\[\boxed{\boxed{ 5 }}\]", "5"),
        (r"\boxed{1}, \boxed{2}", r"\boxed{1}, \boxed{2}"),
        (r"\boxed{1}+\sqrt{2}", r"\boxed{1}+\sqrt{2}"),
        (r"\boxed{1", r"\boxed{1"),
        ("$5$", "$5$"),
        ("\frac12", r"\frac12"),
        ("\\boxed{}", ""),
    ],
)
def test_clean_gold(text, gold):
    assert clean_gold(text) == gold


# NuminaMath -------------------------------------------------------------------------------------

COT = {"problem": "Find x.", "solution": r"So \boxed{5}."}
NUMINA15 = COT | {
    "answer": "5", "problem_type": "Algebra", "question_type": "math-word-problem",
    "problem_is_valid": "Yes", "solution_is_valid": "Yes", "source": "olympiads",
    "synthetic": False,
}  # fmt: skip


@pytest.mark.parametrize("names", [("problem", "solution"), ("instruction", "response")])
def test_numinamath_row_under_both_schemas(names):
    row = dict(zip(names, ("Find x.", r"One \boxed{1}, so \boxed{\frac{1}{2}}."), strict=True))
    problem = numinamath.build_problem(row, "id", "f:1")
    assert problem == Problem("id", "numinamath", "Find x.", r"\frac{1}{2}", row[names[1]])


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        ("It is 5.", "no_boxed_answer"),
        (None, "no_boxed_answer"),
        (r"\boxed{1} then \boxed{\frac12", "unbalanced_box"),
        (r"\boxed{\; }", "empty_box"),
        (r"\boxed{\text{Nikolay}}", "text_answer"),
        (r"\boxed{True}", "text_answer"),
    ],
)
def test_numinamath_drops(solution, reason):
    built = numinamath.build_problem({"problem": "q", "solution": solution}, "id", "f:1")
    assert isinstance(built, Drop) and built.reason == reason


@pytest.mark.parametrize(
    "gold",
    ["5", r"\$26", r"140 \text{ meters}", r"\text{3}", "x = 2", "A=30^{\\circ}", "(0, 1]", "3R",
     r"\begin{pmatrix} 4.5 \\ -4.5 \end{pmatrix}", r"0 \text{ or } -3",
     # What the policies decide on, for all sources alike:
     "B", r"\text{(A)}", r"\textbf{(C) }8", r"A \text{ and } D", "proof", r"\text{notfound}",
     r"4 \mid \sigma(n)"],
)  # fmt: skip
def test_numinamath_keeps(gold):
    row = {"problem": "Prove it or find it.", "solution": f"\\boxed{{{gold}}}"}
    assert numinamath.build_problem(row, "id", "f:1").answer == gold


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("5", r"So \boxed{5}.", "Algebra")),
        ({"problem_type": None}, ("5", r"So \boxed{5}.", "olympiads")),
        ({"problem_type": None, "source": "unknown"}, ("5", r"So \boxed{5}.", "")),
        ({"answer": "proof"}, ("proof", r"So \boxed{5}.", "Algebra")),
        ({"answer": r"\boxed{7}"}, ("7", r"So \boxed{5}.", "Algebra")),
        ({"solution_is_valid": "Incomplete"}, ("5", "", "Algebra")),
        ({"solution_is_valid": "Problem not solved"}, ("5", "", "Algebra")),
        ({"solution_is_valid": None, "solution": None}, ("5", "", "Algebra")),
        ({"problem_is_valid": None}, ("5", r"So \boxed{5}.", "Algebra")),
        ({"problem_is_valid": "Incomplete"}, "invalid_problem"),
        ({"problem_is_valid": "No"}, "invalid_problem"),
        ({"question_type": "proof", "answer": "proof"}, "proof"),
        ({"question_type": "proof", "answer": None}, "proof"),
        ({"question_type": "proof"}, ("5", r"So \boxed{5}.", "Algebra")),
        ({"question_type": "MCQ", "answer": "notfound"}, "multiple_choice"),
        ({"question_type": "MCQ", "answer": "C"}, ("C", r"So \boxed{5}.", "Algebra")),
        ({"answer": ""}, "no_answer"),
        ({"answer": None}, "no_answer"),
        ({"answer": "Nikolay wins"}, "text_answer"),
    ],
)
def test_numinamath_15(changes, expected):
    built = numinamath.build_problem(NUMINA15 | changes, "id", "f:1")
    if isinstance(expected, str):
        assert isinstance(built, Drop) and built.reason == expected
    else:
        assert (built.answer, built.solution, built.subject) == expected


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"problem": "q"}, "missing column 'solution' or 'response', found 'prob"),
        (COT | {"problem": None}, "problem: None is not text"),
        (NUMINA15 | {"answer": {"a": 1}}, "answer: .* is not text"),
        (NUMINA15 | {"problem_is_valid": True}, "problem_is_valid: True is not text"),
    ],
)
def test_numinamath_faults(row, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        numinamath.build_problem(row, "id", "f:1")


# AReaL-boba -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "answer", "others"),
    [
        ({"solutions": [r"\boxed{5}"]}, "5", ()),
        ({"solutions": [r"\boxed{5}", r"\boxed{ 5 }", r"\boxed{\frac{10}{2}}"]}, "5",
         (r"\frac{10}{2}",)),
        ({"solutions": [None, "", 5], "task": "math", "query_id": "xx", "level": 3}, "5", ()),
        ({"solutions": r"\boxed{5}", "task": "MATH"}, "5", ()),
    ],
)  # fmt: skip
def test_boba_rows(row, answer, others):
    row = {"prompt": "\n" + R1.format(f"Find $x$.\n{BOX}")} | row
    built = areal_boba.build_problem(row, "areal_boba-train-7", "f:1")
    assert built == Problem(
        "areal_boba-train-7", "areal_boba", "Find $x$.", answer, other_answers=others
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"solutions": []}, "no_answer"),
        ({"solutions": [r"\boxed{}"]}, "no_answer"),
        ({"solutions": None}, "no_answer"),
        ({"solutions": [r"\boxed{5}"], "task": "code"}, "not_math"),
    ],
)
def test_boba_drops(row, reason):
    built = areal_boba.build_problem({"prompt": R1.format("q")} | row, "id", "f:1")
    assert isinstance(built, Drop) and built.reason == reason


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "q"}, "missing column 'solutions'"),
        ({"solutions": ["5"]}, "missing column 'prompt'"),
        ({"prompt": "q", "solutions": [["5"]]}, "solutions: .* is not text"),
        ({"prompt": "q", "solutions": [True]}, "solutions: True is not text"),
        ({"prompt": R1.format("q") + R1.format("r"), "solutions": ["5"]}, "prompt: no single qu"),
    ],
)
def test_boba_faults(row, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        areal_boba.build_problem(row, "id", "f:1")


# DeepMath ---------------------------------------------------------------------------------------

DEEPMATH = {
    "question": "Find $x$.", "final_answer": r"\frac{1}{2}", "difficulty": 5.5,
    "topic": "Mathematics -> Algebra -> Group Theory",
    "r1_solution_1": "Hmm, a half.\n</think>\n\nThus\n\\boxed{0.5}",
    "r1_solution_2": "<think>\nSo \\boxed{7}, no, a half.\n</think>\n\\boxed{\\dfrac12}",
    "r1_solution_3": "Hmm, a third.\n</think>\n\\boxed{\\frac{1}{3}}",
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name", "solution", "trace"),
    [
        ({}, "id", "Hmm, a half.", 0),
        ({"trace": 2}, "id-t1", "So \\boxed{7}, no, a half.", 1),
        ({"trace": 3}, "id-t2", "", 2),  # another value than the gold's
    ],
)
def test_deepmath_rows(options, name, solution, trace):
    built = deepmath.build_problem(DEEPMATH, "id", "f:1", **options)
    assert built == Problem(
        name, "deepmath", "Find $x$.", r"\frac{1}{2}", solution, 5.5, subject="Group Theory",
        trace=trace,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "solution", "level"),
    [
        ({"difficulty": -1.0, "topic": "Calculus"}, "Hmm, a half.", None),
        ({"difficulty": 0}, "Hmm, a half.", 0),
        ({"difficulty": None, "r1_solution_1": None}, "", None),
        ({"r1_solution_1": "<think>\nIt is a half, and then"}, "", 5.5),  # cut off
        ({"r1_solution_1": "a half: \\boxed{1/2} it is"}, "a half: \\boxed{1/2} it is", 5.5),
        ({"r1_solution_1": "\\boxed{1/2}\n</think>\nIt is so."}, "", 5.5),  # no box in the answer
    ],
)
def test_deepmath_traces(changes, solution, level):
    built = deepmath.build_problem(DEEPMATH | changes, "id", "f:1")
    assert (built.solution, built.level) == (solution, level)


def test_deepmath_without_traces_or_gold():
    row = {"question": "q", "final_answer": "5"}
    assert deepmath.build_problem(row, "id", "f:1") == Problem("id", "deepmath", "q", "5")
    row = DEEPMATH | {"final_answer": ""}
    assert deepmath.build_problem(row, "id", "f:1") == Drop("no_answer")


@pytest.mark.parametrize("trace", [0, 4, "1", True, 1.0])
def test_deepmath_trace_out_of_range(trace):
    with pytest.raises(UserError, match=r"trace: .* is not 1 to 3"):
        deepmath.build_problem(DEEPMATH, "id", "f:1", trace=trace)


@pytest.mark.parametrize("level", ["hard", [5], True, float("inf")])
def test_deepmath_level_is_no_number(level):
    with pytest.raises(UserError, match=r"f:1: difficulty: .* is not a number"):
        deepmath.build_problem(DEEPMATH | {"difficulty": level}, "id", "f:1")


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("<think>\na\n</think>\nb", "a"), ("a</think>b", "a"), ("a", "a"), ("<think> a", "a"),
        ("x <think> a </think> b </think> c", "a"), ("", ""),
    ],
)  # fmt: skip
def test_thought_of(text, thought):
    assert thought_of(text) == thought


# ORZ, DeepScaleR, DAPO --------------------------------------------------------------------------


def orz_row(truth, **changes):
    return {
        "conversations": [
            {"from": "human", "value": "Find $x$."} | changes,
            {"from": "assistant", "ground_truth": truth},
        ]
    }


@pytest.mark.parametrize(
    ("row", "answer", "pass_rate"),
    [
        (orz_row({"value": "n = 4"}), "n = 4", None),
        (orz_row({"value": " 45^\\circ ", "pass_at_n": 0.75}), "45^\\circ", 0.75),
        (orz_row({"value": 5, "pass_at_n": None}), "5", None),
        ({"prompt": [{"from": "user", "value": "Find $x$."}], "final_answer": "5"}, "5", None),
    ],
)
def test_orz_rows(row, answer, pass_rate):
    assert orz.build_problem(row, "orz-train-7", "f:1") == Problem(
        "orz-train-7", "orz", "Find $x$.", answer, pass_rate=pass_rate
    )


@pytest.mark.parametrize("gold", [None, "", " ", []])
def test_orz_row_without_an_answer(gold):
    assert orz.build_problem(orz_row({"value": gold}), "id", "f:1") == Drop("no_answer")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"conversations": "text"}, "conversations: 'text' has no single turn with a ground_truth"),
        ({"conversations": [{"from": "human", "value": "q"}]}, "conversations: .* ground_truth"),
        (orz_row({}), "missing column .*'ground_truth.value'"),
        (orz_row({"value": "5"}, value=None), "prompt: .* no single user turn"),
        (orz_row({"value": "5", "pass_at_n": 75}), "pass_at_n: 75 is not a share from 0 to 1"),
        ({"prompt": "q"}, "missing column 'final_answer'"),
    ],
)
def test_orz_faults(row, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        orz.build_problem(row, "id", "f:1")


def verl_row(question, gold, **extra):
    return {
        "data_source": "x", "prompt": [{"content": question, "role": "user"}], "ability": "MATH",
        "reward_model": {"ground_truth": gold, "style": "rule"}, "extra_info": {"index": 0} | extra,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ({"problem": "Find $x$.", "answer": "5", "solution": ""}, {}),
        ({"problem": "Find $x$.", "answer": "5", "solution": " So 5. "}, {"solution": "So 5."}),
        ({"problem": "Find $x$.", "answer": "5", "difficulty": 4.5, "type": "Algebra"},
         {"level": 4.5, "subject": "Algebra"}),
        ({"problem": "Find $x$.", "answer": "5", "difficulty": float("nan")}, {}),
        (verl_row("Find $x$. Let's think step by step and output the final answer within "
                  "\\boxed{}.", "5"), {}),
        (verl_row("Find $x$.", ["5", "5.0"]), {"other_answers": ("5.0",)}),
    ],
)  # fmt: skip
def test_deepscaler_rows(row, fields):
    built = deepscaler.build_problem(row, "deepscaler-train-7", "f:1")
    assert built == Problem("deepscaler-train-7", "deepscaler", "Find $x$.", "5", **fields)


WRAPPED = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    'Find $x$.\n\nRemember to put your answer on its own line after "Answer:".'
)


@pytest.mark.parametrize(
    "row",
    [
        verl_row("Find $x$.", "34"),
        verl_row(WRAPPED, "34", index="9a9b6eb4"),
        {"prompt": [{"content": WRAPPED, "role": "user"}], "label": "34"},
        {"prompt": "Find $x$.", "answer": "34"},
        {"prompt": WRAPPED, "answer": 34, "source": "math_dapo", "id": "1"},
    ],
)
def test_dapo_rows(row):
    built = dapo.build_problem(row, "dapo-train-7", "f:1")
    assert built == Problem("dapo-train-7", "dapo", "Find $x$.", "34")


@pytest.mark.parametrize("source", [dapo, deepscaler])
def test_rows_without_an_answer(source):
    for gold in (None, "", float("nan"), "\\boxed{}"):
        row = verl_row("q", gold)
        assert source.build_problem(row, "id", "f:1") == Drop("no_answer")
    with pytest.raises(UserError, match=r"f:1: missing column .*'reward_model.ground_truth'"):
        source.build_problem({"prompt": "q"}, "id", "f:1")


# Any set, and distilled traces ------------------------------------------------------------------

KEYS = {"prompt_key": "p", "answer_key": "a"}


@pytest.mark.parametrize(
    ("row", "options", "fields"),
    [
        ({"p": "Find $x$.", "a": "5"}, {}, {}),
        ({"p": R1.format(f"Find $x$.\n{BOX}"), "a": r"\boxed{5}"}, {"apply_chat_template": False},
         {}),
        ({"p": [{"role": "system", "content": "Hi"}, {"role": "user", "content": "Find $x$."},
                {"role": "assistant", "content": "<think>\n"}], "a": 5.0},
         {"apply_chat_template": True}, {}),
        ({"p": [{"from": "human", "value": "Find $x$."}], "a": ["5", "$5$"]}, {},
         {"other_answers": ("$5$",)}),
        ({"p": "Find $x$.", "a": "It is\n#### 5", "s": "So.", "l": "3"},
         {"solution_key": "s", "level_key": "l"}, {"solution": "So.", "level": 3.0}),
        ({"r": {"q": "Find $x$.", "g": {"t": "5"}}}, {"prompt_key": "r.q", "answer_key": "r.g.t"},
         {}),
        ({"p": "Find $x$.", "a": "5"}, {"solution_key": "s", "level_key": "l"}, {}),
    ],
)  # fmt: skip
def test_generic_rows(row, options, fields):
    built = generic.build_problem(row, "generic-train-7", "f:1", **KEYS | options)
    assert built == Problem("generic-train-7", "generic", "Find $x$.", "5", **fields)


@pytest.mark.parametrize("gold", [None, "", [], "so\n#### ", ["", None]])
def test_generic_row_without_an_answer(gold):
    built = generic.build_problem({"p": "q", "a": gold}, "id", "f:1", **KEYS)
    assert built == Drop("no_answer")


CHAT = [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("row", "options", "words"),
    [
        ({"p": "q"}, {}, "missing column 'a', found 'p'"),
        ({"a": "5"}, {}, "missing column 'p', found 'a'"),
        ({"p": CHAT, "a": "5"}, {"apply_chat_template": False},
         "p: .* is not text; set apply_chat_template to true, or leave it out"),
        ({"p": "q", "a": "5"}, {"apply_chat_template": True},
         "p: 'q' is not a list of messages; set apply_chat_template to false"),
        ({"p": [*CHAT, {"role": "assistant", "content": "It is 5."}], "a": "5"}, {},
         "p: .* no single user turn"),
        ({"p": [{"role": "assistant", "content": "<think>"}, *CHAT], "a": "5"}, {},
         "p: .* no single user turn"),
        ({"p": CHAT * 2, "a": "5"}, {}, "p: .* no single user turn"),
        ({"p": 5, "a": "5"}, {}, "p: 5 is not text"),
        ({"p": "q", "a": {"v": 5}}, {}, "a: .* is not text"),
    ],
)  # fmt: skip
def test_generic_faults(row, options, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        generic.build_problem(row, "id", "f:1", **KEYS | options)


TRACE = {
    "id": "gsm8k-train-7", "source": "gsm8k", "question": "How many?", "answer": "5",
    "solution": "Five.", "trace": 1, "level": None, "subject": "",
}  # fmt: skip


def test_traces_rows():
    expected = ("gsm8k-train-7-t1", "gsm8k", "How many?", "5", "Five.")
    assert traces.build_problem(TRACE, "id", "f:1") == Problem(*expected, trace=1)
    row = TRACE | {"answer": ["5", "5.0"], "level": 2, "subject": "Algebra"}
    assert traces.build_problem(row, "id", "f:1") == Problem(
        *expected, 2, ("5.0",), "Algebra", trace=1
    )
    row = TRACE | {"answer": []}
    assert traces.build_problem(row, "id", "f:1") == Drop("no_answer")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trace": None}, "trace: None is not a number from 0"),
        ({"trace": -1}, "trace: -1 is not"),
        ({"trace": 0.5}, "trace: 0.5 is not"),
        ({"id": None}, "id: None is not text"),
        ({"solution": 5}, "solution: 5 is not text"),
    ],
)
def test_traces_faults(changes, words):
    with pytest.raises(UserError, match=f"f:1: {words}"):
        traces.build_problem(TRACE | changes, "id", "f:1")
