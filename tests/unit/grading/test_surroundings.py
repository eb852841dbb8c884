"""What stands around a box, and what the question says: each rule, and what it must not touch."""

import pytest

from grading.grade import grade


def is_right(text, gold, question=""):
    return grade(text, gold, question, think_prefilled=None).verdict == "right"


def boxed(answer):
    return rf"So the answer is $\boxed{{{answer}}}$."


@pytest.mark.parametrize(
    ("prediction", "gold", "question"),
    [
        ("0.75", r"\frac{3}{4}", "A factory makes bolts. What fraction of them is good?"),
        ("2.25", r"\frac94", "By what factor is the area changed?"),
        ("-2.5", r"-\frac52", "If $x-3$ is a factor of the polynomial, find $k$."),
        (r"\sqrt{192}", r"8\sqrt{3}", "The scale factor is 2. Find the length of AB."),
        ("6/8", "3/4", "A store reduced its prices. What part is left?"),
        ("0.5", r"\frac12", "The express train takes 0.5 hours longer. What part is lost?"),
        ("0.5", r"\frac12", "Tom writes 0.5 and 2 on the board. What is their quotient's half?"),
        (r"\frac{1}{x^3}", "x^{-3}", "Simplify the expression."),
        (r"\frac{a}{b}\cdot\frac1c", r"\frac{a}{bc}", "Simplify the product."),
        ("x=-1", "C", "Which? A) $x=1$ B) $x=2$ C) $x = -1$ D) $x=3$"),
        ("C) x=-1", "C", "Which? A) $x=1$ B) $x=2$ C) $x = -1$ D) $x=3$"),
        ("12", "12", "How many pairs are there?"),
    ],
)
def test_the_question_does_not_forbid(prediction, gold, question):
    assert is_right(boxed(prediction), gold, question)


@pytest.mark.parametrize(
    ("prediction", "gold", "question"),
    [
        (r"\frac{9}{2}", "4.5", r"What is $\frac{9}{2}$ expressed as a decimal?"),
        (r"\frac{9}{20}", "0.45", r"What is $\frac{9}{20}$ as a decimal?"),
        ("0.375", r"\frac38", "What is 0.375 written as a common fraction?"),
        (r"45\%", "0.45", r"What is $45\%$ as a decimal?"),
        ("5700", r"5.7 \times 10^3", "The number $5700$ is written in scientific notation as"),
        (r"7\text{ mi}", "12320\\text{ yards}", "Can you convert 7 miles to yards?"),
        (r"\sqrt{50}", r"5\sqrt{2}", "Exercise 7\nSimplify $\\sqrt{50}$"),
        (r"\gcd(48,36)", "12", "Find the greatest common divisor of 48 and 36."),
        (r"\lvert-72\rvert", "72", "What is the distance?"),
        ("(B) 13", "B", "What? (A) 10 (B) 12 (C) 13"),
        (r"4.2\text{ cm}^2", "4.2", "What is its area in square meters?"),
        (r"\$170", "170", "How many cents do they cost?"),
    ],
)
def test_the_question_forbids(prediction, gold, question):
    assert not is_right(boxed(prediction), gold, question)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        (r"So \boxed{42}. That is not so surprising.", "42"),
        (r"So \boxed{42}. It is not the case that more are needed.", "42"),
        (r"So \boxed{42}. This is not the value of x but of y.", "42"),
        (r"So \boxed{42}. The value is not correct unless x>0, which holds.", "42"),
        (r"Hence it is impossible that the number is smaller: $\boxed{42}$", "42"),
        (r"So 5-3 = \boxed{2}:00 pm", "2"),
        (r"So $\boxed{12}$ cm$^2$.", r"12\text{ cm}^2"),
        (r"$\boxed{762}$ M&M's", "762"),
        (r"There are 22 more than not" "\n" r"\boxed{22}", "22"),
        (r"- **$\boxed{5}$**", "5"),
        (r"48 + 24 = 72. \boxed{72}", "72"),
        (r"\[\text{Answer: }\boxed{18}\]", "18"),
        ("\\[\n\\textbf{Final Answer: } \\boxed{18}\n\\]", "18"),
        (r"$\mathbf{Therefore, } \boxed{18}$", "18"),
        (r"$\textit{Answer} \boxed{18}$", "18"),
        (r"$\text{Answer \boxed{18}}$", "18"),
        (r"$5\text{ cm, so } \boxed{18}$", "18"),
        (rf"$\text{{Therefore, {'the total ' * 12} is: }}\boxed{{18}}$", "18"),
        (r"$\text{The answer is: }\boxed{\text{B}}$", "B"),
        (r"\begin{equation}\label{eq:1}\boxed{18}\end{equation}", "18"),
        (r"\begin{align*}\boxed{18}\end{align*}", "18"),
        (r"\[\begin{aligned}\boxed{18}\end{aligned}\]", "18"),
        (r"$\Huge\boxed{18}$", "18"),
        (r"They sum to $\frac{1}{2}$, to get a sum of $\boxed{500}$.", "500"),
        (r"The numbers have a product of \boxed{24} and a sum of 10.", "24"),
        (r"This leaves a difference of $\boxed{5}$ dollars.", "5"),
        (r"The number of questions he did not answer is $\boxed{6}$.", "6"),
        (r"The number of students who do not agree with the plan is \boxed{12}.", "12"),
        (r"The students who did not give the answer are \boxed{12}.", "12"),
        (r"Since the store does not give a discount she pays $\boxed{40}$.", "40"),
        (r"We cannot assume that it is fair so the answer is \boxed{12}.", "12"),
        (r"It is false that the ratio is constant but the value is \boxed{12}.", "12"),
    ],
)
def test_the_text_does_not_forbid(text, gold):
    assert is_right(text, gold)


@pytest.mark.parametrize(
    "text",
    [
        r"$\boxed{2}.5$", r"$\boxed{2},000$", r"\boxed{2}(x+1)", r"$\boxed{2}\ln 2$",
        r"$\boxed{2}\theta$", r"$\boxed{2}e^x$", r"$2\cdot$ $\boxed{2}$", r"$\boxed{2}_8$",
        r"ten times $\boxed{2}$", r"the square root of $\boxed{2}$", r"$\boxed{2}$ squared",
        "The answer isn\u2019t $\\boxed{2}$.", r"\frac{\boxed{2}}{2}", r"\sqrt{\boxed{2}}",
        r"It is wrong that the answer is \boxed{2}; it is 12.", r"3 + $\boxed{2}$",
        r"$\text{area}=3\boxed{2}$", r"$\text{Answer: }3+\boxed{2}$", r"$\text{So, }x \boxed{2}$",
        r"$3 + \text{Answer: }\boxed{2}$", r"$\text{Answer: }-\boxed{2}$", r"$x = -\boxed{2}$",
        r"$\text{Answer: not }\boxed{2}$", r"\begin{align*}3+\boxed{2}\end{align*}",
        r"\begin{equation}\pi\boxed{2}\end{equation}",
        r"\[\begin{pmatrix}\boxed{2}&3\end{pmatrix}\]",
        r"the sum of $\boxed{2}$ and $3$", r"the sum of \boxed{2}, 3 and 5",
        r"I certainly would not say the total is \boxed{2}", r"Do not write \boxed{2}",
        r"One cannot conclude that $x=\boxed{2}$", r"Nobody should claim it is \boxed{2}",
        r"Tom does not think the answer is \boxed{2}", r"He would not accept a total of \boxed{2}",
        r"The key does not agree that she has \boxed{2}", r"The book does not give \boxed{2}",
    ],
)  # fmt: skip
def test_the_text_forbids(text):
    assert not is_right(text, "2")


def test_a_word_such_as_dozen_counts_where_the_question_asks_for_it():
    text = r"So $\boxed{7}$ dozen eggs."
    assert is_right(text, "7", "How many dozen eggs are there?")
    assert not is_right(text, "7", "How many eggs are there?")


def test_a_text_of_thousands_of_boxes_is_graded_at_once():
    assert is_right(r"$3x = y \boxed{5}$ and $\boxed{5}$ " * 5000, "5")


@pytest.mark.parametrize(("num_parts", "has_answer"), [(49, True), (50, False)])
def test_the_last_fifty_boxes_are_looked_at(num_parts, has_answer):
    """A box that is an answer counts where no more than 49 parts of formulas follow it."""
    assert is_right(r"$\boxed{5}$ " + r"$3x = y \boxed{5}$ and " * num_parts, "5") == has_answer
