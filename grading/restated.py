"""Restated: whether an answer is a formula of its question, copied instead of worked out.

A question that asks for the value of an expression has it as text: `\\sqrt{16}+3` equals the gold
7. Copies are found up to the order of terms and factors, without evaluating anything.
"""

import functools
import re
from collections.abc import Sequence
from math import gcd
from typing import Any

from grading.equivalence.readings import read
from grading.equivalence.tokens import Unreadable
from grading.equivalence.values import Relation, Scalar, Tree, Value

# Between LaTeX's delimiters, or, as in a text without them, from digit to digit.
_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|([\d(][\d\s+*/^().-]*[\d)])",
    re.DOTALL,
)
_OPERATION = re.compile(r"\\(?:i{0,2}int|oint|sum|prod|lim)(?![A-Za-z])")
_BRACES = re.compile(r"\{[^{}]*\}")  # \sum_{k=1}^{4} k = 10 is worked out
_NAMES = re.compile(r"\d+|(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z])")  # a copy has no other
_NUMBER = re.compile(r"[-+]?[\d.,]+(?!.*[\d+*^!\\])")
_FRACTION = re.compile(r"[-+]?\d*(?:\\frac\{?(\d+?)\}?\{?(\d+)\}?|(\d+)/(\d+))(?!.*[\d+*^!\\])")
MAX_CHARS, MAX_FORMULAS = 500, 100  # of a formula; in a question


def is_restated(prediction: str, question: str, golds: Sequence[str]) -> bool:
    """Whether a prediction that equals a gold is a formula of the question and no gold is.

    Plain numbers, names and options never are. A sum, product, integral or limit that is left
    unevaluated is refused wherever no gold has one.
    """
    result = _BRACES.sub("", prediction).rpartition("=")[2]
    if _OPERATION.search(result) and not any(map(_OPERATION.search, golds)):
        return True
    is_there = set(_NAMES.findall(prediction)) <= set(_NAMES.findall(question))
    if not question or not is_there or _NUMBER.fullmatch(prediction.strip()):
        return False
    if _expressions(prediction).isdisjoint(_formulas(question)):
        return False
    return not any(_expressions(gold) & _formulas(question) for gold in golds)


@functools.lru_cache(maxsize=1024)  # of a group's completions each is held against it
def _formulas(question: str) -> frozenset[Any]:
    found: set[Any] = set()
    for match in list(_FORMULA.finditer(question))[:MAX_FORMULAS]:
        found |= _expressions(match[match.lastindex], with_sides=True)
    return frozenset(found)


def _expressions(text: str, with_sides: bool = False) -> set[Any]:
    """What the readings of a text are, in one order; without plain numbers and names."""
    if len(text) > MAX_CHARS:
        return set()
    try:
        values = list(read(text.strip().rstrip(".,;:?= "), False))
    except Unreadable:
        return set()
    if with_sides:
        values += [side for value in values if isinstance(value, Relation) for side in value.parts]
    return {_form(value) for value in values} - {None}


def _form(value: Value) -> Any:
    if isinstance(value, Relation):
        return value.ops, tuple(_form(part) or part.text for part in value.parts)
    if isinstance(value, Scalar) and not _is_plain(value):
        return _ordered(value.tree), value.unit, value.percent
    return None


def _is_plain(value: Scalar) -> bool:
    """Whether it is a name or a number, perhaps mixed or a fraction in lowest terms."""
    fraction = _FRACTION.match(value.text)
    if fraction:
        top, bottom = filter(None, fraction.groups())
        return gcd(int(top), int(bottom)) == 1
    return value.tree[0] in ("num", "var", "const") or bool(_NUMBER.match(value.text))


def _ordered(tree: Tree) -> Tree:
    """A tree whose terms and factors are in one order, without brackets around some of them."""
    if not isinstance(tree, tuple):
        return tree
    kind, *parts = tree[0], *map(_ordered, tree[1:])
    if kind in ("add", "mul"):
        flat = [one for part in parts for one in (part[1:] if part[0] == kind else (part,))]
        parts = sorted(flat, key=repr)
    return (kind, *parts)
