"""Tokens: a normalised text as numbers, words, commands and operators."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from data_prep.grading.equivalence.vocabulary import FUNCTIONS

MAX_DEPTH = 40  # nested groups read; keeps recursion far from Python's own limit


class Unreadable(ValueError):
    """The text is outside the grammar."""


class TooLarge(Unreadable):
    """The value is too large to compute with; nobody else should try either."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token: kind num, word, text, cmd or op; `spaced`: a space stood before it."""

    kind: str
    text: str
    spaced: bool = False


_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<joined>[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?!,?\d)(?!\s*[/_])(?:\.\d+)?)"
    r"|(?P<num>\d*\.\d*(?:\\(?:overline|dot)\s*(?:\{\d+\}|\d)|\(\d+\)(?=\s*$))"  # 0.\overline{3}
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+(?![\d.]))?)"
    r"|(?P<cmd>\\(?:[A-Za-z]+|.|$))"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<op><=|>=|!=|:=|\*\*|.)",
    re.DOTALL,
)
OPENING = {"(", "[", "{", r"\{", r"\langle", r"\lfloor", r"\lceil", r"\begin"}
CLOSING = {")", "]", "}", r"\}", r"\rangle", r"\rfloor", r"\rceil", r"\end"}
_OPERATORS = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", ":=": "=", "**": "^"}
# sec is a second more often than a secant.
_SPELLED = (FUNCTIONS - {"sec"}) | {"pi", "infty", "sqrt", "theta", "alpha", "beta"}
_SPELLED_OTHERWISE = {"infinity": "infty", "inf": "infty", "oo": "infty"}


def tokenise(text: str, thousands: bool = True) -> list[Token]:
    """Tokens of a normalised text.

    Args:
        thousands: read `1,234` and `1 234` outside brackets as one number; in `(1,234)` the comma
            always separates.
    """
    tokens: list[Token] = []
    at, depth, spaced = 0, 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        kind, token = match.lastgroup, match[0]
        if kind == "joined" and (not thousands or depth):
            match = re.compile(r"\d+\.?\d*").match(text, at)
            kind, token = "num", match[0]
        elif kind == "joined":
            kind, token = "num", re.sub("[ ,]", "", token)
        at = match.end()
        if kind == "space":
            spaced = True
            continue
        if token in (r"\boxed", r"\fbox"):
            continue  # a frame around a part or the whole
        if token == r"\text":
            content, at = _group_text(text, at)
            tokens += _text_tokens(content, spaced)
        else:
            if kind == "word" and token.lower() in _SPELLED_OTHERWISE:
                kind, token = "cmd", "\\" + _SPELLED_OTHERWISE[token.lower()]
            elif kind == "word" and token in _SPELLED:
                kind, token = "cmd", "\\" + token
            token = _OPERATORS.get(token, token)
            if token.startswith("\\") and kind == "op":
                kind = "cmd"
            depth += (token in OPENING and token != "{") - (token in CLOSING and token != "}")
            tokens.append(Token(kind, token, spaced))
        spaced = False
    return tokens


def _group_text(text: str, at: int) -> tuple[str, int]:
    """Content of the brace group (or the one character) at `at`, and where it ends."""
    while at < len(text) and text[at] == " ":
        at += 1
    if at >= len(text) or text[at] != "{":
        return text[at : at + 1], at + 1
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", text[at:], re.DOTALL):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            return text[at + 1 : at + brace.start()], at + brace.end()
    return text[at + 1 :], len(text)


def _text_tokens(content: str, spaced: bool) -> list[Token]:
    """Upright text: words stay text, anything with digits or mathematics in it is read as such."""
    content = re.sub(r"(?<!\\)\$", "", content)
    spaced = spaced or content.startswith(" ")
    if content.strip() in FUNCTIONS:  # \operatorname{arctan}
        return [Token("cmd", "\\" + content.strip(), spaced)]
    if re.fullmatch(r" [mshglLtNJWVK] ?", content):
        return [Token("text", content.strip(), True)]  # 5\text{ m}
    if re.fullmatch(r"[A-Za-z]", content.strip()):
        return [Token("word", content.strip(), spaced)]
    if re.fullmatch(r"[^\d\\(){}^_=<>|+*/\[\],;:]*", content):
        pieces = re.split(r"\b(and|or)\b", " ".join(content.split()))
        return [_word_token(piece.strip()) for piece in pieces if piece.strip()]
    inner = tokenise(content)
    # Words inside \text{} are words even where they look like a product of letters.
    inner = [Token("text", t.text, True) if t.kind == "word" and len(t.text) > 1 else t
             for t in inner]  # fmt: skip
    if inner:
        inner[0] = Token(inner[0].kind, inner[0].text, spaced or inner[0].spaced)
    return inner


def _word_token(words: str) -> Token:
    return Token("word" if len(words) == 1 and words.isalpha() else "text", words, True)


def canonical(tokens: list[Token]) -> str:
    """The tokens as one text in which print no longer differs; for comparison as written."""
    pieces: list[str] = []
    for previous, token in zip([None, *tokens], tokens, strict=False):
        wordy = ("word", "text")
        if (
            (previous and token.spaced and previous.kind in wordy and token.kind in wordy)
            or (previous and previous.kind == token.kind == "num")
            or (previous and previous.kind == "cmd" and token.kind == "word")
        ):
            pieces.append(" ")
        pieces.append(token.text)
    return "".join(pieces)


def to_fraction(number: str) -> Fraction:
    """Exact value of a number token: digits, a repeating part, or a decimal exponent."""
    match = re.fullmatch(
        r"(\d*)\.?(\d*)(?:\\(?:overline|dot)\s*\{?(\d+)\}?|\((\d+)\)|[eE]([+-]?\d+))?", number
    )
    whole, decimals, repeating, in_brackets, exponent = match.groups()
    value = Fraction(int((whole + decimals) or "0"), 10 ** len(decimals))
    if repeating := repeating or in_brackets:
        if "." not in number:
            raise Unreadable(number)
        value += Fraction(int(repeating), 10 ** len(decimals) * (10 ** len(repeating) - 1))
    if exponent:
        if abs(int(exponent)) > 999:
            raise Unreadable(number)
        value *= Fraction(10) ** int(exponent)
    return value


def split(tokens: list[Token], is_separator: Callable[[Token], bool]) -> tuple[list, list[str]]:
    """(pieces, separators) of the tokens at the separators outside all brackets."""
    pieces, separators, depth = [[]], [], 0
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if depth == 0 and token.text not in CLOSING and is_separator(token):
            separators.append(token.text)
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces, separators


def wraps(tokens: list[Token]) -> bool:
    """Whether the first token opens a bracket that only the last one closes."""
    if len(tokens) < 2 or tokens[0].text not in OPENING or tokens[-1].text not in CLOSING:
        return False
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if depth == 0:
            return at == len(tokens) - 1
    return False


def is_balanced(tokens: list[Token]) -> bool:
    """Whether every brace that opens is closed, in order."""
    depth = 0
    for token in tokens:
        depth += (token.text in ("{", r"\{")) - (token.text in ("}", r"\}"))
        if depth < 0:
            return False
    return depth == 0


def nesting(tokens: list[Token]) -> int:
    """How deep the brackets are nested."""
    depth = deepest = 0
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        deepest = max(deepest, depth)
    return deepest
