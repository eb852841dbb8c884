"""Restated: whether an answer is a formula of its question, copied instead of worked out.

A question that asks for the value of an expression has it as text: `\\sqrt{16}+3` equals the gold
7. Formulas are compared as trees: other print, and another order of terms and factors, is a copy
too. Nothing is evaluated.
"""

import contextlib
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd
from typing import Any

from grading.equivalence.readings import read
from grading.equivalence.tokens import Unreadable
from grading.equivalence.values import MINUS_ONE, Relation, Scalar, Tree, Value
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
_SEPARATOR = re.compile(r"[,;:?!](?:\s|$)|\.(?:\s|$)|\n")
_QUANTITY = re.compile(
    r"(?<![\w.])\d[\d.,/]*(?:\s\d+/\d+)?\s?(?:(?:square|cubic)\s)?[A-Za-z]+(?:\s?/\s?[a-z]+)?"
)
_IS_FORMULA = re.compile(r"\d|[-+*/^=\u00d7\u00f7\u2212\u00b7\u221a]|\\[A-Za-z]")
# What is to be brought into another form: the formulas of the sentence behind these words.
_TASK = re.compile(
    r"\b(?:convert|simplif|factor|expand|evaluat|reduc|chang|express|rewrit|writ|compute)"
    r"(?:y|ies|i[sz]e|e|ing|ed|s)*\b(?!\s+of)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.?!](?:\s|$)|\n\n")
_OPERATION = re.compile(r"\\(?:i{0,2}int|oint|sum|prod|lim)(?![A-Za-z])")
_BRACES = re.compile(r"\{[^{}]*\}")  # \sum_{k=1}^{4} k = 10 is worked out
_ATOM = re.compile(r"\d|(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
MAX_CHARS, MAX_FORMULAS = 500, 100  # of a formula; in a question
Form = Any  # a hashable tree


def is_restated(prediction: str, question: str, golds: Sequence[str]) -> bool:
    """Whether a prediction that equals a gold is a formula of the question and no gold is.

    Plain numbers and names are copies only where the question says to convert, simplify, factor,
    expand, evaluate or express them. A sum, product, integral or limit that is left unevaluated is
    refused wherever no gold has one.
    """
    result = _BRACES.sub("", prediction).rpartition("=")[2]
    if _OPERATION.search(result) and not any(map(_OPERATION.search, golds)):
        return True
    has_task = bool(_TASK.search(question))
    ours = forms(prediction)
    if not question or not any(has_task or not is_plain for is_plain in ours.values()):
        return False
    given, tasks = _given(question, prediction)
    copied = {form for form, plain in ours.items() if form in (tasks if plain else given)}
    return bool(copied) and not any(_is_given(gold, question, copied) for gold in golds)


def _is_given(gold: str, question: str, copied: set[Form]) -> bool:
    """Whether a gold is what was copied, or another formula of the question."""
    theirs = forms(gold)
    given, _ = _given(question, gold)
    return bool(copied & theirs.keys()) or any(
        f in given for f, plain in theirs.items() if not plain
    )


def _given(question: str, answer: str) -> tuple[set[Form], set[Form]]:
    """Forms of the formulas in a question that may be the answer, and of those with a task."""
    given: set[Form] = set()
    tasks: set[Form] = set()
    needed = _atoms(answer)
    for text, atoms, has_task in _listed(question):
        is_whole = "=" in text or {*filter(str.isdigit, atoms)} <= needed
        if needed <= atoms and is_whole:
            found = forms(text, with_sides=True).keys()
            given |= found
            tasks |= found if has_task else set()
    return given, tasks


def _atoms(text: str) -> frozenset[str]:
    """The digits and single letters of a text: a copy has no others."""
    return frozenset(_ATOM.findall(text))


@functools.lru_cache(maxsize=1024)  # of a group's completions each is held against it
def _listed(question: str) -> list[tuple[str, frozenset[str], bool]]:
    """(text, atoms, whether a task names it) of each formula in a question."""
    ends = [match.start() for match in _SENTENCE_END.finditer(question)] + [len(question)]
    spans = []
    for task in _TASK.finditer(question):
        spans.append((task.end(), next(end for end in ends if end >= task.end())))
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


def _plain_formulas(question: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The formulas in a stretch of words: `(x+1)(x+2)`, `7 × 8`, `7 miles`."""
    at = start
    for word in [*_WORD.finditer(question, start, end), None]:
        stop = word.start() if word else end
        piece = question[at:stop]
        yield at, piece
        if _SEPARATOR.search(piece):
            yield from ((at, part) for part in _SEPARATOR.split(piece))
        at = word.end() if word else end
    for quantity in _QUANTITY.finditer(question, start, end):
        yield quantity.start(), quantity[0]


@functools.lru_cache(maxsize=4096)
def forms(text: str, with_sides: bool = False) -> dict[Form, bool]:
    """{what a reading of a text is, its terms and factors in one order: whether it is plain}."""
    text = text.strip().rstrip(".,;:?!= ").lstrip(",;: ")
    if not text or len(text) > MAX_CHARS or not _IS_FORMULA.search(text):
        return {}
    values: list[Value] = []
    with contextlib.suppress(Unreadable):
        values += read(text, False)
    if with_sides:
        values += [side for value in values if isinstance(value, Relation) for side in value.parts]
    found = {form: _is_plain(value) for value in values if (form := _form(value)) is not None}
    return {form: plain for form, plain in found.items() if form[0] != "var"}


def _form(value: Value) -> Form:
    if isinstance(value, Relation):
        return "relation", value.ops, tuple(_form(part) or part.text for part in value.parts)
    if isinstance(value, Several):
        return value.kind, value.form, tuple(_form(item) or item.text for item in value.items)
    if isinstance(value, Scalar):
        unit = value.unit and (value.unit.dimensions, value.unit.size, value.unit.things)
        tree = _ordered(value.tree)
        return (*tree, unit, value.percent) if unit or value.percent else tree
    return None


def _is_plain(value: Value) -> bool:
    """Whether it is no formula: a number or a fraction in lowest terms, a name, a point."""
    if isinstance(value, Several):
        if value.kind == "ratio" and all(i.tree[0] == "num" for i in value.items):
            return gcd(*(int(item.tree[1]) for item in value.items)) == 1
        return value.kind == "based" or all(map(_is_plain, value.items))
    if not isinstance(value, Scalar):
        return False
    kind, *parts = value.tree
    if kind in ("num", "var", "const"):
        return True
    if kind == "mul" and parts[0] == MINUS_ONE and len(parts) == 2:
        return _is_plain(Scalar("", parts[1]))
    if kind == "add":  # a mixed number
        return len(parts) == 2 and parts[0][0] == "num" and _is_lowest(parts[1])
    is_named = kind == "mul" and len(parts) == 2 and parts[0][0] == "num"
    return _is_lowest(value.tree) or (is_named and parts[1][0] in ("num", "var", "const"))


def _is_lowest(tree: Tree) -> bool:
    """Whether a tree is a fraction of integers in lowest terms."""
    kind, *parts = tree
    if kind != "mul" or len(parts) != 2 or parts[0][0] != "num" or parts[1][0] != "pow":
        return False
    top, bottom = parts[0][1], parts[1][1]
    if bottom[0] != "num" or parts[1][2] != MINUS_ONE:
        return False
    both: list[Fraction] = [top, bottom[1]]
    return all(one.denominator == 1 for one in both) and gcd(*map(int, both)) == 1


def _ordered(tree: Tree) -> Tree:
    """A tree whose terms and factors are in one order, without brackets around some of them."""
    if not isinstance(tree, tuple):
        return tree
    kind, *parts = tree[0], *map(_ordered, tree[1:])
    if kind in ("add", "mul"):
        flat = [one for part in parts for one in (part[1:] if part[0] == kind else (part,))]
        parts = sorted(flat, key=repr)
    return (kind, *parts)
