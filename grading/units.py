"""Units: what is measured or counted, and how much one of it is in another.

A unit that only one side writes is ignored (the question names it). Where both write one, measured
quantities are converted with exact ratios, and counted things (`5 apples`) must name the same.
"""

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from grading.latex import SCALES, Token, read_number_words, word_set

_MEASURES = """
length: m meter metre mètre metro 米 = 1; cm centimeter centimetre 厘米 = 1/100
length: mm millimeter millimetre 毫米 = 1/1000; km kilometer kilometre 千米 公里 = 1000
length: dm decimeter decimetre 分米 = 1/10; in inch inches = 0.0254; ft foot feet = 0.3048
length: yd yard = 0.9144; mi mile = 1609.344
length^2: ha hectare = 10000; acre = 4046.8564224
length^3: l liter litre litro 升 = 1/1000; ml milliliter millilitre 毫升 = 1/1000000
length^3: gallon gal = 0.003785411784; quart = 0.000946352946; pint = 0.000473176473
time: s sec second sekunde sekunden seconde segundo 秒 = 1; ms millisecond = 1/1000
time: min minute minuten minuto minuti 分钟 = 60
time: h hr hour stunde stunden heure hora ora ore 小时 = 3600
time: day tage jour día giorno giorni 天 = 86400
time: week woche wochen semaine semana settimana settimane 周 = 604800
month: month monat monate mois mes meses mese mesi 个月 = 1
month: yr year jahr jahre an année año anno anni 年 = 12
mass: g gram gm gramme gramm gramo 克 = 1; mg milligram = 1/1000; t ton tonne 吨 = 1000000
mass: kg kilogram kilogramm kilogramme kilogramo kilo 千克 公斤 = 1000
mass: oz ounce = 28.349523125; lb pound = 453.59237
dollar: dollar usd buck 美元 = 1; cent penny pennies = 1/100
euro: euro eur = 1; centime céntimo = 1/100
sterling: sterling gbp = 1
yen: yen jpy 円 日元 = 1
yuan: yuan cny rmb 元 块 = 1; jiao 角 = 1/10
rupee: rupee inr rs = 1; paisa paise = 1/100
joule: j joule = 1; kj kilojoule = 1000; cal calorie = 4.184; ev = 1.602176634e-19
watt: w watt = 1; kw kilowatt = 1000
newton: n newton = 1
volt: v volt = 1
pascal: pa pascal = 1
time^-1: hz hertz = 1
degree: degree 度 = 1
radian: radian rad = 1
cup: cup = 1
"""


def _read_measures(text: str) -> dict[str, tuple[str, Fraction, int]]:
    """{name: (dimension, exact size in its base unit, exponent of the dimension)}."""
    table = {}
    for measures in text.strip().splitlines():
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
    power wrong false doubled tripled quadrupled halved doz 倍 折 以上 以下 的倒数 次方
    short away ago off out radical followed percent
    """)
_RATES = {"mph": ("mi", "h"), "kph": ("km", "h"), "kmh": ("km", "h"), "mpg": ("mi", "gallon")}
CURRENCY = {r"\$": "dollar", r"\euro": "euro", r"\pounds": "sterling", r"\yen": "yen"}
CURRENCY |= {"₹": "rupee", "Rs": "rupee", "USD": "dollar", "EUR": "euro", "GBP": "sterling"}
_SYMBOLS = CURRENCY | {r"\degree": "degree", "/": "/"}
# A letter is a unit only after a space: `5 m`, but 5m is 5 times m.
LETTERS = set("mshglLtNJWVCFK")
_IGNORED = {"the", "a", "an", "each", "total", "altogether", "exactly", "only", "same"}
_FACTORS = """
十=10 百=100 千=1000 万=1e4 亿=1e8 打=12 dozen=12 ten=10 score=20 gross=144 hundred=100
lakh=1e5 crore=1e7 mille=1000 mn=1e6 bn=1e9 ppm=1/1000000 basis=1/10000 pair=2 couple=2 对=2 双=2
"""
_SIZES = SCALES | {word: Fraction(size) for word, size in re.findall(r"(\w+)=(\S+)", _FACTORS)}
_TEMPERATURES = {"c": "celsius", "centigrade": "celsius", "f": "fahrenheit"}
# What an angle's degrees may be called: any other word makes them °C or a direction.
_OF_ANGLES = word_set("angle acute obtuse reflex interior exterior central inscribed arc")


# Reading


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


def _words(text: str) -> list[str]:
    text = text.replace(".", "").replace("平方", "square ").replace("立方", "cubic ")
    text = re.sub("^[十百千万亿打对双]+(?![米克瓦])", lambda match: " ".join(match[0]) + " ", text)
    kept = "".join(c if c.isalpha() or c in "/-'" else " " for c in text)
    return [word.strip("-").lower() for word in kept.replace("/", " / ").split()]


_EXPONENT = re.compile(r"[1-4](?!\S)|\{ (?:- )?[1-4] \}")


def unit_words(tokens: list[Token]) -> tuple[list[str], int]:
    """(lower-case words, "/" and "^2", how many tokens they are): a unit ends where they end."""
    words: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind in ("text", "word"):
            words += _words(token.text)
        elif token.text in _SYMBOLS:
            words.append(_SYMBOLS[token.text])
        elif token.text == "^":
            following = " ".join(t.text for t in tokens[at + 1 : at + 5])
            if not (match := _EXPONENT.match(following)):
                break
            words.append("^" + match[0].strip("{} ").replace(" ", ""))
            at += len(match[0].split())
        elif token.text not in (r"\cdot", ".", "-", "'"):
            break
        at += 1
    return words, at


_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}  # before the unit
_RAISED = {"squared": 2, "cubed": 3} | {f"^{n}": n for n in (-4, -3, -2, -1, 1, 2, 3, 4)}


class _Reading:
    """The words of a unit, read one by one."""

    def __init__(self) -> None:
        self.dimensions: Counter[str] = Counter()
        self.things: Counter[str] = Counter()
        self.size, self.scale, self.sign, self.power = Fraction(1), Fraction(1), 1, 1
        self.last: list[tuple[str, int]] = []  # units named last, with their exponents

    def add(self, name: str, exponent: int) -> None:
        if known := find(name):
            dimension, size, of_dimension = known
            self.dimensions[dimension] += of_dimension * exponent
            self.size *= size**exponent
        elif _singular(name) == "unit":
            self.dimensions["unit"] += exponent
        else:
            self.things[_singular(_TEMPERATURES.get(name, name))] += exponent

    def read(self, word: str) -> bool:
        """Take one word; False where it is none of a unit."""
        has_unit = bool(self.things or self.dimensions)
        is_named = bool(self.things) and _singular(word) in ("pair", "couple")  # ordered pairs
        factor = None if is_named else _SIZES.get(word) or _SIZES.get(_singular(word))
        if word in ("/", "per"):
            self.sign = -1
        elif factor and not self.dimensions and self.things.keys() <= {"part"}:
            self.scale *= Fraction(factor) ** self.sign  # 3 million, 5 per thousand
            self.things.clear()  # 5 parts per million
            self.sign = 1
        elif self.sign > 0 and (factor or read_number_words(word) is not None):
            return False  # 5 dollars per dozen has its unit
        elif word in _POWERS:
            self.power *= _POWERS[word]
        elif word in _RAISED:
            for name, exponent in self.last:
                self.add(name, exponent * (_RAISED[word] - 1))
            return bool(self.last)  # 5 squared
        elif word not in _IGNORED and not (word == "in" and has_unit):
            names = _RATES.get(word, (word,))
            ways = zip(names, (1, -1), strict=False)
            self.last = [(name, self.power * self.sign * way) for name, way in ways]
            for name, exponent in self.last:
                self.add(name, exponent)
            self.power = 1
        return True


def read_unit(words: list[str]) -> tuple[Unit, Fraction] | None:
    """(unit, what `million` or `dozen` multiply with) after a number; None where it is no unit."""
    reading = _Reading()
    for word in words:
        is_letter = re.fullmatch("[b-z]", word) and not (find(word) or word in "cfk")
        if is_letter or (word in _NO_UNIT and words != ["times"]):
            return None
        if word == "of" and (reading.things or reading.dimensions):
            break  # 3 cups of flour, but 3 tenths of a mile
        if word != "of" and not reading.read(word):
            return None
    if not words:
        return None
    kept = frozenset((name, power) for name, power in reading.dimensions.items() if power)
    things = {n if power == 1 else f"{n}^{power}" for n, power in reading.things.items()}
    return Unit(kept, reading.size, frozenset(things)), reading.scale


# Comparing


def find(name: str) -> tuple[str, Fraction, int] | None:
    return _TABLE.get(name) or _TABLE.get(_singular(name)) or _TABLE.get(name.removesuffix("s"))


def is_measured(unit: Unit) -> bool:
    """Whether a unit is one of measure or money and nothing else: no apples, no "units"."""
    return bool(unit.dimensions) and not unit.things and "unit" not in dict(unit.dimensions)


def is_measure(word: str) -> bool:
    """Whether a word is a unit of measure or money."""
    return find(word.lower()) is not None


def is_unit_word(word: str) -> bool:
    """Whether letters behind a number are a unit wherever they stand: cm, kg, mph, million."""
    lowered = word.lower()
    is_plural = len(word) > 2 and lowered.removesuffix("s") in _TABLE  # hrs
    return (
        lowered in _TABLE
        or is_plural
        or word in _RATES
        or word in _SIZES
        or word in ("sq", "cu", "per")
    )


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
