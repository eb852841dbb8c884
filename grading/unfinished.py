"""Unfinished: whether an answer is work left to do, such as `48+24` where the gold is 72.

A policy that is rewarded for it learns to write the sum and never to add. Fractions, roots, powers
and constants are values; so is whatever the gold itself leaves as it is.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from grading.equivalence.numeric import exact_value, identical
from grading.equivalence.readings import read
from grading.equivalence.relations import is_label, result_of
from grading.equivalence.tokens import TRIGONOMETRIC, Unreadable, normalise
from grading.equivalence.values import (
    INVERSE,
    MINUS_ONE,
    ONE,
    Choice,
    Opaque,
    Relation,
    Scalar,
    Tree,
    Value,
    Words,
    subtrees,
    variables,
)
from grading.equivalence.values import Sequence as Several
from grading.forms import Form, form, is_lowest, is_quotient, parts_of
from grading.restated import find_results, find_tasks

MOST_ROOT = 1000  # factors whose square is looked for
_OPERATIONS = {rf"\{name}" for name in ("int", "iint", "iiint", "oint", "sum", "prod", "lim")}
_KINDS = dict.fromkeys(TRIGONOMETRIC, "trigonometric") | dict.fromkeys(("ln", "log", "lg"), "log")
_KINDS |= {name: "inverse" for name in TRIGONOMETRIC if name.startswith("arc")}
TEN, HALF = ("num", Fraction(10)), Fraction(1, 2)
TENTH = ("pow", TEN, INVERSE)
MOST = 10**12  # a larger power stays as it is


def is_unevaluated(pairs: Sequence[tuple[Value, Value]], question: str = "") -> bool:
    """Whether a prediction that equals a gold has work left to do and no gold has.

    Where all golds are numbers that are written out, it must be one, too. A letter that no gold
    has cancels out, so it is work as well. Where golds have letters, any form of them may stay.

    Args:
        pairs: the readings of the prediction and of the golds that are equal.
        question: with one functions count, too: `\\gcd(48, 36)` says no more than it.
    """
    try:
        pairs = [pair for pair in pairs if not _is_letter(*pair)]
        printed = {part.text for _, gold in pairs for part in parts_of(gold)}
        ours = [result for value, gold in pairs for result in _results(value, gold)]
        ours = [result for result in ours if result.text not in printed]
        wanted = [result for _, gold in pairs for result in _results(gold)]
        if any(map(_is_operation, ours)) and not any(map(_is_operation, wanted)):
            return True
        ours = [one for one in ours if isinstance(one, Scalar)]
        wanted = [one for one in wanted if isinstance(one, Scalar)]
        if not wanted:
            return False
        theirs = {name for _, gold in pairs for name in _names(gold)}
        if not variables(*(one.tree for one in ours)) <= theirs | {"i"}:
            return True
        if question and all(map(_is_plain_number, wanted)):
            return not all(map(_is_written_out, ours))
        if any(map(_is_left_to_do, ours)) and all(map(_is_worked_out, wanted)):
            return True
        functions = _functions(ours) if question else set()
        return not any(functions <= _functions([one], True) for one in wanted)
    except Unreadable:
        return False


def is_operation_left(prediction: str, golds: Sequence[str]) -> bool:
    """Whether a prediction is a sum, a product, an integral or a limit and no gold is.

    It is left to do whatever its value is, so nobody has to compute it.
    """
    if not golds or not any(name in normalise(prediction) for name in _OPERATIONS):
        return False
    ours = _results(read(prediction, False)[0], read(golds[0], True)[0])
    wanted = (result for gold in golds for result in _results(read(gold, True)[0]))
    return any(map(_is_operation, ours)) and not any(map(_is_operation, wanted))


def _is_letter(ours: Value, theirs: Value) -> bool:
    """Whether one is an option and the other its letter, which leaves nothing to do."""
    return any(
        isinstance(a, Choice) and b.text == a.letter for a, b in ((ours, theirs), (theirs, ours))
    )


def _names(gold: Value) -> set[str]:
    """The letters in a gold."""
    parts = (one for one in parts_of(gold) if isinstance(one, Scalar | Words))
    return variables(*(one.tree for one in parts if one.tree))


def _functions(values: Sequence[Scalar], is_gold: bool = False) -> set[str]:
    """The kinds of function that numbers have; of roots and constants none.

    Of a gold with letters all kinds: any form of it may be the answer.
    """
    kinds: set[str] = set()
    for value in values:
        if variables(value.tree):  # letters, or i: the polar form stays
            return {*_KINDS.values(), "function"} if is_gold else set()
        calls = [part[1] for part in subtrees(value.tree) if part[0] == "call"]
        kinds |= {_KINDS.get(name, "function") for name in calls if name not in ("root", "exp")}
    return kinds


def _results(value: Value, gold: Value | None = None) -> Iterator[Scalar | Opaque]:
    """The numbers, and the texts that nobody reads, that a value ends in; of `48+24=72` only 72.

    `gold`: what a prediction's value equals; None where the value is itself a gold.
    """
    pending: list[Value | None] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, Scalar | Opaque):
            yield one
        elif isinstance(one, Relation):
            pending += _sides(one, gold)
        elif isinstance(one, Several):
            pending += one.items
        elif isinstance(one, Choice):
            pending.append(one.value)


def _sides(relation: Relation, gold: Value | None) -> list[Value]:
    """The bounds of an inequality; of an equation what its name equals.

    None of an equation that is itself the answer: the gold `8 \\times 14 = 112`, and
    `x^2 + y^2 = 25` where the gold is one.
    """
    if relation.ops[-1] in ("<", ">", r"\le", r"\ge", r"\ne"):
        return [part for part in relation.parts if not is_label(part)]
    if gold is None and all(map(_is_calculation, relation.parts)):
        return []
    may_be_equation = gold is None or isinstance(gold, Relation)
    if may_be_equation and any(map(_is_equation_side, relation.parts[:-1])):
        return []
    return [result_of(relation)]


def _is_operation(value: Scalar | Opaque) -> bool:
    """Whether it is a sum, a product, an integral or a limit, which only algebra can read."""
    return isinstance(value, Opaque) and any(t.text in _OPERATIONS for t in value.tokens)


def _is_equation_side(value: Value) -> bool:
    """Whether a side is more than a name: `x^2`, and no `x` or `f(x)`."""
    is_number = not isinstance(value, Scalar) or not variables(value.tree)
    return not is_number and value.tree[0] not in ("var", "call")


def _is_calculation(value: Value) -> bool:
    return isinstance(value, Scalar) and _is_rational(value.tree)


def _is_worked_out(gold: Scalar) -> bool:
    """Whether a gold is a number without arithmetic and letters."""
    return not (variables(gold.tree) or _is_left_to_do(gold))


def _is_plain_number(gold: Scalar) -> bool:
    """Whether a gold is a number that is written out, and no power or root."""
    kinds = {part[:1] for part in subtrees(gold.tree) if part[0] == "call" or _is_power(part)}
    return not kinds and _is_written_out(gold)


def _is_power(tree: Tree) -> bool:
    return tree[0] == "pow" and tree[2] != MINUS_ONE and tree[1] != TEN


def _is_written_out(value: Scalar) -> bool:
    """Whether a number is written out: 3, -0.5, 3/4, 1 1/2, 3 million, 3 * 10^{-1}, 2^{10}."""
    return r"\div" not in value.text and _is_number_form(_unscaled(value))


def _unscaled(value: Scalar) -> Tree:
    """The tree of a number, without what a word behind it multiplies it with."""
    return value.tree[1] if value.is_scaled else value.tree


def _is_number_form(tree: Tree) -> bool:
    kind, *parts = tree
    if kind == "add":
        return _is_mixed(parts) or _is_huge(tree)
    if kind == "pow":
        base, exponent = (_without_sign(part) for part in parts)
        is_root = exponent[0] != "num" or exponent[1].denominator != 1
        return base[0] == "num" and not is_root and parts[1] != ONE
    if kind != "mul" or len(parts) != 2:
        return kind == "num"
    first, second = parts
    if first == MINUS_ONE:
        return second[:2] != ("mul", MINUS_ONE) and _is_number_form(second)
    if second[:2] == ("pow", TEN) and second[2] != MINUS_ONE:
        return _is_number_form(first) and _is_number_form(second)
    if second == ("pow", ONE, MINUS_ONE):
        return first[0] == "num"  # 5/1
    if second[0] == "pow":
        second = "pow", _without_sign(second[1]), second[2]
    is_integer = (exact_value(tree) or HALF).denominator == 1  # 48/2 is work
    return is_quotient(("mul", _without_sign(first), second)) and not is_integer


def _is_rational(tree: Tree) -> bool:
    if tree[0] in ("num", "var", "const", "call"):
        return tree[0] == "num"
    return all(map(_is_rational, tree[1:]))


def _is_left_to_do(value: Scalar) -> bool:
    is_division = r"\div" in value.text and variables(value.tree) <= {"i"}
    return is_division or _has_arithmetic(_unscaled(value))


def _has_arithmetic(tree: Tree) -> bool:
    """Whether two numbers are added or multiplied anywhere."""
    kind, *parts = tree
    if kind in ("num", "var", "const"):
        return False
    if kind == "call":
        parts = parts[1:]
    if kind == "add":
        terms = [part for part in parts if _has_rational_value(part)]
        if len(terms) > 1 and not _is_mixed(terms) and not _is_huge(tree):
            return True
    if kind == "mul":
        numbers = [part for part in parts if part != MINUS_ONE and _is_number(part)]
        if len(numbers) > 1 and not _is_plain_quotient(numbers):
            return True
    return any(map(_has_arithmetic, parts))


def _has_rational_value(part: Tree) -> bool:
    """Whether a term is a rational number, `\\sqrt{961}` and `i^4` too."""
    if variables(part):
        return variables(part) == {"i"}
    floor = exact_value(("call", "floor", part))
    return exact_value(part) is not None or identical(part, ("num", floor or Fraction(0)))


def _is_number(part: Tree) -> bool:
    """Whether a factor is a number, one over a number, a factorial or a root like that of 9."""
    kind, *parts = part
    if kind == "pow":  # other powers stay, as 10^{-1} does
        is_trivial = parts[1] in (ONE, MINUS_ONE, INVERSE) and part != TENTH
        return is_trivial and _is_number(parts[0])
    if kind == "call":
        return parts[0] in ("factorial", "root") and _has_rational_value(part)
    has_sum = any(one[0] == "add" for one in subtrees(part))
    return kind == "num" or (kind == "mul" and _is_rational(part) and not has_sum)


def _is_plain_quotient(factors: list[Tree]) -> bool:
    """Whether two factors are 0.5/2, (1/2)/3 or 1/(2/3), whose value is seen; not 12/0.04."""
    top, divisor = _without_sign(factors[0]), factors[-1]
    if len(factors) != 2 or divisor[0] != "pow" or divisor[2] != MINUS_ONE:
        return False
    bottom = _without_sign(divisor[1])
    if bottom[0] == "num" and bottom[1].denominator == 1:
        return top[0] == "num" or is_quotient(top)
    return top == ONE and is_quotient(bottom)


def _without_sign(tree: Tree) -> Tree:
    return tree[2] if tree[:2] == ("mul", MINUS_ONE) and len(tree) == 3 else tree


def _is_huge(tree: Tree) -> bool:
    """Whether a sum has more digits than anybody writes out: 10^{20} + 1 stays."""
    has_power = any(part[0] == "pow" and part[2] != MINUS_ONE for part in subtrees(tree))
    return has_power and abs(exact_value(tree) or 0) > MOST


def _is_mixed(terms: list[Tree]) -> bool:
    """Whether two terms are a mixed number: an integer and a fraction below one."""
    if len(terms) != 2 or terms[0][0] != "num" or terms[0][1].denominator != 1:
        return False
    return is_quotient(terms[1]) and 0 < terms[1][1][1] < terms[1][2][1][1]


def is_half_done(values: Iterable[Value], question: str, golds: Sequence[str]) -> bool:
    """Whether a prediction is not in lowest terms, factored, expanded or simplified as asked.

    `values` are the readings of the prediction that equal a gold.
    """
    tasks = find_tasks(question) - {"other"}
    if not tasks or not golds:
        return False
    results = [one for value in values for one in find_results(value, golds)]
    wanted = [one for gold in golds for one in find_results(read(gold, True)[0], golds)]
    if "reduce" in tasks and any(map(_is_unreduced, results)):
        return not any(map(_is_unreduced, wanted))
    if "expand" in tasks and any(map(_has_product, results)):
        return not any(map(_has_product, wanted))
    is_simple_gold = "simplify" in tasks and not any(map(_num_divisions, wanted))
    if is_simple_gold and results and all(map(_num_divisions, results)):
        return True
    most = _num_factors(wanted[0]) if "factor" in tasks and len(golds) == 1 else 0
    return most > 1 and bool(results) and all(_num_factors(one) < most for one in results)


def _num_divisions(value: Value) -> int:
    """How many divisions by letters a value has: `(x^2-9)/(x-3)` is still to be simplified."""
    trees = _trees(form(value, is_exact=True))
    inverses = [one[1] for one in trees if one[0] == "pow" and MINUS_ONE in subtrees(one[2])]
    return len([base for base in inverses if variables(base)])


def _has_product(value: Value) -> bool:
    """Whether a value has a power of a sum, or a product of it and letters: `x(x+2)`."""
    for part in _trees(form(value)):
        factors = [one for one in part[1:] if isinstance(one, tuple) and variables(one)]
        has_sum = any(one[0] == "add" for one in factors)
        is_power = part[0] == "pow" and part[1][0] == "add"
        if has_sum and (is_power or (part[0] == "mul" and len(factors) > 1)):
            return True
    return False


def _trees(one: Form) -> list[Tree]:
    is_tree = one is not None and one[0] in ("add", "mul", "pow", "call")
    return [part for part in subtrees(one) if isinstance(part[0], str)] if is_tree else []


def _num_factors(value: Value) -> int:
    """How many factors a product has, a power as many as its exponent; 0 where it has divisions."""
    one = form(value)
    trees = _trees(one)
    has_divisions = any(part[0] == "pow" and MINUS_ONE in subtrees(part[2]) for part in trees)
    return 0 if one is None or has_divisions else _count_factors(one)


def _count_factors(tree: Tree) -> int:
    kind, *parts = tree
    if kind == "mul":
        return sum(_count_factors(part) for part in parts if part not in (ONE, MINUS_ONE))
    is_power = kind == "pow" and parts[1][0] == "num" and parts[1][1].denominator == 1
    return _count_factors(parts[0]) * abs(int(parts[1][1])) if is_power else 1


def _is_unreduced(value: Value) -> bool:
    """Whether a value is a fraction that is not in lowest terms, or has a root like that of 45."""
    exact = form(value, is_exact=True)
    is_fraction = exact is not None and is_quotient(exact) and not is_lowest(exact)
    return is_fraction or any(map(_has_square, _trees(exact)))


def _has_square(part: Tree) -> bool:
    """Whether a part is a square root of an integer with a square factor."""
    is_root = part[:2] == ("call", "root") and part[3:] == (("num", Fraction(2)),)
    if not is_root or part[2][0] != "num":
        return False
    number = part[2][1]
    most = min(math.isqrt(abs(int(number))), MOST_ROOT)
    is_integer = number.denominator == 1
    return is_integer and any(number.numerator % k**2 == 0 for k in range(2, most + 1))
