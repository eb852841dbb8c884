"""Compare: whether a prediction is the value of a gold, which settles what is ambiguous.

`1,234` is a number unless the gold is a list, `5 m` five metres unless the gold has a letter m, and
`P(x)` a call where P stands before brackets only.
"""

import functools
import re
import string
from fractions import Fraction

from grading.canonical import canonical, letters_of
from grading.equal import equal
from grading.numeric import TooLarge, is_defined
from grading.parse import parse
from grading.values import (
    Bracketed,
    Conditional,
    Named,
    Number,
    Opaque,
    Option,
    Ratio,
    Several,
    Value,
    Words,
    parts_of,
    unnamed,
)

MAX_CHARS = 500  # longest value compared; the longest gold of MATH has 159 characters
MAX_WORDS = 4  # a name or a short phrase can be a gold, a sentence cannot
# An integer or decimal, the short way of most golds; `$18$`, but no unit.
_PLAIN_NUMBER = re.compile(
    r"\s*(?:\\?\$)?\s*([+-]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?)\s*\.?\s*\$?\s*\.?\s*",
    re.ASCII,
)
_CALL = re.compile(
    r"(?<![A-Za-z\\])[a-z]?([A-Za-z])(?:\\left)?\(\s*(?:[A-Za-z]|[\d.]+)\s*(?:\\right)?\)"
)
_DEFINED = re.compile(
    r"(?<![\w)}^])([A-Za-z])(?:_\{?\w+\}?|'+|\^\{-1\})?\s*(?:\\left)?\([^()]*\)\s*="
)
_GROUPED = re.compile(r"\d[, ]\d{3}")
_LETTERS = frozenset(string.ascii_letters)


def _calls(prediction: str, gold: str) -> str:
    """The letters that brackets behind them apply to something: f, g, P in `P(x)`, no factors."""
    both = f"{prediction} ; {gold}"
    if "(" not in both:
        return ""
    plain = re.sub(r"\\[A-Za-z]+", "", both)
    defined = {
        letter
        for letter in _DEFINED.findall(both)
        if plain.count(letter)
        == len(re.findall(rf"{letter}(?:_\{{?\w+\}}?|'+|\^\{{-1\}})?\s*\(", plain))
    }
    return "".join(sorted({"f", "g", *_CALL.findall(both), *defined}))


@functools.lru_cache(maxsize=8192)  # a gold is compared with every completion of its group
def read(
    text: str, calls: str = "", letters: frozenset[str] = _LETTERS, grouped: bool = True
) -> Value:
    """The canonical value of a text; by default single letters are no units, as in a gold."""
    value = canonical(parse(text, calls, letters, grouped))
    match value:
        case Several((single,), "set") if not isinstance(single, Several):
            return single
    return value


def match(prediction: str, gold: str) -> tuple[Value, Value] | None:
    """What a prediction and a gold are that are equal, read beside each other; else None."""
    prediction, gold = prediction.strip(), gold.strip()
    if not prediction or not gold:
        return None
    if max(len(prediction), len(gold)) > MAX_CHARS:
        return (Opaque(gold), Opaque(gold)) if prediction == gold else None
    try:
        if prediction == gold:
            return read(prediction), read(gold)
        plain = [one[1] for text in (prediction, gold) if (one := _PLAIN_NUMBER.fullmatch(text))]
        if len(plain) == 2:
            ours, theirs = (Fraction(number.replace(",", "")) for number in plain)
            return (read(prediction), read(gold)) if ours == theirs else None
        calls = _calls(prediction, gold)
        wanted = read(gold, calls)
        if wanted == Opaque(""):
            return None  # print alone
        letters = frozenset(letters_of(wanted))
        for is_grouped in (True, False) if _GROUPED.search(prediction) else (True,):
            value = read(prediction, calls, letters, is_grouped)
            if equal(value, wanted):
                return _meant(value, wanted), wanted
        measured = read(gold, calls, frozenset())
        if measured != wanted:  # the gold 5 m against 5 metres
            value = read(prediction, calls, frozenset())
            if _units(value) and equal(value, measured):
                return value, measured
    except (TooLarge, RecursionError):
        return (Opaque(gold), Opaque(gold)) if prediction == gold else None
    return None


def _meant(value: Value, wanted: Value) -> Value:
    """Of an exact value and a decimal near it the one that equals the gold."""
    inner = unnamed(value)
    if isinstance(inner, Several) and inner.kind == "near":
        return next(one for one in inner.items if equal(one, wanted))
    return value


def _units(value: Value) -> bool:
    value = unnamed(value)
    return isinstance(value, Number) and value.unit is not None


def is_same_value(first: str, second: str) -> bool:
    """Whether two answers are one value."""
    return match(first, second) is not None


def num_listed(gold: str) -> int:
    """How many values a gold lists in any order; 1 where it is no list or set."""
    try:
        value = read(gold) if len(gold) <= MAX_CHARS else None
    except TooLarge:
        return 1
    match value:
        case Named(name, Bracketed(_, items, _)) if "," in name:  # m = 3, n = 5
            return len(items)
        case Several(items) | Named(_, Several(items)):
            return len(items)
    return 1


def is_name(text: str) -> bool:
    """Whether a text is words and no sentence: a name, a date, a time of day, an option."""
    try:
        value = read(text)
    except TooLarge:
        return False
    return isinstance(value, Words | Option) and _is_known(value)


def is_parseable(text: str) -> bool:
    """Whether a text can serve as a gold: a value of a kind that we can compare."""
    if len(text) > MAX_CHARS:
        return False
    if _PLAIN_NUMBER.fullmatch(text):
        return True
    try:
        return _is_known(read(text))
    except TooLarge:
        return False


def _is_known(value: Value) -> bool:
    match value:
        case Number(tree):
            return is_defined(tree)
        case Words(text):
            words = text.split()
            has_letters = len(words) > 1 and any(len(w) == 1 and w not in "aA" for w in words)
            return len(words) <= MAX_WORDS and not has_letters
        case Ratio() | Conditional():
            return True
    return not isinstance(value, Opaque) and all(map(_is_known, parts_of(value)))
