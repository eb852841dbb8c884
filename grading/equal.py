"""Equal: whether two values in canonical form are the same; the prediction comes first.

A number never equals a list, a name never another name; sets are unordered, tuples ordered. What
only the prediction says (a condition, a modulus, a letter) makes it another value.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from grading.numeric import exact_value, identical, proportional
from grading.tree import (
    DEGREE,
    MINUS_ONE,
    PI,
    Call,
    Num,
    Power,
    Product,
    Sum,
    Tree,
    Var,
    children,
    difference,
    inverse,
    is_number,
    rebuilt,
    simplified,
    subtrees,
    variables,
)
from grading.units import ratio
from grading.values import (
    Based,
    Bracketed,
    Conditional,
    Equation,
    Infinite,
    Matrix,
    Modulus,
    Named,
    Number,
    Option,
    Ratio,
    Relation,
    Several,
    Union,
    Value,
    Words,
    unnamed,
)

MAX_FORMS = 4  # of one value, joined by "or"


def equal(ours: Value, theirs: Value) -> bool:
    """Whether two values are the same, for a prediction and a gold."""
    if isinstance(ours, Several) and ours.kind == "near":
        return any(equal(one, theirs) for one in ours.items)
    if isinstance(theirs, Several) and theirs.kind == "near":
        return any(equal(ours, one) for one in theirs.items)
    if isinstance(ours, Option) or isinstance(theirs, Option):
        return _options(ours, theirs)
    if isinstance(ours, Conditional) or isinstance(theirs, Conditional):
        return _conditionals(ours, theirs)
    if isinstance(ours, Named) or isinstance(theirs, Named):
        return _named(ours, theirs)
    if isinstance(ours, Number | Words) and isinstance(theirs, Number | Words):
        return _scalars(ours, theirs)
    match ours, theirs:
        case Equation(), Equation():
            is_same = simplified(ours.tree) == simplified(theirs.tree)  # e^{i\pi} + 1 = 0
            is_order = ours.op in ("<", r"\le")
            is_same = is_same or proportional(ours.tree, theirs.tree, is_order)
            return is_same and ours.op == theirs.op
        case Several(), Several():
            return _unordered(ours, theirs)
        case Union(), Union():
            return _all_in(list(ours.pieces), list(theirs.pieces))
        case Bracketed(), Bracketed():
            brackets = ours.opening == theirs.opening and ours.closing == theirs.closing
            return brackets and _ordered(ours.items, theirs.items)
        case Matrix(), Matrix():
            if ours.is_determinant != theirs.is_determinant or len(ours.rows) != len(theirs.rows):
                return False
            return all(map(_ordered, ours.rows, theirs.rows))
        case Matrix(), Bracketed() | Several():
            return _is_vector(ours, theirs)
        case Bracketed(), Matrix():
            return _is_vector(theirs, ours)
        case Ratio(), Ratio():
            return _ratios(ours, theirs)
        case Relation(), Relation():
            return ours.ops == theirs.ops and _ordered(ours.parts, theirs.parts)
        case Several() | Ratio(), _:
            return _one_of(ours, theirs)
        case _, Several() | Ratio():
            return _one_of(theirs, ours, is_gold=True)
        case Number(), Based(digits):
            return isinstance(ours.tree, Num) and str(ours.tree.value) == digits
        case Words(text), Based(digits):
            return text == digits
    return ours == theirs


# Options, conditions, names


def _letter(value: Value) -> str | None:
    """The letter that a value is."""
    if isinstance(value, Number) and isinstance(value.tree, Var):
        return value.tree.name
    return value.text if isinstance(value, Words) else None


def _options(ours: Value, theirs: Value) -> bool:
    """Two options must agree in all that both write; another value may equal either part."""
    match ours, theirs:
        case Option(letter, inner), Option(other, wanted):
            is_same = letter.upper() == other.upper()
            return is_same and (inner is None or wanted is None or equal(inner, wanted))
        case Option(letter, inner), _:
            is_letter = _letter(theirs) in (letter, letter.upper())  # (c) for C
            return is_letter or (inner is not None and equal(inner, theirs))
        case _, Option(letter, inner):
            return _letter(ours) == letter or (inner is not None and equal(ours, inner))
    return False


def _conditionals(ours: Value, theirs: Value) -> bool:
    """A gold's condition may be in the question; the prediction's alone must be a usual one."""
    match ours, theirs:
        case Conditional(), Conditional():
            if isinstance(ours.condition, Named) and isinstance(theirs.condition, Named):
                ours = _renamed(ours, ours.condition.name, theirs.condition.name)
            return equal(ours.value, theirs.value) and equal(ours.condition, theirs.condition)
        case _, Conditional(inner):
            return not _is_set(inner) and equal(ours, inner)
        case Conditional(inner, Modulus() as modulus), _:
            return _is_residue(inner, modulus, theirs)
        case Conditional(inner), _:
            return _is_usual(ours) and equal(inner, theirs)
    return False


def _is_set(value: Value) -> bool:
    """Whether a condition makes another set of it: x > 5 and x in Z, {x | 1/a < x}."""
    match value:
        case Named(_, Bracketed() | Union()) | Number(Var()):
            return True
    return False


def _renamed(value: Conditional, old: str, new: str) -> Conditional:
    if old == new:
        return value

    def rename(one: Value) -> Value:
        match one:
            case Number(tree):
                return replace(one, tree=_renamed_tree(tree, old, new))
            case Named(name, inner):
                return Named(new if name == old else name, rename(inner))
            case Several(items) | Bracketed(_, items, _):
                return replace(one, items=tuple(map(rename, items)))
        return one

    return Conditional(rename(value.value), rename(value.condition))


def _renamed_tree(tree: Tree, old: str, new: str) -> Tree:
    if isinstance(tree, Var):
        return Var(new) if tree.name == old else tree
    return rebuilt(tree, tuple(_renamed_tree(part, old, new) for part in children(tree)))


def _is_usual(value: Conditional) -> bool:
    """Whether it only says that a letter of the value counts or is real."""
    inner = value.value.value if isinstance(value.value, Named) else value.value
    if not isinstance(inner, Number):
        return False
    letters = variables(inner.tree)
    match value.condition:
        case Number(Var()) | Named(_, Bracketed(_, (Infinite(), Infinite()), _)):
            return True  # for all x
        case Named(name, Words(text)):
            return name in letters - {*"xyz"} and text[:9] in (r"\mathbb{Z", r"\mathbb{N")
        case Named(name, Bracketed(_, (Number(low), Infinite()), _)):
            return name in letters - {*"xyz"} and exact_value(low) in (0, 1)
    return False


def _is_residue(value: Value, modulus: Modulus, gold: Value) -> bool:
    """Whether a residue class, such as 10 modulo 7, is that of a smaller number: 3."""
    numbers = [unnamed(value), unnamed(gold)]
    match *numbers, modulus.tree:
        case Number(Num(ours)), Number(Num(theirs)), Num(divisor):
            return abs(theirs) < divisor > 1 and (ours - theirs) % divisor == 0
    return False


def _may_name_one(ours: Named, theirs: Named) -> bool:
    """Whether two names may be of one thing: the same, or y and f(x)."""
    if ours.name == theirs.name:
        return True
    labels = [one.label for one in (ours, theirs)]
    calls = [one for one in labels if isinstance(one, Call) and one.name.startswith("function ")]
    has_variable = any(isinstance(one, Var) for one in labels)
    return isinstance(ours.value, Number) and has_variable and len(calls) == 1


def _with_argument(ours: Named, theirs: Named) -> Named:
    """A function with the letter of another: f(t) = 2t as f(x) = 2x."""
    match ours.label, theirs.label, ours.value:
        case Call(name, (Var(old),)), Call(other, (Var(new),)), Number(tree) if name == other:
            if old in variables(tree) and new not in variables(tree):
                renamed = replace(ours.value, tree=_renamed_tree(tree, old, new))
                return Named(theirs.name, renamed, theirs.label)
    return ours


def _nameless(other: Value, named: Named, is_equal: bool | None = None) -> bool:
    """Whether values without names are those with: 2, 1 for x_1 = 1, x_2 = 2 in any order."""
    if isinstance(named.value, Words) and isinstance(other, Several):
        return False  # KC = AB is one segment, A, B are two options
    is_equal = equal(other, named.value) if is_equal is None else is_equal
    is_tuple = isinstance(named.value, Bracketed) and "," in named.name
    if is_equal or not is_tuple or not isinstance(other, Several):
        return is_equal
    items = named.value.items if isinstance(named.value, Bracketed) else ()
    stems = {name.partition("_")[0] for name in named.name.split(",")}
    if len(stems) == 1 and "_" in named.name:
        return _all_in(list(other.items), list(items))
    return other.kind == "list" and _ordered(other.items, items)


def _as_equation(value: Value) -> Equation | None:
    match value:
        case Named(_, Number(tree), label) if label is not None:
            return Equation(difference(label, tree), "=")
    return value if isinstance(value, Equation) else None


def _named(ours: Value, theirs: Value) -> bool:
    match ours, theirs:
        case Named(x, Number(Var(y))), Named(z, Number(Var(w))) if (x, y) == (w, z):
            return True  # x = y, y = x
    if isinstance(ours, Named) and isinstance(theirs, Named):
        ours = _with_argument(ours, theirs)
        if _may_name_one(ours, theirs):
            return equal(ours.value, theirs.value)
    elif isinstance(theirs, Named) and not isinstance(ours, Equation):
        is_sum = isinstance(theirs.label, Sum)  # x + y = 2 is an equation that is asked for
        return not is_sum and _nameless(ours, theirs)
    elif isinstance(ours, Named) and not isinstance(theirs, Equation):
        if (
            isinstance(theirs, Several)
            and isinstance(ours.value, Bracketed)
            and ours.name.isalpha()
        ):
            return False  # 4 < b < 6 is not 4, 6
        return _nameless(theirs, ours, equal(ours.value, theirs))
    match theirs:
        case Named(_, Number(tree), label) if not isinstance(label, Sum):
            if is_number(tree) or (isinstance(ours, Named) and isinstance(ours.label, Var)):
                return False  # 2x + 3 = 13 is the question that x = 5 answers
    left, right = _as_equation(ours), _as_equation(theirs)
    return left is not None and right is not None and equal(left, right)


# Lists, tuples, ratios


def _ordered(ours: Sequence[Value], theirs: Sequence[Value]) -> bool:
    is_alike = len(ours) == len(theirs) and not _mixes_percents(ours, theirs)
    return is_alike and all(map(equal, ours, theirs))


def _mixes_percents(ours: Sequence[Value], theirs: Sequence[Value]) -> bool:
    """Whether percentages are only among ours, and not all of ours are some: 10, 20%."""
    kinds = [
        {item.percent for item in items if isinstance(item, Number)} for items in (ours, theirs)
    ]
    return kinds == [{False, True}, {False}]


def _all_in(left: list[Value], right: list[Value]) -> bool:
    """Whether two lists hold the same values in any order."""
    if len(left) != len(right) or _mixes_percents(left, right):
        return False
    for item in left:
        found = next((at for at, other in enumerate(right) if equal(item, other)), None)
        if found is None:
            return False
        right = right[:found] + right[found + 1 :]
    return True


def distinct(items: Sequence[Value]) -> list[Value]:
    """The items without those that equal an earlier one."""
    kept: list[Value] = []
    for item in items:
        if not any(equal(item, other) for other in kept):
            kept.append(item)
    return kept


def _unordered(ours: Several, theirs: Several) -> bool:
    left, right = list(ours.items), list(theirs.items)
    if "set" in (ours.kind, theirs.kind):  # what a list has twice is meant twice
        left, right = distinct(left), distinct(right)
    return _all_in(left, right)


def _is_vector(matrix: Matrix, other: Value) -> bool:
    """Whether a row or a column is a tuple in round brackets."""
    cells = [cell for row in matrix.rows for cell in row]
    is_line = 1 in (len(matrix.rows), len(matrix.rows[0])) and not matrix.is_determinant
    is_line = is_line and not any(isinstance(cell, Infinite) for cell in cells)
    if not is_line or not isinstance(other, Bracketed) or other.opening != "(":
        return False
    return other.closing == ")" and _ordered(cells, other.items)


_TIME = re.compile(r"\d{1,2}:\d\d")


def _ratios(ours: Ratio, theirs: Ratio) -> bool:
    """a : b = c : d where a d = b c."""
    trees = [[i.tree for i in side.items if isinstance(i, Number)] for side in (ours, theirs)]
    if _TIME.fullmatch(theirs.text) or len(trees[0]) != len(trees[1]):
        return ours.text == theirs.text  # 10:20 may be a time of day
    if 0 in (exact_value(trees[0][0]), exact_value(trees[1][0])):
        return all(map(identical, *trees))
    (a, *left), (c, *right) = trees
    pairs = zip(left, right, strict=True)
    return all(identical(Product((a, d)), Product((c, b))) for b, d in pairs)


_OPTIONS = re.compile("[A-K]{2,}")


def _one_of(several: Several | Ratio, one: Value, is_gold: bool = False) -> bool:
    """Whether several values are one: `\\{5\\}`, `1/2 or 0.5`, `2:3` and 2/3, `A, B` and AB."""
    if isinstance(several, Ratio):
        if isinstance(one, Words):
            return one.text == f"{several.text} o'clock"
        if len(several.items) != 2 or not isinstance(one, Number) or _TIME.fullmatch(several.text):
            return False
        top, bottom = (item.tree for item in several.items if isinstance(item, Number))
        value = exact_value(one.tree)
        if is_number(top) and is_number(bottom) and (not value or value.denominator == 1):
            return False  # 5:1 is not 5
        return identical(Product((top, inverse(bottom))), one.tree)
    letters = _letter(one)
    if letters and _OPTIONS.fullmatch(letters):
        return sorted(letters) == sorted(_letter(item) or "" for item in several.items)
    items = several.items
    if isinstance(one, Bracketed):  # the gold 1, 2 as (1, 2)
        is_tuple = one.opening + one.closing == "()" and several.kind == "list"
        return is_gold and is_tuple and _ordered(one.items, items)
    if isinstance(one, Union):
        return several.kind != "set" and _all_in(list(items), list(one.pieces))
    is_short = several.kind == "or" and len(items) <= MAX_FORMS
    if not is_short or len(distinct(items)) != 1:
        return False
    return equal(one, items[0]) if is_gold else equal(items[0], one)


# Numbers and words

_ANSWERS = {word.upper(): word for word in ("yes", "no", "true", "odd", "even")}
_ANSWERS["DNE"] = "doesnotexist"
_SUBJECT = re.compile(
    r"^(?:(?:this|it|the)\s+)?(?:series|integral|sequence|limit|statement|graph|function)?\s*"
    r"(?:is|are)?\s+(?=(?:an?\s|the\s)?[a-z]{4})",
    re.IGNORECASE,
)


def fold(text: str) -> str:
    """Words as compared: letters of up to four capitals stay as written (AB is not ab)."""
    text = re.sub(r"^(?:an?|the)\s+", "", text, flags=re.IGNORECASE)
    text = re.sub(r"^(?:an?|the)\s+", "", _SUBJECT.sub("", text), flags=re.IGNORECASE)
    text = re.sub(r"(?<=[A-Za-z]{3})!$", "", text)
    plain = re.sub(r"(?<!\d)[.,:\"]+(?!\d)", "", text).replace(" ", "")  # 2.0 is not 20
    if plain.upper() in _ANSWERS:
        return _ANSWERS[plain.upper()]
    is_name = len(plain) <= 2 or (plain.isupper() and len(plain) <= 4)
    return plain if is_name else plain.casefold()


def _as_number(value: Number | Words) -> Number | None:
    """Words as the product of letters that they may be."""
    if isinstance(value, Number):
        return value
    return None if value.tree is None else Number(value.tree)


def _scalars(one: Number | Words, other: Number | Words) -> bool:
    """Whether two numbers, expressions or words are one value, with their units."""
    if isinstance(one, Words) and isinstance(other, Words):
        return fold(one.text) == fold(other.text)
    ours, theirs = _as_number(one), _as_number(other)
    if ours is None or theirs is None:
        return False
    if not variables(ours.tree) <= variables(theirs.tree):
        return False  # x + z - z is not x, nor 5 + 0i five
    if (ours.percent and theirs.unit) or (ours.unit and theirs.percent):
        return False
    if ours.unit and theirs.unit:
        factor = ratio(ours.unit, theirs.unit)
        return factor is not None and identical(_times(ours.tree, factor), theirs.tree)
    if ours.percent != theirs.percent:
        return is_number(ours.tree) and _percents(ours, theirs)
    if _is_matrix_product(ours.tree) or _is_matrix_product(theirs.tree):
        return ours.tree == theirs.tree
    if _is_angle(ours) != _is_angle(theirs):
        angle, other = (ours, theirs) if _is_angle(ours) else (theirs, ours)
        if PI in subtrees(other.tree):
            return identical(Product((angle.tree, DEGREE)), other.tree)
    return identical(ours.tree, theirs.tree)


def _is_matrix_product(tree: Tree) -> bool:
    """Whether a product has inverses of two names in capitals, which are matrices: A^{-1}B^{-1}."""
    inverses = [
        part
        for part in children(tree)
        if isinstance(part, Power) and isinstance(part.base, Var) and part.base.name.isupper()
    ]
    return isinstance(tree, Product) and [one.exponent for one in inverses].count(MINUS_ONE) > 1


def _percents(ours: Number, theirs: Number) -> bool:
    """Whether a percentage is a number: 50% is 50 and 1/2, but 1/8% is not 1/8."""
    percentage, other = (ours, theirs) if ours.percent else (theirs, ours)
    value = exact_value(other.tree)
    is_fraction = value is not None and abs(value) < 1 and not isinstance(other.tree, Num)
    if identical(_times(percentage.tree, Fraction(1, 100)), other.tree):
        return True
    has_sum = any(isinstance(part, Sum) for part in subtrees(ours.tree))
    if ours.percent and (is_fraction or (value is None and has_sum)):
        return False
    return identical(percentage.tree, other.tree)


def _times(tree: Tree, factor: Fraction) -> Tree:
    return tree if factor == 1 else Product((tree, Num(factor)))


def _is_angle(value: Number) -> bool:
    return value.unit is not None and dict(value.unit.dimensions) == {"degree": 1}
