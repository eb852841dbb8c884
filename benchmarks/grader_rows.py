"""Rows of the twelve classes of false accept, and of numbers without a box.

One row a line, longer than elsewhere: the file is read as a table. Each function draws a few rows:
a kind, the prediction, its gold, and whether a mathematician would call it right; then the
question, where it matters. A label follows from how the row is made.
"""

# ruff: noqa: E501
# fmt: off

import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil, comb, factorial, gcd, isqrt, lcm

Random = random.Random
# kind, prediction, gold, is it right; then the question, where one matters
Drawn = Iterator[tuple[str, str, str, bool] | tuple[str, str, str, bool, str]]
CLASSES: dict[str, tuple[str, Callable[[Random], Drawn]]] = {}


def table(name: str, about: str) -> Callable[[Callable[[Random], Drawn]], None]:
    """Enter a function that draws rows as a class of the table."""

    def enter(draw: Callable[[Random], Drawn]) -> None:
        CLASSES[name] = (about, draw)

    return enter


# Writing: one value in the spellings that models use.


def frac(top: object, bottom: object) -> str:
    return rf"\frac{{{top}}}{{{bottom}}}"


def value(r: Random, number: Fraction) -> str:
    """An integer as it is, a fraction in one of its usual spellings."""
    if number.denominator == 1:
        return str(number)
    sign, top, bottom = "-" if number < 0 else "", abs(number.numerator), number.denominator
    ways = [f"{sign}{frac(top, bottom)}", rf"{sign}\dfrac{{{top}}}{{{bottom}}}", f"{sign}{top}/{bottom}"]
    return r.choice(ways)


def restyle(r: Random, text: str) -> str:
    r"""The same formula in other print: spaces, \dfrac, \leq, \times, \left and \right."""
    swaps = [
        (r"\\frac\b", r"\\dfrac"), (r"\\frac\b", r"\\tfrac"), (r"\\le\b", r"\\leq"),
        (r"\\ge\b", r"\\geq"), (r"\\ge\b", "≥"), (r"\\cdot\b", r"\\times"), (r"=", " = "),
        (r"(?<=[\w)}])\+", " + "), (r"(?<=[\w)}])-", " - "), (r", ?", r",\\ "), (r", ?", r", "),
    ]
    for old, new in r.sample(swaps, 4):
        text = re.sub(old, new, text)
    if r.random() < 0.2 and not re.search(r"\\(left|text|sqrt\[|begin)", text):
        text = re.sub(r"(?<!\\)([(\[])", r"\\left\1", text)
        text = re.sub(r"(?<!\\)([)\]])", r"\\right\1", text)
    return text


def linear(a: int, x: str, b: int) -> str:
    """ax + b."""
    first = x if a == 1 else f"-{x}" if a == -1 else f"{a}{x}"
    return first if b == 0 else f"{first}{b:+d}"


@table("F1", "relations compared as equations")
def _(r: Random) -> Drawn:
    x, y, z = r.sample("abcnpqrtuvwxyz", 3)
    k, m, c = r.randint(2, 12), r.randint(2, 40), r.randint(2, 6)
    p, q, s, t = r.sample("ABCDFGHKMNPQ", 4)
    plus, minus = r.sample("+-", 2)
    lhs, rhs, others = r.choice([
        (f"{k}{p}{q}", f"{p}{s}{plus}{p}{t}", [f"{p}{s}{minus}{p}{t}", f"{p}{s}{plus}{q}{t}"]),
        (f"{y}^2", z, [x]), (f"{y}^{c}", f"{k}{x}", [f"{m + 12}{x}", f"{k}{z}"]),
        (str(m), f"{x}{plus}{y}", [f"{x}{minus}{y}", f"{x}{plus}{z}"]),
        (f"{x}^2+{y}^2", str(m), [str(m + k), f"{m}{z}"]),
        (frac(x, y), f"{k}{z}{plus}{m}", [f"{k}{z}{minus}{m}", f"{k + 1}{z}{plus}{m}"]),
        (y, f"{k}{x}{plus}{m}", [f"{k}{x}{minus}{m}", f"{k}{z}{plus}{m}", f"{k}{x}{plus}{m + 1}"]),
        (rf"\sin {x}", rf"{k}\cos {y}", [rf"{k}\cos {z}", rf"-{k}\cos {y}"]),
    ])
    gold = f"{lhs}={rhs}"
    yield "sides swapped", restyle(r, f"{rhs}={lhs}"), gold, True
    yield "as written", restyle(r, gold), gold, True
    if lhs == y:
        opposite = {"+": "-", "-": "+"}[plus]
        yield "times a constant", f"{c}{y}={c * k}{x}{plus}{c * m}", gold, True
        yield "all on one side", f"{k}{x}-{y}{plus}{m}=0", gold, True
        yield "moved", restyle(r, f"{y}-{k}{x}={plus}{m}".replace("=+", "=")), gold, True
        yield "label left out", restyle(r, rhs), gold, True
        yield "moved wrongly", f"{k}{x}-{y}{opposite}{m}=0", gold, False
    other = r.choice(others)
    if lhs == y:
        yield "cleared fractions", f"{frac(y, c)}={frac(f'{k}{x}{plus}{m}', c)}", gold, True
    u, v = r.sample("uvwst", 2)
    h = f"({x}-{k})"
    yield "a function of a difference", f"{u}-{m}={v}{h}", f"{u}={v}{h}+{m}", True
    yield "a function of a difference", f"{u}+{m}={v}{h}", f"{u}={v}{h}+{m}", False
    circle = f"({x}-{k})^2+({y}-{m})^2={c * c}"
    rest = k * k + m * m - c * c
    yield "expanded", f"{x}^2+{y}^2-{2 * k}{x}-{2 * m}{y}{rest:+d}=0", circle, bool(rest)
    yield "expanded wrongly", f"{x}^2+{y}^2+{2 * k}{x}-{2 * m}{y}{rest:+d}=0", circle, False
    yield "inequality, swapped", f"{m}>{x}+{y}", f"{x}+{y}<{m}", True
    yield "inequality, turned", f"{x}+{y}>{m}", f"{x}+{y}<{m}", False
    yield "another right side", restyle(r, f"{lhs}={other}"), gold, False
    yield "another right side, swapped", restyle(r, f"{other}={lhs}"), gold, False
    if len(lhs) > 1 or lhs.isdigit():
        yield "another left side", restyle(r, f"{m + 41}{x}{y}={rhs}"), gold, False


UNITS = [
    ("kg", "g", 1000), ("km", "m", 1000), ("m", "cm", 100), ("cm", "mm", 10), ("L", "mL", 1000),
    ("hours", "minutes", 60), ("minutes", "seconds", 60), ("dollars", "cents", 100),
    ("meters", "centimeters", 100), ("kilograms", "grams", 1000), ("feet", "inches", 12),
]


def measure(r: Random, num: object, unit: str) -> str:
    if unit == "dollars" and r.random() < 0.5:
        return rf"\${num}"
    ways = (r"%s\text{ %s}", r"%s\ \text{%s}", r"%s\,\text{%s}", r"%s~\mathrm{%s}", "%s %s")
    return r.choice(ways) % (num, unit)


@table("F2", "units inside relations")
def _(r: Random) -> Drawn:
    x, relation = r.choice("xyzdtwvmh"), r.choice(["=", "=", "=", r"\le ", r"\ge ", "<", ">"])
    num, (big, small, factor) = r.randint(2, 900), r.choice(UNITS)
    unit, other = r.sample((big, small), 2)
    gold = f"{x}{relation}{measure(r, num, unit)}"

    def same(number: object, unit: str) -> str:
        return f"{x}{relation}{measure(r, number, unit)}"

    yield "another unit", same(num, other), gold, False
    yield "another number", same(num + 1, unit), gold, False
    yield "same unit", same(num, unit), gold, True
    yield "converted", same(num * factor, small), f"{x}{relation}{measure(r, num, big)}", True
    yield "converted wrongly", same(num * factor, big), f"{x}{relation}{measure(r, num, small)}", False
    power = r.choice((2, 3))
    named = {2: "square", 3: "cubic"}[power]
    yield "area", rf"A={num}\text{{ cm}}^{power}", rf"A={num}\text{{ m}}^{power}", False
    yield "area", rf"A={num}\text{{ {named} meters}}", rf"A={num}\text{{ m}}^{power}", True
    yield "two quantities", f"{x}={num} {big}, y=7 {small}", f"{x}={num} {small}, y=7 {big}", False
    if relation == "=":
        yield "label left out", measure(r, num, unit), gold, True
        yield "label left out, another unit", measure(r, num, other), gold, False
        k = r.randint(1, 60)
        yield "speed", f"v={measure(r, 18 * k, 'km/h')}", f"v={measure(r, 5 * k, 'm/s')}", True
        yield "speed", f"v={measure(r, 5 * k, 'km/h')}", f"v={measure(r, 5 * k, 'm/s')}", False


@table("F3", "floor and ceiling at integers")
def _(r: Random) -> Drawn:
    n, k, j, c = r.choice("nkmx"), r.randint(2, 99), r.randint(1, 9), r.randint(2, 9)

    def lower(inner: str) -> str:
        return rf"\lfloor {inner}\rfloor" if r.random() < 0.5 else rf"\left\lfloor {inner} \right\rfloor"

    def upper(inner: str) -> str:
        return lower(inner).replace("floor", "ceil")

    nk = r.choice([frac(n, k), f"{n}/{k}"])
    low, up, shifted = lower(nk), upper(nk), frac(f"{n}+{j}", k)
    for one, two in (
        (f"{low}+{j}", lower(frac(f"{n}+{j * k}", k))),
        (f"{up}-{j}", upper(frac(f"{n}-{j * k}", k))),
        (up, f"-{lower('-' + nk)}"), (f"{c}{low}+{c * j}", f"{c}({low}+{j})"),
        (f"{n}-{k}{low}", f"-{k}{low}+{n}"), (lower(shifted), lower(f"{nk}+{frac(j, k)}")),
        (lower(frac(f"{n}^2", k * k)), lower(rf"\left({frac(n, k)}\right)^2")),
    ):  # fmt: skip
        if r.random() < 0.6:
            yield "identity", *r.sample((one, two), 2), True
    wrong = [
        (up, f"{low}+1", lambda v: -(-v // k), lambda v: v // k + 1),
        (low, f"{up}-1", lambda v: v // k, lambda v: -(-v // k) - 1),
        (lower(shifted), low, lambda v: (v + j) // k, lambda v: v // k),
        (up, nk, lambda v: -(-v // k), lambda v: Fraction(v, k)),
        (lower(shifted), upper(nk), lambda v: (v + j) // k, lambda v: -(-v // k)),
        (f"{low}+{lower(f'{n}/{c}')}", lower(frac(f"{k + c}{n}", k * c)),
         lambda v: v // k + v // c, lambda v: (k + c) * v // (k * c)),
        (lower(rf"\sqrt{{{n}}}") + "+1", upper(rf"\sqrt{{{n}}}"),
         lambda v: isqrt(v) + 1, lambda v: ceil(v**0.5)),
        (f"{c}{low}", lower(frac(f"{c}{n}", k)), lambda v: c * (v // k), lambda v: c * v // k),
        (lower(frac(f"{n}^2", k)), f"{n}{low}", lambda v: v * v // k, lambda v: v * (v // k)),
    ]
    for one, two, first, second in r.sample(wrong, 5):
        differ = sum(first(v) != second(v) for v in range(1, 201))
        if differ:
            kind = "differ at few integers" if differ < 20 else "differ at many integers"
            yield kind, *r.sample((one, two), 2), False


@table("F4", "solved as the gold is")
def _(r: Random) -> Drawn:
    x = r.choice(["x", "y", "n", "t", "k", "m", "w", r"\theta ", r"\lambda "])
    bottom = r.choice((1, 1, 2, 3, 4, 5))
    s = Fraction(r.choice((-1, 1, 1)) * r.randint(1, 60), bottom)
    a, b = s.denominator * r.randint(2, 7), r.choice([*range(-30, 0), *range(1, 31)])
    rel = r.choice(["=", "=", "=", "<", ">", r"\le ", r"\ge "])
    back = {"=": "=", "<": ">", ">": "<", r"\le ": r"\ge ", r"\ge ": r"\le "}[rel]
    other = {"=": r"\ne ", "<": r"\le ", ">": r"\ge ", r"\le ": "<", r"\ge ": ">"}[rel]
    gold = f"{x}{rel}{value(r, s)}"
    yield "unsolved", restyle(r, f"{linear(a, x, b)}{rel}{a * s + b}"), gold, False
    yield "unsolved, a factor", restyle(r, f"{a}{x}{rel}{a * s}"), gold, False
    yield "unsolved, zero", restyle(r, f"{linear(a, x, int(-a * s))}{rel}0"), gold, False
    if bottom == 1:
        yield "unsolved, x - s", f"{linear(1, x, -int(s))}{rel}0", gold, False
        yield "unsolved, divided", f"{frac(x, abs(b) + 1)}{rel}{value(r, s / (abs(b) + 1))}", gold, False
    if rel == "=" and bottom == 1:
        near, n = int(s) + r.randint(1, 9), int(s)
        product = f"({linear(1, x, -n)})({linear(1, x, -near)})=0"
        yield "two roots, unsolved", product, rf"{x}={n}\text{{ or }}{x}={near}", False
        yield "two roots", rf"{x}={near}, {x}={n}", rf"{x}={n}\text{{ or }}{x}={near}", True
        yield "unsolved, root", rf"\sqrt{{{linear(1, x, a * a - n)}}}={a}", gold, False
        yield "unsolved, both sides", f"{linear(a, x, b)}={linear(a - 1, x, b + n)}", gold, False
    yield "another number", f"{x}{rel}{value(r, s + 1)}", gold, False
    yield "another relation", f"{x}{other}{value(r, s)}", gold, False
    yield "solved", restyle(r, f"{x}{rel}{value(r, s)}"), gold, True
    yield "solved, swapped", restyle(r, f"{value(r, s)}{back}{x}"), gold, True
    if bottom in (2, 4, 5):
        yield "decimal", f"{x}{rel}{float(s)}", gold, True
    if rel == "=":
        yield "number alone", value(r, s), gold, True
        yield "dollars", f"${x} = {value(r, s)}$", gold, True
    else:
        closed, v = "e" in rel, value(r, s)
        up = f"{'[' if closed else '('}{v},\\infty)"
        span = up if rel in (">", r"\ge ") else rf"(-\infty,{v}{']' if closed else ')'}"
        yield "interval", restyle(r, span), gold, True
        yield "member of interval", rf"{x}\in {span}", gold, True


@table("F5", "a formula of the question")
def _(r: Random) -> Drawn:
    a, b, c, d = (r.randint(2, 20) for _ in range(4))
    n, x = r.randint(3, 9), r.choice("xyzatmp")
    total = Fraction(a, b) + Fraction(c, d)
    ints = [
        (rf"\sum_{{k=1}}^{{{n}}} k^2", n * (n + 1) * (2 * n + 1) // 6),
        (rf"\int_0^{{{n}}} 3{x}^2\,d{x}", n**3), (rf"\prod_{{k=1}}^{{{n}}} k", factorial(n)),
        (rf"\lim_{{x\to {a}}} \frac{{x^2-{a * a}}}{{x-{a}}}", 2 * a),
    ]
    formula, result = r.choice([
        (rf"\sqrt{{{a * a}}}+{b}", str(a + b)), (rf"2^{n}\cdot {a}", str(2**n * a)),
        (f"{frac(a, b)}+{frac(c, d)}", value(r, total)), (rf"\binom{{{a + 2}}}{{2}}", str(comb(a + 2, 2))),
        (f"({x}+{a})^2-({x}-{a})^2", f"{4 * a}{x}"), (rf"{a}\cdot {b}-{c}", str(a * b - c)),
        (f"({x}+{a})({x}+{b})", f"{x}^2+{a + b}{x}+{a * b}"), (rf"\log_{{{a}}} {a**3}", "3"),
        (f"{x}^2+{a + b}{x}+{a * b}", f"({x}+{a})({x}+{b})"), (rf"\sqrt{{{a * a * 2}}}", rf"{a}\sqrt{{2}}"),
        (f"{frac(f'{x}^{n}', f'{x}^2')}", f"{x}^{n - 2}" if n > 3 else x), *ints,
    ])
    ask = r.choice(("Compute $%s$.", "What is the value of $%s$?", "Simplify $%s$ fully.",
                    "Find the simplest form of \\[%s\\]", "Let $E = %s$. Rewrite $E$ as asked."))
    question, gold = ask % formula, str(result)
    if total.denominator != 1 or formula[:5] != r"\frac":
        yield "copied", formula, gold, False, question
        yield "copied in other print", restyle(r, formula), gold, False, question
    yield "worked out", restyle(r, gold), gold, True, question
    yield "worked out behind the formula", f"{formula}={gold}", gold, True, question
    formula, number = r.choice(ints)
    words = "Find the quantity that the text describes."
    yield "not worked out", formula, str(number), False, words
    yield "gold not worked out either", restyle(r, formula), formula, True, words + f" Give it as ${formula}$."
    yield "not worked out, of the words", restyle(r, formula), str(number), False, words
    if r.random() < 0.6:
        return
    larger, name = rf"\sqrt{{{b * b + a}}}", r.choice(("Alice", "Bob", "Chen"))
    yield ("gold in the question", larger, larger, True,
           f"Which of the numbers ${larger}$ and ${b}$ is larger?")
    yield ("gold in the question", f"{a}{x}+{b}", f"{a}{x}+{b}", True,
           f"At ${x}=100$, which is larger: ${a}{x}+{b}$ or ${a - 1}{x}+{c}$?")
    yield "number", str(a), str(a), True, f"Two of the factors of $N$ are ${a}$ and ${a * b}$. Which is smaller?"
    if r.random() < 0.4:
        yield "name", rf"\text{{{name}}}", name, True, f"Alice has {a}, Bob {b}, Chen {c}. Was it {name}?"
    yield "option", "B", "B", True, f"Choose. (A) ${a}{x}$ (B) ${b}{x}$ (C) ${c}{x}$"


SCALES = {
    "halves": Fraction(1, 2), "thirds": Fraction(1, 3), "fifths": Fraction(1, 5), "sixths": Fraction(1, 6),
    "sevenths": Fraction(1, 7), "eighths": Fraction(1, 8), "ninths": Fraction(1, 9),
    "tenths": Fraction(1, 10), "twelfths": Fraction(1, 12), "hundredths": Fraction(1, 100),
    "thousandths": Fraction(1, 1000), "per mille": Fraction(1, 1000), "ppm": Fraction(1, 10**6),
    "dozen": 12, "score": 20, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9,
    "lakh": 10**5, "crore": 10**7,
}


@table("F6", "fraction words, scales, ordinals")
def _(r: Random) -> Drawn:
    num, (word, factor) = r.randint(2, 150), r.choice([*SCALES.items()])
    exact = Fraction(num) * factor
    said = r.choice((r"%d\text{ %s}", r"%d \text{ %s}", r"%d\ \text{%s}", r"%d\ \mathrm{%s}", "%d %s"))
    if " " in word:
        said = said.replace("mathrm", "text")
    if word in ("tenths", "hundredths", "thousandths"):
        yield "hyphen", rf"{num}\text{{-{word}}}", value(r, exact), True
        yield "hyphen, dropped", rf"{num}\text{{-{word}}}", str(num), False
    yield "dropped", said % (num, word), str(num), False
    yield "applied", said % (num, word), value(r, exact), True
    yield "applied, gold in words", value(r, exact), f"{num} {word}", True
    yield "another number", said % (num + 1, word), value(r, exact), False
    if word in ("million", "billion", "thousand"):
        yield "money", rf"\${num}\text{{ {word}}}", str(exact), True
        yield "money, dropped", rf"{num}\text{{ {word} dollars}}", str(num), False
        yield "decimal", rf"{num / 10}\text{{ {word}}}", str(int(exact) // 10), True
    changed = r.choice(("doubled", "tripled", "halved", "quadrupled", "squared"))
    yield "-ed", said % (num, changed), str(num), False
    last = "th" if num % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(num % 10, "th")
    way = r.choice((r"%d^{\mathrm{%s}}", r"%d^{\text{%s}}", r"%d\text{%s}", "%d%s", r"%d^\text{%s}"))
    yield "ordinal", way % (num, last), str(num), True
    yield "another ordinal", way % (num, last), str(num + 10), False
    yield "ordinal is no part", way % (num, last), frac(1, num), False


@table("F7", "lists, pairs, intervals, sets")
def _(r: Random) -> Drawn:
    x, (a, b, c) = r.choice("xyntk"), r.sample(range(-40, 60), 3)
    one, two = f"{min(a, b)}", f"{max(a, b)}"
    if r.random() < 0.3:
        one, two = frac(abs(a) * 2 + 1, 2), rf"{abs(b) + 2}\sqrt{{3}}"
    joined = r.choice((r"%s=%s\text{ or }%s=%s", r"%s = %s \text{ or } %s = %s", r"%s=%s\ \text{or}\ %s=%s"))
    either = joined % (x, one, x, two)
    short = rf"{one}\text{{ or }}{two}"
    pair, bare = f"({one},{two})", r.choice((f"{one},{two}", f"{one}, {two}"))
    span = r.choice((f"[{one},{two}]", f"({one},{two}]", f"[{one},{two})"))
    braces = rf"\{{{bare}\}}"
    yield "or | pair", r.choice((either, short)), pair, False
    yield "or | interval", r.choice((either, short)), span, False
    yield "list | pair", bare, pair, False
    yield "list | interval", bare, span, False
    yield "pair, swapped", f"({two},{one})", pair, False
    yield "triple without brackets", f"{bare},{c}", f"({bare},{c})", False
    yield "member of a set", rf"{x}\in{braces}", bare, True
    yield "logical or", rf"{x}={one}\lor {x}={two}", braces, True
    yield "logical or | pair", rf"{x}={one}\lor {x}={two}", pair, False
    yield "set | interval", braces, span, False
    yield "pairs", f"({two},{c}),{pair}", f"{pair},({two},{c})", True
    yield "pairs for one tuple", f"{pair},({c},{a})", f"({one},{two},{c},{a})", False
    yield "pair", restyle(r, pair), pair, True
    yield "interval", restyle(r, span), span, True
    yield "list | set", bare, braces, True
    yield "set | list", rf"\{{{two}, {one}\}}", bare, True
    yield "list, another order", f"{two},{one}", bare, True
    yield "or | list", r.choice((either, short)), r.choice((bare, braces)), True
    yield "or | or", rf"{two}\text{{ or }}{one}", either, True


@table("F8", "a letter applied to brackets")
def _(r: Random) -> Drawn:
    f, x, k, m = r.choice("fghPQpFG"), r.choice("xtzun"), r.randint(2, 12), r.randint(1, 30)
    body = r.choice((f"{k}{x}+{m}", f"{x}^2-{m}", f"{x}^{k}+{x}", f"{frac(x, k)}+{m}", rf"{m}\sin {x}"))
    gold, inside = f"{f}({x})={body}", r.choice((f"{k}{x}", f"{x}+{m}", f"{x}-{m}", f"{x}^2", f"-{x}"))
    yield "argument changed", f"{f}({inside})={body}", gold, False
    yield "factor moved in", f"{f}({k}{x})={body}", f"{k}{f}({x})={body}", False
    yield "factor moved out", f"{k}{f}({x})={body}", f"{f}({k}{x})={body}", False
    a, b = r.sample("abcdmn", 2)
    yield "additive", f"{f}({a}+{b})={f}({a})+{f}({b})+{m}", f"{f}({a}-{b})={f}({a})+{f}({b})+{m}", False
    yield "recursion", f"{f}(n+{m})={f}(n)+{k}", f"{f}(n)={f}(n-{m})-{k}", False
    yield "bare", f"{f.upper()}({k}{x})", f"{k}{f.upper()}({x})", False
    yield "product for a value", f"{f}{x}={body}+{m}", f"{f}({x})={body}+{k + m}", False
    yield "shift", f"y={f}({x}-{m})", f"y={f}({x})-{m}", False
    yield "shift, stretched", f"y={f}({k}{x})", f"y={k}{f}({x})", False
    yield "shift", f"y={f}({x}-{m})+{k}", f"y={k}+{f}({x}-{m})", True
    yield "parity", f"{f}(-{x})={f}({x})", f"{f}(-{x})=-{f}({x})", False
    yield "value at a number", f"{f}({k})={k * m}", f"{f}(1)={m}", False
    yield "value at a number", f"{f}({k})={m}", f"{f}({k}) = {m}", True
    yield "as written", restyle(r, gold), gold, True
    yield "definition left out", restyle(r, body), gold, True
    yield "sides swapped", f"{body}={f}({x})", gold, True
    rule = f"{f}({k}{x})={k}{f}({x})+{m}"
    yield "rule in other print", restyle(r, f"{f}({k}{x})={m}+{k}{f}({x})"), rule, True
    yield "rule, sides swapped", f"{k}{f}({x})+{m}={f}({k}{x})", rule, True
    p = r.choice("PLMrkVST")
    yield "product, no function", f"A={p}+{p}{a}{b}", f"A={p}(1+{a}{b})", True
    yield "product of brackets", f"y={x}^2+{k}{x}", f"y={x}({x}+{k})", True


@table("F9", "gcd, lcm, max, min, lim")
def _(r: Random) -> Drawn:
    k, a, b = r.randint(2, 30), r.randint(2, 90), r.randint(2, 90)
    a, b = k * a, k * b
    c = r.randint(2, 400)
    for name, found in (
        (r"\gcd", gcd(a, b)), (r"\operatorname{lcm}", lcm(a, b)), (r"\max", max(a, b)), (r"\min", min(a, b))
    ):  # fmt: skip
        text = rf"{name}({a},{b})"
        other = found + r.choice((-1, 1)) if r.random() < 0.5 else r.choice((a + b, a * b))
        yield "of numbers", str(found), text, True
        yield "of numbers, = value", f"{text} = {found}", str(found), True
        yield "of numbers", restyle(r, text), text, True
        yield "of numbers", str(other), text, False
    three = rf"\max\{{{a},{b},{c}\}}"
    yield "of three", three, str(max(a, b, c)), True
    yield "of three", three, str(min(a, b, c) - 1), False
    word = r.choice((r"\text{lcm}", r"\mathrm{lcm}", r"\operatorname{lcm}"))
    yield "another font", str(lcm(a, b)), f"{word}({a}, {b})", True
    yield "inside a formula", str(k + gcd(a, b)), rf"\gcd({a},{b})+{k}", True
    yield "inside a formula", str(k + gcd(a, b) + 1), rf"\gcd({a},{b})+{k}", False
    m, n = r.sample(("m", "n", "a", "b", "p", "q", "x", "y"), 2)
    name = r.choice((r"\gcd", r"\max", r"\min", r"\operatorname{lcm}"))
    text = f"{name}({m},{n})"
    yield "free letters | number", restyle(r, text), r.choice(("1", "0", str(c))), False
    yield "free letters | letter", restyle(r, text), r.choice((m, n)), False
    yield "free letters, another operation", text, f"{r.choice(SWAPPED[name])}({m},{n})", False
    yield "free letters", text.replace(",", ", "), text, True
    x = r.choice("xthz")
    limits = [
        (rf"\lim_{{{x}\to0}}\frac{{|{x}|}}{{{x}}}", r.choice(("1", "0", "-1"))),
        (rf"\lim_{{{x}\to 0}} \frac{{|{c}{x}|}}{{{x}}}", str(c)),
        (rf"\lim_{{{x}\to 0^-}}\frac{{{c}|{x}|}}{{{x}}}", str(c)),
        (rf"\lim_{{n\to\infty}} {c}(-1)^n", str(c)), (rf"\lim_{{{x}\to a}} {c}{x}", str(c)),
        (rf"\lim_{{{x}\to\infty}} \sin({c}{x})", r.choice(("0", "1"))),
        (rf"\lim_{{{x}\to {c}}} \frac{{|{x}-{c}|}}{{{x}-{c}}}", "1"),
    ]
    for text, number in r.sample(limits, 4):
        yield "limit", text, number, False


SWAPPED = {
    r"\gcd": [r"\max", r"\min", r"\operatorname{lcm}"], r"\max": [r"\min", r"\gcd"],
    r"\min": [r"\max", r"\gcd"], r"\operatorname{lcm}": [r"\gcd", r"\max"],
}


@table("F10", "long integers and radicands")
def _(r: Random) -> Drawn:
    e, c, k = r.randint(15, 300), r.randint(1, 9), r.choice((2, 3, 5, 6, 7, 10))
    long = r.randint(10**20, 10 ** r.randint(30, 120))
    root, power = f"{k}^{{{e}}}", f"{k}^{{{2 * e}}}"
    if k == 2:
        e += 60
        root, power = f"{k}^{{{e}}}", f"{k}^{{{2 * e}}}"
    yield "root of a power and a little", rf"\sqrt{{{power}+{c}}}", root, False
    yield "root of a long integer", rf"\sqrt{{{long**2 + c}}}", str(long), False
    yield "cube root", rf"\sqrt[3]{{{k}^{{{3 * e}}}-{c}}}", root, False
    yield "last digit", str(long + c), str(long), False
    yield "power and a little", f"{root}+{c}", root, False
    yield "nearly 1", rf"\frac{{{root}+{c}}}{{{root}}}", "1", False
    yield "nearly 0", rf"\sqrt{{{power}+{c}}}-{root}", "0", False
    small = f"10^{{-{e + 40}}}"
    near = [(f"1+{small}", "1"), (rf"\sqrt{{2+{small}}}", r"\sqrt{2}"), (small, "0"), (rf"\cos({small})", "1"),
            (rf"\pi-{small}", r"\pi"), (rf"\sqrt{{\sqrt{{{k}^{{{4 * e}}}+{c}}}}}", root),
            (rf"\log_{{10}}(10^{{{e + 40}}}+{c})", str(e + 40)), (f"({root}+{c})^2", power)]
    yield "nearly", *r.choice(near), False
    yield "root of a root", rf"\sqrt{{\sqrt{{{k}^{{{4 * e}}}}}}}", root, True
    yield "exponent", f"{k}^{{{e + 1}}}", root, False
    yield "factor", rf"{c + 1}\cdot {root}", rf"{c + 2}\cdot {root}", False
    yield "root of a power", rf"\sqrt{{{power}}}", root, True
    yield "root of a long square", rf"\sqrt{{{long**2}}}", str(long), True
    yield "cube root of a cube", rf"\sqrt[3]{{{k}^{{{3 * e}}}}}", root, True
    yield "power split", rf"{k}\cdot {k}^{{{e - 1}}}", root, True
    yield "root of a binomial", rf"\sqrt{{{power}+{2 * c}\cdot {root}+{c * c}}}", f"{root}+{c}", True
    yield "groups of digits", f"{long:,}".replace(",", r.choice((",", "{,}", r"\,"))), str(long), True
    yield "order of terms", f"{c}+{root}", f"{root}+{c}", True
    yield "shorter", frac(f"{k}^{{{e + 3}}}", k**3), root, True


@table("F11", "conditions")
def _(r: Random) -> Drawn:
    n, a, b = r.choice("nkmN"), *r.sample(range(1, 60), 2)
    body, other = r.choice((
        (f"{a}^{n}", f"{a + 1}^{n}"), (f"{n}^2+{a}", f"{n}^2-{a}"), (frac(f"{n}({n}+1)", a + 1), f"{a}{n}"),
        (f"{a}{n}+{b}", f"{a}{n}+{b + 1}"), (rf"2^{{{n}+{a}}}-1", rf"2^{{{n}+{a}}}+1"),
    ))
    p = r.randint(1, 9)
    low = rf"{n}\ge {p}"
    ways = (", %s", r",\ %s", r",\quad %s", r"\text{ for } %s", r" \text{ where } %s", r"\text{ if } %s",
            r" \quad (%s)", r"\text{ for all }%s", " for %s")

    def under(condition: str) -> str:
        return r.choice(ways) % condition

    gold = body + under(low)
    wrong = r.choice((rf"{n}\ge {p + 1}", rf"{n}\le {p}", f"{n}<{p}", f"{n}={p}", rf"{n}\geq {p + 5}"))
    yield "another condition", body + under(wrong), gold, False
    yield "another value", other + under(low), gold, False
    yield "same condition", body + under(r.choice((low, rf"{n} \geq {p}", f"{n}≥{p}", rf"{p}\le {n}"))), gold, True
    whole = r.choice((rf"{n}\ge 1", rf"{n} \geq 1", rf"{n}\in\mathbb{{N}}"))
    said = r.choice([way for way in ways if "if" not in way])  # "if" may be half of two cases
    yield "condition left out of the gold", body + said % whole, body, True
    x = r.choice("xyt")
    yield "excluded point", f"{x}+{a}" + under(rf"{x}\ne {p}"), f"{x}+{a}" + under(rf"{x}\ne {p + 1}"), False
    yield "excluded point", f"{a}+{x}" + under(rf"{x}\neq {p}"), f"{x}+{a}" + under(rf"{x}\ne {p}"), True
    angle = frac(r"\pi", a + 2)
    every = rf"{angle}+k\pi,\ k\in\mathbb{{Z}}"
    yield "integers", rf"k\pi+{angle}" + r.choice((", ", r",\quad ")) + r"k \in \mathbb{Z}", every, True
    yield "naturals for integers", every.replace("Z", "N"), every, False
    even, odd = r.choice(((f"even {n}", f"odd {n}"), (f"even ${n}$", f"odd ${n}$")))
    case = r.choice((r"%s\text{ for %s}", r"%s \text{ if } \text{%s}", "%s for %s", r"%s\text{ when %s}"))
    both = f"{case % (a, even)}, {case % (b, odd)}"
    yield "hedge", both, r.choice((str(a), str(b))), False
    is_even, is_odd = rf"{n}\text{{ is even}}", rf"{n}\text{{ is odd}}"
    said = rf"{a}\text{{ if }}{is_even}, {b}\text{{ if }}{is_odd}"
    yield "hedge", said, r.choice((str(a), str(b))), False
    yield "hedge, otherwise", rf"{a}\text{{ if }}{n}\text{{ is prime}}, {b}\text{{ otherwise}}", r.choice((str(a), str(b))), False
    parity = r.choice((r"%s\text{ for even }%s", r"%s\text{ when %s is even}", r"%s, %s\text{ even}"))
    yield "parity", parity % (body, n), rf"{body}\text{{ for even }}{n}", True
    yield "another parity", parity.replace("even", "odd") % (body, n), rf"{body}\text{{ for even }}{n}", False
    yield "range", rf"{x}^2+{a},\ 0<{x}<{p}", rf"{x}^2+{a}\text{{ for }}0<{x}<{p}", True
    yield "another range", rf"{x}^2+{a},\ 0<{x}<{p}", rf"{x}^2+{a}\text{{ for }}0<{x}<{p + 1}", False
    yield "both", said, said, True
    yield "both, another order", rf"{b}\text{{ if }}{is_odd}, {a}\text{{ if }}{is_even}", said, True
    yield "both, swapped", rf"{b}\text{{ if }}{is_even}, {a}\text{{ if }}{is_odd}", said, False


@table("F12", "what surrounds the box")
def _(r: Random) -> Drawn:
    num, k, m = r.randint(2, 400), r.randint(2, 30), r.randint(2, 99)
    gold = r.choice((str(num), str(num), frac(2 * m + 1, 2), rf"{k}\sqrt{{{7}}}", f"{k}x+{m}"))
    box = r.choice((r"\boxed{%s}", r"\boxed{ %s }")) % gold
    lead = r.choice(("So the answer is ", "Thus we have ", "Hence, ", "We get ", "The result: "))
    math = r.choice(("$%s$", "$$%s$$", r"\(%s\)", r"\[%s\]", "$ %s $"))
    end = r.choice((".", "", " as the answer."))
    for text in r.sample([
        f"{box}+{m}", f"{m}+{box}", f"{box} - {m}", rf"{m}\cdot {box}", rf"{m} \times {box}", f"{box}/{k}",
        f"{box}^2", f"{box}^{{{k}}}", frac(box, k), frac(k, box), rf"\sqrt{{{box}}}", rf"{k}-{box}",
        rf"x = {box} + {m}", rf"\dfrac{{{box}}}{{{k}}}", rf"\frac{{{box}+1}}{{{k}}}", rf"{box}\times {k}",
        rf"\sqrt[3]{{{box}}}", rf"{box}\cdot 10^{k}", rf"= {m} - {box}", f"({box})^2", rf"\left({box}\right)^{k}",
        rf"{k}^{{{box}}}", rf"\log_{{{k}}} {box}", rf"{box}\pi", rf"{box}\sqrt{{{k}}}", f"-({box})", rf"\pm {box}",
        rf"{box}\div {k}", rf"\frac{{1}}{{{k}}}\cdot {box}", rf"{m} - \frac{{1}}{{{box}}}",
    ], 3):  # fmt: skip
        yield "arithmetic", lead + math % text + end, gold, False
    minus = r.choice((f"-{box}", f"- {box}", f"x = -{box}", f"= -{box}"))
    yield "minus", lead + math % minus + end, gold, False
    if gold[0] != "\\" and "x" not in gold:
        yield "minus joins", lead + math % minus + end, f"-{gold}", True
    if gold.isdigit():
        word = r.choice(("million", "thousand", "hundred", "billion", "dozen"))
        behind = r.choice((rf"{box}\text{{ {word}}}", rf"{box}\ \text{{{word}}}", rf"{box}~\mathrm{{{word}}}"))
        yield "scale word", lead + math % behind + end, gold, False
        yield "scale word", f"{lead}${box}$ {word}{end}", gold, False
    denied = r.choice(("The answer is not $%s$.", "So the value is not $%s$.", "It is not %s.",
                       "Hence the answer cannot be $%s$.", "The answer isn't $%s$.", "So it is never $%s$.",
                       "$%s$ is not the answer.", "$%s$ is wrong.", "The answer is NOT $%s$.", "$%s$ is incorrect."))
    yield "negation", denied % box, gold, False
    sure = [
        f"= {box}", rf"\approx {box}", rf"\therefore {box}", rf"\Rightarrow {box}", rf"x = {box}",
        rf"{m}+{k} = {m + k}, \text{{ so }} x = {box}", rf"\implies x={box}", f"{box}", rf"\frac{{a}}{{b}}={box}",
        rf"{box}\text{{ cm}}", rf"{box}\ \text{{meters}}", rf"{box}\%", rf"{box}^\circ", rf"\${box}", rf"-y+{m} = {box}",
        rf"x^{k} - {m} = {box}", rf"\sqrt{{{m * m}}} \cdot {k} = {box}", rf"\text{{Answer: }}{box}", rf"\quad {box}",
        rf"{box}\text{{ square units}}", rf"{box}.", rf"\begin{{aligned}} y &= {m} - {k}z \\ &= {box} \end{{aligned}}",
        rf"\left|{m}-{k}\right| = {box}", rf"{box} = {m} - {k}", rf"\to {box}", rf"\mathbf{{{box}}}", rf"{box}\text{{ m}}/\text{{s}}",
    ]
    for text in r.sample(sure, 4):
        yield "no arithmetic", lead + math % text + end, gold, True
    plain = r.choice((
        "It is not hard to see that the answer is $%s$.", "- The answer is $%s$.", "**$%s$**", "Result:\n\n- $%s$\n",
        "This is not " + str(num + m) + ", so the answer is $%s$.", "* **Answer:** $%s$", "Note that all cases are done: %s",
        "(A) is not correct, since it is negative. The answer is $%s$.", "There is no other case. $%s$", "1. First step\n2. $%s$",
        f"The answer is $%s$, not {num + m}.", f"It cannot be {num + m}, hence $%s$.", "The answer is $%s$. This is not a surprise.",
        "The values do not depend on $x$, and we get $%s$ — which was to be found.", "### Answer\n$%s$ square units",
    ))
    yield "no negation", plain % box, gold, True


@table("final", "final_number: no box at all")
def _(r: Random) -> Drawn:
    a, b, c = r.sample(range(32, 900), 3)
    day, month = r.randint(1, 30), r.choice(("May", "June", "March", "October"))
    name, thing = r.choice(("She", "He", "Maria", "The farmer")), r.choice(("apples", "books", "miles", "eggs"))
    end = r.choice((
        f"The answer is {a}.", f"So {name.lower()} has {a} {thing}.", f"Therefore, the total is {a} {thing}.",
        f"The final answer is **{a}**.", f"#### {a}", f"Thus the result is ${a}$.", f"Hence {b} + {a - b} = {a}.",
        f"So there are {a} {thing} left.", f"Answer: {a}", f"The total number of {thing} is {a}.",
    ))
    end += "" if end[-1] == "." else "\n"
    start = f"{name} starts with {b} {thing} and then gets {c} more. "
    yield "stated", start + end, str(a), True
    yield "stated, another gold", start + end, r.choice((str(b), str(c), str(a + 1))), False
    tail = r.choice((f" Today is {month} {day}.", f" It is {month} {day} today.", f" See page {day} of the book.",
                     f" I wrote this on {month} {day}.", f" This took me {day} minutes."))
    yield "number of another sentence", start + end + tail, str(day), False
    gave_up = r.choice(("I could not solve this.", f"{name} could not be reached.", "I am not sure how to go on."))
    today = r.choice((f" Today is {month} {day}.", f" It is {month} {day} today.", f" See page {day} of the book."))
    yield "no answer at all", gave_up + today, str(day), False
    pay = r.choice((
        f"{name} earns ${b} an hour and spends ${c} so ${a} remain.", f"At ${c} for one, the total cost is ${a}.",
        f"{name} pays ${b}, then ${c}. The total is ${a}.", f"{name} has ${a} left.", f"So {name.lower()} makes ${a}.",
    ))
    yield "dollars", pay, str(a), True
    yield "dollars, another gold", pay, r.choice((str(b), str(c))), False
    yield "thousands", f"{start}The answer is {a},{b:03d}.", f"{a}{b:03d}", True
    yield "thousands", f"{start}The answer is {a},{b:03d}.", f"{b}", False
