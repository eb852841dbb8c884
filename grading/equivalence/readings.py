"""Readings: the values that an answer's text may be, the most likely first.

`read_tokens` gives the one value that tokens are: a list, a relation, a union, a matrix, a pair or
a number. A text that no reader knows is `Opaque` and equals only the same text. `read` gives all
values that the text may mean, mostly one. But `1,234` may be a number or a list, `5 m` five metres
or 5 times m, `C) 12` an option or its value. Conditions and introductory words are left out.
"""

import contextlib
import functools
import itertools
import re
from dataclasses import replace
from fractions import Fraction

from grading.equivalence import parse, relations, values
from grading.equivalence.numeric import exact_value, is_number
from grading.equivalence.relations import as_interval
from grading.equivalence.tokens import (
    MAX_DEPTH,
    Token,
    Unreadable,
    canonical,
    nesting,
    normalise,
    split,
    tokenise,
    wraps,
)
from grading.equivalence.values import Choice, Relation, Scalar, Sequence, Value, Words

MAX_ITEMS = 64
MAX_CHARS = 500  # longest text read; the longest gold of MATH has 159 characters
_RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\approx", r"\in", r"\equiv", r"\to"}
_ALL_REALS = Sequence(r"\mathbb{R}", "pair", (values.MINUS_INFINITY, values.INFINITY), ("(", ")"))


def _is_separator(token: Token) -> bool:
    return token.text in (",", ";", r"\\", r"\vee") or parse.is_conjunction(token)


def _read_list(tokens: list[Token]) -> Value | None:
    pieces, separators = split(tokens, _is_separator)
    if not separators:
        return None
    pieces = [piece for piece in pieces if piece]
    if len(pieces) == 1:
        return read_tokens(pieces[0])
    if not pieces or len(pieces) > MAX_ITEMS:
        return values.Opaque(canonical(tokens), tuple(tokens))
    # \\pm and commas say "both", a plain "or" may offer one value in several forms.
    kind = "alternatives" if {s.strip(" ,").lower() for s in separators} == {"or"} else "list"
    return Sequence(canonical(tokens), kind, _read_items(pieces))


def _read_items(pieces: list[list[Token]]) -> tuple[Value, ...]:
    """The pieces as values; what is several in itself (\\pm) counts as so many items."""
    flat: list[Value] = []
    for item in map(read_tokens, pieces):
        flat += item.items if values.is_several(item) else [item]
    return tuple(flat)


def _read_relation(tokens: list[Token]) -> Value | None:
    pieces, ops = split(tokens, lambda token: token.text in _RELATIONS)
    if not ops:
        return None
    if not all(pieces):  # `\le 5` alone says nothing that equals a value
        return values.Opaque(canonical(tokens), ())
    return Relation(canonical(tokens), tuple(map(read_tokens, pieces)), tuple(ops))


def _read_union(tokens: list[Token]) -> Value | None:
    text = canonical(tokens)
    pieces, separators = split(tokens, lambda token: token.text in (r"\cup", r"\setminus"))
    if not separators or not all(pieces):
        return None
    items = tuple(map(read_tokens, pieces))
    if r"\setminus" in separators:
        return _reals_without(text, *items) if len(items) == 2 else None
    finite = [_elements(item) for item in items]
    if None not in finite:
        return Sequence(text, "set", tuple(value for items in finite for value in items))
    items = [e[0] if e and len(e) == 1 else v for e, v in zip(finite, items, strict=True)]
    return Sequence(text, "union", tuple(items))


def _elements(value: Value) -> tuple[Value, ...] | None:
    """The elements of a finite set, also one in plain braces; None for an interval."""
    if isinstance(value, Sequence):
        return value.items if value.kind in ("set", "list") else None
    return (value,) if isinstance(value, Scalar) else None


def _reals_without(text: str, reals: Value, points: Value) -> Value | None:
    """`\\mathbb{R} \\setminus \\{1, 2\\}` as a union of open intervals, for rational points."""
    if reals != _ALL_REALS or _elements(points) is None:
        return None
    try:
        ordered = sorted((exact_value(point.tree), point) for point in _elements(points))
    except (AttributeError, TypeError, Unreadable):
        return None
    bounds = [values.MINUS_INFINITY, *(point for _, point in ordered), values.INFINITY]
    pieces = itertools.pairwise(bounds)
    return Sequence(text, "union", tuple(values.interval("(", *piece, ")") for piece in pieces))


_NO_SOLUTION = re.compile(r"(?:there (?:is|are) )?no (?:real )?solutions?(?: exists?)?")
_ALL_REALS_IN_WORDS = {"all real numbers", "all reals", "all real values"}
_ALIGNED = ("aligned", "align", "gathered", "split")
_MATRICES = {"pmatrix", "bmatrix", "matrix", "array", "smallmatrix", "Bmatrix"}


def _read_matrix(tokens: list[Token]) -> Value | None:
    text = canonical(tokens)
    if tokens[0].text in ("(", "[") and wraps(tokens) and tokens[1].text == r"\begin":
        tokens = tokens[1:-1]
    start = next((at for at, token in enumerate(tokens) if token.text == r"\begin"), 0)
    factor, tokens = parse.read_scalar(tokens[:start]) if start else None, tokens[start:]
    texts = [token.text for token in tokens]
    if texts[:2] != [r"\begin", "{"] or r"\end" not in texts or len(texts) < 8:
        return None
    name, end = texts[2], texts.index(r"\end")
    body = tokens[4:end]
    if name == "array" and body and body[0].text == "{":
        body = body[next((i for i, t in enumerate(body) if t.text == "}"), 0) + 1 :]
    if name in _ALIGNED:
        body = [token for token in body if token.text != "&"]
    if name not in _MATRICES | {"vmatrix", "cases", *_ALIGNED} or end + 4 != len(tokens):
        return None
    lines, _ = split(body, lambda token: token.text == r"\\")
    rows = [split(line, lambda token: token.text == "&")[0] for line in lines if line]
    if len({len(row) for row in rows}) != 1 or not all(all(row) for row in rows):
        return None
    cells = tuple(read_tokens(cell) for row in rows for cell in row)
    if start:
        if not all(isinstance(cell, Scalar) for cell in (factor, *cells)):
            return None
        cells = tuple(_product(factor, cell) for cell in cells)
    if name in {"cases", *_ALIGNED} and len(rows[0]) == 1:
        return Sequence(text, "list", cells)  # a system of equations
    if name == "cases":
        return Sequence(text, "cases", tuple(map(_read_case, rows)))
    form = (name == "vmatrix", len(rows), len(rows[0]))
    return Sequence(text, "matrix", cells, form)


def _product(factor: Scalar, cell: Scalar) -> Scalar:
    """A cell of a matrix that a number stands before."""
    return Scalar(f"({factor.text})({cell.text})", ("mul", factor.tree, cell.tree))


def _read_case(row: list[list[Token]]) -> Sequence:
    """A row of a case distinction: its value and its condition."""
    return Sequence("&".join(map(canonical, row)), "row", tuple(map(_read_cell, row)))


def _is_set_builder(element: list[Token], condition: list[Token]) -> bool:
    is_variable = bool(element) and element[0].kind == "word" and len(element[0].text) == 1
    is_element = is_variable and (len(element) == 1 or element[1].text == r"\in")
    return is_element and any(token.text in _RELATIONS for token in condition)


def _read_cell(tokens: list[Token]) -> Value:
    """A cell of a case distinction, without the `if` before its condition."""
    if parity := read_parity(tokens):
        return parity
    is_if = tokens[0].text.lower() in ("if", "for", "when")
    return read_tokens(tokens[1:] if is_if and len(tokens) > 1 else tokens)


def _read_brackets(tokens: list[Token]) -> Value | None:
    texts = [token.text for token in tokens]
    text = canonical(tokens)
    if text in (r"\emptyset", r"\{\}") or _NO_SOLUTION.fullmatch(text.lower()):
        return Sequence(text, "set", ())
    if text in (r"\mathbb{R}", r"\mathbf{R}") or text.lower() in _ALL_REALS_IN_WORDS:
        return _ALL_REALS
    if texts[-2:] in (["^", "T"], ["^", r"\top"]) and wraps(tokens[:-2]):
        return _read_brackets(tokens[:-2])  # a column, written as a row
    if texts[0] == "]" and texts[-1] in ("[", "]") and len(texts) > 3:  # ]a,b[
        tokens = [Token("op", "("), *tokens[1:-1], Token("op", ")" if texts[-1] == "[" else "]")]
    if len(texts) > 3 and re.fullmatch("[A-Z]'?", texts[0]) and texts[1] == "(":
        tokens = tokens[1:] if "," in texts else tokens  # the point P(1, 2)
    if not wraps(tokens):
        return None
    opening, closing, inside = tokens[0].text, tokens[-1].text, tokens[1:-1]
    if opening in ("{", r"\{"):
        condition, bars = split(inside, lambda token: token.text in ("|", ":"))
        if len(bars) == 1 and _is_set_builder(*condition):  # {x | 1 < x < 3}
            value = read_tokens(condition[1])
            return as_interval(value) or value
    if opening == "{":
        return read_tokens(inside)
    if (opening == r"\{") != (closing == r"\}"):
        return None
    pieces, separators = split(inside, lambda token: token.text in (",", ";"))
    if not all(pieces) or len(pieces) > MAX_ITEMS:
        return None
    if opening == r"\{":
        return Sequence(text, "set", _read_items(pieces))
    if not separators:
        return None
    signed = [piece for piece in pieces if any(token.text in parse.SIGNS for token in piece)]
    if len(signed) == 1 or any(token.text == r"\mp" for token in inside):
        both = (parse.with_sign(tokens, at) for at in (0, 1))
        return Sequence(text, "list", tuple(map(read_tokens, both)))
    if opening == r"\langle":
        opening = "("
    if closing == r"\rangle":
        closing = ")"
    return Sequence(text, "pair", tuple(map(read_tokens, pieces)), (opening, closing))


_PARITY = re.compile(
    r"(?:(?:if|for|when|where)\s*)?(?:(?:all|every|any|each)\s*)?(?:([A-Za-z])\s*(?:is|are)?\s*(?:an\s*)?)?"
    r"(even|odd)\s*(?:integers?|numbers?)?\s*([A-Za-z])?"
)


def read_parity(tokens: list[Token]) -> Value | None:
    """`n is even` and `for even n` as a relation; None for anything else."""
    match = _PARITY.fullmatch(canonical(tokens))
    if not match or bool(match[1]) == bool(match[3]):
        return None
    letter = match[1] or match[3]
    return Relation(match[2], (Scalar(letter, ("var", letter)), Words(match[2])), (r"\equiv",))


_READERS = (
    parse.read_based,
    _read_matrix,
    _read_list,
    _read_relation,
    _read_union,
    parse.read_ratio,
    _read_brackets,
    parse.read_words,
    parse.read_scalar,
)


def read_tokens(tokens: list[Token]) -> Value:
    """The value that the tokens are, by the first reader that knows them."""
    if tokens and tokens[0].text == r"\mathbf" and wraps(tokens[1:]):
        return read_tokens(tokens[2:-1])
    if tokens:
        for reader in _READERS:
            value = reader(tokens)
            if value is not None:
                return value
    return values.Opaque(_braced(tokens), tuple(tokens))


def _braced(tokens: list[Token]) -> str:
    """The tokens as one text, each exponent and index in braces: `x^{n}` for `x^n`."""
    braced: list[Token] = []
    for token in tokens:
        if braced and braced[-1].text in ("^", "_") and token.kind in ("num", "word"):
            size = 1 if token.kind == "word" else len(token.text)
            inside = replace(token, text=token.text[:size])
            braced += [Token("op", "{"), inside, Token("op", "}")]
            token = replace(token, text=token.text[size:])
        if token.text:
            braced.append(token)
    return canonical(braced)


_SET_NAMES = {"Z": "\u2124", "N": "\u2115", "R": "\u211d"}  # each one letter, as a variable is
_SET_NAME = re.compile(r"\\[a-z]+|[{}]")  # what is around it
_ONE_NAME = re.compile(r"[A-Za-z]|\\[A-Za-z]+")  # of a variable
_CONDITION = re.compile(r"\\forall|(?:for|if|when|where|with)\b.*", re.IGNORECASE)
_GENERAL = re.compile(r"\\forall|for (?:all|every|any|each)\b.*|where\b.*", re.IGNORECASE)
_CASE = re.compile(r"\b(?:if|when)\b", re.IGNORECASE)
_RESTRICTIONS = {"<", ">", r"\le", r"\ge", r"\ne", r"\equiv"}


def _without_condition(tokens: list[Token]) -> tuple[list[Token], Value | None]:
    """(tokens before a trailing condition, the condition): `k\\pi, k \\in \\mathbb{Z}`."""
    texts = [token.text for token in tokens]
    if r"\pmod" in texts[1:-1]:
        at = texts.index(r"\pmod", 1)
        head = tokens[:at]
        if wraps([*tokens[at - 1 :]]):  # 5 (\mod 12)
            head = tokens[: at - 1]
        modulus = read_tokens([t for t in tokens[at + 1 :] if t.text not in ("{", "}", ")", "(")])
        return head, Sequence(modulus.text, "modulus", (modulus,))
    for at, token in enumerate(tokens):
        if at and _CONDITION.fullmatch(token.text):
            rest = list(itertools.dropwhile(_is_wordy, tokens[at + 1 :]))
            condition = read_parity(tokens[at:]) or read_tokens(rest)
            items = condition.items if isinstance(condition, Sequence) else (condition,)
            if all(isinstance(item, Relation) for item in items):
                return tokens[:at], condition
            if _GENERAL.fullmatch(token.text):
                return tokens[:at], Words("")
            return tokens, None
    is_end = [token.text in _RELATIONS or token.text in ("even", "odd") for token in tokens]
    last = max((at for at, is_one in enumerate(is_end) if is_one), default=0)
    for at in range(last, 0, -1):
        rest = tokens[at:]
        if rest[0].text in (",", ";") or (rest[0].text == "(" and wraps(rest)):
            rest = rest[1:-1] if rest[0].text == "(" else rest[1:]
            condition = read_parity(rest) or read_tokens(rest)
            while at and tokens[at - 1].text in (",", ";"):
                at -= 1
            if isinstance(condition, Relation) and _is_about(condition, tokens[:at]):
                return tokens[:at], condition
    return tokens, None


def _is_wordy(token: Token, longest_name: int = 1) -> bool:
    return token.kind == "text" or (token.kind == "word" and len(token.text) > longest_name)


def _is_about(condition: Relation, head: list[Token]) -> bool:
    """Whether a relation says which values a letter of an answer may take: not `x = 1, y > 2`."""
    if condition.ops == (r"\in",):
        name = condition.parts[0].text
        words = "".join(token.text for token in head if token.kind == "word")
        is_there = any(token.text == name for token in head) or name in words
        return bool(_ONE_NAME.fullmatch(name)) and is_there
    value = read_tokens(head)
    if isinstance(value, Relation) and value.ops == ("=",):
        value = value.parts[-1]
    free = values.variables(value.tree) if isinstance(value, Scalar) else set()
    is_free = any(part.text in free for part in condition.parts)
    return is_free and _RESTRICTIONS.issuperset(condition.ops)


def _is_usual(condition: Value) -> bool:
    """Whether it only says that a letter counts: `k \\in \\mathbb{Z}`, `n \\ge 1`; or is real."""
    if not isinstance(condition, Relation) or len(condition.parts) != 2:
        return False
    if condition.ops == (r"\in",):
        name = _SET_NAME.sub("", condition.parts[1].text)
        return name == "R" or (condition.parts[0].text not in "xyz" and name[:1] in ("Z", "N"))
    letters = relations.all_variables(condition) - {*"xyz"}
    between = as_interval(condition)
    low = between.items[0] if between and between.items[1] == values.INFINITY else None
    return bool(letters) and isinstance(low, Scalar) and (exact_value(low.tree) or 0) in (0, 1)


def _is_residue(value: Value, modulus: Sequence) -> bool:
    """Whether a number is below its modulus: 5 mod 12 is 5, but 5 mod 4 is 1."""
    both = value.parts[-1] if isinstance(value, Relation) else value, modulus.items[0]
    if not all(isinstance(one, Scalar) for one in both):
        return False
    residue, size = (exact_value(one.tree) for one in both)
    return residue is not None and size is not None and abs(residue) < size > 1


def _conditional(tokens: list[Token]) -> list[Value]:
    """Readings of what has a condition, to compare with one of the same condition.

    The variable of a set goes under the set's name: `k\\pi, k \\in \\mathbb{Z}` is `n\\pi, …`.
    """
    head, condition = _without_condition(tokens)
    if not head or condition is None:
        return []
    if isinstance(condition, Words):
        return [read_tokens(head)]
    if isinstance(condition, Relation) and condition.ops == (r"\in",):
        variable, where = condition.parts[0].text, condition.parts[1].text
        name = _SET_NAMES.get(_SET_NAME.sub("", where))
        if name and _ONE_NAME.fullmatch(variable):
            return [read_tokens(_renamed(head, {variable: name}))]
    return [Sequence(canonical(tokens), "conditional", (read_tokens(head), condition))]


def _renamed(tokens: list[Token], names: dict[str, str]) -> list[Token]:
    """The tokens with other names for some letters, and for commands such as `\\mu`."""
    letters = str.maketrans({name: new for name, new in names.items() if len(name) == 1})
    renamed = []
    for token in tokens:
        if token.text in names:
            token = Token("word", names[token.text], token.spaced)
        elif token.kind == "word" and len(token.text) < 3:
            token = replace(token, text=token.text.translate(letters))
        renamed.append(token)
    return renamed


@functools.lru_cache(maxsize=4096)
def read_bare(text: str, is_gold: bool, functions: str = "") -> tuple[Value, ...]:
    """The value before a condition, to compare with one without: a gold's may be in the question.

    Of a prediction the condition must be a usual one.
    """
    if len(text) > MAX_CHARS or _CASE.search(text):
        return ()
    tokens = _tokens(text, functions)
    if nesting(tokens) > MAX_DEPTH:
        return ()
    head, condition = _without_condition(tokens)
    if not head or condition is None:
        return ()
    value = read_tokens(head)
    is_modulus = isinstance(condition, Sequence) and condition.kind == "modulus"
    if not is_gold and not (_is_residue(value, condition) if is_modulus else _is_usual(condition)):
        return ()
    if isinstance(value, Relation) and not {"=", r"\in", r"\equiv"}.issuperset(value.ops):
        return ()  # x > 5 and x in Z is another set than x > 5
    return (value,)


_HEDGES = "about|approximately|roughly|around"
_HEDGE = re.compile(_HEDGES, re.IGNORECASE)
_INTRODUCTION = re.compile(
    rf"exactly|only|just|{_HEDGES}|.*\b(?:is|are)"
    r"|(?:the )?(?:remainder|quotient|sum|difference|product|probability|perimeter|radius|diameter"
    r"|distance|speed|cost|price|profit|average|mean|median|mode|slope)"
    r"|the (?:\w+ ){0,2}(?:answer|value|point|number|solution|result|total|area|volume|length"
    r"|vector|set|interval|function|equation|range|domain|angle)s?",
    re.IGNORECASE,
)


def _after_leading_words(tokens: list[Token]) -> list[Value]:
    """`\\text{The point }(2, -1)`: what upright words introduce."""
    at = next((at for at, token in enumerate(tokens) if not _is_wordy(token, 3)), 0)
    words, rest = tokens[:at], tokens[at:]
    if not words or any(map(values.is_blurring, words)):
        return []
    if rest[0].text == ":":
        rest = rest[1:]
    elif not _INTRODUCTION.fullmatch(canonical(words)):
        return []  # October 30 is not 30, nor is the reciprocal of 5 five
    value = read_tokens(rest)
    if _HEDGE.fullmatch(words[0].text) and isinstance(value, Scalar) and not is_number(value.tree):
        return []  # a function that is near another is not it
    if values.is_several(value) or isinstance(value, values.Opaque | Words):
        return []
    return [value]


_CHOICE = re.compile(r"(?:\(([A-Ja-j])\)|([A-J])[).:])")
_OPTION = re.compile(r"(?:option|choice|answer)\s*\(?([A-J])\)?", re.IGNORECASE)


def _read_choice(tokens: list[Token]) -> Value | None:
    """`(C) 12`, `C. 12`, `C)`: an option's letter, with or without its value."""
    text = canonical(tokens)
    if option := _OPTION.fullmatch(text):
        return Choice(text, option[1], None)
    if not (match := _CHOICE.match(canonical(tokens[:3]))):
        return None
    letter = (match[1] or match[2]).upper()
    rest = tokens[3 if match[1] else 2 :]
    if not rest:  # (c) may also be a variable in brackets; that reading comes first
        return Choice(text, letter, None)
    is_letters = rest[0].kind == "word" and len(rest[0].text) < 3
    is_lower = bool(match[1]) and match[1].islower()  # (c), which may be a variable
    is_factor = not rest[0].spaced and (rest[0].kind == "op" or is_lower)
    is_factor = is_factor or (is_lower and rest[0].text in "+-([{^")
    if is_letters or is_factor or any(re.fullmatch("[A-J]", token.text) for token in rest):
        return None
    value = read_tokens(rest)
    if values.is_several(value):
        return None
    return Choice(text, letter, value)


_PARAMETER = re.compile(r"([A-Za-z]) \( (?!\1)([a-df-hj-z]) \) = (?=.*\2)")
_BOUND = re.compile(
    r"\\(?:sum|prod) _ (?:\{ )?(?:\w+ (?:<|\\le) )?([A-Za-z])(?! [\w^_(/])"
    r"|\\lim _ \{ ([A-Za-z]) \\to|\\int _ [^=]*? d([A-Za-z])(?!\S)"
)


def _rename_bound(tokens: list[Token]) -> list[Token]:
    """The same letters for all variables of sums, products, limits and integrals with bounds."""
    texts = " ".join(token.text for token in tokens)
    bound = [next(filter(None, match.groups())) for match in _BOUND.finditer(texts)]
    if not bound:
        return tokens
    free = {c for token in tokens for c in token.text if token.kind == "word"} - {*bound, "d"}
    new = (letter for letter in "kjlmnpqrst" if letter not in free)
    return _renamed(tokens, dict(zip(dict.fromkeys(bound), new, strict=False)))


def _with_calls(tokens: list[Token], functions: str) -> list[Token]:
    """The letters that are functions as calls where brackets follow them: `xP(x)`."""
    marked: list[Token] = []
    for at, token in enumerate(tokens):
        is_before = at + 1 < len(tokens) and tokens[at + 1].text == "("
        if is_before and token.kind == "word" and token.text[-1] in functions:
            marked += [replace(token, text=letter) for letter in token.text[:-1]]
            token = Token("call", token.text[-1], token.spaced)
        marked.append(token)
    return marked


def _spelled_minus(token: Token) -> Token:
    if token.kind in ("text", "word") and token.text.lower() in ("minus", "negative"):
        return Token("op", "-", token.spaced)
    return token


def _without_set(tokens: list[Token]) -> list[Token]:
    """`\\{n\\pi : n \\in \\mathbb{Z}\\}` as `n\\pi, n \\in \\mathbb{Z}`; others as they are."""
    if len(tokens) < 5 or tokens[0].text != r"\{" or not wraps(tokens):
        return tokens
    pieces, bars = split(tokens[1:-1], lambda token: token.text in ("|", ":"))
    if len(bars) != 1 or not all(pieces) or len(pieces[0]) < 2:
        return tokens
    head, condition = pieces
    is_parameter = [token.text for token in condition[1:2]] == [r"\in"]
    if not is_parameter or head[1].text == r"\in":
        return tokens
    return [*head, Token("op", ","), *condition]


@functools.lru_cache(maxsize=4096)
def _tokens(text: str, functions: str, thousands: bool = True) -> list[Token]:
    tokens = _without_set(_rename_bound(tokenise(normalise(text), thousands)))
    return list(map(_spelled_minus, _with_calls(tokens, functions)))


@functools.lru_cache(maxsize=4096)  # a gold is compared with every completion of its group
def read(text: str, is_gold: bool, functions: str = "") -> tuple[Value, ...]:
    """The readings of an answer, the most likely first; `1,234` in a gold is never a list.

    `functions`: the letters of which brackets behind them make a call, no product.
    """
    if len(text) > MAX_CHARS:
        return (values.Opaque(text),)
    tokens = _tokens(text, functions)
    if nesting(tokens) > MAX_DEPTH:
        return (values.Opaque(canonical(tokens)),)
    is_ordinal = bool(_ORDINAL_THING.search(text))
    if is_ordinal and not is_gold:
        return (Words(canonical(tokens)),)  # the 3rd power is not 3
    choice = _read_choice(tokens)
    if choice and choice.value:
        return (choice,)
    first = read_tokens(tokens)
    readings: list[Value] = [first, Words(canonical(tokens))] if is_ordinal else [first]
    if choice:
        readings.append(choice)
    readings += _after_leading_words(tokens) + _conditional(tokens)
    if not is_gold and _GROUPED.search(normalise(text)):
        readings.append(read_tokens(_tokens(text, functions, thousands=False)))
    if isinstance(first, Scalar | Words):
        if quantity := _quantity(tokens, is_gold):
            readings.append(quantity)
    elif isinstance(first, Relation) and (measured := _measured(first, tokens, is_gold)):
        if tokens[-1].kind == "word" and tokens[-1].text in {t.text for t in tokens[:-1]}:
            readings = []  # m > 5 m
        readings.append(measured)
    if compound := parse.read_compound(tokens):
        readings.append(compound)
    if isinstance(first, Scalar) and (vector := _read_unit_vectors(first)):
        readings.append(vector)
    if parameter := _PARAMETER.match(" ".join(token.text for token in tokens)):
        readings.append(read_tokens(_renamed(tokens, {parameter[2]: "\u2118"})))  # f(t) = 2t
    if is_gold:
        readings += _named_gold(tokens, readings)
    return tuple(readings)


_UNIT_VECTORS = [
    [f"{mark}:{letter}" for letter in "ijk"] for mark in ("mathbf", "hat", "vec", "overline")
] + [["hat:imath", "hat:jmath", "hat:k"]]


def _read_unit_vectors(value: Scalar) -> Sequence | None:
    """`2\\mathbf i - \\mathbf k` as the vector (2, 0, -1); None where none is there."""
    free = values.variables(value.tree)
    names = next((names for names in _UNIT_VECTORS if free & {*names}), None)
    if names is None or not all(_is_linear(term, names) for term in _terms(value.tree)):
        return None
    cells = []
    for name in names:
        terms = [one for one in _terms(value.tree) if name in values.variables(one)]
        trees = [_coefficient(term, name) for term in terms] or [values.ZERO]
        tree = trees[0] if len(trees) == 1 else ("add", *trees)
        cells.append(Scalar(f"{value.text}:{name}", tree))
    return Sequence(value.text, "pair", tuple(cells), ("(", ")"))


def _coefficient(term: values.Tree, name: str) -> values.Tree:
    """What a product has besides one of its variables."""
    if term == ("var", name):
        return values.ONE
    if term[0] != "mul":
        return term
    parts = [_coefficient(part, name) for part in term[1:]]
    parts = [part for part in parts if part != values.ONE] or [values.ONE]
    return parts[0] if len(parts) == 1 else ("mul", *parts)


def _terms(tree: values.Tree) -> tuple:
    return tree[1:] if tree[0] == "add" else (tree,)


def _is_linear(term: values.Tree, names: list[str]) -> bool:
    """Whether a term is one unit vector times what has none."""
    factors = [part for part in values.subtrees(term) if part[0] == "var" and part[1] in names]
    kinds = {part[0] for part in values.subtrees(term) if values.variables(part) & {*names}}
    return len(factors) == 1 and kinds <= {"mul", "var"}


def _measured(relation: Relation, tokens: list[Token], is_gold: bool) -> Relation | None:
    """`x = 5 m` with a quantity for each part that may be one; None where none may."""
    pieces, _ = split(tokens, lambda token: token.text in _RELATIONS)
    quantities = [_quantity(piece, is_gold) for piece in pieces]
    if not any(quantities):
        return None
    both = zip(quantities, relation.parts, strict=True)
    return replace(relation, parts=tuple(new or old for new, old in both))


def _quantity(tokens: list[Token], is_gold: bool) -> Scalar | None:
    """`5 m` as five metres, which is a product to the parser."""
    value, unit, scale = values.split_unit(tokens)
    if unit is None:
        return None
    is_letter = len(tokens) - len(value) == 1 and len(tokens[-1].text) == 1
    guess = is_gold and is_letter  # 2 t may well be 2 times t
    with contextlib.suppress(Unreadable):
        tree = ("mul", parse.parse(value), ("num", Fraction(scale)))
        return Scalar(canonical(tokens), tree, unit, is_guess=guess, is_scaled=True)


_ORDINAL_THING = re.compile(
    r"\d(?:[\s^{}]|\\(?:text|mathrm|textsuperscript))*(?<![A-Za-z])(?:st|nd|rd|th)(?![A-Za-z])"
    r"(?:[\s}$~]|\\[,;: ]|\\(?:text|mathrm)\s*\{)*[a-z]{3}"
)
_GROUPED = re.compile(r"\d[, ]\d{3}")
_NO_NAME = re.compile("(?<![a-z])(?:mod|base|or|not|if|when|where|unless|otherwise)(?![a-z])")


def _named_gold(tokens: list[Token], readings: list[Value]) -> list[Value]:
    """The number before a note in brackets that is no measure: `9 (more apples)`, `3 (dozen)`."""
    at = next((at for at, token in enumerate(tokens) if token.text == "(" and token.spaced), 0)
    note = tokens[at:]
    is_note = at and wraps(note) and re.search("[a-z]{3}", canonical(note))
    if not is_note or _NO_NAME.search(canonical(note).lower()):
        return []
    units = [value.unit for value in readings if isinstance(value, Scalar) and value.unit]
    value = read_tokens(tokens[:at])
    is_plain = isinstance(value, Scalar) and value.unit is None and is_number(value.tree)
    is_measured = any(unit.dimensions or unit.things for unit in units)
    return [value] if is_plain and not is_measured else []
