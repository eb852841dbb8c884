"""What all builders share: columns, texts, prompts, golds, ids, thoughts."""

import pytest

from data_prep.sources.base import (
    clean_gold,
    find_value,
    get_golds,
    get_question,
    get_text,
    repair_escapes,
    stated_answers,
)
from grading.equivalence.compare import is_same_value
from pipeline.errors import UserError


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


ASKED = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "no single user turn"),
        ([{"role": "assistant", "content": "x"}], "no single user turn"),
        (ASKED * 2, "no single user turn"),
        ([{"role": "user", "content": None}], "no single user turn"),
        ([["user", "x"]], "no single user turn"),
        ([{"role": "assistant", "content": "<think>"}, *ASKED], "no single user turn"),
        (None, "is not text"),
        (5, "is not text"),
    ],
)
def test_bad_prompts(prompt, words):
    with pytest.raises(UserError, match=f"f:1: prompt: .*{words}"):
        get_question({"prompt": prompt}, ("problem", "prompt"), "f:1")


@pytest.mark.parametrize(
    ("reply", "golds"),
    [
        ("So \\boxed{4}, and \\boxed{5}.", ["5"]), ("<think>4</think>The answer is 5.", ["5"]),
        ("4+1\n#### 5", ["5"]), ("It is 5.", []), ("<think>\n", []), (None, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("keys", [("role", "content"), ("from", "value")])
def test_golds_of_a_chat_are_what_its_reply_states(reply, golds, keys):
    turns = (("user", "x"), ("assistant", reply))
    chat = [dict(zip(keys, turn, strict=True)) for turn in turns]
    assert get_golds({"chat": chat}, ("chat",), "f:1") == golds
    assert get_question({"chat": chat}, ("chat",), "f:1") == "x"


ENDS = [
    "Answer: 56", "The answer is 56.", "#### 56", "$\\boxed{56}$.", "Ans. 56", "(Answer: 56)",
    "**Answer:** 56", "Answer - 56", "### Answer\n\n56", "The answer (in hens) is 56, show why.",
    "A: 56", "\u7b54\u6848\uff1a56", "<answer>56</answer>", "Result: 56 hens", "Solution is: 56",
    "Hint: the answer is 56. Explain why.", "The answer, as we know, is 56.", "Answer key: 56",
    "Answer 56", "Ans) 56", "The answer turns out to be 56.", "Answer: 56 (hens)",
]  # fmt: skip
OTHERS = [
    "If the answer is 56, write 56.",
    "Each correct answer is 56 points.",
    "An answer is 56.",
    "Round the answer to 56 places.",
    "Write the answer in base 56.",
    "The answer is 56 more than x.",
    "The pen has 56.",
    "Give the answer as a multiple of 56.",
    "Enter 1 unless the answer is 56.",
    "\n#### 56. Count them all.",
]


@pytest.mark.parametrize(("ends", "is_stated"), [(ENDS, True), (OTHERS, False)])
def test_statements_of_an_answer(ends, is_stated):
    for end in ends:
        found = stated_answers(f"How many hens are in 7 pens? {end}")
        assert any(is_same_value(one, "56") for one in found) is is_stated, end


@pytest.mark.parametrize("text", ["answer is ", "#", "answer (", "A: ", "\n", "*", "answer to "])
def test_hostile_statements_end(text):
    assert len(list(stated_answers(text * 30_000))) < 30


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
