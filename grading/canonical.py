"""Canonical: one form for each value, so that equality of forms is equality of values.

`x > 3`, `3 < x` and `x \\in (3, \\infty)` are the name x with one interval, `x = 1 or x = 2` is the
name x with two values, `48 + 24 = 72` is 72, and `x^2 + y^2 = 25` an equation of which the
difference of its sides counts.
"""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from grading import values
from grading.equal import equal
from grading.latex import TRIGONOMETRIC
from grading.numeric import exact_value, size
from grading.parse import CONDITION_WORDS
from grading.tree import (
    MINUS_ONE,
    Call,
    Num,
    Power,
    Sum,
    Tree,
    Var,
    at,
    children,
    difference,
    is_number,
    minus,
    simplified,
    variables,
)
from grading.values import (
    Bracketed,
    Conditional,
    Equation,
    Infinite,
    Matrix,
    Modulus,
    Named,
    Number,
    Opaque,
    Option,
    Ratio,
    Relation,
    Several,
    Union,
    Value,
    Words,
    inside,
    unnamed,
)

_EQUAL = {"=", r"\approx", r"\equiv"}
_FLIPPED = {">": "<", r"\ge": r"\le"}
_OPAQUE_NAME = re.compile(
    r"[A-Z]\(.*\)|\\math[a-z]+.*|(?:[A-Z]'?|\\c[au]p|\\overline|\\triangle|[{}|_])+"
)
_NO_NAME = re.compile(r"\b(?:where|for|if|when|unless|except|but|or|not)\b")


def canonical(value: Value) -> Value:
    """The value in its one form."""
    match value:
        case Option(letter, inner) if inner is not None:
            return Option(letter, canonical(inner))
        case Several(items, kind):
            return _several([canonical(item) for item in items], kind)
        case Bracketed(opening, items, closing):
            return Bracketed(opening, tuple(map(canonical, items)), closing)
        case Union(pieces):
            return _union([canonical(piece) for piece in pieces])
        case Matrix(rows, is_determinant):
            return Matrix(tuple(tuple(map(canonical, row)) for row in rows), is_determinant)
        case Ratio(items, text):
            return Ratio(tuple(map(canonical, items)), text)
        case Number(tree, None, False) if axes := _axes(tree):  # 3\vec{i} - \vec{j}
            origin = dict.fromkeys(axes, Fraction(0))
            numbers = [simplified(at(tree, origin | {axis: Fraction(1)})) for axis in axes]
            return Bracketed("(", tuple(map(Number, numbers)), ")")
        case Conditional(inner, condition):
            return _conditional(canonical(inner), _said(canonical(condition)))
        case Relation(parts, ops):
            return _relation([canonical(part) for part in parts], list(ops))
    return value


_AXES = re.compile(r"(?:vec|hat|mathbf):[ijk]")


def _axes(tree: Tree) -> list[str]:
    """The axes of a vector that is written as a sum of them, up to the last one; else none."""
    names = variables(tree)
    if not isinstance(tree, Sum) or not all(map(_AXES.fullmatch, names)) or len(names) < 2:
        return []
    mark = min(names).partition(":")[0]
    axes = [f"{mark}:{letter}" for letter in "ijk"]
    return axes if axes[2] in names else axes[:2]


# Names


def name_of(value: Value) -> str | None:
    """What a part is called if it only names what follows: x, f(x), AB, m + n, \\cos x, words."""
    if isinstance(value, Words):
        return None if _NO_NAME.search(value.text) else value.text
    if isinstance(value, Opaque):
        return value.text if _OPAQUE_NAME.fullmatch(value.text) else None
    if isinstance(value, Ratio | Bracketed):
        names = [name_of(item) for item in value.items]
        return None if None in names else ",".join(filter(None, names))
    if isinstance(value, Matrix) and value.is_determinant:
        return "determinant"
    if not isinstance(value, Number) or value.unit or not _names_only(value.tree):
        return None
    tree = value.tree
    return tree.name if isinstance(tree, Var) else repr(simplified(tree))


def _names_only(tree: Tree) -> bool:
    if isinstance(tree, Call):  # \\cos\\theta names a value; \\sqrt{x} = 3 is to be solved
        is_plain = tree.name in ("abs", *TRIGONOMETRIC) and all(map(_names_only, tree.parts))
        return is_plain or tree.name.startswith("function ")
    match tree:
        case Power(Var(name), exponent):  # A^{-1}
            return exponent == MINUS_ONE and (name.isupper() or name in "fgh")
    return isinstance(tree, Var) or (bool(children(tree)) and all(map(_names_only, children(tree))))


# Relations


def _relation(parts: list[Value], ops: list[str]) -> Value:
    if ops == [r"\setminus"]:
        return _reals_without(parts)
    if not _EQUAL.union({r"\in"}).issuperset(ops):
        return _inequality(parts, ops)
    match parts[-1]:
        case Bracketed(_, (low, high), _) if r"\in" in ops and _is_empty(low, high):
            return Opaque("nothing")
    if ops == ["="] and _is_turned(*parts):
        parts = parts[::-1]
    if ops == ["="] * len(ops) and (whole := _chain(parts, ops)) is not None:
        return whole  # k + k = 2k
    heads: list[Value] = []
    is_near = r"\approx" in ops and bool(letters_of(parts[-1]))
    while len(parts) > 1 and not is_near and _is_head(parts[0], parts[-1]):
        if name_of(parts[0]) not in (None, *map(name_of, heads)):
            heads.append(parts[0])
        parts, ops = parts[1:], ops[1:]
    value = _chain(parts, ops)
    if value is None:
        is_plain = len(parts) == 2 and ops != [r"\approx"]
        return _equation(parts, ops, "=") if is_plain else Relation(tuple(parts), tuple(ops))
    if not heads:
        return value
    named = [one for head in heads for one in _named(head, value)]
    return named[0] if len(named) == 1 else _several(named, "list")


def _is_turned(left: Value, right: Value) -> bool:
    """Whether the name is on the right: `5 = x`."""
    return name_of(left) is None and name_of(right) is not None


def _is_head(value: Value, last: Value) -> bool:
    """Whether a part only names what follows, or is a sum that is worked out there."""
    if name_of(value) == name_of(last) is not None:
        return False  # AB = AB
    if isinstance(value, Ratio) and not isinstance(last, Ratio):
        return False  # A: x + y = 2
    is_sum = isinstance(value, Opaque) and bool(_WORKED_OUT.search(value.text))
    return is_sum or name_of(value) is not None


_WORKED_OUT = re.compile(r"\\(?:sum|prod|int|lim|ldots)(?![A-Za-z])|[+]")


def _named(head: Value, value: Value) -> list[Value]:
    match head, value:
        case Bracketed(_, names, _), Bracketed(_, items, _) if len(names) == len(items):
            pairs = zip(names, items, strict=True)  # (y, x) = (2, 1)
            return [Named(name_of(name) or "", item) for name, item in pairs]
        case Number(label), Number(tree) if variables(label) & variables(tree):
            if not (isinstance(label, Call) and label.name.startswith("function ")):
                return [Equation(difference(label, tree), "=")]  # \\tan x = 2x
    stated = head.tree if isinstance(head, Number | Words) else None
    return [Named(name_of(head) or "", value, stated)]


def _chain(parts: list[Value], ops: list[str]) -> Value | None:
    """The last of values that are all the same; None where they are not or say nothing.

    What is behind \\approx must be near: then it is either.
    """
    last, near = parts[0], None
    if len(parts) > 1 and parts[1:] == [last] * (len(parts) - 1):
        return None  # 4 = 4
    for op, part in zip(ops, parts[1:], strict=True):
        if op == r"\approx" and _is_near(last, part):
            near = part
        elif op == "=" and near is None and equal(last, part) and equal(part, last):
            last = part
        else:
            return None
    return last if near is None else Several((last, near), "near")


def _is_near(exact: Value, decimal: Value) -> bool:
    """Whether the second is a decimal that the first is rounded to, up or down."""
    match exact, decimal:
        case Number(Num()), _:
            return False  # 97 is near nothing else
        case Number(tree), Number(Num(rounded)):
            value, place = size(tree), _last_place(rounded)
            if value is None:
                return False
            error = Fraction(value) - rounded
            is_cut = rounded.denominator > 1 and 0 <= error * (1 if value > 0 else -1) < place
            return abs(error) <= place / 2 or is_cut  # 3.1416 or 3.1415 for pi
    return False


def _last_place(decimal: Fraction) -> Fraction:
    """What one in the last digit that is no zero is worth: 1/100 in 3.14, 1,000 in 5,000."""
    place = Fraction(1)
    while decimal and (decimal / place).denominator == 1 and (decimal / place) % 10 == 0:
        place *= 10
    while (decimal / place).denominator != 1 and place > Fraction(1, 10**20):
        place /= 10
    return place


def _equation(parts: list[Value], ops: list[str], op: str) -> Value:
    trees = [p.tree for p in parts if isinstance(p, Number | Words) and p.tree is not None]
    if len(trees) != 2 or not variables(*trees):
        return Relation(tuple(parts), tuple(ops))
    if op == "=":
        trees.sort(key=lambda tree: repr(simplified(tree)))
    return Equation(difference(*trees), op)


def _inequality(parts: list[Value], ops: list[str]) -> Value:
    if {">", r"\ge"}.issuperset(ops):
        parts, ops = parts[::-1], [_FLIPPED[op] for op in reversed(ops)]
    if len(parts) == 2 and ops[0] in ("<", r"\le", r"\ne"):
        left, right = parts
        is_closed = ops[0] == r"\le"
        if _is_bound(right) and isinstance(left, Number) and (name := _variable(left.tree)):
            if ops[0] == r"\ne":
                return Named(name, _union([_below(right, ")"), _above(right, "(")]), Var(name))
            return Named(name, _below(right, "]" if is_closed else ")"), Var(name))
        if _is_bound(left) and isinstance(right, Number) and (name := _variable(right.tree)):
            if ops[0] == r"\ne":
                return _inequality(parts[::-1], ops)
            return Named(name, _above(left, "[" if is_closed else "("), Var(name))
        return _absolute(left, right, ops) or _equation(parts, ops, ops[0])
    if len(parts) == 3 and {"<", r"\le"}.issuperset(ops):
        low, middle, high = parts
        name = name_of(middle)
        if name and _is_bound(low) and _is_bound(high):
            brackets = "(" if ops[0] == "<" else "[", ")" if ops[1] == "<" else "]"
            between = Bracketed(brackets[0], (low, high), brackets[1])
            label = middle.tree if isinstance(middle, Number) else None
            return Opaque("nothing") if _is_empty(low, high) else Named(name, between, label)
    return Relation(tuple(parts), tuple(ops))


def _absolute(left: Value, right: Value, ops: list[str]) -> Value | None:
    """`|x| < 2` as -2 < x < 2, and `2 < |x|` as x < -2 or x > 2."""
    match left, right:
        case Number(Call("abs", (Var() as inner,))), Number(bound):
            return _inequality([Number(minus(bound)), Number(inner), right], [*ops, *ops])
        case Number(bound), Number(Call("abs", (Var() as inner,))):
            below = _inequality([Number(inner), Number(minus(bound))], ops)
            return _several([below, _inequality([left, Number(inner)], ops)], "or")
    return None


def _variable(tree: Tree) -> str | None:
    return tree.name if isinstance(tree, Var) else None


def _is_bound(value: Value) -> bool:
    is_real = isinstance(value, Number) and is_number(value.tree)
    return is_real or isinstance(value, Infinite)


def _below(bound: Value, closing: str) -> Bracketed:
    return Bracketed("(", (Infinite(-1), bound), closing)


def _above(bound: Value, opening: str) -> Bracketed:
    return Bracketed(opening, (bound, Infinite(1)), ")")


# Sets


def _end(value: Value) -> float | None:
    """A bound as a number; None for anything else."""
    if isinstance(value, Infinite):
        return value.sign * math.inf
    return size(value.tree) if isinstance(value, Number) else None


def _is_empty(low: Value, high: Value) -> bool:
    ends = _end(low), _end(high)
    return ends[0] is not None and ends[1] is not None and ends[0] > ends[1]


def _union(pieces: list[Value]) -> Value:
    flat: list[Value] = []
    for piece in pieces:
        match unnamed(piece):
            case Union(parts) | Several(parts):
                flat += parts
            case one:
                flat.append(one)
    if not any(isinstance(one, Bracketed) for one in flat):
        return Several(tuple(flat), "set")
    return Union(tuple(flat))


def _reals_without(parts: list[Value]) -> Value:
    """`\\mathbb{R} \\setminus \\{1, 2\\}` as a union of open intervals."""
    points = parts[1].items if isinstance(parts[1], Several) else (parts[1],)
    if parts[0] != values.REALS or None in map(_end, points):
        return Relation(tuple(parts), (r"\setminus",))
    bounds = [Infinite(-1), *sorted(points, key=lambda point: _end(point) or 0.0), Infinite(1)]
    return Union(tuple(Bracketed("(", pair, ")") for pair in itertools.pairwise(bounds)))


# Lists


def _several(items: list[Value], kind: str) -> Value:
    if kind == "set":
        return Several(tuple(_flat(items)), "set")
    value = _without_conditions(items)
    if value is not None:
        return value
    items = _each_named(_flat(items))
    names = {item.name if isinstance(item, Named) else None for item in items}
    if None not in names and len(names) == len(items) > 1 and kind != "or":  # x = 1, y = 2
        ordered = sorted((one for one in items if isinstance(one, Named)), key=lambda one: one.name)
        both = Bracketed("(", tuple(one.value for one in ordered), ")")
        return Named(",".join(one.name for one in ordered), both)
    if len(names) > 1 or None in names:
        return Several(tuple(items), "or" if kind == "or" else "list")
    named = [item for item in items if isinstance(item, Named)]
    inner = [item.value for item in named]
    if all(isinstance(one, Bracketed | Union) for one in inner):
        whole = _intersection(inner) if kind == "and" else _union(inner)
        return replace(named[0], value=whole)
    return replace(named[0], value=Several(tuple(inner), "or" if kind == "or" else "list"))


def _intersection(pieces: list[Value]) -> Value:
    """What lies in all of some intervals: x > 1 and x < 3."""
    if not all(isinstance(piece, Bracketed) for piece in pieces):
        return Relation(tuple(pieces), (r"\cap",) * (len(pieces) - 1))
    intervals = [piece for piece in pieces if isinstance(piece, Bracketed)]
    # Of equal ends the open one is the narrower.
    lowest = max(intervals, key=lambda one: (_end(one.items[0]) or 0.0, one.opening == "("))
    highest = min(intervals, key=lambda one: (_end(one.items[1]) or 0.0, one.closing != ")"))
    low, high = lowest.items[0], highest.items[1]
    if _is_empty(low, high):
        return Opaque("nothing")
    return Bracketed(lowest.opening, (low, high), highest.closing)


def _flat(items: Sequence[Value]) -> list[Value]:
    """The items; what is several in itself as so many."""
    flat: list[Value] = []
    for item in items:
        match item:
            case Several(inner, kind) if kind not in ("set", "near"):
                flat += inner
            case Named(_, Several(inner, kind)) if kind not in ("set", "near"):
                flat += [replace(item, value=one) for one in inner]
            case _:
                flat.append(item)
    return flat


def _each_named(items: list[Value]) -> list[Value]:
    """x = y = 1, z = 2 as three names; the items as they are where a name would come twice."""
    each: list[Value] = []
    for item in items:
        match item:
            case Named(name, Bracketed(_, inner, _)) if name.count(",") == len(inner) - 1:
                each += map(Named, name.split(","), inner)
            case _:
                each.append(item)
    names = [item.name for item in each if isinstance(item, Named)]
    return each if len(each) == len(names) == len(set(names)) else items


def _without_conditions(items: list[Value]) -> Value | None:
    """The first items, conditional on a last one that is about a letter of theirs; else None."""
    *heads, last = items
    last = _said(last)
    letters = letters_of(Several(tuple(heads)))
    names = {item.name for item in heads if isinstance(item, Named)}
    if not heads or not isinstance(last, Named) or last.name in names or last.name not in letters:
        return None
    return _conditional(heads[0] if len(heads) == 1 else _several(heads, "list"), last)


def _said(condition: Value) -> Value:
    """A condition in words as a letter and what is said of it: "even k", "if k is even"."""
    if not isinstance(condition, Words):
        return condition
    words = set(re.findall(r"[A-Za-z]+", condition.text)) - CONDITION_WORDS
    letters = {word for word in words if len(word) == 1}
    if len(letters) != 1:
        return condition
    return Named(letters.pop(), Words(" ".join(sorted(words - letters))))


def letters_of(value: Value) -> set[str]:
    """The variables in the numbers of a value."""
    kinds = Number | Equation | Words
    trees = [one.tree for one in inside(value) if isinstance(one, kinds) and one.tree is not None]
    return variables(*trees)


def _conditional(value: Value, condition: Value) -> Value:
    match value, condition:
        case Relation((*heads, last)), Modulus(Num(divisor)) if _are_congruent(
            heads, last, divisor
        ):
            return Conditional(last, condition)  # 3^{13} \equiv 3 \pmod 7
        case Number(Var(letter)), Named(name, inner) if name == letter:
            return inner  # {x | x > 3}
        case Named(letter, inner), Named(name) if name == letter and inner == values.REALS:
            return condition
    return Conditional(value, condition)


def _are_congruent(heads: Sequence[Value], last: Value, divisor: Fraction) -> bool:
    """Whether numbers leave the same remainder."""
    numbers = [exact_value(one.tree) for one in (*heads, last) if isinstance(one, Number)]
    if not numbers or numbers[-1] is None:
        return False
    *others, remainder = [number for number in numbers if number is not None]
    if len(others) != len(heads) or not divisor:
        return False
    return all((one - remainder).numerator % divisor == 0 for one in others)  # 1/5 is 8 modulo 13
