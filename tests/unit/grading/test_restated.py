"""A formula of the question is no answer, however equal it is."""

import random

import pytest

from grading import grade

ASKED, PICKED = "Evaluate ${}$.", "Which is larger, ${}$ or ${}$?"


def verdict(question, prediction, gold):
    return grade(rf"<think>so</think> \boxed{{{prediction}}}", gold, question).verdict


@pytest.mark.parametrize(
    ("question", "prediction", "gold", "expected"),
    [
        (r"Compute $x = 6 \cdot 7$.", r"6\cdot 7", "42", "wrong"),  # a side of an equation
        ("What is 6*7?", "6*7", "42", "wrong"),  # without delimiters
        (r"Simplify $\frac{84}{144}$.", r"\frac{84}{144}", r"\frac{7}{12}", "wrong"),
        (r"Expand $(x+1)^2$.", "(1+x)^2", "x^2+2x+1", "wrong"),  # in another order
        (r"Expand $(x+1)^2$.", "2x+1+x^2", "x^2+2x+1", "right"),
        (r"What has the value $\frac12$?", r"\frac12", "0.5", "right"),  # a plain number
        (r"What has the value $-3$?", "-3", "-3.0", "right"),
        (r"Express $0.\overline{3}$ as a fraction.", r"\frac13", r"\frac{1}{3}", "right"),
        ("Solve for the larger of $x$ and $y$.", "x", "x", "right"),  # a name
        (r"Reflect $y=2x+3$ twice.", "2x+3", "3+2x", "right"),  # the gold is there, too
        ("", r"\sqrt{12}", r"2\sqrt{3}", "right"),  # nobody has told the question
        (r"Simplify $\sqrt{12}$.", r"12^{1/2}", r"2\sqrt{3}", "wrong"),
        (r"Write $\sqrt{x}$ as a power.", r"\sqrt{x}", r"x^{1/2}", "wrong"),
        (r"Write $\sqrt{x}$ as a power.", r"x^{1/2}", r"x^{\frac12}", "right"),
        ("Factor t^2 - 9.", r"t\cdot t-9", "(t-3)(t+3)", "wrong"),
        ("Factor x^4 - 16 completely.", "(x^2-4)(x^2+4)", "(x-2)(x+2)(x^2+4)", "wrong"),
        ("Simplify (x^2-9)/(x-3).", r"\frac{(x-3)(x+3)}{x-3}", "x+3", "wrong"),
        ("Write the fraction in lowest terms.", r"\frac{4}{6}", r"\frac{2}{3}", "wrong"),
        ("What part is red?", r"\frac{4}{6}", r"\frac{2}{3}", "right"),
        ("Convert 26 milliliters to cubic centimeters.", r"26\text{ cm}^3", "26", "right"),
        (r"Compute $2^{10}$.", r"\frac{2^{10}}{1}", "1024", "wrong"),  # nothing is done to it
        (r"Compute $2^{10}$.", r"1^3\cdot -(-2^{10})", "1024", "wrong"),
        (r"Compute $2^{10}$.", r"\frac{1}{\frac{1}{2^{10}}}", "1024", "wrong"),
        (r"Compute $2^{10}$.", r"\sqrt{(2^{10})^2}", "1024", "wrong"),
        (r"Evaluate $\sqrt{1764}$.", r"(\sqrt{1764})^1", "42", "wrong"),
        (r"Compute $i^{2014}$.", r"i^{2014}+0", "-1", "wrong"),
        (r"Write $0.375$ as a fraction.", r"\frac{0.375}{1}", r"\frac{3}{8}", "wrong"),
        (r"Compute $\sqrt{12^2}$.", "12.0", "12", "right"),
        (r"Which is $5^1$ in base $5$?", r"\frac{5}{1}", "5.0", "right"),  # a number
        (r"Simplify $(x^{-1})^2$.", "x^{-2}", r"\frac{1}{x^2}", "right"),
        (r"Expand $(x+1)^2$.", r"\frac{(x+1)^3}{x+1}", "x^2+2x+1", "wrong"),
        (r"Expand $(x+1)^2$.", "x(x+2)+1", "x^2+2x+1", "wrong"),
        (
            r"Expand $\frac{(x+1)^2}{2}$.",
            r"\frac{x^2+2x+1}{2}",
            r"\frac{x^2}{2}+x+\frac12",
            "right",
        ),
        (r"Simplify $(4a^2)^3$.", r"(2\cdot 2a^2)^3", "64a^6", "wrong"),  # its 4 in other words
        (r"Simplify $\sqrt{192}$.", r"\sqrt{\frac{384}{2}}", r"8\sqrt{3}", "wrong"),
        (r"Compute $x^2 \cdot x^3$.", r"x^5", "x^5", "right"),
        (r"Simplify $a(a-b)-(a-3b)$.", "-((a-3b)-a(a-b))", "a^2-ab-a+3b", "wrong"),  # turned
        (r"Simplify $(2+3i)(1-2i)$.", r"(2+3\sqrt{-1})(1-2\sqrt{-1})", "8-i", "wrong"),
        (r"Factor $9x^2+3x$.", r"\sqrt{81}x^2+3x", "3x(3x+1)", "wrong"),
        (
            r"Expand $\frac14(\frac4y+4y)$.",
            r"\frac{2(1)}{2(4)}(\frac{2(4)}{2(y)}+4y)",
            r"\frac1y+y",
            "wrong",
        ),
        (r"Simplify $\frac{24}{36}$.", r"\frac{\frac{48}{2}}{36}", r"\frac23", "wrong"),
        (r"Evaluate $(-27)^{5/3}$.", "-27^{5/3}", "-243", "unevaluated"),
        (
            r"Compute $1001^5-1.005 \cdot 10^{15}$.",
            r"(999+2)^5-1.005\cdot 10^{15}",
            "10010005001",
            "wrong",
        ),
        ("A train needs 4 minutes. And the next?", r"4\text{ minutes}", "4", "right"),
    ],
)
def test_what_counts_as_copied(question, prediction, gold, expected):
    assert verdict(question, prediction, gold) == expected


def test_copies_of_a_sum_are_wrong_and_its_value_is_right():
    rng = random.Random(0)
    for _ in range(100):
        root, factor, term = rng.randint(2, 30), rng.randint(2, 9), rng.randint(1, 99)
        parts = [rf"{factor}\sqrt{{{root * root}}}", str(term)]
        asked, swapped, gold = "+".join(parts), "+".join(parts[::-1]), str(root * factor + term)
        question = ASKED.format(asked)
        found = [verdict(question, one, gold) for one in (asked, swapped, gold, f"{gold}.0")]
        assert found == ["wrong", "wrong", "right", "right"], question
        assert verdict(PICKED.format(asked, term), asked, asked) == "right"
