"""Values: the kinds of thing an answer can be, the expression trees inside them, and their units.

A tree is nested tuples: ("num", Fraction), ("var", name), ("const", "pi"), ("add", a, b, …),
("mul", a, b, …), ("pow", base, exponent), ("call", name, a, …).

A unit that only one side writes is ignored (the question names it). Where both write one, measured
quantities are converted with exact ratios, and counted things (`5 apples`) must name the same.
"""

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from grading.equivalence.tokens import (
    FUNCTIONS,
    SCALES,
    Token,
    read_number_words,
    word_set,
    wraps,
)

_MEASURES = """
length: m meter metre 米 = 1; cm centimeter centimetre 厘米 = 1/100; mm millimeter 毫米 = 1/1000
length: millimetre = 1/1000; km kilometer kilometre 千米 公里 = 1000
length: dm decimeter decimetre 分米 = 1/10; in inch inches = 0.0254; ft foot feet = 0.3048
length: yd yard = 0.9144; mi mile = 1609.344
length^3: l liter litre 升 = 1/1000; ml milliliter millilitre 毫升 = 1/1000000
time: s sec second 秒 = 1; ms millisecond = 1/1000; min minute 分钟 = 60
time: h hr hour 小时 = 3600; day 天 = 86400; week = 604800 | month: month 个月 = 1; yr year 年 = 12
mass: g gram gm gramme 克 = 1; mg milligram = 1/1000; kg kilogram kilo 千克 公斤 = 1000
mass: t ton tonne 吨 = 1000000; oz ounce = 28.349523125; lb pound = 453.59237
dollar: dollar usd buck 美元 = 1; cent penny pennies = 1/100
euro: euro eur = 1 | sterling: sterling gbp = 1 | yen: yen jpy 円 日元 = 1
yuan: yuan cny rmb 元 块 = 1; jiao 角 = 1/10 | rupee: rupee inr rs = 1; paisa paise = 1/100
joule: j joule = 1; kj kilojoule = 1000 | watt: w watt = 1; kw kilowatt = 1000
newton: n newton = 1 | volt: v volt = 1 | pascal: pa pascal = 1 | time^-1: hz hertz = 1
degree: degree 度 = 1 | radian: radian rad = 1 | cup: cup = 1
"""


def _read_measures(text: str) -> dict[str, tuple[str, Fraction, int]]:
    """{name: (dimension, exact size in its base unit, exponent of the dimension)}."""
    table = {}
    for measures in re.split(r"\n| \| ", text.strip()):
        head, _, units = measures.partition(": ")
        dimension, _, exponent = head.partition("^")
        for unit in units.split("; "):
            names, _, size = unit.partition(" = ")
            for name in names.split():
                table[name] = (dimension, Fraction(size), int(exponent or 1))
    return table


_TABLE = _read_measures(_MEASURES)
# Words after a number that are no unit: the number is not the value, or not alone.
_NO_UNIT = word_set("""
    is are was not no if for when or and but mod modulo more less fewer than least most about
    approximately roughly around to over plus minus times pi root roots base point
    negative factorial maybe perhaps possibly either neither both with without by from where
    which that some any all other otherwise then so also up down equals th st nd rd below above
    zero unless except non double triple treble half repeating recurring reciprocal inverse hex
    power wrong false 倍 折 以上 以下 的倒数 次方 short away ago off out radical followed percent
""")
# Words that deny or blur the value after them: `not 5`, `at least 5`.
_BLURRING = word_set("""
    cannot but anything everything negative root square cube reciprocal opposite inverse half
    double twice triple impossible unless not no never least most more less or either
    neither maybe if than between except without
""")
_RATES = {"mph": ("mi", "h"), "kph": ("km", "h"), "kmh": ("km", "h"), "mpg": ("mi", "gallon")}
_CURRENCY = {
    r"\$": "dollar",
    r"\euro": "euro",
    r"\pounds": "sterling",
    r"\yen": "yen",
    "₹": "rupee",
    "₩": "won",
    "₽": "ruble",
    "₺": "lira",
    "₫": "dong",
    "₪": "shekel",
    "฿": "baht",
    "₱": "peso",
    "₦": "naira",
    "₴": "hryvnia",
    "Rs": "rupee",
    "USD": "dollar",
    "EUR": "euro",
    "GBP": "sterling",
}
_SYMBOLS = _CURRENCY | {r"\degree": "degree", "/": "/"}
# A letter is a unit only after a space: `5 m`, but 5m is 5 times m.
_SPACED_LETTERS = set("mshglLtNJWVCFK")
_BEFORE_UNIT = {")", "}", "]", "%", "!", r"\pi", r"\degree"}  # besides numbers and words
_IGNORED = {"the", "a", "an", "each", "total", "altogether", "exactly", "only", "same"}
_FACTORS = """
十=10 百=100 千=1000 万=1e4 亿=1e8 打=12 dozen=12 doz=12 ten=10 score=20 gross=144 hundred=100
lakh=1e5 lac=1e5 crore=1e7 myriad=1e4 quadrillion=1e15 quintillion=1e18 doubled=2 tripled=3
trebled=3 quadrupled=4 quintupled=5 halved=1/2 quartered=1/4 mille=1000 mn=1e6 bn=1e9
ppm=1/1000000 ppb=1/1000000000 basis=1/10000 pair=2 couple=2 对=2 双=2
"""
_SIZES = SCALES | {word: Fraction(size) for word, size in re.findall(r"(\w+)=(\S+)", _FACTORS)}
_TWO = {"pair", "couple"}
_TEMPERATURES = {"c": "celsius", "centigrade": "celsius", "f": "fahrenheit"}
# What an angle's degrees may be called: any other word makes them °C or a direction.
_OF_ANGLES = word_set("""
    angle acute obtuse reflex interior exterior central inscribed arc measure rotation turn
""")


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
    text = token.text.replace(".", "").replace("平方", "square ").replace("立方", "cubic ")
    text = re.sub("^[十百千万亿打对双]+(?![米克瓦])", lambda match: " ".join(match[0]) + " ", text)
    kept = "".join(c if c.isalpha() or c in "/-'" else " " for c in text)
    return [word.strip("-") for word in kept.replace("/", " / ").split()]


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
        elif token.text in _SYMBOLS:
            flat.append(_SYMBOLS[token.text])
        elif token.text == "^":
            if not (match := _EXPONENT.match(" ".join(t.text for t in tokens[at : at + 4]))):
                return None
            flat.append("^" + match[0].strip("{} ").replace(" ", ""))
            at += len(match[0].split())
        elif token.text not in (r"\cdot", "*", ".", "(", ")", "-", "'"):
            return None
    return flat


_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}  # before the unit
_RAISED = {"squared": 2, "cubed": 3} | {f"^{n}": n for n in (-4, -3, -2, -1, 1, 2, 3, 4)}


def read_unit(tokens: list[Token]) -> tuple[Unit, Fraction] | None:
    """(unit, what `million` or `dozen` multiply with) after a number; None where it is no unit."""
    dimensions: Counter[str] = Counter()
    things: Counter[str] = Counter()
    size, scale, sign, power = Fraction(1), Fraction(1), 1, 1
    last: list[tuple[str, int]] = []  # units named last, with their exponents

    def add(name: str, exponent: int) -> None:
        nonlocal size
        if known := _find(name):
            dimension, unit_size, of_dimension = known
            dimensions[dimension] += of_dimension * exponent
            size *= unit_size**exponent
        elif _singular(name) == "unit":
            dimensions["unit"] += exponent
        else:
            things[_singular(_TEMPERATURES.get(name, name))] += exponent

    words = _flatten(tokens) or [None]
    for word in words:
        if word is None or (word in _NO_UNIT and words != ["times"]):
            return None
        if re.fullmatch("[b-z]", word) and not (_find(word) or word in "cfk"):
            return None  # 5 cm^2 x, but 20 degrees C
        is_named = bool(things) and _singular(word) in _TWO  # ordered pairs, married couples
        factor = None if is_named else _SIZES.get(word) or _SIZES.get(_singular(word))
        if word == "of":
            if things or dimensions:
                break  # 3 cups of flour, but 3 tenths of a mile
        elif word in ("/", "per"):
            sign = -1
        elif factor and not dimensions and things.keys() <= {"part"}:
            scale *= Fraction(factor) ** sign  # 3 million, 5 per thousand
            things.clear()  # 5 parts per million
            sign = 1
        elif sign > 0 and (factor or read_number_words(word) is not None):
            return None  # 5 metres doubled; 5 dollars per dozen has its unit
        elif word in _POWERS:
            power *= _POWERS[word]
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
    kept = frozenset((name, power) for name, power in dimensions.items() if power)
    counted = {name if power == 1 else f"{name}^{power}" for name, power in things.items()}
    return Unit(kept, size, frozenset(counted)), scale


def _find(name: str) -> tuple[str, Fraction, int] | None:
    return _TABLE.get(name) or _TABLE.get(_singular(name)) or _TABLE.get(name.removesuffix("s"))


def is_measure(word: str) -> bool:
    """Whether a word is a unit of measure or money."""
    return _find(word.lower()) is not None


def is_blurring(token: Token) -> bool:
    """Whether words deny or blur the value after them: `not 5`, `at least 5`."""
    return any(word.lower() in _BLURRING for word in _words(token))


def _starts_unit(token: Token, before: Token) -> bool:
    if before.kind in ("op", "cmd") and before.text not in _BEFORE_UNIT:
        return False
    if token.text == r"\degree":
        return before.kind != "word"
    if token.kind != "word":
        return token.kind == "text" or token.text in _CURRENCY
    if len(token.text) == 1:
        return token.spaced and token.text in _SPACED_LETTERS and before.kind == "num"
    known = token.text.lower() in _TABLE or token.text in _RATES or token.text in _SIZES
    return known or (token.spaced and len(token.text) > 3) or token.text in ("sq", "cu", "per")


def _is_named(tokens: list[Token]) -> bool:
    """Whether the first is a number and words in brackets name its unit: `9 (apples)`."""
    before, *rest = tokens
    if before.kind != "num" or rest[0].text != "(" or not wraps(rest):
        return False
    words = [t for t in rest[1:-1] if t.kind in ("word", "text") and len(t.text) > 1]
    return any(len(w.text) > 2 or w.kind == "text" or w.text.lower() in _TABLE for w in words)


def split_unit(tokens: list[Token]) -> tuple[list[Token], Unit | None, int]:
    """(tokens of the value, unit or None, scale): `\\$5`, `5 m/s`, `3 million dollars`."""
    signed = 1 if tokens and tokens[0].text == "-" else 0
    behind = []
    if len(tokens) > signed + 1 and tokens[signed].text.rstrip(".") in _CURRENCY:
        behind = [tokens[signed]]
        rest = tokens[signed + 1 :]
        if rest[0].text == ".":  # Rs. 5
            rest = rest[1:]
        tokens = tokens[:signed] + rest
    is_function = any(token.text[1:] in FUNCTIONS for token in tokens)
    for at in range(1, len(tokens)):
        if is_function and tokens[at].text == r"\degree":
            break  # \sin 30^\circ
        is_named = _is_named(tokens[at - 1 :])
        if is_named or _starts_unit(tokens[at], tokens[at - 1]):
            if found := read_unit(tokens[at:] + behind):
                unit, scale = found
                return tokens[:at], unit, 1 if is_named else scale  # 19 (pairs) is 19
            break
    return tokens, *(read_unit(behind) or (None, 1))


def ratio(first: Unit, second: Unit) -> Fraction | None:
    """How many of the second unit one of the first is; None where they cannot be compared."""
    ours, theirs = dict(first.dimensions), dict(second.dimensions)
    if theirs == {"degree": 1} and first.things - second.things - _OF_ANGLES:
        return None  # 30 °C is no angle
    if any(thing.endswith("unit") for thing in first.things ^ second.things):
        return None  # kilounits
    if "unit" in ours or "unit" in theirs:
        # `18 units` may be anything, `18 square units` any area.
        is_any = {ours.get("unit"), theirs.get("unit")} == {1, None}
        powers = {side.pop("unit", side.pop("length", 1)) for side in (ours, theirs)}
        return Fraction(1) if is_any or (len(powers) == 1 and ours == theirs) else None
    if ours != theirs or not (first.things <= second.things or second.things <= first.things):
        return None
    return first.size / second.size


Tree = tuple
ZERO, ONE, MINUS_ONE = ("num", Fraction(0)), ("num", Fraction(1)), ("num", Fraction(-1))
INVERSE = ("mul", MINUS_ONE, ONE)  # ^{-1}, as it is read; a fraction has MINUS_ONE itself


def subtrees(tree: Tree) -> list[Tree]:
    """A tree and all that is in it."""
    found = [tree]
    for one in found:  # grows on the way
        found += [part for part in one[1:] if isinstance(part, tuple)]
    return found


def variables(*trees: Tree) -> set[str]:
    """Names of the variables in the trees."""
    return {part[1] for tree in trees for part in subtrees(tree) if part[0] == "var"}


def at(tree: Tree, point: dict[str, Fraction]) -> Tree:
    """The tree with numbers for its variables."""
    if tree[0] == "var" and tree[1] in point:
        return ("num", point[tree[1]])
    return tuple(at(part, point) if isinstance(part, tuple) else part for part in tree)


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number or expression, with its unit or per cent sign."""

    text: str
    tree: Tree
    unit: Unit | None = None
    percent: bool = False
    is_guess: bool = False  # the unit is a letter that may be a variable
    is_scaled: bool = False  # the last factor is a word's, such as million, or the 1 of any unit


@dataclass(frozen=True, slots=True)
class Words:
    """Words, or letters as written (AB is not BA); `tree` where they could be a product."""

    text: str
    tree: Tree | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a multiple-choice question: its letter, and its value where it is written."""

    text: str
    letter: str
    value: "Value | None"


@dataclass(frozen=True, slots=True)
class Sequence:
    """Several values.

    `kind`: list, alternatives (all joined by "or"), set, pair (in brackets: tuple or interval),
    interval (from an inequality), union, ratio, matrix, cases, based (one item: the digits of a
    number as written). `form` must agree too: the brackets, a matrix's shape, the base.
    """

    text: str
    kind: str
    items: tuple
    form: tuple = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """parts[0] ops[0] parts[1] …, with ops in = < > \\le \\ge \\ne \\approx \\in \\equiv \\to."""

    text: str
    parts: tuple
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something no reader knows; `tokens` for those who want to try."""

    text: str
    tokens: tuple[Token, ...] = ()


Value = Scalar | Words | Choice | Sequence | Relation | Opaque

INFINITY, MINUS_INFINITY = Words(r"\infty"), Words(r"-\infty")
INFINITIES = {r"\infty": INFINITY, r"+\infty": INFINITY, r"-\infty": MINUS_INFINITY}


def is_several(value: Value) -> bool:
    """Whether a value is a list without brackets."""
    return isinstance(value, Sequence) and value.kind in ("list", "alternatives")


def interval(opening: str, low: Value, high: Value, closing: str) -> Sequence:
    """The interval between two values, with its brackets."""
    text = f"{opening}{low.text},{high.text}{closing}"
    return Sequence(text, "interval", (low, high), (opening, closing))
