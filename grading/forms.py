"""Forms: formulas as trees in one order, to tell whether two are the same but for their print."""

import contextlib
import functools
import re
from collections import Counter
from math import gcd
from typing import Any

from grading.equivalence.readings import read
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
_POWER = re.compile(r"\^|square|cubic|\bsq\b|\bcu\b")
MAX_CHARS = 500  # of a formula
Form = Any  # a hashable tree


@functools.lru_cache(maxsize=4096)
def forms(text: str, with_sides: bool = False, is_exact: bool = False) -> dict[Form, bool]:
    """{what a reading of a text is, its terms and factors in one order: whether it is plain}.

    Roots are powers and `xx` is `x^2`, but with `is_exact` each stays as it is printed.
    """
    text = _COMBINATIONS.sub(r"\\binom{\1}{\2}", text.strip().rstrip(".,;:?= ").lstrip(",;: "))
    if not text or len(text) > MAX_CHARS or not IS_FORMULA.search(text):
        return {}
    values: list[Value] = []
    with contextlib.suppress(Unreadable):
        values += read(text, False)
    values += [value.value for value in values if isinstance(value, Choice) and value.value]
    if with_sides:
        values += [side for value in values if isinstance(value, Relation) for side in value.parts]
    found = {
        form: _is_plain(value) or (form[0] == "num" and len(form) == 2)  # 5/1, with no unit
        for value in values
        if (form := _form(value, is_exact)) is not None
    }
    return {form: plain for form, plain in found.items() if form[0] != "var"}


def _form(value: Value, is_exact: bool) -> Form:
    if isinstance(value, Relation):
        parts = [_form(part, is_exact) or part.text for part in value.parts]
        return "relation", value.ops, tuple(sorted(parts, key=repr))
    if isinstance(value, Sequence) and value.kind == "ratio" and len(value.items) == 2:
        top, bottom = (item.tree for item in value.items)
        return _ordered(("mul", top, ("pow", bottom, MINUS_ONE)), is_exact)
    if isinstance(value, Sequence):
        items = tuple(_form(item, is_exact) or item.text for item in value.items)
        return value.kind, value.form, items
    if isinstance(value, Scalar):
        tree = _ordered(value.tree, is_exact)
        if value.unit:  # 26 ml is no copy of 26 cm^3
            is_power = bool(_POWER.search(value.text))
            return (*tree, value.unit, is_power)
        return (*tree, "%") if value.percent else tree
    return None


def _is_plain(value: Value) -> bool:
    """Whether it is no formula: a number or a fraction in lowest terms, a name, a point."""
    if isinstance(value, Sequence):
        if value.kind == "ratio" and all(i.tree[0] == "num" for i in value.items):
            return gcd(*(int(item.tree[1]) for item in value.items)) == 1
        return value.kind == "based" or all(map(_is_plain, value.items))
    if not isinstance(value, Scalar) or (value.unit and value.unit.dimensions):
        return False
    kind, *parts = value.tree
    if kind in ("num", "var", "const"):
        return True
    if kind == "mul" and parts[0] == MINUS_ONE and len(parts) == 2:
        return _is_plain(Scalar("", parts[1]))
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


def _ordered(tree: Tree, is_exact: bool) -> Tree:
    """A tree with its terms and factors in one order, without what does nothing to it.

    That is brackets around some of them, + 0, two signs, a factor or an exponent of 1, and powers
    and roots that undo each other.
    """
    if not isinstance(tree, tuple):
        return tree
    kind, *parts = tree[0], *(_ordered(part, is_exact) for part in tree[1:])
    if kind == "call" and parts[0] == "root" and not is_exact:
        kind, parts = "pow", [parts[1], _ordered(("pow", parts[2], MINUS_ONE), is_exact)]
    if kind == "pow":
        return _power(*parts)
    if kind in ("add", "mul"):
        flat = [one for part in parts for one in (part[1:] if part[0] == kind else (part,))]
        return _sum(flat) if kind == "add" else _product(flat, is_exact)
    return (kind, *parts)


def _power(base: Tree, exponent: Tree) -> Tree:
    if ONE in (base, exponent):
        return base
    if base[0] == "pow":
        before = base[2]
        is_inverse_twice = before == exponent == MINUS_ONE
        is_root = before == ("pow", exponent, MINUS_ONE) or exponent == ("pow", before, MINUS_ONE)
        if is_inverse_twice or (is_root and not variables(base)):  # of x^2 the root is |x|
            return base[1]
    return "pow", base, exponent


def _sum(terms: list[Tree]) -> Tree:
    return _sorted("add", [one for one in terms if one != ZERO] or [ZERO])


def _product(factors: list[Tree], is_exact: bool) -> Tree:
    if ZERO in factors:
        return ZERO
    signs = [MINUS_ONE] * (factors.count(MINUS_ONE) % 2)
    factors = signs + [one for one in factors if one not in (ONE, MINUS_ONE)] or [ONE]
    if not is_exact:  # (x+1)(x+1) is (x+1)^2
        counts = Counter(factors)
        factors = [one if n == 1 else ("pow", one, ("num", n)) for one, n in counts.items()]
    return _sorted("mul", factors)


def _sorted(kind: str, parts: list[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else (kind, *sorted(parts, key=repr))
