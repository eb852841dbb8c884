"""Relations: what `x = 5`, `1 < x`, `x \\in S` or `y = 2x + 3` say, and when two say the same."""

import re
from dataclasses import replace
from fractions import Fraction

from grading.equivalence.numeric import difference, exact_value, is_number, proportional
from grading.equivalence.tokens import TRIGONOMETRIC, TooLarge, wraps
from grading.equivalence.values import (
    INFINITY,
    INVERSE,
    MINUS_INFINITY,
    MINUS_ONE,
    Opaque,
    Relation,
    Scalar,
    Sequence,
    Tree,
    Value,
    Words,
    interval,
    subtrees,
    variables,
)

_IN_NAMES = {"(", ")", "|", ",", "'", "_", "{", "}", r"\cap", r"\cup", r"\overline", r"\triangle"}


def is_label(value: Value) -> bool:
    """Whether a part only names what follows: x, f(x), AB, m + n, \\cos x, (x, y), words."""
    if isinstance(value, Words):
        is_condition = re.search(r"\b(?:where|for|if|when|unless|except|but|or)\b", value.text)
        return value not in (INFINITY, MINUS_INFINITY) and not is_condition
    if isinstance(value, Sequence):
        return value.kind in ("pair", "ratio") and all(map(is_label, value.items))
    if isinstance(value, Opaque):  # P(A \\cap B), P(X = 8)
        is_name = bool(value.tokens) and value.tokens[0].kind in ("word", "call")
        if is_name and len(value.tokens[0].text) == 1 and wraps([*value.tokens[1:]]):
            return True
        kinds = {token.kind for token in value.tokens if token.text not in _IN_NAMES}
        return kinds <= {"word", "text", "call"} and not kinds <= {"text"}
    if not isinstance(value, Scalar) or value.unit or value.percent:
        return False

    def names_only(tree: Tree) -> bool:
        if tree[0] == "num":
            return tree[1] == -1
        if tree[0] == "const":
            return False
        if tree[0] == "call":  # \\cos\\theta names a value; \\sqrt{x} = 3 is to be solved
            is_value = tree[1].startswith("function ")  # f(3) = 12
            return is_value or (tree[1] in ("abs", *TRIGONOMETRIC) and names_only(tree[2]))
        if tree[0] == "pow" and tree[2] == INVERSE:  # A^{-1}, f^{-1}(x)
            return tree[1][0] == "var" and (tree[1][1].isupper() or tree[1][1] in "fgh")
        return all(names_only(part) for part in tree[1:] if isinstance(part, tuple))

    is_negative = value.tree[:2] == ("mul", MINUS_ONE)  # -x = 5
    is_name = bool(variables(value.tree)) or value.tree[0] == "call"
    return is_name and not is_negative and names_only(value.tree)


def is_equation(label: Value, value: Value) -> bool:
    """Whether a label that names a value has a variable of that value: `\\tan x = 2x`."""
    if not isinstance(label, Scalar) or not isinstance(value, Scalar):
        return False
    is_value = label.tree[0] == "call" and label.tree[1] in ("abs", *TRIGONOMETRIC)
    return is_value and bool(variables(label.tree) & variables(value.tree))


def is_sum(relation: Relation) -> bool:
    """Whether it says what a sum of several letters is, as an equation that is asked for does."""
    label = label_of(relation)
    parts = label.items if isinstance(label, Sequence) else (label,)  # A: x + y = 2
    sums = [p.tree for p in parts if isinstance(p, Scalar) and p.tree[0] == "add"]
    return set(relation.ops) == {"="} and any(len(variables(tree)) > 1 for tree in sums)


def label_of(relation: Relation) -> Value:
    """The part that names the others: the first, or in `5 = x` the second."""
    first, second = relation.parts[:2]
    is_turned = relation.ops == ("=",) and is_label(second) and not is_label(first)
    return second if is_turned else first


def result_of(relation: Relation) -> Value:
    """The part that the others name or lead to: the last, but of `48 + 24 = x` the first."""
    parts = [part for part in relation.parts if not is_label(part)]
    return parts[-1] if parts else relation.parts[-1]


def is_solved(relation: Relation) -> bool:
    """Whether it is a name and a number, in either order: `x = 5`, `5 < x`."""
    if len(relation.parts) != 2 or not all(isinstance(p, Scalar) for p in relation.parts):
        return False
    trees = [part.tree for part in relation.parts]
    return any(a[0] == "var" and is_number(b) for a, b in (trees, trees[::-1]))


def plain_label(relation: Relation) -> str | None:
    """The variable in `x = …`, None for any other label."""
    for part in relation.parts:
        if isinstance(part, Words) or (isinstance(part, Scalar) and part.tree[0] == "var"):
            return part.text
    return None


def is_rounded(exact: Value, decimal: Value) -> bool:
    """Whether a decimal is the value rounded at its last place, or cut off behind its point."""
    if not (isinstance(exact, Scalar) and isinstance(decimal, Scalar)):
        return False
    if not {part[0] for part in subtrees(decimal.tree)} <= {"num", "mul"}:
        return False  # 7/2 is no rounded 10/3
    units = Fraction(10 ** _num_places(decimal))  # of the last place
    gap = ("call", "abs", difference(exact.tree, decimal.tree))
    cut = difference(("call", "abs", exact.tree), ("call", "abs", decimal.tree))

    def floor(tree: Tree, factor: Fraction) -> Fraction | None:
        return exact_value(("call", "floor", ("mul", tree, ("num", factor))))

    try:
        if floor(gap, units * Fraction("1.999")) == 0:
            return True  # half a unit, and a hair for what lies between two decimals
        return units > 1 and floor(gap, units) == 0 and floor(cut, units) == 0
    except TooLarge:
        return False


def _num_places(value: Value) -> int:
    """How many digits a number has behind its point."""
    return len(re.sub(r"^[^.]*\.?(\d*).*", r"\1", value.text, flags=re.DOTALL))


def has_digits(value: Value) -> bool:
    """Whether a rounded number says more than its size: 3.1 or 118, but not 3."""
    return bool(re.search(r"\d[,.]?\d|\.\d", value.text))


_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}


def turned(relation: Relation) -> Relation:
    """The relation with its > and \\ge turned into < and \\le."""
    if not set(relation.ops) <= {">", r"\ge"}:
        return relation
    ops = tuple(_FLIPPED[op] for op in reversed(relation.ops))
    return Relation(relation.text, tuple(reversed(relation.parts)), ops)


def _bound(value: Value) -> bool:
    is_real = isinstance(value, Scalar) and is_number(value.tree)
    return is_real or value in (INFINITY, MINUS_INFINITY)


def all_variables(relation: Relation) -> set[str]:
    """The variables in all parts of a relation."""
    return set().union(*(variables(p.tree) for p in relation.parts if isinstance(p, Scalar)))


def as_interval(relation: Value) -> Sequence | None:
    """`1 < x \\le 3` or `x > 5` as an interval, `x \\ne 3` as a union; None for others."""
    if not isinstance(relation, Relation):
        return None
    if len(relation.parts) == 2:
        (variable, bound), op = relation.parts, relation.ops[0]
        if _bound(variable):
            variable, bound, op = bound, variable, _FLIPPED.get(op, op)
        if isinstance(variable, Scalar) and variable.tree[:2] == ("call", "abs"):
            return _interval_of_abs(variable, bound, op)
        if not (isinstance(variable, Scalar) and variable.tree[0] == "var" and _bound(bound)):
            return None
        below = interval("(", MINUS_INFINITY, bound, "]" if op == r"\le" else ")")
        above = interval("[" if op == r"\ge" else "(", bound, INFINITY, ")")
        both = Sequence(relation.text, "union", (below, above))
        return {"<": below, r"\le": below, ">": above, r"\ge": above, r"\ne": both}.get(op)
    if len(relation.parts) != 3:
        return None
    (low, variable, high), ops = turned(relation).parts, turned(relation).ops
    if not isinstance(variable, Scalar) or variable.tree[0] != "var" or set(ops) - {"<", r"\le"}:
        return None
    opening = "(" if ops[0] == "<" else "["
    closing = ")" if ops[1] == "<" else "]"
    between = interval(opening, low, high, closing)
    return None if is_empty(between) else between


def is_empty(value: Value) -> bool:
    """Whether a pair is no interval: its first number is above its second."""
    if not (isinstance(value, Sequence) and value.kind in ("pair", "interval")):
        return False
    ends = [exact_value(end.tree) for end in value.items if isinstance(end, Scalar)]
    return len(ends) == 2 and None not in ends and ends[0] > ends[1]


def intersection(values: Sequence) -> Sequence:
    """`x \\ge 1 and x < 4` as the interval [1, 4); any other sequence as it is."""
    bounds = [as_interval(item) for item in values.items]
    if values.kind != "list" or len(bounds) != 2 or None in bounds:
        return values
    bounds.sort(key=lambda bound: bound.items[0] == MINUS_INFINITY)  # the lower bound first
    low, high = bounds
    is_one = all_variables(values.items[0]) == all_variables(values.items[1])
    if not is_one or (low.items[1], high.items[0]) != (INFINITY, MINUS_INFINITY):
        return values
    return interval(low.form[0], low.items[0], high.items[1], high.form[1])


def _interval_of_abs(variable: Scalar, bound: Value, op: str) -> Sequence | None:
    """`|x| < 2` as (-2, 2), `|x| > 2` as the union outside."""
    if variable.tree[2][0] != "var" or not (isinstance(bound, Scalar) and _bound(bound)):
        return None
    minus = Scalar("-" + bound.text, ("mul", MINUS_ONE, bound.tree))
    opening, closing = ("[", "]") if op in (r"\le", r"\ge") else ("(", ")")
    if op in ("<", r"\le"):
        return interval(opening, minus, bound, closing)
    if op not in (">", r"\ge"):
        return None
    left = interval("(", MINUS_INFINITY, minus, closing)
    return Sequence("|x|", "union", (left, interval(opening, bound, INFINITY, ")")))


def same_equation(ours: Relation, theirs: Relation) -> bool:
    """Two equations or inequalities whose differences of sides are proportional."""
    trees = []
    for relation in (ours, theirs):
        sides = [p.tree for p in relation.parts if isinstance(p, Scalar | Words) and p.tree]
        if len(relation.parts) != 2 or len(sides) != 2:
            return False
        trees.append(difference(*sides))
    return ours.ops == theirs.ops and proportional(*trees, ours.ops[0] in ("<", r"\le"))


def with_single_labels(value: Value) -> Value:
    """`(x, y) = (1, 2)` and `x = y = 1, z = 2` with one label each; any other value as it is."""
    if isinstance(value, Sequence) and value.kind == "list":
        return replace(value, items=tuple(one for item in value.items for one in _unchained(item)))
    if not isinstance(value, Relation) or value.ops != ("=",) or not is_label(value.parts[0]):
        return value
    names, values = value.parts
    if not (isinstance(names, Sequence) and isinstance(values, Sequence) and values.kind == "pair"):
        return value
    if len(names.items) != len(values.items):
        return value
    pairs = zip(names.items, values.items, strict=True)
    items = tuple(Relation(f"{a.text}={b.text}", (a, b), ("=",)) for a, b in pairs)
    return Sequence(value.text, "list", items)


def _unchained(item: Value) -> list[Value]:
    """`x = y = 1` as `x = 1` and `y = 1`."""
    is_chain = isinstance(item, Relation) and {*item.ops} == {"="}
    if not is_chain or not all(map(is_label, item.parts[:-1])):
        return [item]
    last = item.parts[-1]
    return [Relation(f"{one.text}={last.text}", (one, last), ("=",)) for one in item.parts[:-1]]


def names(values: Sequence) -> set[str]:
    """The labels of a sequence without their subscripts."""
    return {(label or "").partition("_")[0] for label in labels(values)}


def may_name_one(ours: Value, theirs: Value) -> bool:
    """Whether two labels may name one thing: the same, or y and f(x); not x and y, nor sums."""
    return ours.text == theirs.text or {*map(_kind_of_name, (ours, theirs))} == {"call", "name"}


def _kind_of_name(label: Value) -> str | None:
    is_product = re.fullmatch(r"[A-Za-z]\([A-Za-z,]+\)", label.text)  # h(x), as it is read
    tree = label.tree if isinstance(label, Scalar) else ("words",)
    if is_product or (tree[0] == "call" and tree[1].startswith("function")):
        return "call"
    is_name = isinstance(label, Words) or (isinstance(label, Scalar) and label.tree[0] == "var")
    return "name" if is_name else None


def by_label(values: Sequence) -> Sequence:
    """The items in the order of their labels where each has one of its own, as tuples have them."""
    found = labels(values) - {None}
    if len(found) != len(values.items) or any(name.startswith("\\") for name in found):
        return values  # (r, \\theta) has an order of its own
    return replace(values, items=tuple(sorted(values.items, key=plain_label)))


def labels(values: Sequence) -> set[str | None]:
    """The variables of the relations in a sequence."""
    return {plain_label(item) for item in values.items if isinstance(item, Relation)}
