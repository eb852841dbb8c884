"""Restated: whether an answer is a formula of its question, copied instead of worked out.

A question that asks for the value of an expression has it as text: `\\sqrt{16}+3` equals the gold
7. Formulas are compared as trees: other print, another order of terms and factors, and whatever
does not change the value of a formula around it, is a copy too.
"""

import contextlib
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from grading.equivalence.numeric import identical
from grading.equivalence.readings import read
from grading.equivalence.relations import result_of
from grading.equivalence.tokens import Unreadable, to_ascii
from grading.equivalence.values import Choice, Relation, Scalar, Value, is_measure
from grading.equivalence.values import Sequence as Several
from grading.forms import Form, contains, form, is_plain, parts_of, read_formula

_DELIMITED = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
# Words part the formulas of plain text, but for the names of functions and products of letters.
_WORD = re.compile(
    r"(?<![\\A-Za-z])(?!(?:sqrt|sin|cos|tan|log|ln|pi)(?![a-z]))"
    r"(?:[A-Za-z]{3,}"
    r"|(?:an|as|at|be|by|do|he|if|in|is|it|me|my|no|of|on|or|so|to|up|us|we)(?![a-z])"
    r"|[aAI](?=\s+[\dA-Za-z(\\]))[A-Za-z']*",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[,;:?](?:\s|$)|\.(?:\s|$)|\n")
_QUANTITY = re.compile(
    r"(?<![\w.])\d[\d.,/]*(?:\s\d+/\d+)?\s{0,4}(?:(?:square|cubic)\s)?[A-Za-z]+(?:\s?/\s?[a-z]+)?"
)
# What is to be brought into another form: the formulas behind an imperative, or those of a whole
# sentence that asks for a form.
_VERB = (
    r"(?:convert|simplify|factor(?:i[sz]e)?|expand|evaluate|reduce|change|express|rewrite|write"
    r"|compute)"
)
_START = (
    r"(?:^|(?:[.?!;:,]\s|\n)\s*|\b(?:to|and|then|please|now|you|we|i|must|should|can|could)\s+)"
)
_TASK = re.compile(rf"{_START}{_VERB}\b")
_AS_FORM = re.compile(
    r"\bas an? (?:\w+ )?(?:fraction|decimal|per ?cent(?:age)?|mixed number|ratio|power)\b"
    r"|\bin scientific notation\b|\bas which power\b"
)
_REDUCED = re.compile(
    r"\bsimplif|\bsimplest|\blowest terms|\breduced? (?:\w+ ){0,2}(?:fraction|form)"
)
_FACTORED = re.compile(
    rf"{_START}factor(?:i[sz]e)?\b|\bfactored\b"
    r"|\b(?:prime )?factori[sz]ation\b|\bproduct of (?:\w+ )*(?:primes|prime factors)\b"
)
_EXPANDED = re.compile(rf"{_START}expand\b")
_STEMS = ("conver", "simpl", "factor", "expan", "evaluat", "reduc", "chang", "expres", "writ",
    "comput", "lowest", "as a", "scientific", "product of", "which power")  # fmt: skip
_SENTENCE_END = re.compile(r"[.?!](?:\s|$)|\n\n")
_RELATION = re.compile(r"[=<>]|\\(?:[lgn]eq?|in|approx|equiv)(?![A-Za-z])")
_MEASURE = re.compile(r"[\s$~}]*(?:(?:square|cubic)\s)?([A-Za-z]+)")
_POWER = re.compile(r"\^|square|cubic|\bsq\b|\bcu\b")
_DELIMITER = re.compile(r"(?<!\\)\$|\\[()\[\]]|\\text\s*\{|\}")
HUNDREDTH = ("num", Fraction(1, 100))
MAX_FORMULAS = 100  # in a question


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula of a question: `form` and `reduced` are its forms, `exact` the one as printed."""

    value: Value
    form: Form
    reduced: Form
    exact: Form
    has_task: bool  # an imperative asks to bring it into another form
    is_plain: bool


def is_restated(values: Iterable[Value], question: str, golds: Sequence[str]) -> bool:
    """Whether a prediction that equals a gold is a formula of the question and no gold is.

    It is, too, where such a formula stands in it that equals the whole of it: what is around it
    changes nothing. Plain numbers and names are copies only where the question says to convert,
    simplify, factor, expand, evaluate or express them.

    Args:
        values: the readings of the prediction that equal a gold.
        question: its text.
        golds: the texts of the golds.
    """
    wanted = [part for gold in golds for value in read(gold, True) for part in parts_of(value)]
    exact = [form(part, is_exact=True) for part in wanted]
    reduced = [form(part, is_reduced=True) for part in wanted]
    results = [one for value in values for one in find_results(value, golds)]
    for result in results:
        if form(result, is_exact=True) in exact:
            continue
        for formula in find_formulas(question):
            if any(contains(one, formula.exact) for one in exact):
                continue  # the gold is a formula of the question, too
            if _is_copy(result, formula, is_reduced=False):
                return True
            is_worked_out = any(contains(one, formula.reduced) for one in reduced)
            if not is_worked_out and _is_copy(result, formula, is_reduced=True):
                return True
    return False


def _is_copy(result: Value, formula: Formula, is_reduced: bool) -> bool:
    """Whether a value is a formula, or has one inside that equals it, by one kind of form."""
    wanted = formula.reduced if is_reduced else formula.form
    if formula.is_plain:
        ours = form(result, is_reduced=is_reduced)
        return formula.has_task and ours == wanted and _has_sign_of(formula.value, result)
    parts = [result] if isinstance(result, Relation) else parts_of(result)
    return any(
        _is_in(one, formula.value, form(one, is_reduced=is_reduced), wanted) for one in parts
    )


def find_results(value: Value, golds: Sequence[str]) -> list[Value]:
    """A value, and what it says the answer is: an option's value, the item of a set of one.

    Of an equation that is what it leads to; where a gold is one, each side.
    """
    are_equations = any(map(_RELATION.search, golds))
    results = [value]
    for one in results:  # grows on the way
        if isinstance(one, Relation):
            results += one.parts if are_equations else [result_of(one)]
        elif isinstance(one, Choice) and one.value:
            results.append(one.value)
        elif isinstance(one, Several) and one.kind == "conditional":
            results.append(one.items[0])
        elif isinstance(one, Several) and (len(one.items) == 1 or one.kind == "alternatives"):
            results += one.items
    return results


def _is_in(value: Value, given: Value, whole: Form, part: Form) -> bool:
    """Whether a value is a given one, or has it inside and equals it."""
    if whole is None or part is None or not contains(whole, part):
        return False
    if whole == part:
        return _has_sign_of(given, value)
    if not (isinstance(value, Scalar) and isinstance(given, Scalar)):
        return False
    is_scaled = value.percent and not given.percent
    tree = ("mul", value.tree, HUNDREDTH) if is_scaled else value.tree
    with contextlib.suppress(Unreadable):
        return identical(tree, given.tree)
    return False


def _has_sign_of(given: Value, value: Value) -> bool:
    """Whether a value has the unit or per cent sign of a given one, or that one has none.

    26 ml is no copy of 26 cm^3, but 3 + 4 with a unit is one of 3 + 4.
    """
    sign = _sign(given)
    return sign is None or sign == _sign(value)


def _sign(value: Value) -> tuple | None:
    """The unit or per cent sign of a number, and whether it is written as a power."""
    if not isinstance(value, Scalar) or (value.unit is None and not value.percent):
        return None
    return value.unit, value.percent, bool(_POWER.search(value.text))


@functools.lru_cache(maxsize=1024)
def find_tasks(question: str) -> frozenset[str]:
    """What a question asks to do with its formulas: reduce, simplify, factor, other."""
    lowered = question.lower()
    if not any(stem in lowered for stem in _STEMS):
        return frozenset()
    tasks = {
        "reduce": _REDUCED.search(lowered),
        "simplify": "simplif" in lowered,
        "factor": _FACTORED.search(lowered),
        "expand": _EXPANDED.search(lowered),
        "other": _TASK.search(lowered) or _AS_FORM.search(lowered),
    }
    return frozenset(name for name, is_asked in tasks.items() if is_asked)


@functools.lru_cache(maxsize=1024)  # of a group's completions each is held against it
def find_formulas(question: str) -> list[Formula]:
    """The formulas of a question, the sides of its equations too; no bare names."""
    lowered = question.lower()
    ends = [match.start() for match in _SENTENCE_END.finditer(question)] + [len(question)]
    spans = []
    for task in _TASK.finditer(lowered):
        spans.append((task.end(), next(end for end in ends if end >= task.end())))
    for as_form in _AS_FORM.finditer(lowered):
        first = max([0, *(end for end in ends if end < as_form.start())])
        spans.append((first, as_form.start()))
    found: dict[tuple, Formula] = {}
    for start, text, is_measured in itertools.islice(_formulas(to_ascii(question)), MAX_FORMULAS):
        has_task = any(first <= start <= last for first, last in spans)
        for value in read_formula(text):
            for one in (value, *(value.parts if isinstance(value, Relation) else ())):
                formula = _formula(one, has_task)
                if formula.form is None or formula.form[0] == "var":
                    continue
                if not (formula.is_plain and is_measured):
                    found[formula.form, formula.exact, has_task, _sign(one)] = formula
    return [*found.values()]


def _formula(value: Value, has_task: bool) -> Formula:
    forms = form(value), form(value, is_reduced=True), form(value, is_exact=True)
    is_number = forms[0] is not None and forms[0][0] == "num" and not _sign(value)  # 5/1
    return Formula(value, *forms, has_task, is_plain(value) or is_number)


def _formulas(question: str) -> Iterator[tuple[int, str, bool]]:
    """(where it starts, text, whether a unit of measure follows) of each formula.

    Formulas stand between delimiters, and in the words around.
    """
    at = 0
    for match in _DELIMITED.finditer(question):
        yield match.start(), match[match.lastindex], _is_measured(question, match.end())
        yield from _plain_formulas(question, at, match.start())
        at = match.end()
    yield from _plain_formulas(question, at, len(question))
    plain = _DELIMITER.sub(lambda match: " " * len(match[0]), question)
    for quantity in _QUANTITY.finditer(plain):
        yield quantity.start(), quantity[0], False


def _plain_formulas(question: str, start: int, end: int) -> Iterator[tuple[int, str, bool]]:
    """The formulas in a stretch of words: `(x+1)(x+2)`, `7*8`, `7 miles`."""
    at = start
    for word in [*_WORD.finditer(question, start, end), None]:
        stop = word.start() if word else end
        piece = question[at:stop]
        yield at, piece, _is_measured(question, stop)
        if _SEPARATOR.search(piece):
            yield from ((at, part, False) for part in _SEPARATOR.split(piece))
        at = word.end() if word else end


def _is_measured(question: str, end: int) -> bool:
    """Whether a unit of measure follows: the 26 of 26 ml is no formula."""
    word = _MEASURE.match(question, end)
    return bool(word) and word[1] != "in" and is_measure(word[1])
