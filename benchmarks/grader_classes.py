"""False accepts and recall of the grader on generated rows: one table for each class of mistake.

    python -m benchmarks.grader_classes [--tree DIR] [--seed N] [--rows N] [--classes F1,F2]
        [--failures FILE]

Each class is a function that draws a few rows: a prediction, its gold, and whether a mathematician
would call it right; rows on which two could differ are left out. The labels follow from how a row
was made, never from a grader. `--tree` grades the same rows with another checkout too, each in a
process of its own.
"""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from math import ceil, comb, factorial, floor, gcd, isqrt, lcm
from pathlib import Path

from benchmarks.table import markdown, tell
from data_prep.config import parse, run_cli

Random = random.Random
# kind, prediction, gold, is it right; then the question, where one matters
Drawn = Iterator[tuple[str, str, str, bool] | tuple[str, str, str, bool, str]]
CLASSES: dict[str, tuple[str, Callable[[Random], Drawn]]] = {}
WHOLE = {"F12", "boxes", "final"}  # the prediction is a text, not what is in a box
SENTENCES = (
    r"So the answer is $\boxed{%s}$.", r"Therefore, we get \[\boxed{%s}\]", r"\boxed{%s}",
    "Putting it together:\n\n$$\\boxed{%s}$$", r"**Final answer:** $\boxed{%s}$",
    r"The final answer is: $\boxed{%s}$. I hope it is correct.", r"Answer: \(\boxed{%s}\)",
)  # fmt: skip
# Runs in the tree that it grades with: rows on standard input, verdicts on standard output.
GRADE = r"""
import inspect, json, os, sys
if __name__ == "__main__":
    # An installed checkout lends its modules to one that lacks them: no trying of imports.
    if os.path.exists("data_prep/answers.py"):
        from data_prep.answers import grade_all
    else:
        from data_prep.grading.grade import grade_all
    assert os.path.realpath(inspect.getfile(grade_all)).startswith(os.path.realpath(".") + "/")
    rows, found = json.load(sys.stdin), {}
    takes_questions = "questions" in inspect.signature(grade_all).parameters
    for final in (False, True):
        mine = [row for row in rows if row["final_number"] == final]
        more = {"questions": [row["question"] for row in mine]} if takes_questions else {}
        texts, golds = [row["completion"] for row in mine], [row["gold"] for row in mine]
        found[final] = iter(grade_all(texts, golds, final_number=final, **more))
    json.dump([next(found[row["final_number"]]).verdict for row in rows], sys.stdout)
"""


@dataclass
class ClassesArguments:
    """Keys of the command line, or of a YAML file."""

    tree: str | None = field(default=None, metadata={"help": "another checkout to grade with"})
    seed: int = field(default=0, metadata={"help": "of the rows"})
    rows: int = field(default=1200, metadata={"help": "of a class, at least"})
    classes: str | None = field(default=None, metadata={"help": "some of them: F1,F2"})
    failures: str | None = field(default=None, metadata={"help": "JSON lines file to write"})


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to grade."""

    cls: str
    kind: str
    prediction: str
    gold: str
    right: bool
    question: str
    completion: str
    final_number: bool


def table(name: str, about: str) -> Callable[[Callable[[Random], Drawn]], None]:
    """Enter a function that draws rows as a class of the table."""

    def enter(draw: Callable[[Random], Drawn]) -> None:
        CLASSES[name] = (about, draw)

    return enter


def make_rows(name: str, seed: int, num: int) -> list[Row]:
    """At least `num` different rows of a class; what follows from the class and the seed only."""
    rng, rows = Random(f"{name} {seed}"), {}
    while len(rows) < num:
        for kind, prediction, gold, right, *question in CLASSES[name][1](rng):
            text = prediction if name in WHOLE else rng.choice(SENTENCES) % prediction
            thought = rng.choice(("Let me work this out.", "First, I look at what is given."))
            completion = f"<think>\n{thought}\n</think>\n\n{text}"
            asked = question[0] if question else ""
            row = Row(name, kind, prediction, gold, right, asked, completion, name == "final")
            rows.setdefault((prediction, gold, asked), row)
    return list(rows.values())


def grade_rows(rows: list[Row], tree: Path) -> list[str]:
    """The verdicts of the checkout in `tree`."""
    run = subprocess.run(
        [sys.executable, "-c", GRADE], input=json.dumps([asdict(row) for row in rows]),
        env=os.environ | {"PYTHONPATH": str(tree)}, cwd=tree, text=True, capture_output=True,
        check=True,
    )  # fmt: skip
    return json.loads(run.stdout)


def main() -> None:
    """Draw the rows, grade them, print the table."""
    (args,) = parse(__doc__, ClassesArguments)
    names = args.classes.split(",") if args.classes else [*CLASSES]
    rows = [row for name in names for row in make_rows(name, args.seed, args.rows)]
    trees = {"": Path(__file__).parents[1]} | ({args.tree: Path(args.tree)} if args.tree else {})
    verdicts = {label: grade_rows(rows, tree) for label, tree in trees.items()}
    lines = []
    for name in names:
        at = [i for i, row in enumerate(rows) if row.cls == name]
        right = [i for i in at if rows[i].right]
        line = {"class": name, "about": CLASSES[name][0], "rows": f"{len(at):,}"}
        line["right"] = f"{len(right):,}"
        for label, found in verdicts.items():
            paid = [i for i in at if found[i] == "right"]
            of = f", {Path(label).name}" if label else ""
            line[f"false accepts{of}"] = f"{sum(not rows[i].right for i in paid):,}"
            line[f"recall{of}"] = f"{sum(rows[i].right for i in paid) / len(right):.3f}"
        lines.append(line)
    tell(markdown(lines))
    if args.failures:
        with open(args.failures, "w", encoding="utf-8") as file:
            for row, verdict in zip(rows, verdicts[""], strict=True):
                if (verdict == "right") != row.right:
                    print(json.dumps(asdict(row) | {"verdict": verdict}), file=file)  # noqa: T201


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
    ]  # fmt: skip
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
    ])  # fmt: skip
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
]  # fmt: skip


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
    ]  # fmt: skip
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
    ]  # fmt: skip
    formula, result = r.choice([
        (rf"\sqrt{{{a * a}}}+{b}", str(a + b)), (rf"2^{n}\cdot {a}", str(2**n * a)),
        (f"{frac(a, b)}+{frac(c, d)}", value(r, total)), (rf"\binom{{{a + 2}}}{{2}}", str(comb(a + 2, 2))),
        (f"({x}+{a})^2-({x}-{a})^2", f"{4 * a}{x}"), (rf"{a}\cdot {b}-{c}", str(a * b - c)),
        (f"({x}+{a})({x}+{b})", f"{x}^2+{a + b}{x}+{a * b}"), (rf"\log_{{{a}}} {a**3}", "3"),
        (f"{x}^2+{a + b}{x}+{a * b}", f"({x}+{a})({x}+{b})"), (rf"\sqrt{{{a * a * 2}}}", rf"{a}\sqrt{{2}}"),
        (f"{frac(f'{x}^{n}', f'{x}^2')}", f"{x}^{n - 2}" if n > 3 else x), *ints,
    ])  # fmt: skip
    ask = r.choice(("Compute $%s$.", "What is the value of $%s$?", "Simplify $%s$ fully.",
                    "Find the simplest form of \\[%s\\]", "Let $E = %s$. Rewrite $E$ as asked."))  # fmt: skip
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
           f"Which of the numbers ${larger}$ and ${b}$ is larger?")  # fmt: skip
    yield ("gold in the question", f"{a}{x}+{b}", f"{a}{x}+{b}", True,
           f"At ${x}=100$, which is larger: ${a}{x}+{b}$ or ${a - 1}{x}+{c}$?")  # fmt: skip
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
}  # fmt: skip


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
}  # fmt: skip


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
            (rf"\log_{{10}}(10^{{{e + 40}}}+{c})", str(e + 40)), (f"({root}+{c})^2", power)]  # fmt: skip
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
    ))  # fmt: skip
    p = r.randint(1, 9)
    low = rf"{n}\ge {p}"
    ways = (", %s", r",\ %s", r",\quad %s", r"\text{ for } %s", r" \text{ where } %s", r"\text{ if } %s",
            r" \quad (%s)", r"\text{ for all }%s", " for %s")  # fmt: skip

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
                       "$%s$ is not the answer.", "$%s$ is wrong.", "The answer is NOT $%s$.", "$%s$ is incorrect."))  # fmt: skip
    yield "negation", denied % box, gold, False
    sure = [
        f"= {box}", rf"\approx {box}", rf"\therefore {box}", rf"\Rightarrow {box}", rf"x = {box}",
        rf"{m}+{k} = {m + k}, \text{{ so }} x = {box}", rf"\implies x={box}", f"{box}", rf"\frac{{a}}{{b}}={box}",
        rf"{box}\text{{ cm}}", rf"{box}\ \text{{meters}}", rf"{box}\%", rf"{box}^\circ", rf"\${box}", rf"-y+{m} = {box}",
        rf"x^{k} - {m} = {box}", rf"\sqrt{{{m * m}}} \cdot {k} = {box}", rf"\text{{Answer: }}{box}", rf"\quad {box}",
        rf"{box}\text{{ square units}}", rf"{box}.", rf"\begin{{aligned}} y &= {m} - {k}z \\ &= {box} \end{{aligned}}",
        rf"\left|{m}-{k}\right| = {box}", rf"{box} = {m} - {k}", rf"\to {box}", rf"\mathbf{{{box}}}", rf"{box}\text{{ m}}/\text{{s}}",
    ]  # fmt: skip
    for text in r.sample(sure, 4):
        yield "no arithmetic", lead + math % text + end, gold, True
    plain = r.choice((
        "It is not hard to see that the answer is $%s$.", "- The answer is $%s$.", "**$%s$**", "Result:\n\n- $%s$\n",
        "This is not " + str(num + m) + ", so the answer is $%s$.", "* **Answer:** $%s$", "Note that all cases are done: %s",
        "(A) is not correct, since it is negative. The answer is $%s$.", "There is no other case. $%s$", "1. First step\n2. $%s$",
        f"The answer is $%s$, not {num + m}.", f"It cannot be {num + m}, hence $%s$.", "The answer is $%s$. This is not a surprise.",
        "The values do not depend on $x$, and we get $%s$ — which was to be found.", "### Answer\n$%s$ square units",
    ))  # fmt: skip
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
    ))  # fmt: skip
    end += "" if end[-1] == "." else "\n"
    start = f"{name} starts with {b} {thing} and then gets {c} more. "
    yield "stated", start + end, str(a), True
    yield "stated, another gold", start + end, r.choice((str(b), str(c), str(a + 1))), False
    tail = r.choice((f" Today is {month} {day}.", f" It is {month} {day} today.", f" See page {day} of the book.",
                     f" I wrote this on {month} {day}.", f" This took me {day} minutes."))  # fmt: skip
    yield "number of another sentence", start + end + tail, str(day), False
    gave_up = r.choice(("I could not solve this.", f"{name} could not be reached.", "I am not sure how to go on."))
    today = r.choice((f" Today is {month} {day}.", f" It is {month} {day} today.", f" See page {day} of the book."))
    yield "no answer at all", gave_up + today, str(day), False
    pay = r.choice((
        f"{name} earns ${b} an hour and spends ${c} so ${a} remain.", f"At ${c} for one, the total cost is ${a}.",
        f"{name} pays ${b}, then ${c}. The total is ${a}.", f"{name} has ${a} left.", f"So {name.lower()} makes ${a}.",
    ))  # fmt: skip
    yield "dollars", pay, str(a), True
    yield "dollars, another gold", pay, r.choice((str(b), str(c))), False
    yield "thousands", f"{start}The answer is {a},{b:03d}.", f"{a}{b:03d}", True
    yield "thousands", f"{start}The answer is {a},{b:03d}.", f"{b}", False


@table("sums", "a sum, product or integral = its value")
def _(r: Random) -> Drawn:
    n, a, k = r.randint(3, 40), r.randint(1, 30), r.choice("kijn")
    text, total = r.choice((
        (rf"\sum_{{{k}=1}}^{{{n}}} {k}", n * (n + 1) // 2), (rf"\sum_{{{k}=1}}^{n % 10} {a}{k}", a * (n % 10) * (n % 10 + 1) // 2),
        (rf"\sum_{{{k}=0}}^{{{n}}} ({k}+{a})", n * (n + 1) // 2 + a * (n + 1)), (rf"\prod_{{{k}=1}}^{{{n % 8 + 2}}} {k}", factorial(n % 8 + 2)),
        (rf"\int_0^{{{n}}} {2 * a}x\,dx", a * n * n), (rf"\int_{{0}}^{{{n}}} 3x^2 \, dx", n**3), (rf"\binom{{{n}}}{{2}}", comb(n, 2)),
        (rf"\lim_{{x\to {n}}} \frac{{x^2-{n * n}}}{{x-{n}}}", 2 * n), (rf"\sum_{{{k}=1}}^{{{n}}} {k}^2", n * (n + 1) * (2 * n + 1) // 6),
    ))  # fmt: skip
    yield "= value", restyle(r, f"{text}={total}"), str(total), True
    yield "label = sum = value", f"S={text}={total}", str(total), True
    if k == "k" and r.random() < 0.5:
        yield "= terms = value", rf"\sum_{{k=1}}^3 {n}k = {n}+{2 * n}+{3 * n} = {6 * n}", str(6 * n), True
        yield "= formula = value", rf"\sum_{{k=1}}^{{{n}}} k = \frac{{{n}\cdot {n + 1}}}{{2}} = {n * (n + 1) // 2}", str(n * (n + 1) // 2), True
        yield "= formula", rf"\sum_{{k=1}}^n {a}k = \frac{{{a}n(n+1)}}{{2}}", rf"\frac{{{a}n(n+1)}}{{2}}", True
        yield "= another formula", rf"\sum_{{k=1}}^n {a}k = \frac{{{a}n(n+1)}}{{2}}", rf"\frac{{{a}n(n-1)}}{{2}}", False
    yield "= another value", restyle(r, f"{text}={total + a}"), str(total), False
    yield "another gold", f"{text} = {total}", str(total + r.choice((-1, 1, a))), False
    yield "upper bound is no answer", f"{text} = {total}", str(n + total), False


@table("bound", "renamed bound variables")
def _(r: Random) -> Drawn:
    k, j = r.sample(["k", "j", "i", "m", "r", "t"], 2)
    top, a, b = r.choice(("n", "N", r"\infty", "2n")), r.randint(1, 30), r.randint(2, 30)
    shapes = [
        r"\sum_{@=1}^{%s} @^{%d}", r"\sum_{@=1}^{%s} \frac{1}{@^2+%d}", r"\prod_{@=1}^{%s} \left(1+\frac{%d}{@^2}\right)",
        r"\sum_{@=%d}^{100} (-1)^@ x^@", r"\sum_{@=0}^{%s} \binom{n}{@} %d^@", r"\int_0^{%d} \sqrt{1+@^3}\,d@",
        r"\int_{0}^{1} e^{-%d@^2} \, d@", r"\{@ \mid @ > %d\}", r"\{@ : %d < @ < 100\}",
    ]  # fmt: skip
    shape = r.choice(shapes)
    if r"\{" in shape:
        k, j = r.sample("xytu", 2)  # k would be an integer
    if "int" in shape:
        k, j = r.sample("xtus", 2)

    def write(name: str, number: int) -> str:
        args = (top, number) if shape.count("%") == 2 else (number,)
        return shape.replace("@", name) % args

    gold = write(k, a)
    yield "renamed", write(j, a), gold, True
    yield "as written", restyle(r, gold) if "{@" not in shape else gold, gold, True
    yield "another number", write(r.choice((j, k)), a + b), gold, False
    if "int" not in shape and r"\{" not in shape:
        head, _, body = write(j, a).partition("} ")
        yield "renamed in half", f"{head}}} {shape.partition('} ')[2].replace('@', k)}".replace("%d", str(a)), gold, False
    sym = r.choice("abc")
    terms = rf"\sum_{{{k}=1}}^{{n}} {sym}_{k}^{{{b}}}"
    yield "terms of a sequence", rf"\sum_{{{j}=1}}^{{n}} {sym}_{j}^{{{b}}}", terms, True
    yield "terms, shifted", rf"\sum_{{{j}=0}}^{{n-1}} {sym}_{j}^{{{b}}}", terms, False
    yield "terms, another bound", rf"\sum_{{{j}=1}}^{{n+1}} {sym}_{j}^{{{b}}}", terms, False
    yield "terms, shifted", rf"\sum_{{{j}=0}}^{{n-1}} {sym}_{j}", rf"\sum_{{{k}=1}}^{{n}} {sym}_{k}", False
    f = r.choice("fgh")
    x, y = r.sample("xtsuz", 2)
    yield "function", f"{f}({y})={a}{y}^2+{b}", f"{f}({x})={a}{x}^2+{b}", True
    yield "function, another", f"{f}({y})={a}{y}^2+{b}", f"{f}({x})={a}{x}^2-{b}", False
    yield "function, free variable", f"{f}({y})={a}{x}^2+{b}", f"{f}({x})={a}{x}^2+{b}", False


@table("powers", "roots, pi, e times huge powers")
def _(r: Random) -> Drawn:
    base, e, c = r.choice((2, 3, 5, 6, 7)), r.randint(400, 5000), r.randint(2, 60)
    factor, other = r.sample([r"\pi", "e", r"\sqrt{3}", r"\sqrt{2}", r"\sqrt[3]{5}", r"\sqrt{11}", r"\pi^2"], 2)
    power = f"{base}^{{{e}}}"
    gold = rf"{power}{factor}" if factor != "e" else rf"{power} e"
    yield "order", rf"{factor} \cdot {power}", gold, True
    yield "product", rf"{power}\cdot {factor}", gold, True
    yield "split", rf"{base} \cdot {base}^{{{e - 1}}} \cdot {factor}", gold, True
    yield "square", rf"{base * base}^{{{e // 2}}} \cdot {factor}", f"{base}^{{{e // 2 * 2}}} {factor}", True
    yield "fraction", frac(rf"{base}^{{{e + 1}}} {factor}", base), gold, True
    yield "exponent", rf"{base}^{{{e + r.choice((-1, 1))}}} {factor}", gold, False
    yield "another factor", rf"{power} {other}", gold, False
    yield "factor left out", power, gold, False
    yield "times a number", rf"{c} \cdot {power} {factor}", gold, False
    yield "sign", f"-{gold}", gold, False
    yield "plus", f"{gold} + {c}", gold, False


@table("boxes", "several boxes, together the gold's list")
def _(r: Random) -> Drawn:
    x, num = r.choice("xynt"), r.choice((2, 2, 3))
    values = [str(v) for v in r.sample(range(-50, 99), num)]
    if r.random() < 0.3:
        values = [rf"{v}\sqrt{{2}}" for v in values]
    gold = ", ".join(values) if r.random() < 0.7 else rf"\{{{', '.join(values)}\}}"
    how = r.choice(("and", "or"))

    def write(found: list[str]) -> str:
        boxes = [rf"\boxed{{{one}}}" for one in found]
        ways = [
            "The solutions are " + f" {how} ".join(f"${box}$" for box in boxes) + ".",
            "So " + f" {how} ".join(f"${x} = {box}$" for box in boxes) + ".",
            "Answers: " + ", ".join(f"${box}$" for box in boxes),
            "".join(f"\n\nCase {at}: ${x} = {box}$." for at, box in enumerate(boxes, 1)),
            "We get $" + r", \quad ".join(boxes) + "$.", "\n".join(f"- ${box}$" for box in boxes),
        ]
        return r.choice(ways)

    yield "union", write(values), gold, True
    yield "union, another order", write(values[::-1]), gold, True
    yield "said twice", f"{write(values[:1])} That is, $\\boxed{{{values[0]}}}$.", values[0], True
    yield "list at the end", write(values) + f" So the solutions are $\\boxed{{{', '.join(values)}}}$.", gold, True
    yield "labels in the boxes", write([f"{x}={one}" for one in values]), gold, True
    yield "one left out", write(values[1:]), gold, False
    yield "one too many", write([*values, "101"]), gold, False
    yield "one is another", write([*values[1:], "101"]), gold, False
    yield "one of them", write(values), values[0], False


@table("chains", "x=y=z=a and labelled tuples")
def _(r: Random) -> Drawn:
    names = r.choice((["x", "y"], ["x", "y", "z"], ["a", "b", "c"], ["p", "q"], ["m", "n"]))
    nums = [str(v) for v in r.sample(range(-30, 60), len(names))]
    if r.random() < 0.3:
        nums[0] = frac(r.randint(1, 9) * 2 + 1, 2)
    label, one = f"({','.join(names)})", nums[0]
    each = r.choice((",", ", ", r",\ ", r",\; ", r"\text{ and }", r" \text{ and } ")) if len(names) == 2 else ", "
    pairs = [f"{a}={b}" for a, b in zip(names, nums, strict=True)]
    tuple_ = f"({','.join(nums)})"
    equal, three = "=".join([*names, one]), f"({','.join([one] * len(names))})"
    full = f"{label}={tuple_}"
    yield "labels | labelled tuple", each.join(pairs), full, True
    yield "labels | tuple", each.join(pairs), tuple_, True
    yield "labelled tuple | tuple", restyle(r, full), tuple_, True
    yield "tuple | labelled tuple", restyle(r, tuple_), full, True
    yield "labels, another order", each.join(pairs[::-1]), full, True
    yield "chain | chain", f"{' = '.join([*names, one])}", equal, True
    yield "chain | tuple", equal, f"{label}={three}", True
    yield "tuple | chain", f"{label}={three}", equal, True
    if len(names) == 3:
        yield "chain and one", f"{names[0]}={names[1]}={one}, {names[2]}={nums[1]}", f"{label}=({one},{one},{nums[1]})", True
        yield "chain and one, swapped", f"{names[0]}={names[1]}={one}, {names[2]}={nums[1]}", f"{label}=({one},{nums[1]},{nums[1]})", False
    point = r.choice("ABCPQ")
    yield "point", f"{point}{tuple_}", tuple_, True
    yield "point, another", f"{point}({','.join([*nums[:-1], '77'])})", tuple_, False
    swapped = [f"{a}={b}" for a, b in zip(names, nums[::-1], strict=True)]
    if nums != nums[::-1] and len(names) == 2:
        yield "labels, values swapped", each.join(swapped), r.choice((full, tuple_)), False
        yield "label swapped", f"({names[1]},{names[0]})={tuple_}", full, False
    yield "another value", each.join([*pairs[:-1], f"{names[-1]}=77"]), r.choice((full, tuple_)), False
    yield "one left out", pairs[0], full, False
    yield "chain, another value", "=".join([*names, nums[1]]), r.choice((equal, three)), False
    yield "chain | another tuple", equal, full, False
    yield "tuple, another value", f"({','.join([*nums[:-1], '77'])})", full, False


@table("points", "an interval and a point")
def _(r: Random) -> Drawn:
    x, (a, b, c) = r.choice("xytm"), sorted(r.sample(range(-40, 60), 3))
    left, low, right = r.choice((r"(-\infty,", r"(-\infty,", f"({a},", f"[{a},")), r.choice("<≤"), {"<": ")", "≤": "]"}
    span, point = f"{left}{b}{right[low]}", rf"\{{{c}\}}"
    gold = rf"{span}\cup{point}"
    first = "" if "infty" in left else f"{a}<" if left[0] == "(" else rf"{a}\le "
    bound = first + x + ("<" if low == "<" else r"\le ") + str(b)
    yield "union, swapped", rf"{point} \cup {span}", gold, True
    yield "union", restyle(r, gold), gold, True
    yield "in words", rf"{bound}\text{{ or }}{x}={c}", gold, True
    yield "in words, swapped", rf"{x} = {c} \text{{ or }} {bound}", gold, True
    yield "member", rf"{x}\in {gold}", gold, True
    yield "two points", rf"\{{{c},{c + 3}\}}\cup {span}", rf"{span}\cup\{{{c},{c + 3}\}}", True
    yield "from a point on", rf"{x}={b}\text{{ or }}{x}\ge {c}", rf"\{{{b}\}}\cup[{c},\infty)", True
    yield "from a point on, open", rf"{x}={b}\text{{ or }}{x}>{c}", rf"\{{{b}\}}\cup[{c},\infty)", False
    yield "another point", rf"{span}\cup\{{{c + 1}\}}", gold, False
    yield "another end", rf"{left}{b}{right['≤' if low == '<' else '<']}\cup{point}", gold, False
    yield "point left out", span, gold, False
    yield "in words, point left out", bound, gold, False
    yield "point alone", point, gold, False
    yield "words, another point", rf"{bound}\text{{ or }}{x}={c + 1}", gold, False


@table("signs", "(±1, 0) and the two points")
def _(r: Random) -> Drawn:
    a, b = r.randint(1, 60), r.randint(-30, 30)
    n = str(a) if r.random() < 0.6 else rf"{a}\sqrt{{2}}" if r.random() < 0.5 else frac(2 * a + 1, 2)
    first = r.random() < 0.5

    def at(one: str, other: object = b) -> str:
        return f"({one},{other})" if first else f"({other},{one})"

    gold, two = at(rf"\pm {n}"), r.choice((", ", ",", r"\text{ and }", r" \text{ or } "))
    points = [at(n), at(f"-{n}")]
    yield "two points | signs", two.join(points), gold, True
    yield "two points, swapped", two.join(points[::-1]), gold, True
    yield "signs | two points", at(rf"\pm{n}"), two.join(points), True
    yield "signs | set", gold, rf"\{{{', '.join(points)}\}}", True
    both, roots = rf"{b + 31}\pm\sqrt{{{a + 1}}}", [rf"{b + 31}{s}\sqrt{{{a + 1}}}" for s in "+-"]
    yield "roots", ", ".join(roots), both, True
    yield "one root", roots[0], both, False
    yield "one point", r.choice(points), gold, False
    yield "signs for one", gold, points[0], False
    yield "another place", at(n, b + 1) + two + at(f"-{n}", b), gold, False
    yield "another number", at(rf"\pm {a + 61}"), gold, False
    yield "one of them twice", two.join([points[0], at(n, b + 2)]), gold, False


@table("ordinals", "12^{th}")
def _(r: Random) -> Drawn:
    num = r.randint(1, 3000)
    last = "th" if num % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(num % 10, "th")
    ways = (r"%d^{\mathrm{%s}}", r"%d^{\text{%s}}", r"%d\text{%s}", "%d%s", r"%d^\text{%s}", r"%d^{%s}")
    if r.random() < 0.04:
        ways = (*ways, r"%d\textsuperscript{%s}")
    one, two = (r.choice(ways) % (num, last) for _ in range(2))
    yield "ordinal | number", one, str(num), True
    yield "number | ordinal", str(num), two, True
    yield "ordinal | ordinal", one, two, True
    yield "another number", one, str(num + r.choice((-1, 1, 10))), False
    yield "another ordinal", str(num + 1), two, False


@table("about", "the sign of approximation")
def _(r: Random) -> Drawn:
    x, num = r.choice("xrtVh"), r.randint(100, 99999)
    number, other = f"{num / 100:.2f}", f"{(num + r.choice((1, -1, 100))) / 100:.2f}"
    sign, unit = r.choice([r"\approx", r"\approx ", "≈", r"\simeq "] * 6 + [r"\approxeq "]), r.choice(("cm", "meters", "hours"))
    yield "sign", f"{sign}{number}", number, True
    yield "name and sign", f"{x} {sign} {number}", number, True
    yield "sign in the gold", number, f"{sign}{number}", True
    yield "both", f"{x}{sign}{number}", rf"{x} \approx {number}", True
    yield "unit", rf"{sign} {number}\text{{ {unit}}}", rf"{number}\text{{ {unit}}}", True
    word = r.choice(("approximately", "about", "roughly"))
    yield "word", rf"\text{{{word} }}{number}", number, True
    yield "word, another number", rf"\text{{{word} }}{other}", number, False
    yield "another number", f"{sign}{other}", number, False
    yield "another number, name", f"{x}{sign}{other}", number, False
    yield "gold with another number", number, f"{sign}{other}", False
    yield "another number, both", f"{x} {sign} {other}", rf"{x}\approx {number}", False


@table("money", "元, ₹ and other money")
def _(r: Random) -> Drawn:
    num = r.randint(2, 9000) if r.random() < 0.6 else r.randint(100, 99999) / 100
    code, (mark, words) = str(num), r.choice((("₹", "rupees"), ("€", "euros"), ("¥", "yen"), (r"\$", "dollars")))
    yuan = r.choice((f"{num}元", rf"{num}\text{{元}}", rf"{num}\text{{ 元}}", f"{num} 元"))
    sign = r.choice((f"{mark}{num}", rf"\text{{{mark}}}{num}", f"{mark} {num}", rf"\text{{{mark}{num}}}"))
    other = str(num + r.choice((1, 10, -1)))
    yield "yuan | number", yuan, code, True
    yield "number | yuan", code, yuan, True
    yield "sign | number", sign, code, True
    yield "number | sign", code, f"{mark}{num}", True
    yield "sign | words", sign, rf"{num}\text{{ {words}}}", True
    coin = r.choice((rf"US\${num}", rf"\text{{Rs. }}{num}", f"Rs. {num}", rf"\${num}\text{{ USD}}", f"{num} INR", rf"{num}\,€", f"￥{num}", f"{num}美元", f"{num}人民币"))
    yield "other spellings", coin, code, True
    yield "other spellings, another number", coin, other, False
    yield "jiao", rf"{num}角", f"{num}元", False
    yield "another number", r.choice((yuan, sign)), other, False
    yield "gold with another number", other, r.choice((yuan, sign)), False
    yield "another currency", sign, rf"{num}\text{{ {r.choice([w for w in ('rupees', 'euros', 'dollars') if w != words])}}}", False
    yield "yuan and rupees", yuan, f"₹{num}", False


HAN = [("厘米", "米", 100), ("米", "千米", 1000), ("克", "千克", 1000), ("分钟", "小时", 60), ("毫米", "厘米", 10), ("米", "公里", 1000), ("秒", "分钟", 60)]


@table("metric", "units in Chinese")
def _(r: Random) -> Drawn:
    num, (small, big, factor) = r.randint(2, 900), r.choice(HAN)
    way, other = r.sample(("%d%s", r"%d\text{%s}", r"%d\text{ %s}", "%d %s"), 2)
    gold, thing = way % (num, big), r.choice(("个", "人", "本", "只"))
    yield "converted", other % (num * factor, small), gold, True
    yield "converted, gold small", gold, other % (num * factor, small), True
    yield "same unit", other % (num, big), gold, True
    yield "unit left out", str(num), gold, True
    yield "counted", other % (num, thing), str(num), True
    yield "another unit", other % (num, small), gold, False
    yield "converted wrongly", other % (num * factor, big), way % (num, small), False
    yield "another number", other % (num + 1, big), gold, False
    yield "counted, another number", other % (num + 1, thing), str(num), False


@table("feet", "two units in one")
def _(r: Random) -> Drawn:
    big, small, factor, top = r.choice((
        ("feet", "inches", 12, 12), ("ft", "in", 12, 12), ("hours", "minutes", 60, 60), ("minutes", "seconds", 60, 60),
        ("meters", "centimeters", 100, 100), ("km", "m", 1000, 1000), ("kg", "g", 1000, 1000), ("dollars", "cents", 100, 100),
        ("lb", "oz", 16, 16), ("pounds", "ounces", 16, 16), ("weeks", "days", 7, 7), ("h", "min", 60, 60), ("years", "months", 12, 12),
    ))  # fmt: skip
    a, b = r.randint(1, 60), r.randint(1, top - 1)
    way = r.choice((r"%d\text{ %s }%d\text{ %s}", "%d %s %d %s", r"%d \text{ %s } %d \text{ %s}", r"%d\ \text{%s}\ %d\ \text{%s}", r"%d\text{ %s and }%d\text{ %s}", r"%d\text{ %s, }%d\text{ %s}"))
    both, total = way % (a, big, b, small), a * factor + b
    yield "both | small", both, f"{total} {small}", True
    yield "small | both", rf"{total}\text{{ {small}}}", both, True
    yield "both | both", f"{a} {big} {b} {small}", both, True
    if b * 4 % factor == 0:
        yield "both | big", both, rf"{a + b / factor:g}\text{{ {big}}}", True
    yield "another small number", both, f"{total + 1} {small}", False
    yield "first only", both, rf"{a}\text{{ {big}}}", False
    yield "last only", both, f"{b} {small}", False
    yield "swapped", way % (b, big, a, small), f"{total} {small}" if a != b else "0", False
    if total != a * 10 + b and total != int(f"{a}{b}"):
        yield "side by side", both, f"{a}{b} {small}", False


@table("digits", "groups of digits, fullwidth print")
def _(r: Random) -> Drawn:
    num = r.randint(1000, 10 ** r.randint(4, 13))
    mark = r.choice(("'", "'", r"\,", ",", "{,}", r"\ ", "’"))
    grouped, off = f"{num:,}".replace(",", mark), num + 10 ** r.randint(0, 3)
    wide = str.maketrans("0123456789,()-+.=", "０１２３４５６７８９，（）－＋．＝")
    a, b = r.sample(range(-300, 900), 2)
    yield "grouped", grouped, str(num), True
    yield "gold grouped", str(num), grouped, True
    yield "grouped, another number", grouped, str(off), False
    yield "gold grouped, another number", str(off), grouped, False
    yield "fullwidth", str(num).translate(wide), str(num), True
    yield "fullwidth pair", f"({a},{b})".translate(wide), f"({a},{b})", True
    yield "fullwidth decimal", f"{num / 100}".translate(wide), f"{num / 100}", True
    yield "fullwidth, sign", f"x=-{num}".translate(wide), f"-{num}", True
    yield "fullwidth, another number", str(off).translate(wide), str(num), False
    yield "fullwidth pair, swapped", f"({b},{a})".translate(wide), f"({a},{b})", False
    yield "fullwidth, sign left out", f"-{num}".translate(wide), str(num), False
    yield "fullwidth decimal, another", f"{off / 100}".translate(wide), f"{num / 100}", False


@table("cases", "systems and piecewise functions")
def _(r: Random) -> Drawn:
    x, (a, b, c, d) = r.choice("xtu"), r.sample(range(-20, 40), 4)
    end = r.choice((r"\\ ", r"\\", r" \\ ", "\\\\\n"))

    def cases(lines: list[str]) -> str:
        if r.random() < 0.1 and all("&" not in line for line in lines):
            return r"\left\{\begin{array}{l} " + end.join(lines) + r" \end{array}\right."
        return r"\begin{cases} " + end.join(lines) + r" \end{cases}"

    system, pair = [f"x={a}", f"y={b}"], r.choice((f"({a},{b})", f"(x,y)=({a},{b})", f"x={a}, y={b}"))
    yield "system | pair", cases(system), pair, True
    yield "system, another order", cases(system[::-1]), f"(x,y)=({a},{b})", True
    yield "pair | system", pair, cases(system), True
    yield "system, swapped", cases([f"x={b}", f"y={a}"]), pair, False
    yield "system, another number", cases([f"x={a}", f"y={c}"]), pair, False
    yield "system, one left out", cases([f"x={a}"]), f"(x,y)=({a},{b})", False
    if c not in (a, b):
        even, odd = r.choice(((r"n\text{ even}", r"n\text{ odd}"), (r"\text{if }n\text{ is even}", r"\text{if }n\text{ is odd}")))
        gold = cases([rf"{a}, & \text{{if }} n\text{{ is even}}", rf"{c}, & \text{{if }} n\text{{ is odd}}"])
        yield "parity", cases([f"{c} & {odd}", f"{a} & {even}"]), gold, True
        yield "parity, swapped", cases([f"{a} & {odd}", f"{c} & {even}"]), gold, False
        yield "parity, one of them", str(a), gold, False
    p = r.randint(0, 30)
    pieces = [(f"{x}^2{a:+d}" if a else f"{x}^2", rf"{x}\ge {p}"), (f"{b}{x}" if b not in (0, 1) else f"7{x}", f"{x}<{p}")]
    said = r.choice(("%s, & %s", r"%s & \text{if } %s", r"%s, & \text{if } %s", r"%s & %s"))
    gold = cases([said % piece for piece in pieces])
    name = r.choice(("", f"f({x})="))
    said = r.choice(("%s, & %s", r"%s & \text{if } %s", r"%s, & \text{if } %s"))
    yield "pieces", name + cases([said % piece for piece in pieces]), gold, True
    yield "pieces, another order", name + cases([said % piece for piece in pieces[::-1]]), gold, True
    mixed = [(pieces[0][0], pieces[1][1]), (pieces[1][0], pieces[0][1])]
    yield "pieces, conditions swapped", name + cases([said % piece for piece in mixed]), gold, False
    yield "pieces, another value", cases([said % (f"{x}^2+99", pieces[0][1]), said % pieces[1]]), gold, False
    yield "pieces, one of them", pieces[0][0], gold, False


@table("brackets", "text in brackets behind a number")
def _(r: Random) -> Drawn:
    num = r.randint(2, 5000) if r.random() < 0.8 else r.randint(2, 900) / 4
    thing, other = r.sample(("apples", "oranges", "students", "books", "legs", "dollars", "days", "cookies", "red marbles", "km", "hours", "boxes"), 2)
    gold = f"{num} ({thing})"
    said = r.choice((r"%s\text{ (%s)}", "%s (%s)", r"%s \text{(%s)}", r"%s\ (\text{%s})"))
    yield "number alone", str(num), gold, True
    yield "both", said % (num, thing), gold, True
    yield "as a unit", rf"{num}\text{{ {thing}}}", gold, True
    yield "gold is a number", said % (num, thing), str(num), True
    yield "another number", said % (num + 1, thing), gold, False
    yield "another number alone", str(num + r.choice((-1, 1, 10))), gold, False
    yield "another thing", said % (num, other), gold, False
    yield "gold is another number", said % (num, thing), str(num + 1), False


if __name__ == "__main__":
    run_cli(main)
