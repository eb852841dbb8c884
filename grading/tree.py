"""Trees: what a number or an expression is made of.

A fraction a / b is `Product((a, Power(b, Num(-1))))`, a difference a - b `Sum((a, minus(b)))`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from grading.latex import AGGREGATES


@dataclass(frozen=True, slots=True)
class Num:
    """A rational number that is written out."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Var:
    """A variable, or a name such as AB; `i` is the imaginary unit."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """pi, e, or the degree."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Product:
    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Power:
    base: "Tree"
    exponent: "Tree"


@dataclass(frozen=True, slots=True)
class Call:
    """A function; one that nobody knows, such as P in P(x), is named `function P`."""

    name: str
    parts: "tuple[Tree, ...]"


Tree = Num | Var | Const | Sum | Product | Power | Call
ZERO, ONE, MINUS_ONE = Num(Fraction(0)), Num(Fraction(1)), Num(Fraction(-1))
TWO, TEN = Num(Fraction(2)), Num(Fraction(10))
PI, E, DEGREE = Const("pi"), Const("e"), Const("degree")


def minus(tree: Tree) -> Tree:
    """The tree with its sign turned."""
    return Num(-tree.value) if isinstance(tree, Num) else Product((MINUS_ONE, tree))


def inverse(tree: Tree) -> Tree:
    """One over the tree."""
    return Power(tree, MINUS_ONE)


def difference(left: Tree, right: Tree) -> Tree:
    """left - right."""
    return Sum((left, Product((MINUS_ONE, right))))


def children(tree: Tree) -> "tuple[Tree, ...]":
    """The trees right below one."""
    if isinstance(tree, Power):
        return tree.base, tree.exponent
    return tree.parts if isinstance(tree, Sum | Product | Call) else ()


def subtrees(tree: Tree) -> Iterator[Tree]:
    """A tree and all that is in it."""
    yield tree
    for child in children(tree):
        yield from subtrees(child)


def variables(*trees: Tree) -> set[str]:
    """The names of the variables in trees."""
    return {part.name for tree in trees for part in subtrees(tree) if isinstance(part, Var)}


def functions(tree: Tree) -> set[str]:
    """The names of the functions in a tree."""
    return {part.name for part in subtrees(tree) if isinstance(part, Call)}


def has_root_power(tree: Tree) -> bool:
    """Whether a root stands in a tree as a power: u^{1/2}."""
    powers = (part for part in subtrees(tree) if isinstance(part, Power))
    return any(isinstance(power.exponent, Product) for power in powers)


def is_number(tree: Tree) -> bool:
    """Whether a tree has no variables; the imaginary unit is none."""
    return not variables(tree) - {"i"}


def rebuilt(tree: Tree, parts: "tuple[Tree, ...]") -> Tree:
    """The tree with other children."""
    if isinstance(tree, Power):
        return Power(*parts)
    if isinstance(tree, Call):
        return Call(tree.name, parts)
    return type(tree)(parts) if isinstance(tree, Sum | Product) else tree


def at(tree: Tree, point: dict[str, Fraction]) -> Tree:
    """The tree with numbers for its variables."""
    if isinstance(tree, Var):
        return Num(point[tree.name]) if tree.name in point else tree
    return rebuilt(tree, tuple(at(part, point) for part in children(tree)))


def ordered(tree: Tree) -> Tree:
    """One form of trees that differ in print alone: flat, terms and factors in one order."""
    parts = tuple(map(ordered, children(tree)))
    if isinstance(tree, Call) and tree.name == "root":
        is_unit = parts == (MINUS_ONE, TWO)
        return Var("i") if is_unit else Power(parts[0], inverse(parts[1]))
    if isinstance(tree, Power) and ONE in parts:
        return parts[0]  # x^1, 1^x
    match rebuilt(tree, parts):
        case Power(Power(base, inner), outer) if inner == outer == MINUS_ONE:
            return base  # 1 / (1 / x)
    if isinstance(tree, Sum | Product):
        flat = [
            one for part in parts for one in (part.parts if type(part) is type(tree) else (part,))
        ]
        useless = ZERO if isinstance(tree, Sum) else ONE
        return _joined(type(tree), [one for one in flat if one != useless] or [useless])
    if isinstance(tree, Call) and tree.name in AGGREGATES:
        parts = tuple(sorted(parts, key=repr))
    return rebuilt(tree, parts)


def simplified(tree: Tree) -> Tree:
    """`ordered`, and with numbers and powers folded: 2x/2, (x)^{2/2} and x are one, xx and x^2."""
    tree = ordered(tree)
    parts = tuple(map(simplified, children(tree)))
    if isinstance(tree, Power):
        return _power(*parts)
    if isinstance(tree, Sum):
        return _sum(parts)
    return _product(parts) if isinstance(tree, Product) else rebuilt(tree, parts)


def _power(base: Tree, exponent: Tree) -> Tree:
    if isinstance(base, Power) and is_number(base):
        return _power(base.base, _product((base.exponent, exponent)))
    if ONE in (base, exponent):
        return base
    if isinstance(base, Product) and exponent == MINUS_ONE:
        return _product(tuple(_power(part, MINUS_ONE) for part in base.parts))
    is_turn = base == Var("i") and isinstance(exponent, Num) and exponent.value % 4 == 0
    if base != ZERO and (exponent == ZERO or is_turn):
        return ONE
    if isinstance(base, Num) and exponent == MINUS_ONE and base.value:
        return Num(1 / base.value)
    return Power(base, exponent)


def _sum(parts: "tuple[Tree, ...]") -> Tree:
    parts = tuple(
        one for part in parts for one in (part.parts if isinstance(part, Sum) else (part,))
    )
    number = sum((one.value for one in parts if isinstance(one, Num)), Fraction(0))
    others = [one for one in parts if not isinstance(one, Num)]
    others = [one for one in others if _product((MINUS_ONE, one)) not in others]
    return _joined(Sum, [Num(number)] * bool(number or not others) + others)


def _product(parts: "tuple[Tree, ...]") -> Tree:
    number, powers, others = Fraction(1), dict[Tree, Tree](), list[Tree]()
    for part in parts:
        for one in part.parts if isinstance(part, Product) else (part,):
            if isinstance(one, Num):
                number *= one.value
                continue
            if is_number(one):  # 2^{1/3}2^{1/3} is to be worked out, but \sqrt2 / \sqrt2 is not
                opposite = _power(one, MINUS_ONE)
                others.remove(opposite) if opposite in others else others.append(one)
                continue
            base, exponent = (one.base, one.exponent) if isinstance(one, Power) else (one, ONE)
            powers[base] = _sum((powers[base], exponent)) if base in powers else exponent
    others += [_power(base, exponent) for base, exponent in powers.items() if exponent != ZERO]
    if not number:
        return ZERO
    if number == -1 and len(others) == 1 and isinstance(others[0], Sum):
        return _sum(tuple(_product((MINUS_ONE, part)) for part in others[0].parts))
    return _joined(Product, [Num(number)] * bool(number != 1 or not others) + others)


def _joined(kind: type, parts: list[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else kind(tuple(sorted(parts, key=repr)))
