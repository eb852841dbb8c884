"""Readings: the values that an answer's text may stand for.

Mostly one. But `1,234` may be a number or a list, `5 m` five metres or 5 times m, `C) 12` an option
or its value, and conditions and introductions in words are no part of the value.
"""

import re
from dataclasses import replace
from fractions import Fraction

from data_prep.grading.equivalence.latex import normalise
from data_prep.grading.equivalence.structure import read_tokens
from data_prep.grading.equivalence.syntax import parse
from data_prep.grading.equivalence.tokens import (
    MAX_DEPTH,
    Token,
    Unreadable,
    canonical,
    nesting,
    tokenise,
    wraps,
)
from data_prep.grading.equivalence.units import is_blurring, split_unit
from data_prep.grading.equivalence.values import (
    Choice,
    Opaque,
    Relation,
    Scalar,
    Sequence,
    Value,
    Words,
)

_CONDITION = re.compile(r"(?:for (?:all|every|any|each)|where)\b.*", re.IGNORECASE)


def _without_condition(tokens: list[Token]) -> tuple[list[Token], str | None]:
    """(tokens before a trailing condition, its variable): `k\\pi, k \\in \\mathbb{Z}`."""
    for at, token in enumerate(tokens):
        if at and (
            token.text == r"\forall" or (token.kind == "text" and _CONDITION.match(token.text))
        ):
            return tokens[:at], None
    for at in range(len(tokens) - 1, 0, -1):
        rest = tokens[at:]
        if rest[0].text in (",", ";") or (rest[0].text == "(" and wraps(rest)):
            inside = rest[1:-1] if rest[0].text == "(" else rest[1:]
            if len(inside) > 2 and inside[0].kind == "word" and inside[1].text == r"\in":
                head = tokens[:at]
                while head and head[-1].text in (",", ";"):
                    head = head[:-1]
                return head, inside[0].text
    return tokens, None


def _unconditional(tokens: list[Token]) -> list[Value]:
    """Readings without the trailing condition, its variable under the name of its set.

    `k \\in \\mathbb{Z}` beside `n \\in \\mathbb{Z}` is the same, `k \\in \\mathbb{N}` is not.
    """
    head, variable = _without_condition(tokens)
    if not head or len(head) == len(tokens):
        return []
    if variable is None:
        return [read_tokens(head)]
    where = "".join(t.text for t in tokens[len(head) :] if t.kind == "word" or t.text in "+-*^")
    name = _SET_NAMES.get(where.partition(variable)[2], "\u2102")
    named = [replace(token, text=name) if token.text == variable else token for token in head]
    return [read_tokens(named)]


def read_bare(text: str) -> list[Value]:
    """The value before `k \\in \\mathbb{Z}` as it stands, beside one that has no condition."""
    tokens = tokenise(normalise(text))
    if nesting(tokens) > MAX_DEPTH:
        return []
    head, variable = _without_condition(tokens)
    if not head or not variable:
        return []
    value = read_tokens(head)
    is_restricted = isinstance(value, Relation) and not {"=", r"\in"}.issuperset(value.ops)
    return [] if is_restricted else [value]  # x > 5 and x in Z is another set than x > 5


_SET_NAMES = {"Z": "\u2124", "N": "\u2115", "R": "\u211d"}  # each one letter, as a variable is


_INTRODUCTION = re.compile(
    r"exactly|only|just|.*\b(?:is|are)|the (?:\w+ ){0,2}(?:answer|value|point|number|solution"
    r"|result|total|area|volume|length|vector|set|interval|function|equation|range|domain|angle)s?",
    re.IGNORECASE,
)


def _is_upright(token: Token) -> bool:
    return token.kind == "text" or (token.kind == "word" and len(token.text) > 3)


def _after_leading_words(tokens: list[Token]) -> list[Value]:
    """`\\text{The point }(2, -1)`: what upright words introduce."""
    at = next((at for at, token in enumerate(tokens) if not _is_upright(token)), 0)
    words = canonical(tokens[:at])
    if not 0 < at < len(tokens) or any(is_blurring(token) for token in tokens[:at]):
        return []
    if tokens[at].text == ":":
        at += 1
    elif not _INTRODUCTION.fullmatch(words):
        return []  # October 30 is not 30, nor is the reciprocal of 5 five
    rest = tokens[at:]
    value = read_tokens(rest)
    is_several = isinstance(value, Sequence) and value.kind in ("list", "alternatives")
    return [] if is_several or isinstance(value, Opaque | Words) else [value]


_CHOICE = re.compile(r"(?:\(([A-Ja-j])\)|([A-J])[).:])")


_OPTION = re.compile(r"(?:option|choice|answer)\s*\(?([A-J])\)?", re.IGNORECASE)


def _read_choice(tokens: list[Token]) -> Value | None:
    """`(C) 12`, `C. 12`, `C)`: an option's letter, with or without its value."""
    text = canonical(tokens)
    if option := _OPTION.fullmatch(text):
        return Choice(text, option[1], None)
    match = _CHOICE.match(canonical(tokens[:3]))
    if not match:
        return None
    letter = (match[1] or match[2]).upper()
    rest = tokens[3 if match[1] else 2 :]
    if not rest:
        # (c) may also be a variable in brackets; that reading stands first.
        return Choice(canonical(tokens), letter, None)
    is_letters = rest[0].kind == "word" and len(rest[0].text) < 3
    is_factor = not rest[0].spaced and (rest[0].kind == "op" or (match[1] or "").islower())
    is_factor = is_factor or (rest[0].text in "+-([{^" and (match[1] or "").islower())
    if is_letters or is_factor or any(re.fullmatch("[A-J]", token.text) for token in rest):
        return None
    value = read_tokens(rest)
    is_several = isinstance(value, Sequence) and value.kind in ("list", "alternatives")
    return None if is_several else Choice(canonical(tokens), letter, value)


def _spelled_minus(token: Token) -> Token:
    is_minus = token.kind in ("text", "word") and token.text.lower() in ("minus", "negative")
    return Token("op", "-", token.spaced) if is_minus else token


def read(text: str, is_gold: bool) -> list[Value]:
    """The readings of an answer, the most likely first; never empty.

    Args:
        is_gold: `1,234` in a gold is a number; a prediction may mean the list `1, 234`.
    """
    normal = normalise(text)
    tokens = list(map(_spelled_minus, tokenise(normal)))
    if nesting(tokens) > MAX_DEPTH:
        return [Opaque(canonical(tokens))]
    choice = _read_choice(tokens)
    if choice and choice.value:
        return [choice]
    readings = [
        read_tokens(tokens),
        *([choice] if choice else []),
        *_after_leading_words(tokens),
        *_unconditional(tokens),
    ]
    separate = tokens if is_gold else tokenise(normal, thousands=False)
    if separate != tokens:
        readings.append(read_tokens(separate))
    # `5 m` is a product to the parser; as a quantity it is another reading.
    if isinstance(readings[0], Scalar) and readings[0].unit is None:
        value, unit, scale = split_unit(tokens)
        is_letter = len(tokens) - len(value) == 1 and len(tokens[-1].text) == 1
        if unit is None:
            return readings
        try:
            tree = ("mul", parse(value), ("num", Fraction(scale)))
            guess = is_gold and is_letter  # 2 t may well be 2 times t
            readings.append(Scalar(readings[0].text, tree, unit, is_guess=guess))
        except Unreadable:
            pass
    return readings
