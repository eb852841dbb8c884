"""Scalars: one number or expression with its unit, a number in a base, a ratio, or words."""

import re
from fractions import Fraction

from data_prep.grading.equivalence.syntax import parse
from data_prep.grading.equivalence.tokens import Token, Unreadable, canonical, split
from data_prep.grading.equivalence.units import split_unit
from data_prep.grading.equivalence.values import (
    INFINITY,
    MINUS_INFINITY,
    Based,
    Scalar,
    Sequence,
    Value,
    Words,
)
from data_prep.grading.equivalence.vocabulary import FUNCTIONS
from data_prep.grading.equivalence.words import read_number_words


def is_conjunction(token: Token) -> bool:
    """Whether a token is "and" or "or"."""
    return token.kind in ("text", "word") and token.text.strip(" ,").lower() in ("and", "or")


def read_words(tokens: list[Token]) -> Value | None:
    """Words, letters side by side, or a number in words; None for anything else."""
    if any(
        t.kind not in ("word", "text") and t.text not in ("'", "-", ".", "!", ":")
        for t in tokens
        if not (t.kind == "num" and tokens[0].kind != "num" and len(tokens[0].text) > 2)  # June 20
    ):
        return None
    if len(tokens) == 1 and len(tokens[0].text) == 1:
        return None  # a variable
    if not any(t.kind in ("word", "text") for t in tokens):
        return None
    if any(is_conjunction(t) or t.text == "-" for t in tokens) and len(tokens) > 1:
        return None
    text = canonical(tokens)
    number = read_number_words(text)
    if number is not None:
        return Scalar(text, ("num", number))
    try:
        tree = parse(tokens)
    except Unreadable:
        tree = None
    return Words(text, tree)


_BASE_WORDS = dict(
    zip(
        ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
        "23456789",
        strict=False,
    )
)
_BASED = re.compile(
    r"(-?)\(?([0-9A-Za-f]*\d[0-9A-Za-f]*(?:\.\d+)?|[A-F]+)\)?(?:_\{?(-?\w+)\}?|\(?base(-?\w+)\)?)",
    re.ASCII,
)


def read_based(tokens: list[Token]) -> Value | None:
    """`1011_2`, `(3B)_{16}`, `12 base 5`; None for anything else."""
    text = canonical(tokens).replace(" ", "")
    match = _BASED.fullmatch(text)
    if not match:
        return None
    sign, digits = match[1], match[2]
    base = match[3] or match[4]
    base = _BASE_WORDS.get(base, base)
    if not base.lstrip("-").isdecimal() or (digits.isalpha() and int(base) < 11):
        return None
    return Based(text, sign + digits.upper(), base)


def read_ratio(tokens: list[Token]) -> Value | None:
    """`2:3`, `2 to 3`, or a time of day as words; None for anything else."""
    pieces, separators = split(
        tokens, lambda t: t.text == ":" or (t.kind in ("text", "word") and t.text == "to")
    )
    if not separators or not all(pieces):
        return None
    if re.fullmatch(r"\d{1,2}:\d\d\D+", canonical(tokens)):
        return Words(canonical(tokens))  # 2:30 pm
    items = tuple(map(read_scalar, pieces))
    if not all(isinstance(item, Scalar) for item in items):
        return None
    return Sequence(canonical(tokens), "ratio", items)


_, _DEGREE, _ = split_unit([Token("num", "1"), Token("cmd", r"\degree")])
_ANGLE = re.compile(r"(\d+)\\degree(\d+)'(?:(\d+)'')?")


def _read_angle(text: str, tokens: list[Token]) -> Value | None:
    """`45^\\circ` and `7^\\circ 30'` as a number of degrees; `\\sin 30^\\circ` is no angle."""
    if match := _ANGLE.fullmatch(text):
        whole, minutes, seconds = (int(part or 0) for part in match.groups())
        return Scalar(
            text, ("num", whole + Fraction(minutes, 60) + Fraction(seconds, 3600)), _DEGREE
        )
    if tokens[-1].text != r"\degree" or any(token.text[1:] in FUNCTIONS for token in tokens):
        return None
    try:
        return Scalar(text, parse([t for t in tokens if t.text != r"\degree"]), _DEGREE)
    except Unreadable:
        return None


_PERCENT = ("percent", "percentage", "per cent")


def _with_sign(tokens: list[Token], plus_minus: str, minus_plus: str) -> list[Token]:
    signs = {r"\pm": plus_minus, r"\mp": minus_plus}
    return [Token("op", signs[t.text], t.spaced) if t.text in signs else t for t in tokens]


def read_scalar(tokens: list[Token]) -> Value | None:
    """A number or expression with its unit, or the two of a \\pm; None for anything else."""
    text = canonical(tokens)
    if text in (r"\infty", r"+\infty"):
        return INFINITY
    if text == r"-\infty":
        return MINUS_INFINITY
    if any(token.text in (r"\pm", r"\mp") for token in tokens):
        both = [read_scalar(_with_sign(tokens, *signs)) for signs in ("+-", "-+")]
        return Sequence(text, "list", tuple(both)) if all(both) else None
    if angle := _read_angle(text, tokens):
        return angle
    try:
        return Scalar(text, parse(tokens))
    except Unreadable:
        pass
    percent = tokens[-1].text == "%" or tokens[-1].text.lower() in _PERCENT
    if percent:
        tokens = tokens[:-1]
    value, unit, scale = split_unit(tokens)
    if percent and unit:
        return None
    try:
        tree = parse(value)
    except Unreadable:
        return None
    return Scalar(
        text, tree if scale == 1 else ("mul", tree, ("num", Fraction(scale))), unit, percent
    )
