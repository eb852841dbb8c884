"""Unfinished: whether an answer is work left to do, such as `48+24` where the gold is 72.

A policy that is rewarded for it learns to write the sum and never to add. Fractions, roots, powers
and constants are values; so is whatever the gold itself leaves as it is.
"""

import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from grading.equivalence.numeric import exact_value, identical
from grading.equivalence.readings import read
from grading.equivalence.tokens import TRIGONOMETRIC, Unreadable, is_simple
from grading.equivalence.values import (
    INVERSE,
    MINUS_ONE,
    ONE,
    Choice,
    Relation,
    Scalar,
    Tree,
    Value,
    scale_of,
    subtrees,
    variables,
)
from grading.equivalence.values import Sequence as Several
from grading.forms import Form, forms, is_lowest, is_quotient
from grading.restated import find_results, find_tasks

MOST_ROOT = 1000  # factors whose square is looked for
_OPERATION = re.compile(r"\\(?:i{0,2}int|oint|sum|prod|lim)(?![A-Za-z])")
_BRACES = re.compile(r"\{[^{}]*\}")  # \sum_{k=1}^{4} k = 10 is worked out
_KINDS = dict.fromkeys(TRIGONOMETRIC, "trigonometric") | dict.fromkeys(("ln", "log", "lg"), "log")
_KINDS |= {name: "inverse" for name in TRIGONOMETRIC if name.startswith("arc")}
TENTH = ("pow", ("num", Fraction(10)), INVERSE)
MOST = 10**12  # a larger power stays as it is
_SIGNS = re.compile(
    r"[-+*/\u00d7\u00f7\u00b7\u2212(|!]|\\[lr]?vert|\\mid|\\(?:times|cdot|ast|div|[dt]?frac|binom|arc[a-z]+"
    r"|sin|cos|tan|cot|sec|csc|ln|log|[lr]floor|[lr]ceil|gcd|max|min)"
)


def is_unevaluated(prediction: str, golds: Sequence[str], question: str = "") -> bool:
    """Whether a prediction that equals a gold has sums or products to work out and no gold has.

    With a question functions count, too: `\\gcd(48, 36)` says no more than it. Where a gold has
    letters, any form stays.
    """
    if is_simple(prediction) or prediction.strip() in golds:
        return False
    result = _BRACES.sub("", prediction).rpartition("=")[2]
    if _OPERATION.search(result) and not any(map(_OPERATION.search, golds)):
        return True
    if not _SIGNS.search(prediction):
        return False
    try:
        found = list(_results(prediction, False))
        if any(_is_left_to_do(*one) for one in found) and all(map(_is_worked_out, golds)):
            return True
        functions = _functions(prediction, False) if question else set()
        return bool(functions) and not any(functions <= _functions(gold, True) for gold in golds)
    except Unreadable:
        return False


def _functions(text: str, is_gold: bool) -> set[str]:
    """The kinds of function that numbers in a text have; of roots and constants none.

    Of a gold with letters all kinds: any form of it may be the answer.
    """
    kinds: set[str] = set()
    for value, _ in _results(text, is_gold):
        if variables(value.tree):  # letters, or i: the polar form stays
            return {*_KINDS.values(), "function"} if is_gold else set()
        calls = [part[1] for part in subtrees(value.tree) if part[0] == "call"]
        kinds |= {_KINDS.get(name, "function") for name in calls if name not in ("root", "exp")}
    return kinds


def _results(text: str, is_gold: bool) -> Iterator[tuple[Scalar, str]]:
    """The numbers that a text ends in, each with the text; of `48+24=72` only 72."""
    pending: list[Value | None] = list(read(text, is_gold)[:1])
    while pending:
        value = pending.pop()
        if isinstance(value, Scalar):
            yield value, text
        elif isinstance(value, Relation):
            if is_gold and all(map(_is_calculation, value.parts)):
                return  # 8 \\times 14 = 112 itself is asked for
            if any(isinstance(p, Scalar) and _is_equation_side(p.tree) for p in value.parts[:-1]):
                return  # x^2 + y^2 = 25
            pending.append(value.parts[-1])
        elif isinstance(value, Several) and value.kind != "ratio":
            pending += value.items
        elif isinstance(value, Choice):
            pending.append(value.value)


def _is_equation_side(tree: Tree) -> bool:
    """Whether a side is more than a name: `x^2`, and no `x` or `f(x)`."""
    return bool(variables(tree)) and tree[0] not in ("var", "call")


def _is_calculation(value: Value) -> bool:
    return isinstance(value, Scalar) and _is_rational(value.tree)


def _is_worked_out(gold: str) -> bool:
    """Whether a gold is numbers without arithmetic and letters."""
    found = list(_results(gold, True))
    is_done = [not (variables(one.tree) or _is_left_to_do(one, text)) for one, text in found]
    return bool(found) and all(is_done)


def _is_rational(tree: Tree) -> bool:
    if tree[0] in ("num", "var", "const", "call"):
        return tree[0] == "num"
    return all(map(_is_rational, tree[1:]))


def _is_left_to_do(value: Scalar, text: str) -> bool:
    if r"\div" in value.text:
        return _is_rational(value.tree)
    return _has_arithmetic(value.tree, scale_of(text))


def _has_arithmetic(tree: Tree, scale: Fraction) -> bool:
    """Whether two numbers are added or multiplied anywhere; `scale`: of a word such as million."""
    kind, *parts = tree
    if kind in ("num", "var", "const"):
        return False
    if kind == "call":
        parts = parts[1:]
    if kind == "add":
        terms = [part for part in parts if _has_rational_value(part)]
        if len(terms) > 1 and not _is_mixed(terms) and not any(map(_is_huge, terms)):
            return True
    if kind == "mul":
        numbers = [part for part in parts if part != MINUS_ONE and _is_number(part)]
        is_scaled = scale != 1 and ("num", scale) in numbers[1:]
        if len(numbers) > 1 and not is_scaled and not _is_plain_quotient(numbers):
            return True
    return any(_has_arithmetic(part, scale) for part in parts)


def _has_rational_value(part: Tree) -> bool:
    """Whether a term is a rational number, `\\sqrt{961}` too."""
    if variables(part):
        return False
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


def _is_huge(term: Tree) -> bool:
    """Whether a term is a power that nobody writes out: 10^{20} + 1 stays."""
    return any(
        part[0] == "pow" and part[2] != MINUS_ONE and abs(exact_value(part) or 0) > MOST
        for part in subtrees(term)
    )


def _is_mixed(terms: list[Tree]) -> bool:
    """Whether two terms are a mixed number: an integer and a fraction below one."""
    if len(terms) != 2 or terms[0][0] != "num" or terms[0][1].denominator != 1:
        return False
    kind, *parts = terms[1]
    is_fraction = kind == "mul" and len(parts) == 2 and parts[1][0] == "pow"
    if not is_fraction or parts[0][0] != "num" or parts[1][1][0] != "num":
        return False
    return 0 < parts[0][1] < parts[1][1][1]


def is_half_done(prediction: str, question: str, golds: Sequence[str]) -> bool:
    """Whether a prediction is not in lowest terms, factored, expanded or simplified as asked."""
    tasks = find_tasks(question) - {"other"}
    if not tasks or not golds or prediction.strip() in golds:
        return False
    results = find_results(prediction, golds)
    if "reduce" in tasks and any(map(_is_unreduced, results)):
        return not any(map(_is_unreduced, golds))
    if "expand" in tasks and any(map(_has_product, results)):
        return not any(map(_has_product, golds))
    is_simple_gold = "simplify" in tasks and not any(map(_num_divisions, golds))
    if is_simple_gold and all(map(_num_divisions, results)):
        return True
    most = _num_factors(golds[0]) if "factor" in tasks and len(golds) == 1 else 0
    return most > 1 and all(_num_factors(result) < most for result in results)


def _num_divisions(text: str) -> int:
    """How many divisions by letters a text has: `(x^2-9)/(x-3)` is still to be simplified."""
    trees = [part for form in forms(text, is_exact=True) for part in _trees(form)]
    inverses = [one[1] for one in trees if one[0] == "pow" and MINUS_ONE in subtrees(one[2])]
    return len([base for base in inverses if variables(base)])


def _has_product(text: str) -> bool:
    """Whether a text has a power of a sum, or a product of it and letters: `x(x+2)`."""
    for part in (part for form in forms(text) for part in _trees(form)):
        factors = [one for one in part[1:] if isinstance(one, tuple) and variables(one)]
        has_sum = any(one[0] == "add" for one in factors)
        is_power = part[0] == "pow" and part[1][0] == "add"
        if has_sum and (is_power or (part[0] == "mul" and len(factors) > 1)):
            return True
    return False


def _trees(form: Form) -> list[Tree]:
    is_tree = form[0] in ("add", "mul", "pow", "call")
    return [part for part in subtrees(form) if isinstance(part[0], str)] if is_tree else []


def _num_factors(text: str) -> int:
    """How many factors a product has, a power as many as its exponent; 0 where it has divisions."""
    exact = [form for form in forms(text) if not _has_divisions(form)]
    return max(map(_count_factors, exact), default=0)


def _has_divisions(form: Form) -> bool:
    return any(part[0] == "pow" and MINUS_ONE in subtrees(part[2]) for part in _trees(form))


def _count_factors(tree: Tree) -> int:
    kind, *parts = tree
    if kind == "mul":
        return sum(_count_factors(part) for part in parts if part not in (ONE, MINUS_ONE))
    is_power = kind == "pow" and parts[1][0] == "num" and parts[1][1].denominator == 1
    return _count_factors(parts[0]) * abs(int(parts[1][1])) if is_power else 1


def _is_unreduced(text: str) -> bool:
    """Whether a text is a fraction that is not in lowest terms, or has a root like that of 45."""
    exact = forms(text, is_exact=True)
    is_fraction = any(is_quotient(form) and not is_lowest(form) for form in exact)
    return is_fraction or any(_has_square(part) for form in exact for part in _trees(form))


def _has_square(part: Tree) -> bool:
    """Whether a part is a square root of an integer with a square factor."""
    is_root = part[:2] == ("call", "root") and part[3:] == (("num", Fraction(2)),)
    if not is_root or part[2][0] != "num":
        return False
    number = part[2][1]
    most = min(math.isqrt(abs(int(number))), MOST_ROOT)
    is_integer = number.denominator == 1
    return is_integer and any(number.numerator % k**2 == 0 for k in range(2, most + 1))
