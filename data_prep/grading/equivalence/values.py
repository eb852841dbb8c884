"""Values: the kinds of thing an answer can be, and the expression trees inside them.

A tree is nested tuples: ("num", Fraction), ("var", name), ("const", "pi"), ("add", a, b, …),
("mul", a, b, …), ("pow", base, exponent), ("call", name, a, …).
"""

from dataclasses import dataclass
from fractions import Fraction

from data_prep.grading.equivalence.tokens import Token
from data_prep.grading.equivalence.units import Unit

Tree = tuple
ONE, MINUS_ONE = ("num", Fraction(1)), ("num", Fraction(-1))
INVERSE = ("mul", MINUS_ONE, ONE)  # ^{-1}, as it is read; a fraction has MINUS_ONE itself


def variables(tree: Tree) -> set[str]:
    """Names of the variables in a tree."""
    if tree[0] == "var":
        return {tree[1]}
    return set().union(*(variables(part) for part in tree[1:] if isinstance(part, tuple)))


def keep_order(factors: list[Tree]) -> list[Tree]:
    """A product of capitals with an inverse is one of matrices: A^{-1}B becomes one name."""

    def is_capital(tree: Tree) -> bool:
        return tree[0] == "var" and tree[1].isupper()

    inverses = [f for f in factors if f[0] == "pow" and is_capital(f[1]) and f[2] == INVERSE]
    matrices = [f for f in factors if is_capital(f) or f in inverses]
    if not inverses or len(matrices) == 1:
        return factors
    return [*(f for f in factors if f not in matrices), ("var", repr(matrices))]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number or expression, with its unit or per cent sign."""

    text: str
    tree: Tree
    unit: Unit | None = None
    percent: bool = False
    is_guess: bool = False  # the unit is a letter that may be a variable


@dataclass(frozen=True, slots=True)
class Words:
    """Words, or letters as written (AB is not BA); `tree` where they could be a product."""

    text: str
    tree: Tree | None = None


@dataclass(frozen=True, slots=True)
class Based:
    """A number in a base, compared as written."""

    text: str
    digits: str
    base: str


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a multiple-choice question: its letter, and its value where it is written."""

    text: str
    letter: str
    value: "Value | None"


@dataclass(frozen=True, slots=True)
class Sequence:
    """Several values.

    kind: list, alternatives (all joined by "or"), set, pair (in brackets: tuple or interval),
    interval (from an inequality), union, ratio, matrix, cases. `form` is what has to agree besides
    the items: the brackets, or a matrix's shape.
    """

    text: str
    kind: str
    items: tuple
    form: tuple = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """parts[0] ops[0] parts[1] …, with ops in = < > \\le \\ge \\ne \\approx \\in \\equiv \\to."""

    text: str
    parts: tuple
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something no reader knows; `tokens` for those who want to try."""

    text: str
    tokens: tuple[Token, ...] = ()


Value = Scalar | Words | Based | Choice | Sequence | Relation | Opaque

RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\approx", r"\in", r"\equiv", r"\to"}
INFINITY = Words(r"\infty")
MINUS_INFINITY = Words(r"-\infty")
ALL_REALS = Sequence(r"\mathbb{R}", "pair", (MINUS_INFINITY, INFINITY), ("(", ")"))


def interval(opening: str, low: Value, high: Value, closing: str) -> Sequence:
    """The interval between two values, with its brackets."""
    text = f"{opening}{low.text},{high.text}{closing}"
    return Sequence(text, "interval", (low, high), (opening, closing))
