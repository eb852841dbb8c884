"""Restated: whether an answer is a formula of its question, copied instead of worked out.

A question that asks for the value of an expression has it as text: `\\sqrt{16}+3` equals the gold
7. Formulas are compared as trees: other print, and another order of terms and factors, is a copy
too. Nothing is evaluated.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

from grading.equivalence.tokens import is_simple, to_ascii
from grading.equivalence.values import Unit
from grading.forms import IS_FORMULA, Form, forms

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
_NO_ATOM = re.compile(
    r"\^\s*(?:\{[^{}]*\}|\d)|(?<=\\sqrt)\s*\[\d\]"  # x^2 may be xx
    r"|\\(?:text|mathrm)\s*\{[^{}]*\}|(?<=\d)(?:\s|\\[, ])+[A-Za-z](?![A-Za-z])"  # a unit
)
_ATOM = re.compile(r"\d|(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
_LAST_SIDE = re.compile(r"(?<![<>!:\\])=")
_RELATION = re.compile(r"[=<>]|\\(?:[lgn]eq?|in|approx|equiv)(?![A-Za-z])")
_DELIMITER = re.compile(r"(?<!\\)\$|\\[()\[\]]|\\text\s*\{|\}")
MAX_FORMULAS = 100  # in a question


def is_restated(prediction: str, question: str, golds: Sequence[str]) -> bool:
    """Whether a prediction that equals a gold is a formula of the question and no gold is.

    Plain numbers and names are copies only where the question says to convert, simplify, factor,
    expand, evaluate or express them.
    """
    tasks = find_tasks(question)
    if prediction.strip() in golds or (not tasks and is_simple(prediction)):
        return False
    results = find_results(prediction, golds)
    return any(_is_copy(result, question, golds, bool(tasks)) for result in results)


def find_results(prediction: str, golds: Sequence[str]) -> set[str]:
    """A prediction, and what stands behind its last equals sign where no gold is an equation."""
    prediction = _without_braces(to_ascii(prediction))
    if any(map(_RELATION.search, golds)):
        return {prediction}
    return {prediction, _LAST_SIDE.split(prediction)[-1]}


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
    lowered = question.lower()
    ends = [match.start() for match in _SENTENCE_END.finditer(question)] + [len(question)]
    spans = []
    for task in _TASK.finditer(lowered):
        spans.append((task.end(), next(end for end in ends if end >= task.end())))
    for form in _AS_FORM.finditer(lowered):
        spans.append((max([0, *(end for end in ends if end < form.start())]), form.start()))
    question = to_ascii(question)
    return [
        (text, _atoms(text), any(first <= start <= last for first, last in spans))
        for start, text in itertools.islice(_formulas(question), MAX_FORMULAS)
        if IS_FORMULA.search(text)
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
