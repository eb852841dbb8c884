"""Classes of answers about numbers, from templates: units, factors, digits, rounding, gcd and max.

A wrong row is its right twin with another value; a run of ROWS a class has both.
"""

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import gcd, lcm

import pytest

from grading.grade import grade_all

ROWS = 200
Row = tuple[str, str, bool]  # prediction, gold, whether it is right
THINGS = ["apples", "red apples", "boys", "people", "marbles left", "km", "hours"]


def notes(pick: random.Random) -> Row:
    """A number, and its thing in brackets on one side or both."""
    n, thing = pick.randrange(2, 500), pick.choice(THINGS)
    right = pick.random() < 0.5
    value = n if right else n + pick.choice((-1, 1, 10))
    forms = [f"{value}", f"{value}.0", f"{value} ({thing})", rf"{value} (\text{{{thing}}})"]
    at = pick.randrange(4)
    gold = f"{n} ({thing})" if at < 2 or pick.random() < 0.5 else f"{n}"
    return forms[at], gold, right


ORDINALS = ("{}^{{\\mathrm{{th}}}}", "{}^{{\\text{{th}}}}", "{}^{{th}}", "{}\\text{{th}}", "{}th")
PLAIN = ("{}", r"\approx {}", "≈{}", "{}元", "¥{}", "₹{}", "{} (items)", "{}人", "{} rupees")


def spellings(pick: random.Random) -> Row:
    """One number in the prints of ordinals, currencies, thousands and other scripts."""
    n = pick.randrange(4, 10**6)
    right = pick.random() < 0.5
    other = n if right else pick.choice((n + 1, n - 1, 10 * n))
    digits = f"{other}"
    wide = digits.translate({ord("0") + d: 0xFF10 + d for d in range(10)})
    swiss = f"{other:,}".replace(",", "'")
    forms = [form.format(digits) for form in ORDINALS + PLAIN] + [wide, swiss]
    pair = [pick.choice(forms), f"{n}"]
    if pick.random() < 0.3:
        pair = [digits, pick.choice(ORDINALS + PLAIN).format(n)]
    return *pair, right


SMALLER = {"feet": ("inches", 12), "hours": ("minutes", 60), "minutes": ("seconds", 60)}
SMALLER |= {"pounds": ("ounces", 16), "dollars": ("cents", 100), "米": ("厘米", 100)}


def quantities(pick: random.Random) -> Row:
    """Two units beside each other, and one unit as another."""
    unit, (small, factor) = pick.choice(list(SMALLER.items()))
    a, b = pick.randrange(1, 30), pick.randrange(1, factor)
    total = a * factor + b
    right = pick.random() < 0.5
    total += 0 if right else pick.choice((-1, 1, factor))
    gap = "" if unit == "米" else " "
    joint = gap if unit == "米" else pick.choice((" ", " and "))
    pair = [f"{a}{gap}{unit}{joint}{b}{gap}{small}", f"{total}{gap}{small}"]
    return *pick.sample(pair, 2), right


FACTORS = {"dozen": 12, "score": 20, "gross": 144, "hundred": 100, "thousand": 1000, "lakh": 10**5,
    "million": 10**6, "crore": 10**7, "billion": 10**9, "trillion": 10**12,
    "per mille": Fraction(1, 1000), "ppm": Fraction(1, 10**6),
    "parts per million": Fraction(1, 10**6)}  # fmt: skip
PARTS = {"halves": 2, "thirds": 3, "quarters": 4, "fifths": 5, "sixths": 6, "sevenths": 7,
    "eighths": 8, "ninths": 9, "tenths": 10, "elevenths": 11, "twelfths": 12, "fifteenths": 15,
    "twentieths": 20, "hundredths": 100, "thousandths": 1000, "millionths": 10**6}  # fmt: skip
FACTORS |= {word: Fraction(1, n) for word, n in PARTS.items()}


def factors(pick: random.Random) -> Row:
    """A scale or fraction word behind a number multiplies it."""
    word, factor = pick.choice(list(FACTORS.items()))
    n = pick.randrange(2, 60)
    right = pick.random() < 0.5
    value = Fraction(n * factor) if right else Fraction(n)
    text = pick.choice((f"{n} {word}", rf"{n}\text{{ {word}}}", rf"{n}\ \mathrm{{{word}}}"))
    if " " in word or len(word) < 4:
        text = rf"{n}\text{{ {word}}}"
    bottom = "" if value.denominator == 1 else f"/{value.denominator}"
    pair = [text, f"{value.numerator}{bottom}"]
    return *(pair if right else pick.sample(pair, 2)), right


def digits(pick: random.Random) -> Row:
    """Huge powers under roots and beside pi, e and roots."""
    k, base = pick.randrange(30, 400), pick.choice((2, 3, 5, 7, 10))
    irrational = pick.choice((r"\pi", "e", r"\sqrt{2}", r"\sqrt[3]{5}"))
    n = 4 * k
    return pick.choice([
        (rf"\sqrt{{10^{{{2 * k}}}+1}}", f"10^{{{k}}}", False),
        (rf"\sqrt{{{base}^{{{2 * k}}}}}", f"{base}^{{{k}}}", True),
        (rf"{base}^{{{n}}}{irrational}", rf"{irrational}\cdot {base}^{{{n}}}", True),
        (rf"{base}^{{{n}}}{irrational}", rf"{base}^{{{n - 1}}}\cdot {base}{irrational}", True),
        (rf"{base}^{{{n}}}{irrational}", rf"{base}^{{{n + 1}}}{irrational}", False),
        (rf"{base}^{{{n}}}{irrational}+1", rf"{base}^{{{n}}}{irrational}", False),
        (rf"\frac{{{irrational}}}{{{base}^{{{n}}}}}", "0", False),
    ])  # fmt: skip


def rounding(pick: random.Random) -> Row:
    """Floor and ceiling of a fraction of n, which may differ at some integers alone."""
    k, a = pick.randrange(2, 9), pick.randrange(0, 9)
    floor, ceiling = rf"\lfloor n/{k}\rfloor", rf"\lceil n/{k}\rceil"
    whole = rf"\left\lfloor\frac{{n}}{{{k}}}\right\rfloor"
    return pick.choice([
        (ceiling, f"{floor}+1", False),
        (rf"\lfloor (n+{k * a})/{k}\rfloor", f"{whole}+{a}", True),
        (f"{a}+{whole}", f"{floor}+{a}", True),
        (ceiling, rf"-\lfloor -\frac{{n}}{{{k}}}\rfloor", True),
        (f"{floor}+{a}", f"{floor}+{a + 1}", False),
        (f"{floor}+{ceiling}", f"2{floor}+1", False),
    ])  # fmt: skip


def aggregates(pick: random.Random) -> Row:
    """gcd, lcm, max and min of numbers, and of letters."""
    a, b = pick.randrange(2, 90), pick.randrange(2, 90)
    name, compute = pick.choice([("gcd", gcd), ("lcm", lcm), ("max", max), ("min", min)])
    right = pick.random() < 0.5
    value = compute(a, b) + (0 if right else pick.choice((1, 2)))
    texts = [rf"\{name}({a},{b})", rf"\{name}\{{{a}, {b}\}}", f"{name}({a}, {b})"]
    texts += [] if name == "min" else [rf"\operatorname{{{name}}}({a},{b})"]  # min is a minute too
    free = [
        (rf"\{name}(m,n)", "1", False), (rf"\{name}(m,n)", rf"\{name}(n,m)", True),
        (rf"\lim_{{x\to0}}\frac{{{a}|x|}}{{x}}", f"{a}", False),
    ]  # fmt: skip
    return pick.choice(free) if pick.random() < 0.3 else (pick.choice(texts), f"{value}", right)


CLASSES = (notes, spellings, quantities, factors, digits, rounding, aggregates)


def rows(make: Callable[[random.Random], Row], count: int) -> Iterator[Row]:
    pick = random.Random(make.__name__)
    return (make(pick) for _ in range(count))


@pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)
def test_no_wrong_row_of_a_class_is_paid_and_every_right_row_is(make, count=ROWS):
    table = list(rows(make, count))
    boxed = [rf"<think>a</think>\boxed{{{prediction}}}" for prediction, *_ in table]
    grades = grade_all(boxed, [gold for _, gold, _ in table])
    pairs = list(zip(table, grades, strict=True))
    assert 0.2 < sum(right for *_, right in table) / count < 0.8
    assert [row for row, one in pairs if (one.verdict == "right") is not row[2]] == []
