r"""What people and models write: denials, units, times, residues, print, other languages."""

import pytest

from grading.grade import grade

MILES, GERMAN, FRENCH = "How many gallons are used?", "Wie viele Euro kostet es?", "Combien ?"
CHINESE = "共有多少万册?"
OPTIONS = "Which? (F) 10 (G) 11 (H) 12 (J) 13 (K) 14"
LETTERS = "Which? (A) 1 (B) 2 (C) 3 (D) 4"
VECTOR = r"\begin{pmatrix}1/3\\2/3\end{pmatrix}"


@pytest.mark.parametrize(
    ("text", "gold", "question", "is_right"),
    [
        # Denied, asked or struck out
        (r"\boxed{1440}. That is wrong. The right answer is 1439.", "1440", "", False),
        (r"\boxed{1440}. Wait, that's not right.", "1440", "", False),
        (r"Is the answer \boxed{1440}? I don't think so.", "1440", "", False),
        (r"~~\boxed{3}~~ It is 4.", "3", "", False),
        (r"~~4~~ so \boxed{3}", "3", "", True),
        (r"The answer cannot possibly be \boxed{3}.", "3", "", False),
        (r"Nobody should answer \boxed{3}.", "3", "", False),
        (r"It is not hard to see that the answer is \boxed{3}.", "3", "", True),
        (r"\boxed{5}. So the final answer is 5.", "5", "", True),
        # Units
        (r"\boxed{5 \text{ miles}}", "5", MILES, False),
        (r"\boxed{5} liters", "5", MILES, False),
        (r"\boxed{5} gallons of petrol", "5", MILES, True),
        (r"$\boxed{75}$ liters", r"75\text{ ft}", "", False),
        (r"$\boxed{4500}$ s", r"75\text{ min}", "", True),
        (r"\boxed{12} perfect cubes", "12", "How many cubes?", True),
        (r"\boxed{0.13}", "0.13 eV", "", True),
        (r"\boxed{\frac{4000}{49}\text{ m/s}}", r"4000 / 49 \mathrm{~m} / \mathrm{s}", "", True),
        (r"\boxed{4.5\times10^{-7}\text{ m}}", "4.5e-7", "", True),
        # Times, words, options
        (r"\boxed{5\text{ a.m.}}", "5am", "", True),
        (r"\boxed{5\text{ p.m.}}", "5am", "", False),
        (r"\boxed{\text{It is a Tuesday.}}", "Tuesday", "", True),
        (r"\boxed{12}", "H", OPTIONS, True),
        (r"\boxed{11}", "H", OPTIONS, False),
        (r"\boxed{c}", "C", LETTERS, True),
        (r"\boxed{(c)}", "C", "", True),
        (r"\boxed{(b)}", "C", LETTERS, False),
        (r"\boxed{(A)}", "a", "", False),
        (r"\boxed{3}", "B", "Which? (A) $x=3$ (B) $y=3$ (C) $z=1$", False),
        # Vectors, residues, names, approximations
        (r"\boxed{\frac13\begin{pmatrix}1\\2\end{pmatrix}}", VECTOR, "Find the vector.", True),
        (r"\boxed{\frac13(1,2)}", "(1/3, 2/3)", "Find the vector.", True),
        (r"\boxed{x\equiv 10 \pmod 7}", "3", "Solve it modulo 7.", True),
        (r"\boxed{3 \bmod 1000007}", "3", "How many are there?", False),
        (r"\boxed{10}", "3", "", False),
        (r"\boxed{\text{Ann is } 12, \text{ Bob is } 15}", "12, 15", "", True),
        (r"\boxed{-0.912}", r"\cos(e)\approx-0.912", "", True),
        (r"\boxed{\pi\approx 3.15}", "3.15", "", False),
        (r"\boxed{5\le f(-2)\le10}", "[5,10]", "", True),
        (r"\boxed{4 < b < 6}", "4, 6", "", False),
        (r"\boxed{y}", "y=x", "", False),
        # Print
        (r"\boxed 3", "3", "", True),
        ("\\boxed{5}\n- 2 is the other factor", "5", "", True),
        (r"\boxed{12 (red marbles)}", "12", "", True),
        (r"\boxed{7^\circ 30'}", r"7.5^\circ", "", True),
        # Other languages
        (r"\boxed{15,5}", "15.5", GERMAN, True),
        (r"\boxed{1.500}", "1500", GERMAN, True),
        (r"\boxed{15,5}", "15.5", FRENCH, True),
        (r"\boxed{15,5}", "15.5", "How many liters?", False),
        (r"\boxed{15.5} 万册", "15.5", CHINESE, True),
        (r"答案是\boxed{12}。", "12", "", True),
        (r"\boxed{\frac{9}{12}}", r"\frac34", "把它化为最简分数", False),
        (r"\boxed{\frac{9}{12}}", r"\frac34", "Kürze den Bruch vollständig.", False),
        (r"\boxed{\frac{9}{12}}", r"\frac34", "Simplifiez la fraction.", False),
        # Half done
        (r"\boxed{3(15x+10)}", "15(3x+2)", "Factor $45x+30$.", False),
        (r"\boxed{2(x^2-4)}", "2(x+2)(x-2)", "Fully factor $2x^2-8$.", False),
        (r"\boxed{\frac{3m+6}{3}}", "m+2", r"Simplify $\frac{2m+8}{3}-\frac{2-m}{3}$.", False),
    ],
)
def test_completions_of_every_kind(text, gold, question, is_right):
    assert (grade(text, gold, question, think_prefilled=None).verdict == "right") is is_right


COPIES = [
    (r"\sqrt{75}", r"Simplify $\sqrt{75}$.", r"5\sqrt{3}"),
    ("(x+1)(x+2)", "Expand $(x+1)(x+2)$.", "x^2+3x+2"),
    (r"\frac{a^2-9}{a-3}", r"Simplify $\frac{a^2-9}{a-3}$.", "a+3"),
    ("(2+3i)(1-i)", "Calculate $(2+3i)(1-i)$.", "5+i"),
]


@pytest.mark.parametrize(
    "repeated",
    [
        "2(@)-(@)", r"\frac{@}{2}+\frac{@}{2}", r"\frac{(@)^2}{@}", r"\frac{1}{\frac{1}{@}}",
        r"100(@)\%", r"\sqrt{@}\sqrt{@}", "-i^2(@)", r"\frac{(@)^3}{(@)^2}", "((@)^{-1})^{-1}",
    ],
)  # fmt: skip
def test_a_formula_of_the_question_within_an_answer_is_a_copy(repeated):
    for formula, question, gold in COPIES:
        text = rf"\boxed{{{repeated.replace('@', formula)}}}"
        assert grade(text, gold, question, think_prefilled=None).verdict != "right"
