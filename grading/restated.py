"""Restated: whether an answer is a formula of its question, copied instead of worked out.

A question that asks for the value of an expression has it as text: `\\sqrt{16}+3` equals the gold
7. Formulas are compared as trees: other print, and another order of terms and factors, is a copy
too. Nothing is evaluated.
"""

import contextlib
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd
from typing import Any

from grading.equivalence.readings import read
from grading.equivalence.tokens import Unreadable, to_ascii
from grading.equivalence.values import (
    MINUS_ONE,
    ONE,
    Choice,
    Relation,
    Scalar,
    Tree,
    Unit,
    Value,
    subtrees,
    variables,
)
from grading.equivalence.values import Sequence as Several

_DELIMITED = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
# Words part the formulas of plain text, but for the names of functions and products of letters.
_WORD = re.compile(
    r"(?<![\\A-Za-z])(?!(?:sqrt|sin|cos|tan|log|ln|pi)(?![a-z]))"
    r"(?:[A-Za-z]{3,}|(?:an|as|at|be|by|do|he|if|in|is|it|me|my|no|of|on|or|so|to|up|us|we)(?![a-z])"
    r"|[aAI](?=\s+[\dA-Za-z(\\]))[A-Za-z']*",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[,;:?](?:\s|$)|\.(?:\s|$)|\n")
_QUANTITY = re.compile(
    r"(?<![\w.])\d[\d.,/]*(?:\s\d+/\d+)?\s{0,4}(?:(?:square|cubic)\s)?[A-Za-z]+(?:\s?/\s?[a-z]+)?"
)
_IS_FORMULA = re.compile(r"\d|[-+*/^=\u00d7\u00f7\u2212\u00b7\u221a]|\\[A-Za-z]")
# What is to be brought into another form: the formulas of the sentence behind these words.
_TASK = re.compile(
    r"\b(?:convert|simplif|factor|expand|evaluat|reduc|chang|express|rewrit|writ|compute)"
    r"(?:y|ies|i[sz]e|e|ing|ed|s)*\b(?!\s+of)"
)
_REDUCED = re.compile(r"\b(?:simplif|reduce|lowest terms|simplest|common fraction)")
_FACTORED = re.compile(r"\bfactor(?:ed|i[sz])?|\bprime factor|product of (?:\w+ )*primes")
_STEMS = ("conver", "simpl", "factor", "expan", "evaluat", "reduc", "chang", "expres", "writ",
    "comput", "lowest", "fraction", "prime")  # fmt: skip
_SENTENCE_END = re.compile(r"[.?!](?:\s|$)|\n\n")
_NO_ATOM = re.compile(
    r"\^\s*(?:\{[^{}]*\}|\d)|(?<=\\sqrt)\s*\[\d\]"  # x^2 may be xx
    r"|\\(?:text|mathrm)\s*\{[^{}]*\}|(?<=\d)(?:\s|\\[, ])+[A-Za-z](?![A-Za-z])"  # a unit
)
_ATOM = re.compile(r"\d|(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
_LAST_SIDE = re.compile(r"(?<![<>!:\\])=")
_RELATION = re.compile(r"[=<>]|\\(?:[lgn]eq?|in|approx|equiv)(?![A-Za-z])")
_COMBINATIONS = re.compile(r"\bC\((\d+),\s?(\d+)\)")
_DELIMITER = re.compile(r"(?<!\\)\$|\\[()\[\]]|\\text\s*\{|\}")
_POWER = re.compile(r"\^|square|cubic|\bsq\b|\bcu\b")
MOST_ROOT = 1000  # factors whose square is looked for
MAX_CHARS, MAX_FORMULAS = 500, 100  # of a formula; in a question
Form = Any  # a hashable tree


def is_restated(prediction: str, question: str, golds: Sequence[str]) -> bool:
    """Whether a prediction that equals a gold is a formula of the question and no gold is.

    Plain numbers and names are copies only where the question says to convert, simplify, factor,
    expand, evaluate or express them. A fraction in lowest terms and all factors of a product must
    be given where the question asks for them.
    """
    if prediction.strip() in golds:
        return False
    tasks = _tasks(question)
    if not tasks and prediction.isalnum():
        return False
    prediction = _without_braces(to_ascii(prediction))
    results = {prediction}
    if not any(map(_RELATION.search, golds)):
        results.add(_LAST_SIDE.split(prediction)[-1])
    if "reduce" in tasks and any(map(_is_unreduced, results)):
        return not any(map(_is_unreduced, golds))
    if "simplify" in tasks and golds:
        fewest = min(map(_num_divisions, golds))
        if all(_num_divisions(result) > fewest for result in results):
            return True
    if "factor" in tasks and len(golds) == 1:
        most = _num_factors(golds[0])
        if most > 1 and all(_num_factors(result) < most for result in results):
            return True
    return any(_is_copy(result, question, golds, bool(tasks)) for result in results)


@functools.lru_cache(maxsize=1024)
def _tasks(question: str) -> frozenset[str]:
    """What a question asks to do with its formulas: reduce, simplify, factor, other."""
    lowered = question.lower()
    if not any(stem in lowered for stem in _STEMS):
        return frozenset()
    tasks = {
        "reduce": _REDUCED.search(lowered),
        "simplify": "simplif" in lowered,
        "factor": _FACTORED.search(lowered),
        "other": _TASK.search(lowered),
    }
    return frozenset(name for name, is_asked in tasks.items() if is_asked)


def _is_copy(result: str, question: str, golds: Sequence[str], has_task: bool) -> bool:
    if not _candidates(question, result):
        return False
    ours = forms(result)
    if not any(has_task or not is_plain for is_plain in ours.values()):
        return False
    given, tasks = _given(question, result)
    copied = {form for form, plain in ours.items() if form in (tasks if plain else given)}
    return bool(copied) and not any(_is_given(gold, question, result) for gold in golds)


def _without_braces(text: str) -> str:
    """A text without the braces around the whole of it."""
    text = text.strip()
    while text.startswith("{") and text.endswith("}") and "{" not in text[1:-1].partition("}")[0]:
        text = text[1:-1].strip()
    return text


def _num_divisions(text: str) -> int:
    """How many divisions by letters a text has: `(x^2-9)/(x-3)` is still to be simplified."""
    trees = [part for form in forms(text, is_exact=True) for part in _trees(form)]
    return sum(one[0] == "pow" and one[2] == MINUS_ONE and bool(variables(one[1])) for one in trees)


def _trees(form: Form) -> list[Tree]:
    is_tree = form[0] in ("add", "mul", "pow", "call")
    return [part for part in subtrees(form) if isinstance(part[0], str)] if is_tree else []


def _num_factors(text: str) -> int:
    """How many factors a product has, a power as many as its exponent; 0 where it is none."""
    return max((_count_factors(form) for form in forms(text)), default=0)


def _count_factors(tree: Tree) -> int:
    kind, *parts = tree
    if kind == "mul":
        return sum(_count_factors(part) for part in parts if part not in (ONE, MINUS_ONE))
    is_power = kind == "pow" and parts[1][0] == "num" and parts[1][1].denominator == 1
    return _count_factors(parts[0]) * abs(int(parts[1][1])) if is_power else 1


def _is_unreduced(text: str) -> bool:
    """Whether a text is a fraction that is not in lowest terms, or has a root like that of 45."""
    exact = forms(text, is_exact=True)
    is_fraction = any(_is_quotient(form) and not _is_lowest(form) for form in exact)
    return is_fraction or any(_has_square(part) for form in exact for part in _trees(form))


def _has_square(part: Tree) -> bool:
    """Whether a part is a square root of an integer with a square factor."""
    if part[:2] != ("call", "root") or part[2][0] != "num" or part[3:] != (("num", Fraction(2)),):
        return False
    number = part[2][1]
    most = min(math.isqrt(abs(int(number))), MOST_ROOT)
    is_integer = number.denominator == 1
    return is_integer and any(number.numerator % k**2 == 0 for k in range(2, most + 1))


def _is_given(gold: str, question: str, result: str) -> bool:
    """Whether a gold is what was copied, or another formula of the question, as it is printed."""
    theirs = forms(gold, is_exact=True)
    ours = forms(result, is_exact=True).keys()
    ours |= {form[:-2] for form in ours if isinstance(form[-2], Unit)}  # 500 is 500 metres
    if theirs.keys() & ours:
        return True
    given, _ = _given(question, gold, is_exact=True)
    return any(form in given for form, plain in theirs.items() if not plain)


def _given(question: str, answer: str, is_exact: bool = False) -> tuple[set[Form], set[Form]]:
    """Forms of the formulas in a question that may be the answer, and of those with a task."""
    given: set[Form] = set()
    tasks: set[Form] = set()
    for text, has_task in _candidates(question, answer):
        found = forms(text, True, is_exact).keys()
        given |= found
        tasks |= found if has_task else set()
    return given, tasks


def _candidates(question: str, answer: str) -> list[tuple[str, bool]]:
    """(text, whether a task names it) of the formulas with the digits and letters of an answer."""
    needed = _atoms(answer)
    return [
        (text, has_task)
        for text, atoms, has_task in _listed(question)
        if needed <= atoms and ("=" in text or {*filter(str.isdigit, atoms)} <= needed)
    ]


def _atoms(text: str) -> frozenset[str]:
    """The digits and single letters of a text: a copy has no others."""
    return frozenset(_ATOM.findall(_NO_ATOM.sub("", to_ascii(text)))) - {"0", "1"}  # .5 and 0.50


@functools.lru_cache(maxsize=1024)  # of a group's completions each is held against it
def _listed(question: str) -> list[tuple[str, frozenset[str], bool]]:
    """(text, atoms, whether a task names it) of each formula in a question."""
    ends = [match.start() for match in _SENTENCE_END.finditer(question)] + [len(question)]
    spans = []
    for task in _TASK.finditer(question.lower()):
        spans.append((task.end(), next(end for end in ends if end >= task.end())))
    question = to_ascii(question)
    return [
        (text, _atoms(text), any(first <= start <= last for first, last in spans))
        for start, text in itertools.islice(_formulas(question), MAX_FORMULAS)
        if _IS_FORMULA.search(text)
    ]


def _formulas(question: str) -> Iterator[tuple[int, str]]:
    """(where it starts, text) of each formula: between delimiters, and in the words around."""
    at = 0
    for match in _DELIMITED.finditer(question):
        yield match.start(), match[match.lastindex]
        yield from _plain_formulas(question, at, match.start())
        at = match.end()
    yield from _plain_formulas(question, at, len(question))
    plain = _DELIMITER.sub(lambda match: " " * len(match[0]), question)
    for quantity in _QUANTITY.finditer(plain):
        yield quantity.start(), quantity[0]


def _plain_formulas(question: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The formulas in a stretch of words: `(x+1)(x+2)`, `7*8`, `7 miles`."""
    at = start
    for word in [*_WORD.finditer(question, start, end), None]:
        stop = word.start() if word else end
        piece = question[at:stop]
        yield at, piece
        if _SEPARATOR.search(piece):
            yield from ((at, part) for part in _SEPARATOR.split(piece))
        at = word.end() if word else end


@functools.lru_cache(maxsize=4096)
def forms(text: str, with_sides: bool = False, is_exact: bool = False) -> dict[Form, bool]:
    """{what a reading of a text is, its terms and factors in one order: whether it is plain}.

    Roots are powers and `xx` is `x^2`, but with `is_exact` each stays as it is printed.
    """
    text = _COMBINATIONS.sub(r"\\binom{\1}{\2}", text.strip().rstrip(".,;:?= ").lstrip(",;: "))
    if not text or len(text) > MAX_CHARS or not _IS_FORMULA.search(text):
        return {}
    values: list[Value] = []
    with contextlib.suppress(Unreadable):
        values += read(text, False)
    values += [value.value for value in values if isinstance(value, Choice) and value.value]
    if with_sides:
        values += [side for value in values if isinstance(value, Relation) for side in value.parts]
    found = {
        form: _is_plain(value) for value in values if (form := _form(value, is_exact)) is not None
    }
    return {form: plain for form, plain in found.items() if form[0] != "var"}


def _form(value: Value, is_exact: bool) -> Form:
    if isinstance(value, Relation):
        parts = [_form(part, is_exact) or part.text for part in value.parts]
        return "relation", value.ops, tuple(sorted(parts, key=repr))
    if isinstance(value, Several) and value.kind == "ratio" and len(value.items) == 2:
        top, bottom = (item.tree for item in value.items)
        return _ordered(("mul", top, ("pow", bottom, MINUS_ONE)), is_exact)
    if isinstance(value, Several):
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
    if isinstance(value, Several):
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
        return len(parts) == 2 and parts[0][0] == "num" and _is_lowest(parts[1])
    is_named = kind == "mul" and len(parts) == 2 and parts[0][0] == "num"
    return _is_lowest(value.tree) or (is_named and parts[1][0] in ("var", "const"))


def _is_quotient(tree: Tree) -> bool:
    """Whether a tree is a fraction of integers."""
    kind, *parts = tree
    if kind != "mul" or len(parts) != 2 or parts[0][0] != "num" or parts[1][0] != "pow":
        return False
    bottom, exponent = parts[1][1:3]
    is_inverse = bottom[0] == "num" and exponent == MINUS_ONE
    return is_inverse and parts[0][1].denominator == bottom[1].denominator == 1


def _is_lowest(tree: Tree) -> bool:
    """Whether a tree is a fraction of integers in lowest terms."""
    return _is_quotient(tree) and gcd(int(tree[1][1]), int(tree[2][1][1])) == 1


def _ordered(tree: Tree, is_exact: bool) -> Tree:
    """A tree whose terms and factors are in one order, without brackets around some of them."""
    if not isinstance(tree, tuple):
        return tree
    kind, *parts = tree[0], *(_ordered(part, is_exact) for part in tree[1:])
    if kind == "call" and parts[0] == "root" and not is_exact:
        return "pow", parts[1], _ordered(("pow", parts[2], MINUS_ONE), is_exact)
    if kind in ("add", "mul"):
        flat = [one for part in parts for one in (part[1:] if part[0] == kind else (part,))]
        if kind == "mul":
            flat = [one for one in flat if one != ONE] or [ONE]
            if not is_exact:  # (x+1)(x+1) is (x+1)^2
                counts = Counter(flat)
                flat = [one if n == 1 else ("pow", one, ("num", n)) for one, n in counts.items()]
        if len(flat) == 1:
            return flat[0]
        parts = sorted(flat, key=repr)
    return (kind, *parts)
