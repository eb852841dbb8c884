"""Asked: what a question says about its answer: the options, the unit, the base."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from grading.equivalence.compare import compare, is_same_value
from grading.equivalence.numeric import identical
from grading.equivalence.readings import read
from grading.equivalence.relations import plain_label
from grading.equivalence.tokens import Token, Unreadable
from grading.equivalence.values import (
    Choice,
    Relation,
    Scalar,
    Unit,
    Value,
    is_measure,
    ratio,
    read_unit,
)

_PRINT = r"(?:\\(?:text|math)[a-z]*\s*\{|\\(?:rm|bf)(?![a-z])|[\s${*]|\\ ){0,9}"
_AFTER = r"(?:[\s$}*~:.]|\\[ ,;:])*"
_LETTER = re.compile(rf"{_PRINT}[(\[]?\s*([A-Ja-j])\s*[)\]]?{_AFTER}")
# `(A) 1`, `A: 1`, `A. 1`, `[A] 1`, `\textbf{(A)}\ 1`, at the start of a line or behind a space.
_MARK = re.compile(
    rf"(?:(?<=[\s$}}~\[,;])|(?<=quad)|(?<=\\\\)|^)(?:[-*\u2022]\s+)?{_PRINT}"
    rf"(?:[(\[]([A-Ja-j])(?:\s|\\ )*[)\]]|([A-J])[).:](?!\d)){_AFTER}(?=\S)",
    re.MULTILINE,
)
_HAS_OPTIONS = re.compile(r"B\s?[).:\]}]|[(\[]b[)\]]")
_SPACES = re.compile(r"[\s$~{}]|\\[ ,;:!]|\\(?:text|mathrm)(?![a-z])")
_END = re.compile(r"(?:[\s,;$~]|\\q?quad|\\[ ,;!]|\\\\|\.(?=\s*$))+$")


def option_letter(text: str) -> str | None:
    """The letter of an answer that is one option and nothing more, else None."""
    match = _LETTER.fullmatch(text)
    return match[1].upper() if match else None


@functools.lru_cache(maxsize=1024)
def find_options(question: str) -> dict[str, str]:
    """{letter: text} of the options in a question, which must be A, B, C, … in this order."""
    options: dict[str, str] = {}
    if not _HAS_OPTIONS.search(question):
        return options
    marks = list(_MARK.finditer(question))
    for at, mark in enumerate(marks):
        letter = (mark[1] or mark[2]).upper()
        if letter == "A":
            options = {}  # the last list counts
        elif letter != chr(ord("A") + len(options)):
            continue
        following = (one.start() for one in marks[at + 1 :])
        text = question[mark.end() : next(following, len(question))].partition("\n\n")[0]
        text = _END.sub("", text)
        options[letter] = text.replace("$", "") if text.count("$") % 2 else text
    return options if len(options) > 1 else {}


_IS_ABOUT_BASES = re.compile("base|binary|octal|decimal")
_BASE = re.compile(
    r"\b(?:in|to|into)\s+(?:base[\s-]+(\w+)|(binary|octal|decimal|hexadecimal)\b)"
    r"|\bbase\b(?!.*\b(?:in|to)\s+base)",
    re.DOTALL,
)
_BASES = {"binary": "2", "octal": "8", "decimal": "10", "hexadecimal": "16"}


def _asked_base(question: str) -> str | None:
    """The base that a question in small letters asks for, None where it is not about bases."""
    if not (_IS_ABOUT_BASES.search(question) and (found := _BASE.search(question))):
        return None
    return _BASES[found[2] or "decimal"] if found[1] is None else found[1]


_COUNTED = re.compile(r"how many (?:(?:more|fewer|total|whole|full) )?((?:square |cubic )?[a-z]+)")
_UNIT = re.compile(r"\b(?:in|of) ((?:square |cubic )?[a-z]+)\s*(?=[?.,)]|$)")
MAX_END = 120  # characters at the end of a question in which `in metres?` is looked for
_SCALES = {"pair", "dozen", "couple", "hundred", "thousand", "million", "billion"}
_PERCENT = re.compile(r"%|percent|per cent|\bprobab|\bchance|\brate\b|\binterest\b")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question says about its answer; `unit` is a measure, `scale` a word such as pairs."""

    options: dict[str, str]
    base: str | None
    unit: str | None
    scale: str | None


@functools.lru_cache(maxsize=1024)  # of a group's completions each asks for it
def _read_question(question: str) -> Asked:
    lowered = question.lower()
    found = _COUNTED.findall(lowered) + _UNIT.findall(lowered[-MAX_END:])
    units = {name for name in found if len(name) > 2 and is_measure(name.split()[-1])}
    scales = {word for word in found if word.removesuffix("s") in _SCALES}
    return Asked(
        options=find_options(question),
        base=_asked_base(lowered),
        unit=units.pop() if len(units) == 1 else None,
        scale=scales.pop() if len(scales) == 1 else None,
    )


def golds_as_asked(golds: Sequence[str], question: str, prediction: str) -> list[str]:
    """The golds, and each that is an option's letter or value as both of them: `(B) 2`.

    Digits of which the question names the base or the unit are a gold with these, too: `2011_3`.
    """
    if not question or prediction in golds:
        return [*golds]
    asked = _read_question(question)
    options, scale = asked.options, asked.scale or ""
    is_scaled = scale and scale.removesuffix("s") in prediction
    units = [one for one in (asked.unit, scale if is_scaled else None) if one]
    more = [rf"{gold} \text{{ {unit}}}" for unit in units for gold in golds if is_plain(gold)]
    if asked.base:
        more += [f"{gold}_{{{asked.base}}}" for gold in golds if gold.strip().isalnum()]
    for gold in golds if options else ():
        letter, named = option_letter(gold), option_letter(prediction)
        if letter in options:
            more += [f"({letter}) {options[letter]}", options[letter]]
            if _is_spelled_out(prediction, letter, options[letter]):
                more.append(prediction)
        elif letter is None and named in options and is_same_value(options[named], gold):
            more.append(f"({named}) {gold}")
    return [*golds, *more]


def _is_spelled_out(prediction: str, letter: str, option: str) -> bool:
    """Whether a prediction is an option as the question prints it: `C) x=-1`."""
    match = _MARK.match(prediction)
    if not match or (match[1] or match[2]).upper() != letter:
        return False
    ours, theirs = (_SPACES.sub("", text) for text in (prediction[match.end() :], option))
    return bool(ours) and ours == theirs


def is_plain(text: str) -> bool:
    """Whether a text is an integer or a decimal and nothing more."""
    return text.strip().replace(".", "", 1).replace(",", "").isdecimal()


def contradicts(
    prediction: str, pairs: Sequence[tuple[Value, Value]], question: str, golds: Sequence[str]
) -> bool:
    """Whether a prediction says that an option or unit is another than the question says.

    `(B) 13` where the question has `(B) 12`, 12 months where it asks for years, 8% where neither
    the question nor a gold is about per cent. `pairs` are the readings of both that are equal.
    """
    asked = _read_question(question)
    values = [ours for ours, _ in pairs]
    try:
        return (
            any(_is_other_option(value, asked.options) for value in values)
            or _is_other_unit(prediction, values, golds, asked.unit)
            or _is_stray_percent(pairs, golds, question)
            or ("in terms of" in question and _is_solved_for_another(prediction, golds))
        )
    except Unreadable:
        return False


def _is_other_option(value: Value, options: dict[str, str]) -> bool:
    if not isinstance(value, Choice) or value.value is None or value.letter not in options:
        return False
    return compare(value.value.text, options[value.letter]) is False


def _is_other_unit(
    prediction: str, values: Sequence[Value], golds: Sequence[str], unit: str | None
) -> bool:
    asked = read_unit([Token("word", word) for word in unit.split()]) if unit else None
    units = [one.unit for one in values if isinstance(one, Scalar) and one.unit]
    if not asked or not any(_is_convertible(one, asked[0]) for one in units):
        return False
    return not any(is_same_value(prediction, gold) for gold in golds if not is_plain(gold))


def _is_solved_for_another(prediction: str, golds: Sequence[str]) -> bool:
    """Whether both are solved for a letter, and for another one."""
    letters = [_solved_for(one) for one in (prediction, *golds)]
    return None not in letters and letters[0] not in letters[1:]


def _solved_for(text: str) -> str | None:
    value = read(text, True)[0]
    return plain_label(value) if isinstance(value, Relation) and value.ops == ("=",) else None


def _is_stray_percent(
    pairs: Sequence[tuple[Value, Value]], golds: Sequence[str], question: str
) -> bool:
    """Whether a sign stands behind a number that is the gold without it."""
    if any("%" in gold for gold in golds) or _PERCENT.search(question.lower()):
        return False
    return any(
        isinstance(ours, Scalar)
        and ours.percent
        and isinstance(gold, Scalar)
        and not gold.percent
        and identical(ours.tree, gold.tree)
        for ours, gold in pairs
    )


def _is_convertible(unit: Unit, asked: Unit) -> bool:
    """Whether two units measure the same in other sizes, or a length and an area."""
    if unit.dimensions == asked.dimensions:
        return ratio(unit, asked) not in (None, 1)
    return bool(unit.dimensions) and dict(unit.dimensions).keys() == dict(asked.dimensions).keys()
