"""Numeric identity: whether two expression trees are the same number, or the same function.

Rationals are compared exactly. Everything else is evaluated with mpmath, first to 50 digits and,
where the two agree, again to 300; expressions with variables at fixed pseudo-random rational
points (Schwartz, 1980; Zippel, 1979: two different polynomials of degree d agree at a random point
out of N with probability at most d / N). Nothing is expanded or simplified, so that no input takes
longer than its length and the limits below allow.
"""

import random
from fractions import Fraction

from data_prep.grading.equivalence.evaluate import Undefined, context, evaluate
from data_prep.grading.equivalence.tokens import TooLarge
from data_prep.grading.equivalence.trees import MINUS_ONE, Tree, variables

DIGITS, CONFIRMING_DIGITS, MANY_DIGITS = 50, 300, 2_000
SMALL_ERROR = 1e-20  # e^{200} x + 2 and e^{200} x + 1 agree to 80 digits
NUM_AGREEING = 3  # of 8 points; the others may lie where one side has no real value


def _agree(left: Tree, right: Tree, point: dict, is_complex: bool) -> bool:
    """Whether two trees agree at one point; raises Undefined where either has no value there.

    The rounding error is at most the largest number on the way times 10^(5 - digits). Where that
    hides the values themselves (10^{99} x - 10^{99} x + 5), more digits are taken.
    """
    # A number has one point only, so that needs more digits: \pi and 3.14159… with 60 digits.
    for digits in (DIGITS, CONFIRMING_DIGITS, MANY_DIGITS):
        a, scale_a = evaluate(left, point, digits, is_complex)
        b, scale_b = evaluate(right, point, digits, is_complex)
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a == b
        mp = context()
        a, b = (mp.mpf(v.numerator) / v.denominator if isinstance(v, Fraction) else v
                for v in (a, b))  # fmt: skip
        error = max(scale_a, scale_b, abs(a), abs(b)) * mp.mpf(10) ** (5 - digits)
        if abs(a - b) > error:
            return False
        is_confirmed = digits > DIGITS or (bool(point) and error < SMALL_ERROR)
        if is_confirmed and error <= max(abs(a), abs(b)) * mp.mpf(10) ** -30:
            return True
    return True  # both are zero: nothing smaller than 10^{-500} is computed with


_STYLES = (
    "positive",
    "large",
    "integer",
    "negative",
    "small",
    "mixed",
    "large",
    "negative integer",
)


def _points(names: list[str]) -> list[dict[str, Fraction]]:
    """Fixed rational points of every sign and size, integers among them."""
    generator = random.Random(20260501)
    points = []
    for style in _STYLES:
        point = {}
        for name in names:
            value = Fraction(generator.randrange(1009, 9973), 3571)  # 0.28 to 2.8
            if style == "small":
                value /= 4
            elif style == "large":
                value *= 23
            elif "integer" in style:
                value = Fraction(generator.randrange(2, 12))
            if "negative" in style or (style == "mixed" and generator.random() < 0.5):
                value = -value
            point[name] = value
        points.append(point)
    return points


def _has_i(*trees: Tree) -> bool:
    return any("i" in variables(tree) for tree in trees)


def is_number(tree: Tree) -> bool:
    """Whether a tree has no variables (the imaginary unit is none)."""
    return not variables(tree) - {"i"}


def exact_value(tree: Tree) -> Fraction | None:
    """The value of a rational number, None for anything else."""
    if variables(tree):
        return None
    try:
        value, _ = evaluate(tree, {}, DIGITS, False)
    except Undefined:
        return None
    return value if isinstance(value, Fraction) else None


def is_defined(tree: Tree) -> bool:
    """Whether a tree has a value anywhere; raises TooLarge where no point is small enough."""
    names = sorted(variables(tree) - {"i"})
    for point in _points(names) if names else [{}]:
        try:
            evaluate(tree, point, DIGITS, _has_i(tree))
            return True
        except Undefined:
            continue
    return False


def identical(left: Tree, right: Tree) -> bool:
    """Whether two trees are the same number, or agree wherever both are defined.

    Raises:
        TooLarge: they are too large to compute with, or defined together almost nowhere.
    """
    is_complex = _has_i(left, right)
    names = sorted((variables(left) | variables(right)) - {"i"})
    if not names:
        try:
            return _agree(left, right, {}, is_complex)
        except Undefined:
            return False  # a number without a value equals nothing
    num_agreeing = 0
    for point in _points(names):
        try:
            if not _agree(left, right, point, is_complex):
                return False
            num_agreeing += 1
        except (Undefined, TooLarge):
            continue  # another point will do
    if num_agreeing < NUM_AGREEING:
        raise TooLarge("defined together almost nowhere, or too large to compute with")
    return True


def proportional(left: Tree, right: Tree, positive: bool = False) -> bool:
    """Whether left = c * right for one constant c other than 0 (above 0 with `positive`).

    `y = 2x + 3` and `2x - y + 3 = 0` are one equation in this sense, with the difference of the
    two sides as trees.
    """
    names = sorted((variables(left) | variables(right)) - {"i"})
    if not names:
        return False  # of numbers any two are proportional
    is_complex = _has_i(left, right)
    first, agreeing = None, 0
    for point in _points(names):
        try:
            a, _ = evaluate(left, point, DIGITS, is_complex)
            b, _ = evaluate(right, point, DIGITS, is_complex)
        except (Undefined, TooLarge):
            continue
        if not a or not b:
            if bool(a) != bool(b):
                return False
            continue
        if first is None:
            first = point
            if positive and (is_complex or (a > 0) != (b > 0)):
                return False
        # left(p) * right(p0) - right(p) * left(p0) = 0, with the constants as trees.
        elif not _agree(
            ("mul", left, _at(right, first)), ("mul", right, _at(left, first)),
            point, is_complex,
        ):  # fmt: skip
            return False
        agreeing += 1
    return agreeing >= NUM_AGREEING


def _at(tree: Tree, point: dict[str, Fraction]) -> Tree:
    """The tree with numbers for its variables."""
    if tree[0] == "var" and tree[1] in point:
        return ("num", point[tree[1]])
    return tuple(_at(part, point) if isinstance(part, tuple) else part for part in tree)


def difference(left: Tree, right: Tree) -> Tree:
    """left - right."""
    return ("add", left, ("mul", MINUS_ONE, right))
