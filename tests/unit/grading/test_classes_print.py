"""Classes of print, units, counts, labels and unevaluated arithmetic, drawn by rules.

A label follows from how its row was drawn, and a wrong row is close to a right one.
"""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb, factorial, gcd
from typing import NamedTuple

import pytest

from grading.grade import grade_all

ROWS = 320


class Case(NamedTuple):
    """What follows the thought, the gold answer, and whether a teacher accepts it."""

    text: str
    gold: str
    right: bool
    question: str = ""


Make = Callable[[random.Random], Case]

FRAMES = (
    r"$\boxed{@}$",
    r"\boxed{@}",
    r"The answer is $\boxed{@}$.",
    r"The final answer is \(\boxed{@}\).",
    "\\[\n\\boxed{@}\n\\]",
    r"$$\boxed{@}$$",
    "**Answer:** $\\boxed{@}$",
    "### Final answer\n\n\\[ \\boxed{@} \\]",
    "All steps check out, which leaves\n\n$$\n\\boxed{@}\n$$",
    r"Therefore we have $\boxed{@}$, as required.",
    "Step 1. Set it up.\n\nStep 2. Work it out.\n\n$\\boxed{@}$",
)


def frame(pick: random.Random, box: str) -> str:
    """The box in one of the usual surroundings."""
    return pick.choice(FRAMES).replace("@", box)


def draw(
    pick: random.Random, gold: str, right: Sequence[str], wrong: Sequence[str], question: str = ""
) -> Case:
    """One of the right boxes or one of the wrong ones, evenly."""
    is_right = pick.random() < 0.5
    return Case(frame(pick, pick.choice(right if is_right else wrong)), gold, is_right, question)


def near(pick: random.Random, n: int) -> int:
    """Another positive number, close to n in value or in digits."""
    turned = int(str(n)[::-1])
    return pick.choice([one for one in (n + 1, n - 1, n + 10, 10 * n, turned) if one != n])


def two(pick: random.Random, low: int, high: int) -> tuple[int, int]:
    """Two different numbers."""
    a, b = pick.sample(range(low, high), 2)
    return a, b


def proper(pick: random.Random, high: int = 20) -> tuple[int, int]:
    """The parts of a reduced fraction below 1."""
    while True:
        a, b = sorted(two(pick, 1, high))
        if gcd(a, b) == 1:
            return a, b


def decimal(value: Fraction) -> str:
    """A terminating decimal."""
    whole, rest = divmod(value, 1)
    digits = ""
    while rest:
        digit, rest = divmod(10 * rest, 1)
        digits += str(digit)
    return f"{whole}.{digits}" if digits else f"{whole}"


def tex(value: Fraction) -> str:
    """An integer or a fraction."""
    sign = "-" if value < 0 else ""
    top, bottom = abs(value.numerator), value.denominator
    return f"{sign}{top}" if bottom == 1 else rf"{sign}\frac{{{top}}}{{{bottom}}}"


# (a) Print that must be read.

FONTS = (r"\bf @", r"{\bf @}", r"\bf{@}", r"\Large @", r"\large @", r"\huge @", r"{\Large @}",
    r"{\Large\bf @}", r"\small @", r"\rm @", r"{\rm @}", r"\it @", r"\displaystyle @",
    r"\textstyle @", r"\scriptstyle @", r"\displaystyle{@}", r"\mathbf{@}", r"\boldsymbol{@}",
    r"\bm{@}", r"\mathsf{@}", r"\mathrm{@}", r"\mathit{@}", r"\mathtt{@}", r"\color{red}@",
    r"\color{blue}{@}", r"{\color{red} @}", r"\textcolor{blue}{@}", r"\textcolor{red}{\bf @}",
    r"\mathbf{\textcolor{red}{@}}", r"\textbf{$@$}", r"\mbox{$@$}", r"@\text{.}", r"{@}\text{.}",
    r"\mathbf{@}\text{.}", "@.", r"{{@}}", r"\Large \color{red} @")  # fmt: skip
TEXTS = (r"\textbf{@}", r"\text{@}", r"\mbox{@}", r"\hbox{@}", r"\textrm{@}", r"\textit{@}",
    r"\textsf{@}", r"\texttt{@}", r"\textbf{\Large @}", r"\text{\textbf{@}}")  # fmt: skip
SPLIT = (r"\mathbf{#}@", r"{\bf #}@", r"\textcolor{red}{#}@", r"\text{#}@", r"{#}^{@}",
    r"\textbf{#}@", r"\mbox{#}@", r"#\color{blue}{@}")  # fmt: skip


def fonts(pick: random.Random) -> Case:
    """A value in a font, a size or a colour."""
    n = pick.randrange(11, 900)
    a, b = two(pick, 2, 13)
    p = pick.choice([p for p in (2, 3, 5, 7, 11) if p != a])
    if pick.random() < 0.2:
        head, tail = str(n)[0], str(n)[1:]
        split = pick.choice(SPLIT).replace("#", head).replace("@", tail)
        part = pick.choice((head, f"{int(tail)}"))
        more = (rf"{n}\text{{.}}5", rf"\text{{{n} or {n + 1}}}",
            rf"\color{{red}}{n}\color{{blue}}+1", rf"\mathbf{{-}}{n}",
            rf"\textbf{{{n}}}0", rf"{{\bf {n}}}^2")  # fmt: skip
        power = split.startswith("{" + head + "}^")
        if pick.random() < 0.5 and not (power and int(head) ** int(tail) == int(part)):
            return Case(frame(pick, split), part, False)
        return Case(frame(pick, pick.choice(more)), f"{n}", False)
    gold, other, plain = pick.choice([
        (f"{n}", f"{near(pick, n)}", True),
        (f"{n}", f"{near(pick, n)}", True),
        (f"-{n}", f"{n}", True),
        (f"{n}.5", f"{near(pick, n)}.5", True),
        (rf"\frac{{{a}}}{{{b}}}", rf"\frac{{{b}}}{{{a}}}", False),
        (rf"{a}\sqrt{{{p}}}", rf"{p}\sqrt{{{a}}}", False),
        (f"{a}x+{b}", f"{b}x+{a}", False),
        (rf"{a}\pi", rf"{b}\pi", False),
    ])  # fmt: skip
    form = pick.choice(FONTS + TEXTS if plain else FONTS)
    name = "x = " if plain and pick.random() < 0.15 else ""
    return draw(pick, gold, [name + form.replace("@", gold)], [name + form.replace("@", other)])


MODS = (r"# \pmod{@}", r"#\pmod{@}", r"# \pmod {@}", r"#\ (\mathrm{mod}\ @)", r"# \bmod @",
    r"# \mod @", r"# \mod{@}", r"#\ (\text{mod } @)", r"# \text{ mod } @", "# (mod @)",
    r"#\,(\operatorname{mod} @)", r"# \,(\bmod\,@)")  # fmt: skip


def modular(pick: random.Random) -> Case:
    """A residue with its modulus, which must agree if the gold names it."""
    m = pick.randrange(5, 60)
    r, k = two(pick, 1, m)
    larger = pick.choice((m + 1, 2 * m, 10 * m))
    x = pick.choice("xnkab")
    form = pick.choice(MODS)

    def mod(left: object, modulus: int = m) -> str:
        return form.replace("#", f"{left}").replace("@", f"{modulus}")

    named, bare = rf"{x} \equiv {r}", f"{r}"
    wrong = [mod(k), mod(rf"{x} \equiv {k}")]
    kind = pick.randrange(3)
    if kind == 0:
        question = pick.choice((
            f"What is the remainder when the total is divided by {m}?",
            f"Find the remainder modulo {m}.",
        ))  # fmt: skip
        return draw(pick, bare, [mod(bare), mod(named)], wrong, question)
    wrong += [mod(r, larger), mod(named, larger)]
    if kind == 1:
        return draw(pick, rf"{r} \pmod{{{m}}}", [mod(bare), mod(bare), mod(named)], wrong)
    wrong += [mod(rf"{x} \not\equiv {r}"), mod(rf"{x} \equiv {r}, {k}")]
    return draw(pick, rf"{named} \pmod{{{m}}}", [mod(bare), mod(named), mod(named)], wrong)


RATES = (("km", "h"), ("m", "s"), ("m", "min"), ("g", "cm^3"), ("kg", "m^3"), ("m", "s^2"),
    ("J", "kg"), ("L", "min"), ("miles", "hour"), ("dollars", "hour"))  # fmt: skip


def rate(pick: random.Random, n: int, top: str, bottom: str) -> str:
    """A number and a fraction of two units."""
    base, _, power = bottom.partition("^")
    font = pick.choice(("text", "mathrm"))
    upper, lower = rf"\{font}{{{top}}}", rf"\{font}{{{base}}}"
    minus = rf"{lower}^{{-{power or 1}}}"
    lower += pick.choice((f"^{power}", f"^{{{power}}}")) if power else ""
    gap = pick.choice(("", " ", r"\ ", r"\,", r"\; ", "~"))
    return pick.choice([
        rf"{n}{gap}\frac{{{upper}}}{{{lower}}}",
        rf"{n}{gap}\frac{{{upper}}}{{{lower}}}",
        rf"{n}{gap}\dfrac{{{upper}}}{{{lower}}}",
        rf"{n}{gap}\tfrac{{{upper}}}{{{lower}}}",
        f"{n}{gap}{upper}/{lower}",
        rf"{n}{gap}{upper}\cdot {minus}",
        rf"{n}{gap}{upper}\,{minus}",
    ])  # fmt: skip


def rates(pick: random.Random) -> Case:
    """A speed, density or price, whose unit is printed as a fraction."""
    n = pick.randrange(3, 300)
    top, bottom = pick.choice(RATES)
    if pick.random() < 0.15:
        right = pick.random() < 0.5
        metres = 5 * n if right else near(pick, 5 * n)
        return Case(frame(pick, rate(pick, metres, "m", "s")), rf"{18 * n} \text{{ km/h}}", right)
    base, _, power = bottom.partition("^")
    slashed = rf"{n} \text{{ {top}/{base}}}" + (f"^{power}" if power else "")
    fraction = rf"{n} \frac{{\text{{{top}}}}}{{\text{{{base}}}{f'^{power}' if power else ''}}}"
    golds = [f"{n}", slashed, slashed, fraction]
    golds += [rf"{n} \text{{ {top} per {bottom}}}"] if bottom == "hour" else []
    gold = pick.choice(golds)
    wrong = [rate(pick, near(pick, n), top, bottom)]
    if gold != f"{n}":
        others = [unit for unit in RATES if unit != (top, bottom)]
        others = pick.sample(others, 3) + ([] if power else 3 * [(bottom, top)])
        wrong += [rate(pick, n, *pick.choice(others)) for _ in range(3)]
        wrong += [rf"{n}\ \text{{{top}}}"]
    return draw(pick, gold, [rate(pick, n, top, bottom)], wrong)


def signs(pick: random.Random) -> Case:
    """A negative term added with its sign, as in 2+-3x."""
    a, b = two(pick, 2, 30)
    x = pick.choice("xyztn")
    p = pick.choice((2, 3, 5, 7))
    y = pick.choice((x, f"{x}^2", rf"\sqrt{{{p}}}", r"\pi"))
    line = draw(pick, f"{a}-{b}{y}",
        [f"{a}+-{b}{y}", f"{a} + -{b}{y}", f"{a}+(-{b}{y})", f"{a} + (-{b}){y}", f"-{b}{y}+{a}",
         f"{a}+{{-{b}}}{y}", rf"{a}+\left(-{b}{y}\right)"],
        [f"{a}+{b}{y}", f"{a}--{b}{y}", f"{a}-(-{b}){y}", f"-{a}-{b}{y}", f"-({a}-{b}{y})",
         f"{b}+-{a}{y}", f"-{a}+-{b}{y}", f"{a}+-{b}"])  # fmt: skip
    square = draw(pick, f"{x}^2-{a}{x}+{b}",
        [f"{x}^2+-{a}{x}+{b}", f"{x}^2 + -{a}{x} + {b}", f"{x}^2+(-{a}{x})+{b}",
         f"{b}+-{a}{x}+{x}^2", f"{x}^{{2}}+-{a}{x}+{b}"],
        [f"{x}^2+{a}{x}+{b}", f"{x}^2--{a}{x}+{b}", f"{x}^2+-{a}{x}-{b}", f"{x}^2+-{a}{x}+-{b}",
         f"{x}^2+-{b}{x}+{a}", f"-{x}^2+-{a}{x}+{b}"])  # fmt: skip
    both = draw(pick, f"{x}^2-{a}{x}-{b}",
        [f"{x}^2+-{a}{x}+-{b}", f"{x}^2 + -{a}{x} + -{b}", f"{x}^2-{a}{x}+-{b}"],
        [f"{x}^2+-{a}{x}+{b}", f"{x}^2-{a}{x}--{b}", f"{x}^2--{a}{x}+-{b}"])  # fmt: skip
    return pick.choice((line, square, both))


WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine",
    12: "twelve", 16: "sixteen"}  # fmt: skip


def bases(pick: random.Random) -> Case:
    """A number with its base as subscript."""
    base = pick.choice(list(WORDS))
    symbols = "0123456789ABCDEF"[:base]
    first = pick.choice(symbols[1:])
    n = first + "".join(pick.choice(symbols) for _ in range(pick.randrange(2, 5)))
    other = pick.choice([one for one in WORDS if one != base])
    place = pick.randrange(1, len(n))
    digit = pick.choice([one for one in symbols if one != n[place]])
    changed = n[:place] + digit + n[place + 1 :]
    forms = (r"{#}_@", "#_{@}", "{#}_{@}", "(#)_{@}", r"\left(#\right)_{@}", r"\text{#}_{@}",
        r"\mathrm{#}_{@}", r"\mathbf{#}_{@}", r"#_{\text{@}}", r"\text{#}_{\text{@}}",
        "# _{@}")  # fmt: skip
    forms += ("#_@", "(#)_@", r"#_\text{@}") if base < 10 else ()

    def show(digits: str, b: object) -> str:
        return pick.choice(forms).replace("#", digits).replace("@", f"{b}")

    right = [show(n, base) for _ in range(7)] + [rf"{n}_{{\text{{{WORDS[base]}}}}}"]
    wrong = [f"{n}_{{{other}}}", f"({n})_{{{other}}}", f"{{{n}}}_{{{other}}}",
        rf"{n}_{{\text{{{WORDS[other]}}}}}", show(changed, base), show(changed, base),
        f"{n}{base}", f"{n}^{{{base}}}", f"{n}_{{{base}0}}", show(n + "1", base)]  # fmt: skip
    gold = pick.choice((f"{n}_{{{base}}}", f"{n}_{base}" if base < 10 else f"{n}_{{{base}}}"))
    return draw(pick, gold, right, wrong)


PER_CENT = ("@ pct", "@ percent", r"@\%", r"@\ \%", r"@\text{ per cent}", r"@\text{ percent}",
    r"@\,\%", r"@~\%", "@ per cent", r"@\text{\%}", r"@ \text{ pct}", r"@\mathrm{\ percent}",
    r"@{\%}", r"\mathbf{@\%}", r"@\%\text{.}")  # fmt: skip
NO_PER_CENT = (r"@\text{‰}", r"@\text{ per mille}", r"@\text{ ppm}", r"@\text{ cents}", r"@^\circ")
ASK_PER_CENT = ("What per cent of the pupils walk to school?", "By what percent did it grow?",
    "What percentage of the tank is full?", "Find the percentage of red marbles.")  # fmt: skip


def per_cents(pick: random.Random) -> Case:
    """A percentage in words and signs, where the question asks for one."""
    n = pick.randrange(2, 99)
    number, other = f"{n}", f"{near(pick, n)}"
    if pick.random() < 0.3:
        number, other = f"{n}.5", f"{near(pick, n)}.5"
    gold = pick.choice((number, rf"{number}\%", rf"{number}\%"))
    wrong = [form.replace("@", other) for form in PER_CENT]
    if gold != number:
        wrong += [form.replace("@", number) for form in NO_PER_CENT]
        wrong += [rf"0.{n:02d}\%", rf"{n}00\%"]
    right = [form.replace("@", number) for form in PER_CENT] + [number]
    return draw(pick, gold, right, wrong, pick.choice(ASK_PER_CENT))


def subscripts(pick: random.Random) -> Case:
    """Names with an index, in braces or not."""
    f, g = pick.sample("FaubTS", 2)
    k, j = pick.sample("knmj", 2)
    c, d = two(pick, 1, 8)
    many = c + 1
    return draw(pick, *pick.choice([
        (f"{f}_{k}", [f"{f}_{{{k}}}", f"{{{f}}}_{{{k}}}", f"{f}_{{ {k} }}",
                      rf"\mathit{{{f}}}_{{{k}}}"],
         [f"{f}_{{{k}+{c}}}", f"{f}_{{{j}}}", f"{f}^{{{k}}}", f"{f}_{{2{k}}}", f"{g}_{{{k}}}",
          f"{f}_{{{k}}}+{c}", f"{f.swapcase()}_{{{k}}}"]),
        (f"{f}_{{{k}+{c}}}", [f"{f}_{{{c}+{k}}}", f"{f}_{{{k} + {c}}}", f"{{{f}}}_{{{k}+{c}}}"],
         [f"{f}_{{{k}}}+{c}", f"{f}_{k}+{c}", f"{f}_{{{k}-{c}}}", f"{f}_{{{k}}}",
          f"{f}_{{{k}+{d}}}", f"{c}+{f}_{{{k}}}", f"{f}_{{{many}{k}}}"]),
        (f"{f}_{k}+{c}", [f"{f}_{{{k}}}+{c}", f"{c}+{f}_{{{k}}}", f"{{{f}_{{{k}}}}}+{c}"],
         [f"{f}_{{{k}+{c}}}", f"{f}_{{{k}}}-{c}", f"{f}_{{{c}+{k}}}", f"{f}_{{{k}+{c}}}+{c}",
          f"{f}_{{{j}}}+{c}"]),
        (f"{many}{f}_{k}", [f"{many}{f}_{{{k}}}", rf"{many} \cdot {f}_{{{k}}}",
                            f"{many}({f}_{{{k}}})"],
         [f"{f}_{{{many}{k}}}", f"{f}_{{{k}}}^{{{many}}}", f"{many}{g}_{{{k}}}",
          f"{f}_{{{k}}}+{many}"]),
        (f"{f}_{k}^2", [f"{f}_{{{k}}}^{{2}}", f"({f}_{{{k}}})^2", f"{f}^2_{{{k}}}",
                        rf"\left({f}_{k}\right)^{{2}}"],
         [f"{f}_{{{k}^2}}", f"2{f}_{{{k}}}", f"{f}_{{2{k}}}", f"{f}_{{{k}}}^{{3}}",
          f"{f}_{{{k}+2}}"]),
        (f"{f}_{c}+{f}_{d}", [f"{f}_{{{c}}}+{f}_{{{d}}}", f"{f}_{{{d}}}+{f}_{{{c}}}"],
         [f"{f}_{{{c}}}-{f}_{{{d}}}", f"{f}_{{{c}}}+{f}_{{9}}", f"{f}_{{{c}+{d}}}",
          f"{f}_{{{c}}}{f}_{{{d}}}", f"{f}_{{{c}}}+{d}"]),
        (f"{f}_{{{k}+{many}}}-1", [f"-1+{f}_{{{many}+{k}}}", f"{f}_{{{k}+{many}}} - 1"],
         [f"{f}_{{{k}+{many}-1}}", f"{f}_{{{k}+{many - 1}}}", f"{f}_{{{k}}}+{many}-1",
          f"{f}_{{{k}+{many}}}+1"]),
        (r"x_{\max}", [r"x_{\text{max}}", r"x_{\mathrm{max}}", "x_{max}", r"{x}_{\max}"],
         [r"x_{\text{min}}", r"x_{\mathrm{min}}", "x_{min}", r"y_{\text{max}}"]),
    ]))  # fmt: skip


SUMMANDS = ("@^2", "@^3", "(2@+1)", r"\frac{1}{@}", "@(@+1)", "2^{@}", r"\binom{2n}{@}", "a_{@}",
    r"\frac{(-1)^{@}}{@!}", r"\sqrt{@}", "x^{@}", "a_{@}x^{@}", r"@\cdot 3^{@}")  # fmt: skip
ENDLESS = (r"\frac{1}{@^2}", r"\frac{(-1)^{@}}{@!}", r"\frac{x^{@}}{@!}", r"\frac{1}{@(@+2)}")
FACTORS = ("(1+x_{@})", "(@+x)", "a_{@}", r"\left(x^2+@\right)")


def indices(pick: random.Random) -> Case:
    """A sum or product whose bound index has another name."""
    i, k, j = pick.sample("ijklr", 3)
    sign, bodies, last = pick.choice(((r"\sum", SUMMANDS, "n"), (r"\sum", SUMMANDS, "n"),
        (r"\sum", ENDLESS, r"\infty"), (r"\prod", FACTORS, "n")))  # fmt: skip
    last = "n-1" if last == "n" and pick.random() < 0.2 else last
    before = pick.choice(("", "", "", "2", "1+", r"\frac{1}{3}"))
    first = pick.choice((0, 1)) if bodies is FACTORS else 1
    body, foreign = pick.sample(bodies, 2)
    free = pick.random() < 0.3
    if free:
        body, foreign = f"a_{{@}}b_{{{j}}}", f"a_{{{j}}}b_{{@}}"

    def show(index: str, inner: str, low: int = first, high: str = last) -> str:
        bounds = pick.choice((f"_{{{index}={low}}}^{{{high}}}", f"^{{{high}}}_{{{index}={low}}}",
            rf"\limits_{{{index}={low}}}^{{{high}}}"))  # fmt: skip
        style = r"\displaystyle" if pick.random() < 0.1 else ""
        return f"{style}{before}{sign}{bounds} {inner}"

    gold = f"{before}{sign}_{{{i}={first}}}^{{{last}}} {body.replace('@', i)}"
    here = body.replace("@", k)
    wrong = [show(k, here, high="m"), show(k, here, first + 1), show(k, body.replace("@", i)),
        show(k, foreign.replace("@", k)), show(k, here, high="2n"), show(k, here, high="n+1"),
        show(k, rf"5\cdot {here}")]  # fmt: skip
    if free:  # the free index is caught, lost or renamed
        wrong = [show(j, body.replace("@", j)), show(k, f"a_{{{k}}}b_{{{k}}}"),
            show(k, f"a_{{{k}}}b_{{{i}}}"), show(k, foreign.replace("@", k)),
            show(k, here, first + 1)]  # fmt: skip
    return draw(pick, gold, [show(k, here)], wrong)


BARS = (r"\lvert @\rvert", r"\left|@\right|", "|@|", r"\left\lvert @\right\rvert",
    r"\vert @\vert", r"\left\vert @ \right\vert", r"\big|@\big|", r"\bigl|@\bigr|")  # fmt: skip
FLOORS = (r"\lfloor @\rfloor", r"\left\lfloor @\right\rfloor", r"\left\lfloor{@}\right\rfloor",
    r"\bigl\lfloor @\bigr\rfloor", r"\Big\lfloor @ \Big\rfloor")  # fmt: skip


def bars(pick: random.Random) -> Case:
    """Absolute values, floors and ceilings in their many prints."""
    a, b = two(pick, 2, 15)
    x, before = pick.choice("xyt"), pick.choice(("", "", f"{b}", f"{b}+"))

    def show(forms: Sequence[str], inner: str) -> str:
        return before + pick.choice(forms).replace("@", inner)

    if pick.random() < 0.5:
        wrong = [show(BARS, f"{x}+{a}"), show(BARS, f"{x}-{b}"), show(BARS, f"{a}{x}"),
            f"{before}({x}-{a})", show(FLOORS, f"{x}-{a}"), show(BARS, x) + f"-{a}",
            rf"{before}\left({x}-{a}\right)"]  # fmt: skip
        right = [show(BARS, f"{x}-{a}"), show(BARS, f"{x} - {a}"), show(BARS, f"{a}-{x}")]
        return draw(pick, f"{before}|{x}-{a}|", right, wrong)
    ceilings = [form.replace("floor", "ceil") for form in FLOORS]
    gold, other = pick.sample([FLOORS, ceilings], 2)
    inner = pick.choice((rf"\frac{{{x}}}{{{a}}}", f"{x}/{a}", rf"\dfrac{{{x}}}{{{a}}}"))
    wrong = [show(other, inner), show(other, inner), show(gold, rf"\frac{{{x}}}{{{b}}}"),
        show(gold, rf"\frac{{{x}+1}}{{{a}}}"), rf"{before}\frac{{{x}}}{{{a}}}"]  # fmt: skip
    printed = before + gold[0].replace("@", rf"\frac{{{x}}}{{{a}}}")
    return draw(pick, printed, [show(gold, inner)], wrong)


BRACES = (r"\left\{ @ \right\}", r"\{@\}", r"\lbrace @\rbrace", r"\left\lbrace @ \right\rbrace",
    r"\bigl\{@\bigr\}", r"\big\{ @ \big\}", r"\Bigl\{ @ \Bigr\}", r"\{\,@\,\}")  # fmt: skip
ROUND = (r"\left(@\right)", "(@)", r"\bigl(@\bigr)", r"\big( @ \big)", r"\lparen @\rparen",
    r"\left( @ \right)", r"(\,@\,)")  # fmt: skip
HALF = {"[)": (r"\left[@\right)", "[@)", r"\bigl[@\bigr)", r"\lbrack @)", r"\big[@\big)"),
    "(]": (r"\left(@\right]", "(@]", r"\bigl(@\bigr]", r"(@\rbrack", r"\big(@\big]"),
    "[]": (r"\left[@\right]", "[@]", r"\bigl[@\bigr]", r"\lbrack @\rbrack", r"\big[@\big]"),
    "()": ROUND}  # fmt: skip


def braces(pick: random.Random) -> Case:
    """Sets, points and intervals in their many delimiters."""
    items = pick.sample(range(-9, 40), pick.randrange(2, 5))
    more, comma = pick.randrange(40, 60), pick.choice((",", ", ", r",\,", r",\ ", r", \; "))

    def show(forms: Sequence[str], parts: Sequence[int]) -> str:
        return pick.choice(forms).replace("@", comma.join(map(str, parts)))

    moved = pick.choice(range(len(items)))
    changed = [*items[:moved], more, *items[moved + 1 :]]
    kind = pick.randrange(3)
    if kind == 0:
        order = pick.sample(items, len(items))
        wrong = [show(BRACES, changed), show(BRACES, [*order, more]), show(BRACES, order[1:])]
        gold = rf"\{{{', '.join(map(str, items))}\}}"
        return draw(pick, gold, [show(BRACES, order), show(BRACES, items)], wrong)
    if kind == 1:
        wrong = [show(ROUND, changed), show(ROUND, items[::-1]), show(ROUND, items[1:] + items[:1]),
            show(ROUND, [*items, more])]  # fmt: skip
        return draw(pick, f"({', '.join(map(str, items))})", [show(ROUND, items)], wrong)
    low, high = sorted(items[:2])
    ends = pick.choice(("[)", "(]", "[]"))
    other = pick.choice([one for one in HALF if one != ends])
    wrong = [show(HALF[other], (low, high)), show(HALF[other], (low, high)),
        show(HALF[ends], (low, more)), show(HALF[ends], (low - 1, high))]  # fmt: skip
    return draw(pick, f"{ends[0]}{low}, {high}{ends[1]}", [show(HALF[ends], (low, high))], wrong)


OVERS = (r"\dfrac{#}{@}", r"\tfrac{#}{@}", r"\cfrac{#}{@}", r"{# \over @}", "#/@",
    r"\displaystyle\frac{#}{@}", r"\frac{\,#\,}{\,@\,}", r"\dfrac {#} {@}", r"\frac{{#}}{{@}}",
    r"\left(\dfrac{#}{@}\right)", r"\mathbf{\dfrac{#}{@}}")  # fmt: skip
BUILT = OVERS[:3]


def fractions(pick: random.Random) -> Case:
    """Fractions, mixed numbers and quotients in all sizes."""
    a, b = proper(pick)
    w = pick.randrange(2, 9)
    size = pick.choice(BUILT)[1:6]

    def show(top: object, bottom: object, forms: Sequence[str] = OVERS) -> str:
        return pick.choice(forms).replace("#", f"{top}").replace("@", f"{bottom}")

    kind = pick.randrange(4)
    if kind == 0:  # a symbol on top
        x = pick.choice("xyn")
        wrong = [rf"{x}+\{size}{{{a}}}{{{b}}}", rf"\{size}{{{x}}}{{{b}}}+{a}",
            show(f"{x}-{a}", b, BUILT), show(b, f"{x}+{a}", BUILT), rf"{x}+{a}/{b}"]  # fmt: skip
        right = [show(f"{x}+{a}", b, OVERS[:4]), show(f"{a}+{x}", b, BUILT), f"({x}+{a})/{b}"]
        return draw(pick, rf"\frac{{{x}+{a}}}{{{b}}}", right, wrong)
    if kind == 1 and b != 10:  # a mixed number
        right = [f"{w}{show(a, b, BUILT)}", rf"{w}\,{show(a, b, BUILT)}",
            rf"{w}\ {show(a, b, BUILT)}", show(w * b + a, b)]  # fmt: skip
        wrong = [show(f"{w}{a}", b), rf"{w}\cdot{show(a, b, BUILT)}", f"{w + 1}{show(a, b, BUILT)}",
            show(a, b, BUILT), f"-{w}{show(a, b, BUILT)}"]  # fmt: skip
        return draw(pick, rf"{w}\frac{{{a}}}{{{b}}}", right, wrong)
    right = [show(a, b) for _ in range(3)] + [show(2 * a, 2 * b, BUILT)]
    right += [rf"\{size} {a}{b}", rf"\{size}{{{a}}}{b}", rf"\{size}{a}{{{b}}}"] if b < 10 else []
    wrong = [show(b, a), show(a, b + 1), f"-{show(a, b, BUILT)}", f"1{show(a, b, BUILT)}",
        show(f"1{a}", b), show(a, f"1{b}"), rf"\left({show(a, b, BUILT)}\right)^2",
        f"{show(a, b, BUILT)}x"]  # fmt: skip
    return draw(pick, rf"\frac{{{a}}}{{{b}}}", right, wrong)


GAPS = ("{,}", ",", r"\,", r"\;", r"\ ", "~", r",\!", r"{,}\!")


def spaces(pick: random.Random) -> Case:
    """Separators of thousands, and spaces that mean nothing."""
    n = 1000 * pick.randrange(1, pick.choice((10, 1000, 10_000))) + pick.randrange(1, 1000)
    gap, space = pick.choice(GAPS), pick.choice((r"\,", r"\;", r"\ ", "~", r"\:", r"\!"))
    if pick.random() < 0.5:
        grouped = f"{n:,}".replace(",", gap)
        head, tail = f"{n:,}".split(",")[0], f"{n:,}".split(",")[-1]
        gold, right = pick.choice([
            (f"{n}", True), (f"{n}", True), (f"{n:,}", True), (f"{near(pick, n)}", False),
            (f"{int(tail)}", False), (f"{head}.{tail}", False), (head, False),
            (f"{near(pick, n):,}", False),
        ])  # fmt: skip
        box = pick.choice((grouped, grouped, rf"{grouped}\text{{.}}", rf"\mathbf{{{grouped}}}"))
        return Case(frame(pick, box), gold, right)
    a, b = two(pick, 2, 20)
    p = pick.choice([p for p in (2, 3, 5, 7, 11, 13) if p != a])
    gold, form, first, second = pick.choice([
        (f"{a}x+{b}", "#~x@+@%", a, b), (rf"{a}\sqrt{{{p}}}", r"#@\sqrt{%}", a, p),
        (rf"{a}\pi", r"@#@\pi", a, b), (f"{a}", "@#@", a, b), (f"{a}", "#@", a, b),
        (f"({a}, {b})", "(@#,@%@)", a, b), (f"x={a}", "x@=@#", a, b),
    ])  # fmt: skip

    def show(one: int, two: int) -> str:
        return form.replace("#", f"{one}").replace("%", f"{two}").replace("@", space)

    return draw(pick, gold, [show(first, second)], [show(second, first)])


CALLS = ("sin", "cos", "tan", "ln", "arcsin", "arctan", "arccos", "sinh", "cosh", "exp")


def constants(pick: random.Random) -> Case:
    """Upright i and e, and functions spelled as operators."""
    a, b = two(pick, 2, 15)
    font = pick.choice((r"\mathrm{@}", r"\mathrm{@}", r"\operatorname{@}", r"\text{@}", r"{\rm @}"))
    i, e = font.replace("@", "i"), font.replace("@", "e")
    call, other = pick.sample(CALLS, 2)
    f, g = (pick.choice((r"\mathrm{@}", r"\operatorname{@}", r"\text{@}")).replace("@", one)
            for one in (call, other))  # fmt: skip
    inner = pick.choice(("(@)", r"\left(@\right)", r"{\left(@\right)}", r"\,(@)"))
    return draw(pick, *pick.choice([
        (f"{a}+{b}i", [f"{a}+{b}{i}", f"{b}{i}+{a}", rf"{a} + {b}\,{i}", rf"{a}+{b}\cdot {i}"],
         [f"{a}-{b}{i}", f"{b}+{a}{i}", f"{a}+{b}", f"-{a}+{b}{i}", f"{a}{i}+{b}"]),
        (f"{a}e^{{{b}}}", [f"{a}{e}^{{{b}}}", rf"{a}\cdot {e}^{{{b}}}", rf"{a}\,{e}^{{{b}}}"],
         [f"{a}{e}^{{-{b}}}", f"{b}{e}^{{{a}}}", f"{a * b}{e}", f"{e}^{{{a * b}}}",
          f"{a}{e}^{{{b}{i}}}"]),
        (f"e^{{{a}x}}+{b}", [f"{e}^{{{a}x}}+{b}", f"{b}+{e}^{{{a}x}}"],
         [f"{e}^{{{b}x}}+{a}", f"{e}^{{{a}x+{b}}}", f"{e}^{{-{a}x}}+{b}", f"{a}{e}^{{x}}+{b}"]),
        (rf"\{call}({a}x)", [f + inner.replace("@", f"{a}x"), f + inner.replace("@", f"{a}x")],
         [g + inner.replace("@", f"{a}x"), f + inner.replace("@", f"{b}x"),
          f"{a}{f}(x)", f"-{f}({a}x)"]),
        (rf"{b}\{call} x", [rf"{b}{f} x", rf"{b}\,{f}(x)", rf"{b}\cdot {f}(x)"],
         [rf"{b}{g} x", rf"{a}{f} x", rf"{b}\,{g}(x)", rf"{f}({b}x)"]),
    ]))  # fmt: skip


PRINTS: tuple[Make, ...] = (fonts, fonts, modular, rates, signs, bases, per_cents, subscripts,
    indices, bars, braces, fractions, spaces, constants)  # fmt: skip


def print_forms(pick: random.Random) -> Case:
    """Fonts, sizes, spaces and notations of one value, and the same print of another."""
    return pick.choice(PRINTS)(pick)


# (b) Units beside the box, counted things, equations, ordinals and labels.

UNITS = (("m", "meters", "cm", "centimeters", 100), ("km", "kilometers", "m", "meters", 1000),
    ("kg", "kilograms", "g", "grams", 1000), ("h", "hours", "min", "minutes", 60),
    ("min", "minutes", "s", "seconds", 60), ("L", "liters", "mL", "milliliters", 1000),
    ("m", "metres", "mm", "millimetres", 1000), ("ft", "feet", "in", "inches", 12))  # fmt: skip
BEHIND = (r"$\boxed{#} \text{ @}$", r"$\boxed{#}\,\mathrm{@}$", r"$\boxed{#}\ \text{@}$",
    r"\[\boxed{#}~\mathrm{@}\]", r"\boxed{#} @", "$\\boxed{#}$ @", r"\(\boxed{#}\) @.",
    "The result is $\\boxed{#}$ @.", "**$\\boxed{#}$ @**", "\\[\n\\boxed{#}\\;\\text{@}\n\\]",
    r"It is $\boxed{#}$ @ in total.", r"$\boxed{# \text{ @}}$",
    r"\boxed{#~\mathrm{@}}")  # fmt: skip


def behind(pick: random.Random, n: object, unit: str, forms: Sequence[str] = BEHIND) -> str:
    """A box, and a unit right behind it or in it."""
    return pick.choice(forms).replace("#", f"{n}").replace("@", unit)


def units_behind(pick: random.Random) -> Case:
    """A unit right behind the box is the unit of the answer."""
    large, larges, small, smalls, factor = pick.choice(UNITS)
    n = pick.randrange(2, 90)
    of_large, of_small = pick.choice((large, larges)), pick.choice((small, smalls))
    if "in" in (of_small, of_large):
        of_small = "inches"
    big, little = rf"{n}\text{{ {large}}}", rf"{n * factor}\text{{ {small}}}"
    foreign = pick.choice([one for one in UNITS if not {large, small} & {one[0], one[2]}])
    right = pick.random() < 0.5
    if right:
        return Case(*pick.choice([
            (behind(pick, n, of_large), big), (behind(pick, n, of_large), f"{n}"),
            (behind(pick, n, of_small), rf"{n} \text{{ {smalls}}}"),
            (behind(pick, n, of_small), f"{n}"), (behind(pick, n, of_large), little),
            (behind(pick, n * factor, of_small), big),
        ]), True)  # fmt: skip
    return Case(*pick.choice([
        (behind(pick, n, of_large), rf"{n}\text{{ {small}}}"),
        (behind(pick, n, of_small), big),
        (behind(pick, n, of_small), big),
        (behind(pick, n * factor, of_large), little),
        (behind(pick, n, pick.choice(foreign[:2])), big),
        (behind(pick, near(pick, n), of_large), big),
        (behind(pick, near(pick, n), of_large), f"{n}"),
    ]), False)  # fmt: skip


def areas_behind(pick: random.Random) -> Case:
    """Squares, cubes, money and degrees right behind the box."""
    n = pick.randrange(2, 90)
    u, words = pick.choice((("m", "meters"), ("cm", "centimeters"), ("km", "kilometers")))
    v = pick.choice([one for one in ("m", "cm", "km") if one != u])
    square = (rf"$\boxed{{{n}}} \text{{ {u}}}^2$", rf"$\boxed{{{n}}}\,\mathrm{{{u}}}^{{2}}$",
        rf"$\boxed{{{n}}}$ square {words}.", rf"\boxed{{{n}}} {u}²", rf"$\boxed{{{n}}}$ {u}²",
        rf"$\boxed{{{n} \text{{ {u}}}^2}}$")  # fmt: skip
    dollars = (rf"$\boxed{{{n}}}$ dollars", rf"\boxed{{{n}}} dollars.",
        rf"$\boxed{{{n}}}\text{{ dollars}}$")  # fmt: skip
    cents = (rf"$\boxed{{{n}}}$ cents", rf"\boxed{{{n}}} cents", rf"$\boxed{{{n}}}\text{{ cents}}$")
    angle = (rf"$\boxed{{{n}}}^\circ$", rf"\boxed{{{n}}}^{{\circ}}", rf"$\boxed{{{n}}}$ degrees",
        rf"$\boxed{{{n}}}\text{{ degrees}}$", rf"$\boxed{{{n}^\circ}}$",
        rf"\boxed{{{n}}}°")  # fmt: skip
    forms, right, wrong = pick.choice([
        (square, [rf"{n}\text{{ {u}}}^2", f"{n}"],
         [rf"{n}\text{{ {v}}}^2", rf"{n}\text{{ {u}}}^3", rf"{n}\text{{ {u}}}"]),
        (dollars, [rf"\${n}", f"{n}", rf"{100 * n} \text{{ cents}}"], [rf"{n} \text{{ cents}}"]),
        (cents, [rf"{n} \text{{ cents}}", f"{n}"], [rf"\${n}", rf"{n} \text{{ dollars}}"]),
        (angle, [rf"{n}^\circ", f"{n}"], [rf"{n} \text{{ radians}}", rf"{n} \text{{ rad}}"]),
    ])  # fmt: skip
    is_right = pick.random() < 0.5
    return Case(pick.choice(forms), pick.choice(right if is_right else wrong), is_right)


PROSE = ("is the answer", "as desired", "in total", "in all", "in the end", "as required",
    "makes both sides equal", "must be the value we want", "satisfies every condition",
    "since all other cases fail", "gives the desired sum", "holds in this case", "works",
    "can be checked by substitution", "to be exact", "at the end", "lies in the allowed range",
    "while no smaller value works", "now follows", "meets every condition", "minimizes the cost",
    "hence the claim", "follows by symmetry", "is what we sought", "and we are done",
    "by direct count", "just as claimed", "checks out", "literally as in the statement",
    "secures the claim", "matches the picture", "grants equality", "inside the given range",
    "feeds back into the equation correctly", "means the check succeeds", "so we stop here",
    "measured as asked", "goes here", "sits at the top",
    "has the required form", "kept as it is", "thus completes the proof")  # fmt: skip
SAID = (r"\boxed{#} @.", "$\\boxed{#}$ @.", "Thus $\\boxed{#}$ @", r"So \(\boxed{#}\) @.",
    "\\[\\boxed{#}\\]\n@.", r"$\boxed{#} \text{ @}$.", "**$\\boxed{#}$** @.",
    "We see that $\\boxed{#}$ @.")  # fmt: skip


def prose_behind(pick: random.Random) -> Case:
    """Words behind the box that merely start like a unit."""
    n = pick.randrange(2, 300)
    unit = pick.choice(("cm", "kg", "hours", "ft", "mL"))
    measured = rf"{n}\text{{ {unit}}}"
    gold = pick.choice((f"{n}", measured, measured, rf"{n}^\circ", rf"\${n}"))
    words = pick.choice(PROSE)
    if pick.random() < 0.55:
        return Case(behind(pick, n, words, SAID), gold, True)
    others = {"cm": "m", "kg": "g", "hours": "minutes", "ft": "inches", "mL": "L"}
    twins = [(behind(pick, near(pick, n), words, SAID), gold)]
    twins += [(behind(pick, n, f"{others[unit]} {tail}", SAID), measured)
              for tail in ("in total", "in all", "altogether")]  # fmt: skip
    return Case(*pick.choice(twins), False)


NO_PER_CENT_ASKED = ("", "", "What is the probability of two heads?", "Find $p$.",
    "What fraction of the cake is left?", "Find the probability that both are red.")  # fmt: skip


def fractions_of_per_cent(pick: random.Random) -> Case:
    """A fraction of one per cent is not that fraction."""
    while True:
        a, b = sorted((pick.randrange(1, 50), pick.choice((2, 4, 5, 8, 10, 16, 20, 25, 40, 50))))
        if gcd(a, b) == 1 and b in (2, 4, 5, 8, 10, 16, 20, 25, 40, 50):
            break
    gold = rf"\frac{{{a}}}{{{b}}}"
    per_cent, point = decimal(Fraction(100 * a, b)), decimal(Fraction(a, b))
    right = [rf"\boxed{{{gold}}}", rf"\boxed{{{point}}}", rf"\boxed{{{a}/{b}}}"]
    right += [rf"\boxed{{{per_cent}\%}}", rf"\boxed{{{per_cent}\ \%}}", rf"\boxed{{{per_cent}}}\%",
        rf"\boxed{{{per_cent} \text{{ percent}}}}",
        rf"\boxed{{{per_cent}\text{{ per cent}}}}"]  # fmt: skip
    wrong = [rf"\boxed{{{gold}\%}}", rf"\boxed{{{gold}\ \%}}", rf"\boxed{{\d{gold[1:]}\%}}",
        rf"\boxed{{{point}\%}}", rf"\boxed{{{gold} \text{{ percent}}}}", rf"\boxed{{{a}/{b}\%}}",
        rf"\boxed{{{gold}}}\%", rf"\boxed{{{gold}}} \text{{ percent}}", rf"\boxed{{{point}}}\%",
        rf"\boxed{{\left({gold}\right)\%}}"]  # fmt: skip
    is_right = pick.random() < 0.5
    box = pick.choice(right if is_right else wrong)
    text = pick.choice(("$@$", "The answer is $@$.", r"\[ @ \]", r"\(@\)")).replace("@", box)
    return Case(text, gold, is_right, pick.choice(NO_PER_CENT_ASKED))


def degrees(pick: random.Random) -> Case:
    """Radians are no degrees."""
    k, a = pick.choice((3, 4, 5, 6, 8, 9, 10, 12)), pick.choice((1, 1, 1, 5, 7, 11))
    top = rf"{'' if a == 1 else a}\pi"
    gold = rf"\frac{{{top}}}{{{k}}}"
    if gcd(a, k) != 1:
        return degrees(pick)
    size = pick.choice((gold, rf"\dfrac{{{top}}}{{{k}}}", rf"\frac{{{a}}}{{{k}}}\pi"))
    right = [size, rf"{size}\text{{ rad}}", rf"{size} \text{{ radians}}", 
        rf"{size}\ \mathrm{{rad}}", f"{top}/{k}"]  # fmt: skip
    wrong = [rf"{size}^\circ", rf"{size}^{{\circ}}", rf"\left({size}\right)^\circ",
        rf"{size}\text{{ degrees}}", rf"{size}°", rf"\left({size}\right)^{{\circ}}",
        rf"{size}\ \mathrm{{degrees}}"]  # fmt: skip
    if pick.random() < 0.15:
        return Case(rf"The angle is $\boxed{{{size}}}^\circ$.", gold, False)
    if pick.random() < 0.15:
        n = pick.randrange(2, 7)
        return draw(pick, rf"{n} \text{{ rad}}",
            [f"{n}", rf"{n}\text{{ radians}}", rf"{n}\,\mathrm{{rad}}"],
            [rf"{n}^\circ", rf"{n}^{{\circ}}", rf"{n} \text{{ degrees}}", rf"{n}°"])  # fmt: skip
    return draw(pick, gold, right, wrong)


COUNTED = ("pairs of shoes", "pairs of socks", "pairs of gloves", "pairs", "CDs", "eggs", "DVDs",
    "couples", "twins", "triplets", "double rooms", "half-price tickets", "quarters", "trios",
    "decks of cards", "sets of twins", "double-decker buses", "twin beds", "two-seaters", "MMs",
    "three-wheelers", "cats", "baskets of pears", "duets", "boxes of 12 eggs", "teams of 4",
    "2-seat sofas", "L-shaped desks", "kids", "men", "cards", "pounds of rice")  # fmt: skip


def counts(pick: random.Random) -> Case:
    """A counted thing in brackets leaves the number as it is written."""
    n = pick.randrange(3, 200)
    thing = pick.choice(COUNTED)
    noted = pick.choice((f"{n} ({thing})", f"{n}({thing})", rf"{n} \text{{ ({thing})}}"))
    others = [n + 1, n - 1, 2 * n, 2 * n, 3 * n, 12 * n] + ([n // 2] if n % 2 == 0 else [])
    other = pick.choice(others)
    right = [f"{n}", rf"{n} \text{{ ({thing})}}", f"{n} ({thing})"]
    right += [] if thing == "quarters" else [rf"{n}\text{{ {thing}}}"]  # which may be n/4
    wrong = [f"{other}", f"{other}", f"{other}", rf"{other} \text{{ ({thing})}}",
        f"{other} ({thing})", rf"{other}\text{{ {thing}}}"]  # fmt: skip
    if pick.random() < 0.3:
        return draw(pick, f"{n}", right[1:3], wrong[3:5])
    return draw(pick, noted, right, wrong)


def equations(pick: random.Random) -> Case:
    """An equation to be found is no number, but may be written in another way."""
    x, y, z = pick.sample("abcdpqrstuvwxyz", 3)
    a, b = two(pick, 2, 15)
    r, k = pick.choice("rkcm"), pick.randrange(2, 20)
    return draw(pick, *pick.choice([
        (f"y'+{r}y-{r}x(t)=0", [f"y'+{r}y={r}x(t)", f"{r}y+y'-{r}x(t)=0", f"0=y'+{r}y-{r}x(t)",
                                f"y' + {r}y - {r}x(t) = 0"],
         ["0", "0", f"y'-{r}y-{r}x(t)=0", "y'", "0.0", "x = 0"]),
        (f"y''+{a}y'+{b}y=0", [f"y''+{b}y+{a}y'=0", f"y''=-{a}y'-{b}y", f"0=y''+{a}y'+{b}y"],
         ["0", "0", f"y''+{b}y'+{a}y=0", f"y''-{a}y'+{b}y=0", "y=0"]),
        (f"{x}^2-{k}=0", [f"{x}^2={k}", f"0={x}^2-{k}", f"{k}-{x}^2=0", f"2{x}^2-{2 * k}=0",
                          f"{x}^2 - {k} = 0"],
         ["0", "0", f"{k}", f"{x}^2={k + 1}", f"{x}^2+{k}=0", f"{x}=0"]),
        (f"{a}{x}+{b}{y}=0", [f"{b}{y}+{a}{x}=0", f"{a}{x}=-{b}{y}", f"{2 * a}{x}+{2 * b}{y}=0",
                              rf"{y}=-\frac{{{a}}}{{{b}}}{x}", f"0={a}{x}+{b}{y}"],
         ["0", "0", f"{b}{x}+{a}{y}=0", f"{a}{x}-{b}{y}=0", f"{a}{x}={b}{y}", "(0,0)"]),
        (f"{x}+{y}={k}", [f"{y}={k}-{x}", f"{y}+{x}={k}", f"{x}+{y}-{k}=0", f"{k}={x}+{y}",
                          f"2{x}+2{y}={2 * k}"],
         [f"{k}", f"{k}", f"{k}", f"{x}+{y}={k + 1}", f"{x}-{y}={k}", f"{x}={k}", f"{x}+{y}",
          f"{x}+{z}={k}"]),
        (f"{x}+{y}+{z}={k}", [f"{z}+{y}+{x}={k}", f"{x}+{y}={k}-{z}", f"{k}={x}+{y}+{z}",
                              f"{x}+{y}+{z}-{k}=0"],
         [f"{k}", f"{k}", f"{k}", f"{x}+{y}-{z}={k}", f"{x}+{y}={k}", f"{z}={k}"]),
        (f"x^2+y^2={a * a}", [f"y^2+x^2={a * a}", f"x^2+y^2-{a * a}=0",
                              f"x^{{2}}+y^{{2}}={a}^{{2}}"],
         [f"{a * a}", f"{a}", f"{a * a}", f"x^2-y^2={a * a}", f"x^2+y^2={a}", f"r={a}"]),
        (f"{a}x-{b}y={k}", [f"{a}x={k}+{b}y", f"{a}x-{b}y-{k}=0", f"{b}y={a}x-{k}"],
         [f"{k}", f"{k}", f"{a}x+{b}y={k}", f"{b}x-{a}y={k}", f"{k}=0"]),
    ]))  # fmt: skip


RAISED = ("{}^{{\\text{{{}}}}}", "{}^{{\\mathrm{{{}}}}}", "{}^{{{}}}", "{}\\text{{{}}}")
WHOLE = ("power", "root", "derivative", "term", "degree")
HOW_MANY = ("How many solutions are there?", "Find the value of $x$.", "How many apples are left?")


def ordinals(pick: random.Random) -> Case:
    """An ordinal is its number, but an ordinal with a noun is not."""
    n = pick.randrange(2, 40)

    def order(m: int) -> str:
        last = "th" if m % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(m % 10, "th")
        return pick.choice(RAISED).format(m, last)

    kind = pick.randrange(4)
    if kind < 2:
        right = pick.random() < 0.4
        word = pick.choice(WHOLE)
        noun = pick.choice((rf"{order(n)} \text{{ {word}}}", rf"{order(n)}\text{{ {word}}}",
            rf"{order(n)}\ \mathrm{{{word}}}"))  # fmt: skip
        return Case(frame(pick, order(n) if right else noun), f"{n}", right,
                    pick.choice(HOW_MANY))  # fmt: skip
    if kind == 2:
        right = [order(n), order(n), f"{n}"]
        wrong = [order(near(pick, n)), f"{near(pick, n)}", f"{n}^{{{n + 1}}}"]
        return draw(pick, order(n), right, wrong)
    noun, other = pick.sample(WHOLE[:4], 2)
    wrong = [rf"{order(near(pick, n))} \text{{ {noun}}}", rf"{order(n)} \text{{ {other}}}"]
    return draw(pick, rf"{order(n)} \text{{ {noun}}}", [rf"{order(n)} \text{{ {noun}}}"], wrong)


LETTERS = (("x", "y", "z"), ("a", "b", "c"), ("A", "B", "C"), ("C_1", "C_2", "C_6"),
    ("c_1", "c_2", "c_3"), ("a_0", "a_1", "a_2"), (r"\alpha", r"\beta", r"\gamma"),
    ("p", "q", "r"), ("m", "n", "k"), ("f(1)", "f(2)", "f(3)"), ("P", "Q", "R"),
    (r"\text{Amy}", r"\text{Ben}", r"\text{Cleo}"), ("b_3", "b_5", "b_7"))  # fmt: skip
JOINTS = (", ", ",", r",\ ", r",\quad ", r"\text{ and }", r",\; ")


def labels(pick: random.Random) -> Case:
    """Values of names, which must be the same names."""
    names = list(pick.choice(LETTERS))
    first, second, third = names
    a, b, c = pick.sample(range(-5, 30), 3)
    joint = pick.choice(JOINTS)

    def show(*pairs: tuple[str, int]) -> str:
        equal = pick.choice(("=", " = "))
        return joint.join(f"{name}{equal}{value}" for name, value in pairs)

    u, v, w = (first, a), (second, b), (third, c)
    if pick.random() < 0.25:
        right = [show(*pick.sample((u, v, w), 3)) for _ in range(3)]
        wrong = [show((first, b), (second, a), w), show(u, (third, b), (second, c)), show(u, v),
            show(u, v, (third, c + 1)), show((first, b), (second, c), (third, a))]  # fmt: skip
        return draw(pick, f"{first}={a}, {second}={b}, {third}={c}", right, wrong)
    right = [show(u, v), show(v, u)]
    wrong = [show(u, (third, b)), show(u, (third, b)), show((first, b), (second, a)),
        show((second, a), (first, b)), show(u), show(u, (second, c)),
        show((third, a), v)]  # fmt: skip
    if len(first) == 1:
        right += [f"({first},{second})=({a},{b})", f"({second}, {first}) = ({b}, {a})"]
        wrong += [f"({first},{second})=({b},{a})", f"({first},{third})=({a},{b})",
            f"({second}, {first}) = ({a}, {b})"]  # fmt: skip
    return draw(pick, f"{first}={a}, {second}={b}", right, wrong)


BESIDE: tuple[Make, ...] = (units_behind, units_behind, areas_behind, prose_behind, prose_behind,
    fractions_of_per_cent, degrees, counts, equations, ordinals, labels, labels)  # fmt: skip


def units_counts_labels(pick: random.Random) -> Case:
    """Units beside the box, counted things, equations, ordinals and labels, which must agree."""
    return pick.choice(BESIDE)(pick)


# (c) Unevaluated arithmetic.

ASK_NUMBER = ("", "", "", "How many eggs are there in all?", "How much does she pay?", "Find $x$.",
    "What is the area of the garden?")  # fmt: skip


def arithmetic(pick: random.Random) -> tuple[str, Fraction]:
    """A calculation of plain numbers, and its value."""
    a, b = two(pick, 2, 40)
    c, d = pick.randrange(2, 12), pick.randrange(2, 90)
    while b == c:
        c = pick.randrange(2, 12)
    top = pick.randrange(1, a * c)
    p, q = proper(pick, 12)
    found = pick.choice([
        (f"{a}+{b}", a + b), (f"{a} + {b}", a + b), (f"{a}+{b}+{c}", a + b + c),
        (rf"{a} \times {b}", a * b), (rf"{a}\cdot {b}", a * b), (f"{a}*{b}", a * b),
        (f"{a}\u00d7{b}", a * b), (f"{a} \u00d7 {b}", a * b), (rf"{a} \ast {b}", a * b),
        (f"({a})({b})", a * b), (f"{a}({b})", a * b), (rf"{{{a}}}\times{{{b}}}", a * b),
        (f"{a + b}-{b}", a), (f"{a + b} - {b}", a), (f"{b}-{a + b}", -a), (f"100-{d}", 100 - d),
        (f"{a}({b}+{c})", a * (b + c)), (rf"{a}\left({b}+{c}\right)", a * (b + c)),
        (rf"{a} \cdot {b} + {c}", a * b + c), (rf"{c} + {a} \times {b}", a * b + c),
        (rf"({a}+{b})\cdot {c}", (a + b) * c), (rf"{c} \times ({a}+{b})", (a + b) * c),
        (f"{a}({b}-{c})", a * (b - c)), (f"{a}^2+{b}", a * a + b), (f"{a}^2-{b}^2", a * a - b * b),
        (rf"\frac{{{top}+{a * c - top}}}{{{a}}}", c), (rf"\frac{{{a}\cdot {2 * b}}}{{2}}", a * b),
        (rf"{a * b} \div {a}", b), (f"{a * b} ÷ {a}", b), (f"5!-{d}", 120 - d),
        (rf"{a}.5+{b}.5", a + b + 1), (f"{a}-(-{b})", a + b), (rf"-{a}\cdot {b}", -a * b),
        (rf"(-{a})({b})", -a * b), (rf"\sqrt{{{a * a}}}+{b}", a + b), (f"2^{c}+{b}", 2**c + b),
        (rf"{c}!\cdot {b}" if c < 7 else f"{a}+{b}", factorial(c) * b if c < 7 else a + b),
        (rf"{a}\cdot{b}\cdot{c}", a * b * c), (rf"{a}\cdot {b}-{c}", a * b - c),
        (f"[{a}+{b}]({c})", (a + b) * c), (rf"{a}{{+}}{b}", a + b), (rf"{a}\,+\,{b}", a + b),
        (rf"{a} \text{{ plus }} {b}", a + b), (rf"{a} \text{{ times }} {b}", a * b),
        (rf"\frac{{1}}{{{a}}}+\frac{{1}}{{{b}}}", Fraction(1, a) + Fraction(1, b)),
        (rf"1-\frac{{{p}}}{{{q}}}", 1 - Fraction(p, q)),
        (rf"{c}\cdot\frac{{{p}}}{{{q}}}", c * Fraction(p, q)),
        (rf"\frac{{{p}}}{{{q}}}\times\frac{{{a}}}{{{b}}}", Fraction(p, q) * Fraction(a, b)),
        (rf"\frac{{{p}}}{{{q}}}-\frac{{1}}{{{a}}}", Fraction(p, q) - Fraction(1, a)),
        (f"{c}.5*{2 * b}", (2 * c + 1) * b), (rf"0.5\cdot {2 * a}", a),
    ])  # fmt: skip
    value = Fraction(found[1])
    return (found[0], value) if value not in (0, 1, -1) else arithmetic(pick)


def calculations(pick: random.Random) -> Case:
    """A calculation left as it is, or carried out."""
    work, value = arithmetic(pick)
    gold = tex(value)
    gold = f"{value}" if value.denominator > 1 and pick.random() < 0.3 else gold
    other = tex(value + pick.choice((1, -1, 10)))
    question, x = pick.choice(ASK_NUMBER), pick.choice("xnN")
    if pick.random() < 0.5:
        right = [tex(value), f"{value}", f"{x} = {tex(value)}", f"{work}={tex(value)}",
            f"{work} = {tex(value)}", f"{x} = {work} = {tex(value)}", rf"\mathbf{{{tex(value)}}}",
            rf"{tex(value)}\text{{.}}", rf"\displaystyle {tex(value)}"]  # fmt: skip
        right += [f"+{tex(value)}"] if value > 0 else []
        if value > 0 and value.denominator == 1:
            units = (rf"\${value}", rf"{value} \text{{ cm}}", rf"{value} \text{{ apples}}")
            right += [rf"\text{{{value}}}", *(() if question else units)]
        box = pick.choice(right)
        if pick.random() < 0.15:
            return Case(rf"We get ${work} = \boxed{{{tex(value)}}}$.", gold, True, question)
        return Case(frame(pick, box), gold, True, question)
    wrong = [work] * 8 + [f"{x} = {work}", f"{x}={work}", rf"\displaystyle {work}", f"{{{work}}}",
        rf"\mathbf{{{work}}}", rf"{work}\text{{.}}", rf"\left({work}\right)", f"({work})",
        rf"({work})\text{{ cm}}", rf"{work} \text{{ apples}}", f"{work}={other}",
        f"{work} = {other}", rf"\large {work}", f"{work}="]  # fmt: skip
    wrong += [rf"\text{{{work}}}"] * 2 if "\\" not in work and "{" not in work else []
    return Case(frame(pick, pick.choice(wrong)), gold, False, question)


def measured_sums(pick: random.Random) -> Case:
    """Sums and products of quantities with units, left as they are or carried out."""
    a, b = two(pick, 2, 45)
    unit = pick.choice((r"@\text{ cm}", r"@\ \mathrm{kg}", r"\$@", r"@\%", r"@^\circ",
        r"@\text{ hours}", r"@ \text{ apples}"))  # fmt: skip
    one, other, total = (unit.replace("@", f"{n}") for n in (a, b, a + b))
    question = pick.choice(ASK_PER_CENT) if "%" in unit else ""
    times = pick.choice((r"\cdot ", r" \times ", "*"))
    if pick.random() < 0.3:
        product = unit.replace("@", f"{a * b}")
        right = [product, f"{a}{times}{other}={product}"]
        wrong = [
            f"{a}{times}{other}",
            unit.replace("@", f"({a}{times}{b})"),
            f"x={a}{times}{other}",
        ]
        return draw(pick, pick.choice((product, f"{a * b}")), right, wrong, question)
    right = [total, f"{one}+{other}={total}", f"{one} + {other} = {total}", f"x = {total}"]
    wrong = [f"{one}+{other}", f"{one} + {other}", unit.replace("@", f"({a}+{b})"),
        f"x = {one}+{other}", f"{one}+{other}={unit.replace('@', f'{a + b + 1}')}",
        f"{one}-{other}"]  # fmt: skip
    return draw(pick, pick.choice((total, total, f"{a + b}")), right, wrong, question)


def chains(pick: random.Random) -> Case:
    """A chain that ends in its value, and one that stops before."""
    a, b = two(pick, 2, 30)
    c, d = pick.randrange(2, 30), pick.randrange(2, 9)
    times = pick.choice((r"\cdot ", r" \times ", "*"))
    gold, steps = pick.choice([
        (a + b, [f"{a}+{b}"]),
        (a * b + c, [f"{a}{times}{b}+{c}", f"{a * b}+{c}"]),
        (d * (a + b), [f"{d}({a}+{b})", f"{d}{times}{a + b}"]),
        (a * b * d, [f"{a}{times}{b}{times}{d}", f"{a * b}{times}{d}"]),
        (d * d + a, [f"{d}^2+{a}", f"{d * d}+{a}"]),
        (a * c + b * d, [f"{a}{times}{c}+{b}{times}{d}", f"{a * c}+{b * d}"]),
    ])  # fmt: skip
    equal = pick.choice(("=", " = "))
    done, open_end = equal.join([*steps, f"{gold}"]), equal.join(steps)
    other, turned = near(pick, gold), "+".join(steps[-1].split("+")[::-1])
    outside = (r"$@ = \boxed{#}$", r"We have $@ = \boxed{#}$.", r"\[ @ = \boxed{#} \]",
        r"Since $@ = #$, the answer is $\boxed{#}$.")  # fmt: skip
    if pick.random() < 0.5:
        text = frame(pick, pick.choice((done, f"x = {done}", done, rf"{done}\text{{.}}")))
        if pick.random() < 0.4:
            text = pick.choice(outside).replace("@", open_end).replace("#", f"{gold}")
        return Case(text, f"{gold}", True)
    wrong = [open_end, f"x = {open_end}", equal.join([*steps, f"{other}"])]
    wrong += [f"{open_end}{equal}{turned}"]
    text = frame(pick, pick.choice(wrong))
    if pick.random() < 0.3:
        last = steps[-1] if len(steps) > 1 else turned
        text = rf"${steps[0]} = \boxed{{{last}}}$"
    if pick.random() < 0.15:
        n = pick.randrange(2, 50)
        text = pick.choice((rf"${n} + \boxed{{{gold}}}$", rf"$\boxed{{{gold}}} + {n}$",
            rf"$\frac{{\boxed{{{gold}}}}}{{{n}}}$", rf"${n} \cdot \boxed{{{gold}}}$"))  # fmt: skip
    return Case(text, f"{gold}", False)


def left_open(pick: random.Random) -> Case:
    """Arithmetic that the gold itself leaves open."""
    n, k = pick.randrange(6, 13), pick.randrange(2, 4)
    a, b = two(pick, 2, 15)
    p = pick.choice([one for one in (2, 3, 5, 7, 11, 13) if one not in (a, b)])
    base = pick.choice((2, 3))
    power, whole = f"{base}^{{{n}}}", base**n
    root = rf"\sqrt{{{p}}}"
    choose, value = rf"\binom{{{n}}}{{{k}}}", comb(n, k)
    return draw(pick, *pick.choice([
        (f"{power}-{a}", [f"{power}-{a}", f"{whole - a}", f"-{a}+{power}", f"{power} - {a}"],
         [f"{power}+{a}", f"{base}^{{{n - 1}}}-{a}", f"{whole}", f"{whole - a - 1}", power,
          f"{base}^{{{n}-{a}}}", f"{a}-{power}"]),
        (f"{root}+{a}", [f"{a}+{root}", f"{root}+{a}", f"{a} + {root}"],
         [f"{a}-{root}", f"{root}-{a}", rf"\sqrt{{{p}+{a}}}", f"{a}{root}", f"{b}+{root}"]),
        (f"{a}+{b}{root}", [f"{b}{root}+{a}", f"{a}+{b}{root}", rf"{a}+{b}\cdot {root}"],
         [f"{a}-{b}{root}", f"{b}+{a}{root}", f"{a + b}{root}", f"({a}+{b}){root}"]),
        (rf"\frac{{{a}+{root}}}{{2}}", [rf"\frac{{{root}+{a}}}{{2}}", rf"\dfrac{{{a}+{root}}}{{2}}",
                                        rf"\frac{{{a}}}{{2}}+\frac{{{root}}}{{2}}"],
         [rf"\frac{{{a}-{root}}}{{2}}", rf"\frac{{{a}+{root}}}{{4}}", rf"{a}+\frac{{{root}}}{{2}}",
          rf"\frac{{{b}+{root}}}{{2}}"]),
        (f"{n}!", [f"{n}!", f"{factorial(n)}", f"{{{n}}}!"],
         [f"{n - 1}!", f"{n + 1}!", f"{factorial(n) + 1}", f"{n}", rf"{n}!+{a}"]),
        (rf"{n}\cdot {n - 1}!", [rf"{n}\cdot {n - 1}!", f"{n}!", f"{factorial(n)}",
                                 rf"{n - 1}!\cdot {n}", rf"{n} \times {n - 1}!"],
         [rf"{n}\cdot {n}!", f"{n - 1}!", rf"{n}\cdot {n - 2}!", f"({n}+{n - 1})!",
          f"{factorial(n) - 1}"]),
        (choose, [choose, f"{value}", rf"\dbinom{{{n}}}{{{k}}}", rf"{{{n} \choose {k}}}",
                  rf"\tbinom{{{n}}}{{{k}}}", rf"\binom{{{n}}}{{{n - k}}}"],
         [rf"\binom{{{n}}}{{{k - 1}}}", rf"\binom{{{n + 1}}}{{{k}}}", f"{value + 1}",
          rf"\frac{{{n}}}{{{k}}}", rf"\dbinom{{{n + 2}}}{{{k}}}"]),
        (rf"{a}\cdot {power}", [rf"{a}\cdot {power}", rf"{power}\cdot {a}", rf"{a} \times {power}",
                                f"{a * whole}"],
         [f"{a}+{power}", rf"{a}\cdot {base}^{{{n + 1}}}", rf"{b}\cdot {power}", f"{a * whole + 1}",
          f"{power}"]),
        (f"1-{power[:-1].replace('{', '{-')}}}", [f"1-{power[:-1].replace('{', '{-')}}}",
                                               rf"1-\frac{{1}}{{{whole}}}",
                                               rf"\frac{{{whole - 1}}}{{{whole}}}",
                                               rf"1-\frac{{1}}{{{power}}}"],
         [rf"1+\frac{{1}}{{{power}}}", rf"\frac{{1}}{{{whole}}}", rf"1-{power}",
          rf"\frac{{{whole - 2}}}{{{whole}}}"]),
    ]))  # fmt: skip


def scientific(pick: random.Random) -> Case:
    """Powers of ten behind a number between 1 and 10, and other products."""
    a, b = two(pick, 2, 10)
    k = pick.randrange(3, 9)
    times = pick.choice((r"\times ", r" \times ", r"\cdot ", r" \cdot "))
    raised = pick.choice((f"10^{{{k}}}", f"10^{{{k}}}", f"10^{k}"))
    if pick.random() < 0.3:  # below 1
        gold = f"0.{'0' * (k - 1)}{a}"
        wrong = [f"{a}{times}10^{{{k}}}", f"{a}{times}10^{{-{k + 1}}}", f"{b}{times}10^{{-{k}}}",
            rf"{a}\times 0.{'0' * (k - 1)}1", f"0.{'0' * (k - 2)}1{times}0.{a}"]  # fmt: skip
        return draw(pick, gold, [f"{a}{times}10^{{-{k}}}", gold, rf"{a} \times 10^{{-{k}}}"], wrong)
    n = (10 * a + b) * 10 ** (k - 1)
    right = [f"{a}.{b}{times}{raised}", f"{a}.{b}{times}{raised}", f"{n}", f"{n:,}",
        f"{n:,}".replace(",", "{,}"), rf"{a}.{b}{times}{raised}\text{{.}}"]  # fmt: skip
    wrong = [f"{a}.{b}{times}10^{{{k + 1}}}", f"{b}.{a}{times}{raised}", f"{a}{times}{raised}",
        rf"{10 * a + b} \times {10 ** (k - 1)}", rf"{n // 100}\cdot 100", f"{n // 10}*10",
        rf"{a} \times {b} \times {raised}", rf"{a}.{b}\times 10{'0' * (k - 1)}",
        f"{a}{times}{raised}+{b}{times}10^{{{k - 1}}}", f"{n - 1000}+1000"]  # fmt: skip
    return draw(pick, f"{n}", right, wrong)


def plain_values(pick: random.Random) -> Case:
    """Signs, fractions, roots, powers and mixed numbers are values as they stand."""
    a, b = proper(pick, 15)
    w, n = pick.randrange(2, 9), pick.randrange(2, 200)
    p, k = pick.choice((2, 3, 5, 7)), pick.randrange(3, 11)
    half, wide = k // 2, Fraction(w * b + a, b)
    quarter = Fraction(*pick.choice(((1, 4), (3, 4), (1, 8), (2, 5), (7, 20), (9, 10))))
    minus, part = pick.choice((-1, 1)), Fraction(a, b)
    return draw(pick, *pick.choice([
        (f"{-n}", [f"{-n}", rf"-{n}.0", f"(-{n})", f"x=-{n}"],
         [f"{n}", f"{n}-{2 * n}", f"1-{n + 1}", f"-1-{n - 1}", rf"-1\cdot {n}"]),
        (f"{n}", [f"+{n}", f"{n}", f"{n}.0", f"x={n}"],
         [f"-{n}", f"{n + 7}-7", f"{n - 1}+1", f"{n + 1}-1", rf"2\cdot{n}-{n}",
          rf"{2 * n} \div 2"]),
        (decimal(quarter), [tex(quarter), decimal(quarter), f"{quarter}"],
         [tex(1 - quarter), f"1-{decimal(1 - quarter)}", rf"1-{tex(1 - quarter)}",
          rf"{tex(quarter / 2)}+{tex(quarter / 2)}", rf"2\cdot {tex(quarter / 2)}"]),
        (tex(wide), [rf"{w}\frac{{{a}}}{{{b}}}", rf"{w}\tfrac{{{a}}}{{{b}}}", tex(wide), f"{wide}"],
         [rf"{w}-\frac{{{a}}}{{{b}}}", rf"{w}\cdot\frac{{{a}}}{{{b}}}",
          rf"\frac{{{w * b}+{a}}}{{{b}}}", rf"\frac{{{w}\cdot{b}+{a}}}{{{b}}}",
          rf"{w + 1}-\frac{{{b - a}}}{{{b}}}"]),
        (f"{p**k}", [f"{p}^{{{k}}}", f"{p**k}", f"{p**k:,}"],
         [rf"{p}\cdot {p}^{{{k - 1}}}", rf"{p}^{{{half}}}\cdot {p}^{{{k - half}}}",
          f"{p}^{{{k - 1}}}", rf"{p}^{{{k + 1}}}", f"{p}^{{{k}}}+1",
          f"{p}^{{{k}}}+{p}-{p}", f"{p**k - p}+{p}"]),
        (rf"\frac{{1}}{{{p**k}}}", [f"{p}^{{-{k}}}", rf"\frac{{1}}{{{p}^{{{k}}}}}", f"1/{p**k}"],
         [f"{p}^{{{k}}}", f"{p}^{{-{k + 1}}}",
          rf"\frac{{1}}{{{p}}}\cdot\frac{{1}}{{{p ** (k - 1)}}}"]),
        (rf"\sqrt{{{w * w * p}}}", [rf"{w}\sqrt{{{p}}}", rf"\sqrt{{{w * w * p}}}",
                                   rf"{w}\cdot\sqrt{{{p}}}"],
         [rf"{w + 1}\sqrt{{{p}}}", rf"{w}\sqrt{{{p + 1}}}", rf"{w}+\sqrt{{{p}}}",
          rf"-{w}\sqrt{{{p}}}"]),
        (rf"{w}\pi", [rf"{w}\pi", rf"{w}\,\pi", rf"{w} \cdot \pi", rf"\pi \cdot {w}"],
         [f"{w * 3.14:.2f}", f"{w * 3.14159265:.4f}", rf"{w + 1}\pi", rf"\pi^{{{w}}}", f"{w}"]),
        (f"e^{{{w}}}", [f"e^{{{w}}}", f"e^{w}", rf"\exp({w})"],
         [f"e^{{-{w}}}", f"{w}e", f"{2.718281828**w:.3f}", f"e^{{{w + 1}}}"]),
        (f"{a}:{b}", [f"{a} : {b}", f"{a}:{b}", rf"{a}\text{{:}}{b}"],
         [f"{b}:{a}", f"{b} : {a}", f"{a}:{b + 1}", f"{a} : {a + b}"]),
        (rf"\frac{{{w}\pi}}{{{p * 11}}}", [rf"\frac{{{w}\pi}}{{{p * 11}}}", rf"{w}\pi/{p * 11}",
                                          rf"\frac{{{w}}}{{{p * 11}}}\pi"],
         [rf"\frac{{{w}}}{{{p * 11}\pi}}", rf"\frac{{{w}\pi}}{{{p * 12}}}",
          rf"\frac{{{w}}}{{{p * 11}}}"]),
        (tex(minus * part), [rf"\frac{{{minus * a}}}{{{b}}}", rf"\frac{{{a}}}{{{minus * b}}}",
                             tex(minus * part)],
         [tex(-minus * part), tex(minus / part),
          rf"1 - {tex(1 - part)}" if minus > 0 else rf"{tex(1 - part)}-1"]),
    ]))  # fmt: skip


def structures(pick: random.Random) -> Case:
    """Intervals, polynomials and points keep their signs and are no arithmetic."""
    a, b = sorted(two(pick, 2, 30))
    c = pick.randrange(31, 50)
    x = pick.choice("xyt")
    return draw(pick, *pick.choice([
        (f"[{a}, {b}]", [f"[{a},{b}]", rf"\left[{a}, {b}\right]"],
         [f"[{a},{b})", f"({a},{b}]", f"[{a},{c}]", f"{b}-{a}"]),
        (f"[-{a}, {b})", [f"[-{a},{b})", rf"\left[-{a}, {b}\right)"],
         [f"[-{a},{b}]", f"[{a},{b})", f"[-{b},{a})", f"[-{a},{c})"]),
        (f"{x}^2+{a}{x}-{b}", [f"{x}^2+{a}{x}-{b}", f"-{b}+{a}{x}+{x}^2", f"{a}{x}+{x}^2-{b}"],
         [f"{x}^2+{a}{x}+{b}", f"{x}^2-{a}{x}-{b}", f"{x}^2+{b}{x}-{a}", f"{1 + a - b}"]),
        (f"{a}-{b}i", [f"{a}-{b}i", f"-{b}i+{a}"],
         [f"{a}+{b}i", f"{b}-{a}i", f"{a}-{b}", f"{a - b}"]),
        (f"({a}, -{b})", [f"({a},-{b})", rf"\left({a}, -{b}\right)"],
         [f"({a},{b})", f"(-{b},{a})", f"({a},-{c})", f"{a}-{b}"]),
        (rf"{a}\pm\sqrt{{{7 * 11}}}", [rf"{a}\pm\sqrt{{77}}", rf"{a} \pm \sqrt{{77}}"],
         [rf"{a}+\sqrt{{77}}", rf"{a}-\sqrt{{77}}", rf"{b}\pm\sqrt{{77}}", rf"\pm {a}\sqrt{{77}}"]),
        (f"{a}{x}+{b}", [f"{b}+{a}{x}", f"{a}{x} + {b}", rf"{a}\cdot {x}+{b}"],
         [f"{a}{x}-{b}", f"{b}{x}+{a}", f"{a}+{b}", f"{a + b}{x}", f"{a}({x}+{b})"]),
        (rf"{x} > {a}", [f"{x}>{a}", f"{a}<{x}", rf"({a},\infty)"],
         [f"{x}<{a}", f"{x}>{b}", rf"{x}\ge {a}", f"{a}", f"{x}={a}"]),
    ]))  # fmt: skip


OPEN: tuple[Make, ...] = (calculations, calculations, calculations, calculations, chains,
    measured_sums, left_open, left_open, scientific, plain_values, plain_values,
    structures)  # fmt: skip


def unevaluated(pick: random.Random) -> Case:
    """Arithmetic that is left to do is no answer, unless the gold leaves it too."""
    return pick.choice(OPEN)(pick)


CLASSES: tuple[Make, ...] = (print_forms, units_counts_labels, unevaluated)


@pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)
def test_nothing_incorrect_is_rewarded_and_what_is_correct_is(make):
    pick = random.Random(make.__name__)
    cases = [make(pick) for _ in range(ROWS)]
    texts = [f"<think>\nso\n</think>\n\n{case.text}" for case in cases]
    grades = grade_all(texts, [case.gold for case in cases], [case.question for case in cases])
    found = [(case, one.verdict) for case, one in zip(cases, grades, strict=True)]
    correct = [(case, verdict) for case, verdict in found if case.right]
    assert 0.25 <= len(correct) / ROWS <= 0.75
    rewarded = [case for case, verdict in found if verdict == "right" and not case.right]
    lost = [case for case, verdict in correct if verdict != "right"]
    assert not rewarded, (len(rewarded), rewarded[:9])
    assert len(lost) <= 0.02 * len(correct), (len(lost), lost[:9])
