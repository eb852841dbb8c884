"""Agreement: whether two single values agree (words, numbers in a base, numbers with units)."""

from fractions import Fraction

from data_prep.equivalence import numeric
from data_prep.equivalence.syntax import Tree
from data_prep.equivalence.tokens import TooLarge, Unreadable
from data_prep.equivalence.units import ratio
from data_prep.equivalence.values import Based, Scalar, Value, Words

_HUNDREDTH = Fraction(1, 100)
_ANSWERS = {word.upper(): word for word in ("yes", "no", "true", "odd", "even")}


def fold(text: str) -> str:
    """Words as compared: letters of up to four capitals stay as written (AB is not ab)."""
    plain = "".join(c for c in text if c not in " .,!:'\"")
    if len(plain) > 2 and not (plain.isupper() and len(plain) <= 4 and plain not in _ANSWERS):
        return plain.casefold()
    return _ANSWERS.get(plain.upper(), plain)


def same_based(ours: Value, theirs: Value) -> bool:
    """Whether two values of which one is a number in a base are the same digits in the same base.

    The question names the base, so a prediction may leave it out; a base that it adds is wrong.
    """
    if isinstance(ours, Based) and isinstance(theirs, Based):
        return (ours.digits, ours.base) == (theirs.digits, theirs.base)
    is_plain = isinstance(theirs, Based) and isinstance(ours, Scalar | Words)
    return is_plain and ours.text == theirs.digits


def same_scalars(ours: Scalar | Words, theirs: Scalar | Words) -> bool | None:
    """Whether two numbers or expressions are one value, with their units."""
    if ours.tree is None or theirs.tree is None:
        return False  # words are no number
    ours, theirs = (
        value if isinstance(value, Scalar) else Scalar(value.text, value.tree)
        for value in (ours, theirs)
    )
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


def identical(left: Tree, right: Tree) -> bool | None:
    """`numeric.identical`, None where the two are defined together almost nowhere."""
    if left == right:
        return True
    try:
        return numeric.identical(left, right)
    except TooLarge:
        raise
    except Unreadable:
        return None
