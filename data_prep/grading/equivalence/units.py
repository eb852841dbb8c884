"""Units: what is written with a number and how two of them compare: `140 cm` is `1.4 m`.

A unit that only one side writes is ignored (the question names it). Where both write one, measured
quantities are converted with exact ratios, and counted things (`5 apples`) must name the same.
"""

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from data_prep.grading.equivalence.tokens import BLURRING, NO_UNIT, Token, read_number_words

_F = Fraction
# name: (dimension, exact size in the dimension's base unit, exponent of the dimension)
_TABLE: dict[str, tuple[str, Fraction, int]] = {}
for _names, _dimension, _size, _exponent in [
    ("m meter metre", "length", _F(1), 1),
    ("cm centimeter centimetre", "length", _F(1, 100), 1),
    ("mm millimeter millimetre", "length", _F(1, 1000), 1),
    ("km kilometer kilometre", "length", _F(1000), 1),
    ("dm decimeter decimetre", "length", _F(1, 10), 1),
    ("in inch inches", "length", _F(254, 10_000), 1),
    ("ft foot feet", "length", _F(3048, 10_000), 1),
    ("yd yard", "length", _F(9144, 10_000), 1),
    ("mi mile", "length", _F(1_609_344, 1000), 1),
    ("l liter litre", "length", _F(1, 1000), 3),
    ("ml milliliter millilitre", "length", _F(1, 1_000_000), 3),
    ("s sec second", "time", _F(1), 1),
    ("ms millisecond", "time", _F(1, 1000), 1),
    ("min minute", "time", _F(60), 1),
    ("h hr hour", "time", _F(3600), 1),
    ("day", "time", _F(86_400), 1),
    ("week", "time", _F(604_800), 1),
    ("month", "month", _F(1), 1),
    ("yr year", "month", _F(12), 1),
    ("g gram gramme", "mass", _F(1), 1),
    ("mg milligram", "mass", _F(1, 1000), 1),
    ("kg kilogram kilo", "mass", _F(1000), 1),
    ("t ton tonne", "mass", _F(1_000_000), 1),
    ("oz ounce", "mass", _F(28_349_523_125, 10**9), 1),
    ("lb pound", "mass", _F(45_359_237, 100_000), 1),
    ("dollar usd buck", "dollar", _F(1), 1),
    ("cent penny pennies", "dollar", _F(1, 100), 1),
    ("euro eur", "euro", _F(1), 1),
    ("sterling gbp", "sterling", _F(1), 1),
    ("yen jpy", "yen", _F(1), 1),
    ("cup", "cup", _F(1), 1),
    ("degree", "degree", _F(1), 1),
    ("radian rad", "radian", _F(1), 1),
    ("hz hertz", "time", _F(1), -1),
    ("n newton", "newton", _F(1), 1),
    ("j joule", "joule", _F(1), 1),
    ("kj kilojoule", "joule", _F(1000), 1),
    ("w watt", "watt", _F(1), 1),
    ("kw kilowatt", "watt", _F(1000), 1),
    ("v volt", "volt", _F(1), 1),
    ("pa pascal", "pascal", _F(1), 1),
]:
    for _name in _names.split():
        _TABLE[_name] = (_dimension, _size, _exponent)
_RATES = {"mph": ("mi", "h"), "kph": ("km", "h"), "kmh": ("km", "h"), "mpg": ("mi", "gallon")}
_CURRENCY = {r"\$": "dollar", r"\euro": "euro", r"\pounds": "sterling", r"\yen": "yen"}
# A letter is a unit only after a space: `5 m`, but 5m is 5 times m.
_SPACED_LETTERS = set("mshglLtNJWVCFK")
_IGNORED = {"the", "a", "an", "each", "total", "altogether", "exactly", "only", "same"}
SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9,
    "trillion": 10**12,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """A measured part (dimension -> exponent, and size in base units) and the things counted."""

    dimensions: frozenset[tuple[str, int]]
    size: Fraction
    things: frozenset[str]


def _singular(word: str) -> str:
    for ending, new in (("ies", "y"), ("ches", "ch"), ("xes", "x"), ("ses", "s"), ("s", "")):
        if len(word) > 3 and word.endswith(ending) and not word.endswith("ss"):
            return word[: -len(ending)] + new
    return word


def _words(token: Token) -> list[str]:
    kept = "".join(c if c.isalpha() or c in "/-'" else " " for c in token.text.replace(".", ""))
    return kept.replace("/", " / ").split()


_EXPONENT = re.compile(r"[1-4](?!\S)|\{ (?:- )?[1-4] \}")


def _flatten(tokens: list[Token]) -> list[str] | None:
    """The tokens as lower-case words, "/" and "^2"; None where something else is there."""
    flat: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.kind in ("text", "word"):
            flat += [word.lower() for word in _words(token)]
        elif token.text == r"\degree":
            flat.append("degree")
        elif token.text in _CURRENCY:
            flat.append(_CURRENCY[token.text])
        elif token.text == "/":
            flat.append("/")
        elif token.text == "^":
            match = _EXPONENT.match(" ".join(t.text for t in tokens[at : at + 4]))
            if not match:
                return None
            flat.append("^" + match[0].strip("{} ").replace(" ", ""))
            at += len(match[0].split())
        elif token.text not in (r"\cdot", "*", ".", "(", ")", "-", "'"):
            return None
    return flat


_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}  # before the unit
_RAISED = {"squared": 2, "cubed": 3} | {f"^{n}": n for n in (-4, -3, -2, -1, 1, 2, 3, 4)}


def read_unit(tokens: list[Token]) -> tuple[Unit, int] | None:
    """(unit, scale) of the tokens after a number, None where they are no unit.

    The scale is what `million` or `dozen` multiply the number with.
    """
    dimensions: Counter[str] = Counter()
    things: set[str] = set()
    size, scale, sign, power = Fraction(1), 1, 1, 1
    last: list[tuple[str, int]] = []  # units named last, with their exponents

    def add(name: str, exponent: int) -> None:
        nonlocal size
        known = _find(name)
        if known:
            dimension, unit_size, of_dimension = known
            dimensions[dimension] += of_dimension * exponent
            size *= unit_size**exponent
        elif _singular(name) == "unit":
            dimensions["unit"] += exponent
        else:
            things.add(_singular(name))

    words = _flatten(tokens) or [None]
    for word in words:
        if word is None or (word in NO_UNIT and words != ["times"]):
            return None
        if word == "of":
            break  # 3 cups of flour
        if word in ("/", "per"):
            sign = -1
        elif (_singular(word) in SCALES or word in SCALES) and not things and not dimensions:
            scale *= SCALES.get(word) or SCALES[_singular(word)]
        elif _is_number_word(word):
            return None  # 5 eighths
        elif word in _POWERS:
            power = _POWERS[word]
        elif word in _RAISED:
            if not last:
                return None  # 5 squared
            for name, exponent in last:
                add(name, exponent * (_RAISED[word] - 1))
        elif word not in _IGNORED and not (word == "in" and (dimensions or things)):
            names = _RATES.get(word, (word,))
            last = [(n, power * sign * way) for n, way in zip(names, (1, -1), strict=False)]
            for name, exponent in last:
                add(name, exponent)
            power = 1
    return Unit(
        frozenset((+dimensions).items() | (-dimensions).items()), size, frozenset(things)
    ), scale


def _is_number_word(word: str) -> bool:
    return any(
        read_number_words(f"{before}{_singular(word)}") is not None for before in ("", "one ")
    )


def _find(name: str) -> tuple[str, Fraction, int] | None:
    return _TABLE.get(name) or _TABLE.get(_singular(name)) or _TABLE.get(name.removesuffix("s"))


def is_measure(word: str) -> bool:
    """Whether a word of three letters or more is a unit of measure or money."""
    return len(word) > 2 and _find(word.lower()) is not None


def is_blurring(token: Token) -> bool:
    """Whether words deny or blur the value after them: `not 5`, `at least 5`."""
    return any(word.lower() in BLURRING for word in _words(token))


def _starts_unit(token: Token, before: Token) -> bool:
    if before.kind == "op" and before.text not in (")", "}", "]", "%", "!"):
        return False
    if before.kind == "cmd" and before.text not in (r"\pi", r"\degree"):
        return False
    if token.kind == "text" or token.text == r"\degree" or token.text in _CURRENCY:
        return True
    if token.kind != "word":
        return False
    if len(token.text) == 1:
        return token.spaced and token.text in _SPACED_LETTERS and before.kind == "num"
    known = token.text.lower() in _TABLE or token.text in _RATES or token.text in SCALES
    return known or (token.spaced and len(token.text) > 3) or token.text in ("sq", "cu")


def split_unit(tokens: list[Token]) -> tuple[list[Token], Unit | None, int]:
    """(tokens of the value, unit or None, scale): `\\$5`, `5 m/s`, `3 million dollars`."""
    signed = 1 if tokens and tokens[0].text == "-" else 0
    prefix = None
    if len(tokens) > signed + 1 and tokens[signed].text in _CURRENCY:
        prefix = tokens[signed]
        tokens = tokens[:signed] + tokens[signed + 1 :]
    for at in range(1, len(tokens)):
        if _starts_unit(tokens[at], tokens[at - 1]):
            found = read_unit(tokens[at:] + ([prefix] if prefix else []))
            if found:
                return tokens[:at], *found
            break
    if prefix:
        return tokens, *read_unit([prefix])
    return tokens, None, 1


def ratio(first: Unit, second: Unit) -> Fraction | None:
    """How many of the second unit one of the first is; None where they cannot be compared."""
    ours, theirs = dict(first.dimensions), dict(second.dimensions)
    if "unit" in ours or "unit" in theirs:
        # `18 units` may be anything, `18 square units` any area.
        powers = {side.get("unit", side.get("length", 1)) for side in (ours, theirs)}
        is_any = 1 in (ours.get("unit"), theirs.get("unit"))
        return Fraction(1) if is_any or len(powers) == 1 else None
    counted, other = first.things, second.things
    if ours != theirs or (counted and other and not (counted <= other or other <= counted)):
        return None
    return first.size / second.size
