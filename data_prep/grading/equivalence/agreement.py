"""Agreement: whether two single values agree (words, numbers in a base, numbers with units)."""

import re
from fractions import Fraction

from data_prep.grading.equivalence import numeric
from data_prep.grading.equivalence.trees import Tree
from data_prep.grading.equivalence.units import ratio
from data_prep.grading.equivalence.values import Based, Scalar, Value, Words

_HUNDREDTH = Fraction(1, 100)
_ANSWERS = {word.upper(): word for word in ("yes", "no", "true", "odd", "even")}
_ANSWERS["DNE"] = "doesnotexist"


def fold(text: str) -> str:
    """Words as compared: letters of up to four capitals stay as written (AB is not ab)."""
    text = re.sub(r"^(?:an?|the)\s+", "", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", text)  # June 20th
    plain = re.sub(r"(?<!\d)[.,!:\"]+(?!\d)", "", text)  # p.m. is pm, but 2.0 is not 20
    plain = plain.replace(" ", "")
    if plain.upper() in _ANSWERS:
        return _ANSWERS[plain.upper()]
    is_name = len(plain) <= 2 or (plain.isupper() and len(plain) <= 4)
    return plain if is_name else plain.casefold()


def same_based(ours: Value, theirs: Value) -> bool:
    """Whether two values of which one is a number in a base are the same digits in the same base.

    The question names the base, so a prediction may leave it out; a base that it adds is wrong.
    """
    if isinstance(ours, Based) and isinstance(theirs, Based):
        return (ours.digits, ours.base) == (theirs.digits, theirs.base)
    is_plain = isinstance(theirs, Based) and isinstance(ours, Scalar | Words)
    return is_plain and ours.text == theirs.digits


def same_scalars(ours: Scalar | Words, theirs: Scalar | Words) -> bool:
    """Whether two numbers or expressions are one value, with their units."""
    if ours.tree is None or theirs.tree is None:
        return False  # words are no number
    ours, theirs = (
        value if isinstance(value, Scalar) else Scalar(value.text, value.tree)
        for value in (ours, theirs)
    )
    if theirs.is_guess and ours.unit is None:
        return False
    if (ours.percent and theirs.unit) or (ours.unit and theirs.percent):
        return False
    if ours.unit and theirs.unit:
        factor = ratio(ours.unit, theirs.unit)
        return factor is not None and identical(times(ours.tree, factor), theirs.tree)
    same = identical(ours.tree, theirs.tree)
    if not same and (tree := _without_sign(ours, theirs)):
        same = identical(tree, theirs.tree)
    if not same and (tree := _without_sign(theirs, ours)):
        same = identical(ours.tree, tree)
    return same


def _without_sign(value: Scalar, other: Scalar) -> Tree | None:
    """A per cent or degree value as a bare number, where the other side may be one.

    50% is 50, as the question says, or 1/2; 180 degrees are 180, or pi where a pi is written.
    """
    if value.percent and not other.percent:
        return times(value.tree, _HUNDREDTH)
    is_angle = value.unit is not None and dict(value.unit.dimensions) == {"degree": 1}
    if is_angle and other.unit is None and _has_pi(other.tree):
        return ("mul", value.tree, ("const", "degree"))
    return None


def _has_pi(tree: Tree) -> bool:
    return tree == ("const", "pi") or any(_has_pi(p) for p in tree[1:] if isinstance(p, tuple))


def is_integer(tree: Tree) -> bool:
    """Whether a tree is an integer by exact steps."""
    value = numeric.exact_value(tree)
    return value is not None and value.denominator == 1


def times(tree: Tree, factor: Fraction) -> Tree:
    """tree * factor."""
    return tree if factor == 1 else ("mul", tree, ("num", factor))


def identical(left: Tree, right: Tree) -> bool:
    """`numeric.identical`, at once where the two are the same tree."""
    return left == right or numeric.identical(left, right)
