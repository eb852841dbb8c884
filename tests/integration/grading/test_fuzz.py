"""What no input may do to the grader.

Fixed examples by default, so that a run is repeatable; `FUZZ=20000` makes as many fresh ones.
"""

import os
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from grading.compare import is_parseable, is_same_value, num_listed
from grading.grade import VERDICTS, grade, grade_short_all

pytestmark = pytest.mark.integration

FUZZ = int(os.environ.get("FUZZ", "0"))
settings.register_profile(
    "grader",
    max_examples=FUZZ or 250,
    derandomize=not FUZZ,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("grader")

PIECES = yaml.safe_load(Path(__file__).with_name("pieces.yaml").read_text(encoding="utf-8"))
noise = st.lists(st.sampled_from(PIECES["pieces"]) | st.text(max_size=3), max_size=30).map("".join)

integers = st.integers(-999, 999)
leaves = st.one_of(
    integers.map(str),
    st.sampled_from(["x", "y", "\\pi", "e", "0.5", "\\frac12", "1.25", "\\sqrt{2}", "i", "a_1"]),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: "({}{}{})".format(*t)),
        st.tuples(inner, inner).map(lambda t: "\\frac{{{}}}{{{}}}".format(*t)),
        inner.map("\\sqrt{{{}}}".format),
        inner.map("|{}|".format),
        st.tuples(inner, st.integers(-3, 9)).map(lambda t: "({})^{{{}}}".format(*t)),
        st.tuples(st.sampled_from(["\\sin", "\\ln", "\\arctan"]), inner).map(
            "{0[0]}({0[1]})".format
        ),
    ),
    max_leaves=12,
)
values = st.one_of(
    expressions,
    st.lists(expressions, min_size=2, max_size=4).map(", ".join),
    st.lists(expressions, min_size=2, max_size=4).map(lambda xs: "(" + ",".join(xs) + ")"),
    st.lists(expressions, min_size=1, max_size=4).map(lambda xs: "\\{" + ",".join(xs) + "\\}"),
    st.tuples(expressions, st.sampled_from(["=", "<", "\\ge", "\\ne"]), expressions).map("".join),
    noise,
)


terms = st.tuples(
    expressions | st.sampled_from(PIECES["names"] + PIECES["sets"]),
    st.sampled_from(PIECES["units"]),
).map("".join)
links = st.tuples(st.sampled_from(PIECES["relations"]), terms).map("".join)
relations = st.tuples(terms, st.lists(links, max_size=3).map("".join)).map("".join)
memberships = st.tuples(st.sampled_from(PIECES["names"]), st.sampled_from(PIECES["sets"])).map(
    "\\in ".join
)
conditions = st.tuples(st.sampled_from(PIECES["conditions"]), relations | memberships).map("".join)
statements = st.tuples(relations, st.lists(conditions, max_size=2).map("".join)).map("".join)


def boxed(answer: str) -> str:
    return f"<think>a</think> \\boxed{{{answer}}}"


@given(st.one_of(noise, values, values.map(boxed)), st.one_of(values, st.lists(values, max_size=3)))
def test_no_input_crashes_the_grader(text, gold):
    assert grade(text, gold).verdict in VERDICTS
    assert grade_short_all([text], [gold])[0].verdict in VERDICTS


@given(statements, statements, statements)
def test_no_statement_raises_in_the_grader(caplog, text, gold, question):
    """A text that raises is a verdict and a warning, so that a run goes on: none may warn."""
    caplog.clear()
    form = {"final_number": True, "think_prefilled": None}
    for words in (text, boxed(text), f"The answer is {text}."):
        assert grade(words, [gold, text], f"Compute ${question}$.", **form).verdict in VERDICTS
        assert grade_short_all([words], [gold], [question])[0].verdict in VERDICTS
    assert is_parseable(text) in (True, False) and num_listed(text) >= 0
    assert caplog.records == []


@given(values)
def test_every_parseable_value_is_right_for_itself(value):
    assume(is_parseable(value))
    assert grade(boxed(value), value).verdict == "right"


def spellings(number: Fraction) -> list[str]:
    """Ways to write one rational number."""
    sign, size = ("-" if number < 0 else ""), abs(number)
    top, bottom = size.numerator, size.denominator
    ways = [
        f"{sign}\\frac{{{top}}}{{{bottom}}}", f"\\frac{{{sign}{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}", f"${sign}{2 * top}/{2 * bottom}$", f"x = {sign}{top}/{bottom}",
    ]  # fmt: skip
    if 1000 % bottom == 0:
        decimal = f"{sign}{top / bottom:.3f}"
        short = decimal.rstrip("0").rstrip(".")
        ways += [decimal, short, decimal.replace("-", "\u2212"), decimal + " cm"]
    if bottom == 1:
        ways += [f"{sign}{top:,}", f"{sign}{top:,}".replace(",", "{,}"), f"{sign}0{size}"]
    elif size > 1:
        whole, rest = divmod(top, bottom)
        ways += [f"{sign}{whole}\\frac{{{rest}}}{{{bottom}}}", f"{sign}{whole} {rest}/{bottom}"]
    return ways


numbers = st.builds(
    Fraction, st.integers(-9999, 9999), st.sampled_from([1, 1, 2, 3, 4, 7, 8, 25, 125])
)


@given(numbers, numbers, st.booleans(), st.data())
def test_numbers_compare_by_value_and_both_ways(first, second, is_same, data):
    second = first if is_same else second
    one = data.draw(st.sampled_from(spellings(first)))
    other = data.draw(st.sampled_from(spellings(second)))
    assert is_same_value(one, other) is (first == second)
    assert is_same_value(other, one) is (first == second)


@given(st.integers(-500, 500), st.integers(-500, 500), st.sampled_from(PIECES["joined"]))
def test_no_answer_that_lists_several_candidates_is_ever_right(gold, other, joined):
    assume(gold != other)
    for pair in ((gold, other), (other, gold)):
        answer = joined.format(*pair)
        assert grade(boxed(answer), str(gold)).verdict != "right"
        assert grade_short_all([answer], [str(gold)])[0].verdict != "right"
        assert grade_short_all([f"The answer is {answer}."], [str(gold)])[0].verdict != "right"
