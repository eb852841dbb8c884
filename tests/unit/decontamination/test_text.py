"""Words of a question: what two editions share, and what tells two questions apart."""

import pytest

from data_prep.decontamination.index import is_retold, same_wording
from data_prep.decontamination.text import (
    content,
    figures,
    normalise_question,
    tokenise,
    without_choices,
    without_options,
)

SAME = [
    ("What is $2+2$?", "what  is\n$ 2 + 2 $"),
    (r"Find $\dfrac{1}{2}+\tfrac34$.", r"Find \(\frac12 + \frac{3}{4}\)"),
    (r"Compute $\frac{a+b}{c}$", "Compute (a+b)/c"),
    (r"Compute ${a+b \over c}$", r"Compute $\frac{a+b}{c}$"),
    (r"Compute $\binom{9}{2}$", r"Compute $\binom 92$"),
    (r"Solve $x^{2} \leq 2\pi$", "Solve x² ≤ 2π"),
    (r"$\sqrt{2}$ and $x_{1}$", "√2 and x₁"),
    (r"an angle of $30^\circ$", "an angle of 30°"),
    (r"There are $1{,}000$ of them", "There are 1000 of them"),
    ("three circles and two squares", "3 circles and 2 squares"),
    ("Problem 5. Find $x$.", "Find $x$."),
    ("[asy] draw((0,0)--(1,2)); [/asy] Find the area.", "Find the area."),
    ("Find the area. Express your answer as a common fraction.", "Find the area."),
    ("Find the area. The answer is in the form m/n. Please give m+n.", "Find the area."),
    ("Let $A B C D$ be square", "Let $ABCD$ be square"),
    ("the $12^{\\text{th}}$ day", "the 12th day"),
    ("A cat has $a$ toys", "Cat has $a$ toys"),
    ("a right\u00adangle\u200b", "a rightangle"),
    ("Find&nbsp;$x&lt;3$,&#32;the&amp;nbsp;first", "Find $x<3$, the first"),
    ('<span class="q">Find x<sup>10</sup></span>', "Find $x^{10}$"),
    (r"Let $x=3$.\nFind $y$.\n\n$y$ is 2.", "Let $x=3$. Find $y$. $y$ is 2."),
    (r"Find $\\frac{1}{2} \\cdot x$ \\(now\\)", r"Find $\frac{1}{2} \cdot x$ (now)"),
    (r"Find:\n\\[\\frac{1}{2}\\] \"now\"", r'Find: \[\frac{1}{2}\] "now"'),
    (r"Janet\u2019s ducks", "Janet's ducks"),
    ("*Find $x$ if $3 + 2 = x$.*", "Find $x$ if $3 + 2 = x$."),
    ("Find all roots of $x$. Enter all the roots, separated by commas.", "Find all roots of $x$."),
    (r"Simplify the sum \[1+2.\] Express your answer as a fraction.", r"Simplify the sum \[1+2.\]"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_editions_of_one_text_have_the_same_tokens(first, second):
    assert tokenise(first) == tokenise(second)


OTHER = [
    ("$3-2$", "$3+2$"),
    ("$2(x+3)$", "$2x+3$"),
    ("$x^{n+1}$", "$x^n+1$"),
    ("$5!$", "$5$"),
    ("$f'(2)$", "$f(2)$"),
    ("$1.5$", "$15$"),
    ("$x < 3$", "$x \\le 3$"),
    ("$(100,200)$", "$100200$"),
    (r"$\cos A$", r"$\cos C$"),
    ("$2**3$", "$2 3$"),
    (r"$\nabla x$", "$abla x$"),
    (
        "Write it in the form Answer: $Answer.\n\nSimplify $4(x+2)$, and express your answer as a",
        "Write it in the form Answer: $Answer.",
    ),
    ("Let $x=3$. Enter all integers $y$ below $x$, separated by commas.", "Let $x=3$."),
]


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_what_carries_mathematics_stays(first, second):
    assert content(tokenise(first)) != content(tokenise(second))


def test_scripts_without_spaces_give_one_token_per_character():
    assert tokenise("求 x² 的值") == ["求", "x", "^", "2", "的", "值"]


def test_long_white_space_takes_no_longer_than_other_text():
    assert normalise_question("a" + " \n" * 99_999 + "$ + " + "$ " * 99_999 + "b?") == "a+b"


def test_figures_are_code_without_space():
    text = "Find $x$ [asy] draw( 1 ); [/asy] in\n![](a.png) and [asy]dot(2);[/asy]"
    assert figures(text) == ["[asy]draw(1);[/asy]", "![](a.png)", "[asy]dot(2);[/asy]"]
    assert figures("Find $x$ in the diagram.") == []


CHOICES = [
    ("Find $x$.\n(A) 1\n(B) 2\n(C) 3", "Find $x$."),
    ("Find $x$. A. 1 B. 2 C. 3 D. 4", "Find $x$."),
    (r"Find $x$. $\textbf{(A)}\ 1 \quad \textbf{(B)}\ 2 \quad \textbf{(C)}\ 3$", "Find $x$. $"),
    ("Let $f(A) = 1$ and $f(B) = 2$.", ""),
    ("Find $x$.\n(A) 1\n(B) 2", ""),
    ("Find $x$.", ""),
]


@pytest.mark.parametrize(("question", "bare"), CHOICES)
def test_options_at_the_end_can_be_left_out(question, bare):
    assert without_choices(question) == bare


POLYGON = (
    "The solutions of $z^4+4z^3i-6z^2-4zi-i=0$ are vertices of a convex polygon of the plane. "
)
RETOLD = [
    ("What is the area of it?", "Its area is $p^{a/b}$ with a prime $p$. Find $a+b+p$.", True),
    ("What is the area of it?", "What is the perimeter of it?", True),
    ("What is the area of it below 7?", "What is the area of it below 8?", False),
    ("What is the area in the figure?", "What is the perimeter in the figure?", False),
]


@pytest.mark.parametrize(("first", "second", "same"), RETOLD)
def test_one_statement_may_ask_for_other_forms(first, second, same):
    first, second = content(tokenise(POLYGON + first)), content(tokenise(POLYGON + second))
    assert is_retold(first, second) is same
    assert is_retold(second, first) is same


def test_templates_are_not_retold():
    one = content(tokenise(POLYGON))
    for old, new in (("4zi-i", "4zi+i"), ("z^4+4z^3i-6", "(z^2)^2+(4+i)z^3i-6"), ("6z", "7z")):
        assert not is_retold(one, content(tokenise(POLYGON.replace(old, new))))
    assert not is_retold(one[:12], one[:12])


@pytest.mark.parametrize(
    "text",
    ["", "   ", "$$", "}}{{", "\\", "\\frac", "[asy]", "12.", "{" * 999, ". answer" * 999, "**",
     "* *", "&;&#0;&#x110000;&lt", "<p", "\\n" * 99, " " * 99999, "\n " * 9999, "\\" * 99999,
     "\\ud800"],
)  # fmt: skip
def test_any_text_has_tokens(text):
    assert all(tokenise(text))


WORDINGS = [
    ("Find the area of the octagon.", "What is the area of this octagon?", True),
    ("the side length of an equiangular octagon", "sidelength of an equilangular octagon", True),
    ("3 points are chosen randomly from a grid", "3 points are randomly chosen from a grid", True),
    ("the largest value of $2x+3$", "the smallest value of $2x+3$", False),
    ("drawn with replacement", "drawn without replacement", False),
    ("4 girls and 3 boys stand", "4 boys and 3 girls stand", False),
    ("4 distinguishable balls in 2 boxes", "4 balls in 2 distinguishable boxes", False),
    ("the price is increased by 20", "the price is increased to 20", False),
    ("the eighth of them", "the eighty of them", False),
]


@pytest.mark.parametrize(("first", "second", "same"), WORDINGS)
def test_wordings_of_one_question_differ_in_harmless_words_only(first, second, same):
    first, second = content(tokenise(first)), content(tokenise(second))
    assert same_wording(first, second) is same
    assert same_wording(second, first) is same


def test_the_options_of_an_edition_do_not_count():
    assert (
        without_options("Which gas is lightest?\n\nA. neon\nB. hydrogen")
        == "Which gas is lightest?"
    )
    assert without_options("Which gas is lightest?") == "Which gas is lightest?"
