r"""Proofs, multiple choice, pictures and golds that are no answer are told from the rest."""

import pytest

from data_prep.build.filters import (
    asks_for_proof,
    holds_several_answers,
    is_readable,
    points_to_image,
    shows_options,
)
from data_prep.sources.base import is_option, is_sentinel


@pytest.mark.parametrize(
    ("gold", "is_one"),
    [
        ("B", True), ("(C)", True), ("C.", True), (r"\text{(A)}", True), ("$B$", True),
        (r"\textbf{(C) }8", True), (r"40\textbf{ (B)}", True), ("C: 16m^3", True),
        (r"A \text{ and } D", True), ("ABD", True), ("A, E", True), (r"\mathrm{(D)}", True),
        (r"The final answer is \(C. 0.8\)", True),
        ("5", False), ("x = 2", False), ("AB = 3", False), ("3R", False), ("A=30", False),
        ("I", False), (r"\text{Angle A}", False), ("(1, 2)", False), ("C_1", False), ("", False),
    ],
)  # fmt: skip
def test_options(gold, is_one):
    assert is_option(gold) == is_one


@pytest.mark.parametrize(
    "gold",
    ["proof", "Proof", "notfound", "not found", "Not_Found", "N/A", "n/a", "None", "null", "nan",
     "unknown", "see solution", "See the solution.", "no answer", "TODO", "-", "?", "...",
     r"\text{proof}", r"\boxed{\text{None}}", r"$\text{Q.E.D.}$", r"\blacksquare",
     r"\ldots", "\u7565", "(proof)"],
)  # fmt: skip
def test_sentinels(gold):
    assert is_sentinel(gold)


@pytest.mark.parametrize(
    "gold",
    ["no solution", "No real solutions", "DNE", r"\emptyset", "0", "5", "-1", "x", "e", r"\infty",
     "undefined", "cannot be determined", "proof by induction", "n", "NA", "1/2", r"\{\}", "true",
     r"\text{no solution}", "none of these", "", "..5"],
)  # fmt: skip
def test_answers_are_no_sentinels(gold):
    assert not is_sentinel(gold)


@pytest.mark.parametrize(
    ("gold", "is_one"),
    [
        (r"\boxed{1}\boxed{2}", True), (r"\boxed{1} or \boxed{2}", True),
        (r"\boxed{\frac12}, \boxed{0.5}, \boxed{3}", True), (r"\boxed{1}\boxed{x =}", True),
        (r"\boxed{2} \boxed{2}", False), (r"\boxed{\frac12} = \boxed{0.5}", False),
        (r"\boxed{1}", False), ("1, 2", False), ("", False), (r"\boxed{", False),
    ],
)  # fmt: skip
def test_golds_of_several_boxes(gold, is_one):
    assert holds_several_answers(gold) == is_one


@pytest.mark.parametrize(
    ("question", "is_one"),
    [
        ("See ![fig](a.png)", True),
        ("See ![](https://cdn.mathpix.com/cropped/x.jpg?height=4)", True),
        ('As shown <img src="a.svg">', True),
        (r"\includegraphics[width=3cm]{a}", True),
        ("[img]https://i.imgur.com/x[/img]", True),
        ("[AIME 1987.png](https://example.org/wiki/File:AIME_1987.png)", True),
        ("<image1> What is x?", True),
        ("Find $n![x]$ where $[x]$ is a floor.", False),
        ("Find $5!$. [See (1)]", False),
        ("[asy] draw(A--B); [/asy] As shown in the figure, find x.", False),
        ("[Right triangle](https://example.org/wiki/Right_triangle) with legs 3 and 4", False),
        ("The image of $f$ is shown. Find it.", False),
    ],
)
def test_images(question, is_one):
    assert points_to_image(question) == is_one


@pytest.mark.parametrize(
    ("question", "is_one"),
    [
        ("Which?\n(A) 1 (B) 2 (C) 3 (D) 4", True),
        ("Which? A) 1 B) 2 C) 3", True),
        ("Which?\nA. 1\nB. 2\nC. 3\nD. 4", True),
        ("Which?\n\nA: $1$\n\nB: $2$\n\nC: $3$", True),
        (r"$\textbf{(A) }1\qquad\textbf{(B) }2\qquad\textbf{(C) }3$", True),
        (r"$\mathrm{(A)\ }1 \mathrm{(B)\ }2 \mathrm{(C)\ }3$", True),
        (r"$\text{(A) }3 \quad \text{(B) }4 \quad \text{(C) }5$", True),
        ("**(A)** 16  **(B)** 17  **(C)** 19", True),
        ("\n$\\bullet$ A. 1\n$\\bullet$ B. 2\n$\\bullet$ C. 3", True),
        ("\u9009\u62e9\uff1a\nA\uff0e1\nB\uff0e2\nC\uff0e3", True),
        ("Let $P(A)=1$, $P(B)=2$ and $P(C)=3$.", False),
        ("Take points A, B, and C. Find AB.", False),
        ("The lines meet at A. The point B. lies on C. Find it.", False),
        ('[asy] label("$A$", A); label("$B$", B); label("$C$", C); [/asy]', False),
        ("(a) Find x. (b) Find y. (c) Find z.", False),
        ("Choose from (A) 1 or (B) 2.", False),
        ("A said, yes.\nB said, no.\nC said, maybe.", False),
    ],
)
def test_shown_options(question, is_one):
    assert shows_options(question) == is_one


@pytest.mark.parametrize(
    ("question", "is_one"),
    [
        ("Prove that $1 < 2$.", True),
        ("Let $a>0$. Show that $a+1/a \\geq 2$.", True),
        ("Given $x$, prove: $x^2 \\geq 0$.", True),
        ("Prove \\[ \\sum_k 1/k^2 < 2. \\]", True),
        ("Prove or disprove: every prime is odd.", True),
        ("Prove the inequality $x<y$ for all $x$.", True),
        ("\u8bc1\u660e\uff1a$1<2$", True),
        ("Find all $n$ such that $n!$ is a square, and prove that there are no others.", False),
        ("Prove that $p$ is prime. What is $p$?", False),
        ("How many steps do you need to prove that?", False),
        ("Determine, with proof, all integers $n$.", False),
        ("Find the proof mass. You need not prove it.", False),
        ("It can be shown that $x = m/n$. Find $m+n$.", False),
        ("Ann wants to show that she can jump. How far?", False),
        ("(a) Prove that $a<b$. (b) Compute $a$.", False),
        ("(a) Show that $a<b$. (b) Express $a$ in $b$.", False),
        ("Prove that $n=m+1$, where $m$ is what remains.", True),
        ("Compute $1+1$.", False),
    ],
)
def test_proofs(question, is_one):
    assert asks_for_proof(question) == is_one


@pytest.mark.parametrize(
    "hostile",
    ["(A) x (B) x " * 20_000, "\nA: x\nB: x" * 20_000, "![" * 50_000, r"\text{" * 30_000,
     "http://" * 20_000, "[asy]" * 30_000, "prove " * 30_000, "A." * 50_000, "\n" * 100_000],
)  # fmt: skip
def test_hostile_questions_end(hostile):
    for ask in (asks_for_proof, points_to_image, shows_options, is_option, is_sentinel):
        assert ask(hostile) in (True, False)


@pytest.mark.parametrize("gold", ["0", "-0", "007", "-12", "9" * 15, "-" + "9" * 15])
def test_the_grader_reads_every_integer(gold):
    """`check_problem` asks it about other golds only."""
    assert is_readable(gold)
