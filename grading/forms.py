"""Forms: formulas as trees in one order, to tell whether one is, or contains, another.

`form` gives a value the same tree for any print and order of its terms and factors. With
`is_exact` roots and repeated factors stay as they are printed. With `is_reduced` what changes
nothing is gone as well: opposite terms, a factor and its inverse, terms that are 0 and factors that
are 1, however they are written; and what is a rational number is that number.
"""

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from math import gcd, prod
from typing import Any

from grading.equivalence.numeric import exact_value, identical
from grading.equivalence.readings import MAX_CHARS, read
from grading.equivalence.tokens import Unreadable
from grading.equivalence.values import (
    MINUS_ONE,
    ONE,
    ZERO,
    Choice,
    Relation,
    Scalar,
    Sequence,
    Tree,
    Value,
    variables,
)

IS_FORMULA = re.compile(r"\d|[-+*/^=\u00d7\u00f7\u2212\u00b7\u221a]|\\[A-Za-z]")
_COMBINATIONS = re.compile(r"\bC\((\d+),\s?(\d+)\)")
Form = Any  # a hashable tree


@functools.lru_cache(maxsize=4096)
def read_formula(text: str) -> tuple[Value, ...]:
    """The readings of a formula in a question; none where there is no formula."""
    text = _COMBINATIONS.sub(r"\\binom{\1}{\2}", text.strip().rstrip(".,;:?= ").lstrip(",;: "))
    if not text or len(text) > MAX_CHARS or not IS_FORMULA.search(text):
        return ()
    with contextlib.suppress(Unreadable):
        return tuple(one for value in read(text, False) for one in (value, *_inside(value)))
    return ()


def _inside(value: Value) -> tuple[Value, ...]:
    """The value of an option."""
    return (value.value,) if isinstance(value, Choice) and value.value else ()


def form(value: Value, is_exact: bool = False, is_reduced: bool = False) -> Form:
    """A value as a tree, its terms and factors in one order; None for words and unknown text.

    The unit and the per cent sign of a number are left out.
    """
    flags = is_exact, is_reduced
    if isinstance(value, Scalar):
        return _ordered(value.tree, *flags)
    if isinstance(value, Relation):
        parts = [form(part, *flags) or part.text for part in value.parts]
        return "relation", value.ops, tuple(sorted(parts, key=_key))
    if isinstance(value, Sequence) and value.kind == "ratio" and len(value.items) == 2:
        top, bottom = (item.tree for item in value.items)
        return _ordered(("mul", top, ("pow", bottom, MINUS_ONE)), *flags)
    if isinstance(value, Sequence):
        items = tuple(form(item, *flags) or item.text for item in value.items)
        return value.kind, value.form, items
    return None


def contains(whole: Form, part: Form) -> bool:
    """Whether a form is, or has anywhere in it, another form: terms of a sum, factors, a side."""
    if whole == part:
        return True
    if not isinstance(whole, tuple):
        return False
    are_alike = whole[:1] == part[:1] and whole[0] in ("add", "mul")
    if are_alike and not Counter(part[1:]) - Counter(whole[1:]):
        return True
    return any(contains(one, part) for one in whole)


def parts_of(value: Value) -> Iterator[Value]:
    """A value and all values in it: the sides of a relation, the items of a list."""
    yield value
    inside = value.parts if isinstance(value, Relation) else getattr(value, "items", ())
    for one in (*inside, *_inside(value)):
        yield from parts_of(one)


def is_plain(value: Value) -> bool:
    """Whether it is no formula: a number or a fraction in lowest terms, a name, a point."""
    if isinstance(value, Sequence):
        if value.kind == "ratio" and all(i.tree[0] == "num" for i in value.items):
            return gcd(*(int(item.tree[1]) for item in value.items)) == 1
        return value.kind == "based" or all(map(is_plain, value.items))
    if not isinstance(value, Scalar) or (value.unit and value.unit.dimensions):
        return False
    kind, *parts = value.tree
    if kind in ("num", "var", "const"):
        return True
    if kind == "mul" and parts[0] == MINUS_ONE and len(parts) == 2:
        return is_plain(Scalar("", parts[1]))
    if kind == "add":  # a mixed number
        return len(parts) == 2 and parts[0][0] == "num" and is_lowest(parts[1])
    is_named = kind == "mul" and len(parts) == 2 and parts[0][0] == "num"
    return is_lowest(value.tree) or (is_named and parts[1][0] in ("var", "const"))


def is_quotient(tree: Tree) -> bool:
    """Whether a tree is a fraction of integers."""
    kind, *parts = tree
    if kind != "mul" or len(parts) != 2 or parts[0][0] != "num" or parts[1][0] != "pow":
        return False
    bottom, exponent = parts[1][1:3]
    is_inverse = bottom[0] == "num" and exponent == MINUS_ONE
    return is_inverse and parts[0][1].denominator == bottom[1].denominator == 1


def is_lowest(tree: Tree) -> bool:
    """Whether a tree is a fraction of integers in lowest terms."""
    return is_quotient(tree) and gcd(int(tree[1][1]), int(tree[2][1][1])) == 1


def _ordered(tree: Tree, is_exact: bool, is_reduced: bool) -> Tree:
    """A tree with its terms and factors in one order, without what does nothing to it.

    That is brackets around some of them, + 0, two signs, a factor or an exponent of 1, and powers
    and roots that undo each other.
    """
    if not isinstance(tree, tuple):
        return tree
    if is_reduced:
        tree = _rational(tree)
    kind, *parts = tree[0], *(_ordered(part, is_exact, is_reduced) for part in tree[1:])
    if kind == "call" and parts[0] == "root" and not is_exact:
        inverse = _ordered(("pow", parts[2], MINUS_ONE), is_exact, is_reduced)
        kind, parts = "pow", [parts[1], inverse]
    if kind == "pow":
        return _power(*parts, is_exact, is_reduced)
    if kind in ("add", "mul"):
        flat = [one for part in parts for one in (part[1:] if part[0] == kind else (part,))]
        return _sum(flat, is_reduced) if kind == "add" else _product(flat, is_exact, is_reduced)
    return (kind, *parts)


def _rational(tree: Tree) -> Tree:
    """A tree without letters as the rational number that it is; any other as it is."""
    if tree[0] in ("num", "var", "const") or variables(tree):
        return tree
    with contextlib.suppress(Unreadable, ArithmeticError):
        value = exact_value(tree)
        if value is None:  # of a root it is not known
            value = exact_value(("call", "floor", tree))
            value = value if value is not None and identical(tree, ("num", value)) else None
        return tree if value is None else ("num", value)
    return tree


def _power(base: Tree, exponent: Tree, is_exact: bool, is_reduced: bool = False) -> Tree:
    if ONE in (base, exponent) or (base, exponent) == (MINUS_ONE, MINUS_ONE):
        return base
    if base[0] == "pow":
        before = base[2]
        is_inverse_twice = before == exponent == MINUS_ONE
        is_root = before == ("pow", exponent, MINUS_ONE) or exponent == ("pow", before, MINUS_ONE)
        if is_inverse_twice or (is_root and not variables(base)):  # of x^2 the root is |x|
            return base[1]
    if is_reduced and (base, exponent) == (MINUS_ONE, ("num", Fraction(1, 2))):
        return "var", "i"
    is_integer = exponent[0] == "num" and exponent[1].denominator == 1
    if base[0] == "mul" and (exponent == MINUS_ONE or (is_reduced and is_integer)) and not is_exact:
        factors = [_power(one, exponent, is_exact, is_reduced) for one in base[1:]]
        return _product(factors, is_exact, is_reduced)  # 1/(2x) is 1/2 times 1/x
    return "pow", base, exponent


def _sum(terms: list[Tree], is_reduced: bool) -> Tree:
    if is_reduced:
        numbers = [one[1] for one in terms if one[0] == "num"]
        kept = [one for one in terms if one[0] != "num" and not _is(ZERO, one)]
        terms = [*_without_pairs(kept, _negative), ("num", sum(numbers, Fraction(0)))]
    return _sorted("add", [one for one in terms if one != ZERO] or [ZERO])


def _negative(tree: Tree) -> Tree:
    return _product([MINUS_ONE, *_factors(tree)], False, True)


def _is(neutral: Tree, tree: Tree) -> bool:
    """Whether a term or factor is 0 or 1, such as `\\sin^2 t + \\cos^2 t` or `i^4`."""
    with contextlib.suppress(Unreadable):
        return tree[0] not in ("num", "var", "const") and identical(tree, neutral)
    return False


def _without_pairs(parts: list[Tree], opposite: Any) -> list[Tree]:
    """The parts without those whose opposite is there, too."""
    kept: list[Tree] = []
    for one in parts:
        if (other := opposite(one)) in kept:
            kept.remove(other)
        else:
            kept.append(one)
    return kept


def _product(factors: list[Tree], is_exact: bool, is_reduced: bool) -> Tree:
    if ZERO in factors:
        return ZERO
    signs = [MINUS_ONE] * (factors.count(MINUS_ONE) % 2)
    factors = signs + [one for one in factors if one not in (ONE, MINUS_ONE)] or [ONE]
    if is_reduced:
        factors = _reduced_factors(factors)
    if not is_exact:  # (x+1)(x+1) is (x+1)^2
        counts = Counter(factors)
        factors = [one if n == 1 else ("pow", one, ("num", n)) for one, n in counts.items()]
    return _sorted("mul", factors)


def _reduced_factors(factors: list[Tree]) -> list[Tree]:
    """The factors with one number for all that are rational, without what cancels.

    A minus goes into a sum: -(a - b) is b - a.
    """
    rational = list(map(_rational, factors))
    number = prod((one[1] for one in rational if one[0] == "num"), start=Fraction(1))
    others = [one for one in rational if one[0] != "num" and not _is(ONE, one)]
    kept = _without_pairs(others, lambda one: _power(one, MINUS_ONE, False))
    if len(kept) == 1 and kept[0][0] == "add" and number == -1:
        return [_sum([_negative(one) for one in kept[0][1:]], True)]
    return [("num", number), *kept] if number != 1 or not kept else kept


def _factors(tree: Tree) -> tuple[Tree, ...]:
    return tree[1:] if tree[0] == "mul" else (tree,)


def _sorted(kind: str, parts: list[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else (kind, *sorted(parts, key=_key))


def _key(tree: Any) -> str:
    """A text by which trees are put in order; in hexadecimal, which has no limit of digits."""
    if isinstance(tree, Fraction):
        return f"{tree.numerator:x}/{tree.denominator:x}"
    return f"({','.join(map(_key, tree))})" if isinstance(tree, tuple) else str(tree)
