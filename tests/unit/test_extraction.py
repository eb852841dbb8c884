"""Extraction: structure first, and nothing that hedges is paid."""

import time

import pytest

from data_prep.grading.extract import (
    extract,
    extract_short,
    find_boxes,
    is_well_formed,
    last_boxed,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{4}", "4"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {3}", "3"),
        (r"\boxed{7} and \boxed{\frac12", "7"),  # the last one never closes
        (r"\boxed{\boxed{4}}", r"\boxed{4}"),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right."),  # an escaped brace is print
        (r"\boxed{}", ""),
        (r"\boxed{\frac12", None),
        (r"\boxed 4", None),
        (r"\fbox{4}", None),
        ("", None),
    ],
)
def test_last_boxed(text, expected):
    assert last_boxed(text) == expected


def test_find_boxes_is_linear_on_unclosed_boxes():
    started = time.perf_counter()
    assert find_boxes(r"\boxed{" * 20_000) == []
    assert time.perf_counter() - started < 2


STRUCTURES = [
    # completion, status, prediction, well formed
    (r"<think>a</think> \boxed{4}", "ok", "4", True),
    (r"<think>a</think> \boxed{4} or \boxed{5}", "several_answers", None, True),
    (r"<think>a</think> \boxed{5}, then \boxed{4}", "several_answers", None, True),
    (r"<think>a</think> \boxed{4}, again \boxed{4.0}", "ok", "4.0", True),
    (r"<think>a</think> \boxed{} or \boxed{4}", "several_answers", None, True),
    (r"<think>\boxed{3}</think> \boxed{4}", "ok", "4", True),
    (r"<think>so \boxed{4}</think> done", "no_answer", None, True),
    (r"<think>a</think> \boxed{}", "no_answer", None, True),
    (r"<think>a</think> \boxed{4", "no_answer", None, True),
    (r"<think>a</think> The answer is 4.", "no_answer", None, True),
    (r"<think>a</think>", "no_answer", None, False),
    ("<think>a</think>\u200b\n", "no_answer", None, False),
    (r"<think>a \boxed{4}", "unclosed_think", None, False),
    (r"<think>a</think><think>b \boxed{4}", "unclosed_think", None, False),
    (r"</think>a<think> \boxed{4}", "unclosed_think", None, False),
    (r"<think>a</think><think>b</think> \boxed{4}", "no_think", None, False),
    (r"<think>a</think> b</think> \boxed{4}", "no_think", None, False),
    (r"<think><think>a</think> \boxed{4}", "no_think", None, False),
    (r"<think> </think> \boxed{4}", "no_think", None, False),
    ("<think>\u200b\t</think> \\boxed{4}", "no_think", None, False),
    (r"<THINK>a</THINK> \boxed{4}", "no_think", None, False),
    (r"a</think> \boxed{4}", "no_think", None, False),
    (r"\boxed{4}", "no_think", None, False),
    ("", "no_think", None, False),
]


@pytest.mark.parametrize(("completion", "status", "prediction", "well_formed"), STRUCTURES)
def test_structure(completion, status, prediction, well_formed):
    found = extract(completion)
    assert (found.status, found.prediction) == (status, prediction)
    assert is_well_formed(completion) is well_formed


def test_prefilled_think_tag_counts_as_opened():
    assert extract(r"a</think> \boxed{4}", think_prefilled=True).prediction == "4"
    assert is_well_formed(r"a</think> \boxed{4}", think_prefilled=True)
    assert extract(r"<think>a</think> \boxed{4}", think_prefilled=True).status == "no_think"
    assert extract(r"a \boxed{4}", think_prefilled=True).status == "unclosed_think"


@pytest.mark.parametrize(
    ("answer", "status", "prediction"),
    [
        ("<answer>4</answer>", "ok", "4"),
        (r"<answer> \boxed{4} </answer>", "ok", "4"),
        ("<answer>4</answer> or <answer>5</answer>", "several_answers", None),
        ("<answer> </answer>", "no_answer", None),
        ("<answer>4", "no_answer", None),
        (r"\boxed{4}", "no_answer", None),
    ],
)
def test_answer_tags(answer, status, prediction):
    found = extract(f"<think>a</think>{answer}", answer_tags=True)
    assert (found.status, found.prediction) == (status, prediction)


@pytest.mark.parametrize(
    ("answer", "status", "prediction"),
    [
        ("So he has 18 apples.", "ok", "18"),
        ("The answer is 1,234.50 dollars.", "ok", "1,234.50 dollars"),
        ("#### 42", "ok", "42"),
        (r"It is \boxed{7}, not 8.", "ok", "7"),
        (r"It is \boxed{7", "no_answer", None),  # a box that never closes is no final number
        ("It is 7 or 8.", "ok", "7, 8"),  # a list, which equals no number
        ("1 2 3 4 5", "ok", "1 2 3 4 5"),
        ("It is not 7", "no_answer", None),
        ("I really do not know what it is.", "no_answer", None),
        ("He needs at least 7", "no_answer", None),
    ],
)
def test_a_final_number_counts_only_where_it_is_asked_for(answer, status, prediction):
    completion = f"<think>a</think>{answer}"
    found = extract(completion, final_number=True)
    assert (found.status, found.prediction) == (status, prediction)
    if "boxed" not in answer:
        assert extract(completion).status == "no_answer"


@pytest.mark.parametrize(
    ("text", "status", "prediction"),
    [
        ("42", "ok", "42"),
        (r"\frac{1}{2}", "ok", r"\frac{1}{2}"),
        ("The answer is $x = 5$.", "ok", "$x = 5$"),
        ("**Answer:** 7", "ok", "7"),
        ("### Final Answer\n\n$\\dfrac{7}{8}$", "ok", r"$\dfrac{7}{8}$"),
        ("The correct option is **C**.", "ok", "C"),
        ("Hence $f(x) = 2x+3$.", "ok", "f(x) = 2x+3"),
        ("Tom has $5 and Ann has $7, so together they have $12.", "ok", "$12"),
        ("That leaves 3 \u00d7 4 = 12 cookies.", "ok", "12"),
        (r"It is \boxed{5}.", "ok", "5"),
        (r"either \boxed{4} or \boxed{5}", "several_answers", None),
        (r"\boxed{\frac12", "no_answer", None),
        ("It could be 4, maybe 5.", "ok", "4, 5"),
        ("So $x = 3$ or $x = -2$.", "ok", "x = 3, x = -2"),
        ("We found $m = 7$ and $n = 18$, so $m + n = 25$.", "ok", "m + n = 25"),
        ("The maximum is $25$, which occurs when $x = 5$.", "ok", "25"),
        ("First 12. Then it is 7.", "ok", "7"),
        ("So the day is **Friday**.", "ok", "Friday"),
        ("The graph is a hyperbola.", "ok", "a hyperbola"),
        ("He runs at 90 m/s.", "ok", "90 m/s"),
        ("Total: 5 apples", "ok", "5 apples"),
        ("The area is $12$ square inches.", "ok", "12 square inches"),
        ("It is half of 17.", "no_answer", None),
        ("It cannot be 17.", "no_answer", None),
        ("It is $12$ if $n$ is even and $13$ otherwise.", "ok", "12, n, 13"),
        ("= 5", "ok", "5"),
        ("I have 12 apples", "ok", "12"),
        ("<think>7?</think> The answer is 8.", "ok", "8"),
        ("<think>7", "unclosed_think", None),
        ("", "no_answer", None),
        ("Nobody can say what it is, sorry.", "no_answer", None),
    ],
)
def test_short_texts(text, status, prediction):
    found = extract_short(text)
    assert (found.status, found.prediction) == (status, prediction)


@pytest.mark.parametrize(
    "text", ["1 " * 50_000, "$" * 50_000, "answer is " * 20_000, "**" * 50_000, "a" * 200_000]
)
def test_no_text_takes_long(text):
    started = time.perf_counter()
    extract_short(text)
    extract("<think>" + text + "</think>" + text, final_number=True)
    assert time.perf_counter() - started < 5
