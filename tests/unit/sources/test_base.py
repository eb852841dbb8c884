"""What all builders share: columns, texts, prompts, golds, ids, thoughts."""

import pytest

from data_prep.config import UserError
from data_prep.sources.base import (
    clean_gold,
    find_value,
    get_question,
    get_text,
    repair_escapes,
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
        ([*ASKED, {"role": "assistant", "content": "It is 5."}], "no single user turn"),
        ([{"role": "assistant", "content": "<think>"}, *ASKED], "no single user turn"),
        (None, "is not text"),
        (5, "is not text"),
    ],
)
def test_bad_prompts(prompt, words):
    with pytest.raises(UserError, match=f"f:1: prompt: .*{words}"):
        get_question({"prompt": prompt}, ("problem", "prompt"), "f:1")


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
