"""Classes of answers that say nothing new, from templates: empty truths and copies of the question.

A wrong row is the twin of a right one: the same question and print, and no work done.
"""

import random
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from math import comb, factorial, gcd
from typing import NamedTuple

import pytest

from grading.grade import grade_all

ROWS = 320


class Case(NamedTuple):
    text: str
    gold: str
    right: bool
    question: str = ""


class Task(NamedTuple):
    """A question with its formulas between « and », and boxes in LaTeX for it."""

    question: str
    copies: list[str]  # the question's formula again: incorrect
    gold: str
    results: list[str]  # correct
    misses: list[str]  # another value, or a form that was not asked for: incorrect
    chain: str = ""  # what may stand before "= result"
    ends: tuple[str, ...] = ()  # the results that may follow it, else the first two


# How things are printed


OPENINGS = ("", "", "", "Question 3. ", "Mia asks: ", "Here is a task. ", "Exercise 7b: ")
CLOSINGS = ("", "", "", " Show your work.", " Explain each step.",
    r" Put your final answer within \boxed{}.")  # fmt: skip
SAYINGS = (r"\boxed{@}", r"The answer is \boxed{@}.", r"**Answer:** $\boxed{@}$",
    "\\[\n\\boxed{@}\n\\]", "We go step by step.\n\n$$\\boxed{@}$$", r"Final answer: \boxed{@}",
    r"Thus the final answer is $\boxed{@}$.", r"Therefore, \(\boxed{@}\).",
    "## Solution\n\nThis leads to\n\n$\\boxed{@}$", "All in all,\n\\begin{align*}\n\\boxed{@}\n"
    "\\end{align*}", r"I checked it twice: $\boxed{@}$")  # fmt: skip
SUPERSCRIPTS = dict(zip("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True))
VULGAR = {"1/2": "½", "1/3": "⅓", "2/3": "⅔", "1/4": "¼", "3/4": "¾", "1/5": "⅕", "1/8": "⅛"}
TIMES, MINUS = "\u00d7", "\u2212"
THOUSANDS = re.compile(r"(?<![.\d_{^])\d{4,}(?![\d}_])")


def thousands(pick: random.Random, text: str, marks: tuple[str, ...]) -> str:
    mark = pick.choice(marks)
    return THOUSANDS.sub(lambda found: f"{int(found[0]):,}".replace(",", mark), text)


def plainly(pick: random.Random, tex: str) -> str:
    """The formula as plain text, without LaTeX."""
    text = re.sub(r"\\text\{([^}]*)\}", r"\1", tex.replace(r"\%", "%").replace(r"\$", "$"))
    text = re.sub(r"\\binom\{(\d+)\}\{(\d+)\}", r"C(\1, \2)", text)
    text = re.sub(r"(\d)\\frac\{(\d+)\}\{(\d+)\}", r"\1 \2/\3", text)
    text = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", text)
    text = re.sub(r"\\frac\{(\w|\\pi|\d*\\pi)\}\{(\d+)\}", r"\1/\2", text)
    root = pick.choice((r"sqrt(\1)", r"√\1"))
    text = re.sub(r"\\sqrt\{(\w+)\}", root, text)
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)", text)
    text = re.sub(r"\\(?:cdot|times) ", f" {pick.choice((TIMES, TIMES, '*', '·'))} ", text)
    text = text.replace(r"\div ", " ÷ ").replace(r"\cdots", "...").replace(r"^\circ", "°")
    text = text.replace(r"\pi", pick.choice(("π", "pi")))
    text = re.sub(r"\\(log|sin|cos|tan|ln)", r"\1", text)
    text = re.sub(r"_\{(\d+)\}", r"_\1", text)
    if pick.random() < 0.4:
        text = re.sub(r"\^\{?(\d)\}?(?!\d)", lambda found: SUPERSCRIPTS[found[1]], text)
        text = re.sub(r"\d/\d(?!\d)", lambda found: VULGAR.get(found[0], found[0]), text)
    text = re.sub(r"(?<=[\w)!|%½⅓⅔¼¾⅕⅛⁰¹²³⁴⁵⁶⁷⁸⁹.])([+=-])", r" \1 ", text)
    text = text.replace("-", pick.choice(("-", MINUS)))
    if pick.random() < 0.5:
        text = thousands(pick, text, (",",))
    return re.sub(" +", " ", text).strip()


def reprint(pick: random.Random, tex: str, odd: bool = False) -> str:
    """The same formula in another print of LaTeX; odd adds braces that print nothing."""
    at = pick.randrange(4)
    if at == 0:
        tex = re.sub(r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2", tex)
    elif at == 1:
        tex = tex.replace(r"\frac", pick.choice((r"\dfrac", r"\tfrac")))
    if pick.random() < 0.3:
        tex = re.sub(r"\\sqrt\{(\d)\}", r"\\sqrt\1", tex)
    if pick.random() < 0.4:
        tex = re.sub(r"\^(\w|\\circ)", r"^{\1}", tex)
    if pick.random() < 0.3:
        halves = "[" in tex or "]" in tex or r"\left(" in tex
        tex = tex if halves else tex.replace("(", r"\left(").replace(")", r"\right)")
    if pick.random() < 0.5:
        sign = pick.choice((r"\times ", r"\cdot ", r" \cdot ", "*", r"\,\times\,"))
        tex = re.sub(r"\\(?:cdot|times) ", lambda _: sign, tex)
    if pick.random() < 0.4:
        tex = re.sub(r"(?<=[\w})!])([+=-])(?=[\w\\(|])", r" \1 ", tex)
    if odd and pick.random() < 0.3:
        tex = re.sub(r"([+=]|\\times |\\cdot )", r"{}\1", tex)
    if pick.random() < 0.4:
        tex = thousands(pick, tex, ("{,}", ",", r"\,"))
    form = pick.choice(("@", "@", "@", "@", "@", " @ ", "@.", r"\displaystyle @", "{@}", r"\,@"))
    return form.replace("@", tex)


def mark(pick: random.Random, question: str, plain: bool) -> str:
    """The question in plain text, or with its formulas between delimiters."""
    once = question.count("«") == 1
    pairs = (("$", "$"), ("$", "$"), (r"\(", r"\)")) + ((("\\[", "\\]"),) if once else ())
    left, right = pick.choice(pairs)

    def show(found: re.Match) -> str:
        if plain:
            return plainly(pick, found[1])
        tex = found[1]
        if pick.random() < 0.4:
            tex = reprint(pick, tex).strip()
        return f"{left}{tex.rstrip('.')}{right}"

    body = re.sub("«(.*?)»", show, question)
    return pick.choice(OPENINGS) + body + pick.choice(CLOSINGS)


def say(pick: random.Random, answer: str) -> str:
    return pick.choice(SAYINGS).replace("@", answer)


def solve(pick: random.Random, task: Task, plain: bool) -> Case:
    """The task answered: by a result, by a copy of its formula, or by another value."""
    right = pick.random() < 0.5 or not (task.copies or task.misses)
    question = mark(pick, task.question, plain)
    chained = bool(task.chain)
    at = pick.random()
    if right:
        answer = reprint(pick, pick.choice(task.results))
        end = pick.choice(task.ends or task.results[:2])
        if chained and at < 0.15:
            answer = reprint(pick, f"{task.chain}={end}")
        elif chained and at < 0.25:
            answer = reprint(pick, end)
            text = rf"${task.chain} = \boxed{{{answer}}}$"
            return Case(text, task.gold, True, question)
        return Case(say(pick, answer), task.gold, True, question)
    if not task.copies or (task.misses and at < 0.2):
        answer = reprint(pick, pick.choice(task.misses))
        if chained and at < 0.05:
            answer = reprint(pick, f"{task.chain}={pick.choice(task.misses)}")
        return Case(say(pick, answer), task.gold, False, question)
    copy = pick.choice(task.copies)
    if at < 0.3:
        answer = plainly(pick, copy) if r"\mathrm" not in copy else copy
        answer = re.sub("(?<!\\\\)([%$])", r"\\\1", answer)
    else:
        answer = reprint(pick, copy, odd=True)
    named = re.search("[a-z]", re.sub(r"\\[a-z]+", "", task.gold))
    if chained and at > 0.9:
        answer = reprint(pick, f"{task.chain}={copy}")
    elif "=" not in copy and at > 0.8:
        around = ["@ =", r"\left(@\right)", "(@)"] + (["x = @"] if chained and not named else [])
        answer = pick.choice(around).replace("@", copy)
    elif chained and at > 0.75:
        return Case(rf"${task.chain} = \boxed{{{answer}}}$", task.gold, False, question)
    return Case(say(pick, answer), task.gold, False, question)


# Numbers and polynomials


def decimal(value: Fraction) -> str:
    return f"{Decimal(value.numerator) / Decimal(value.denominator):f}"


def fraction(value: Fraction) -> str:
    sign, top = "-" if value < 0 else "", abs(value.numerator)
    return rf"{sign}\frac{{{top}}}{{{value.denominator}}}"


def is_finite(value: Fraction) -> bool:
    bottom = value.denominator
    for prime in (2, 5):
        while bottom % prime == 0:
            bottom //= prime
    return bottom == 1


def mixed(value: Fraction) -> str:
    whole, rest = divmod(value.numerator, value.denominator)
    return rf"{whole}\frac{{{rest}}}{{{value.denominator}}}"


def printed(value: Fraction | int) -> str:
    value = Fraction(value)
    return f"{value.numerator}" if value.denominator == 1 else fraction(value)


def forms(value: Fraction | int) -> list[str]:
    """Correct prints of a number, the usual ones first."""
    value = Fraction(value)
    if value.denominator == 1:
        n = value.numerator
        return [f"{n}", f"{n}", f"{n}", f"{n}.0", f"x={n}", rf"\mathbf{{{n}}}", rf"\text{{{n}}}"]
    found = [fraction(value), fraction(value), f"{value}"]
    found += [decimal(value)] if is_finite(value) else []
    return found + ([mixed(value)] if value > 1 else [])


def beside(value: Fraction | int) -> list[str]:
    """Prints of other numbers near a number."""
    near = [Fraction(value) + step for step in (1, -1, 10)] + [10 * Fraction(value)]
    near += [1 / Fraction(value)] if value else []
    return [printed(one) for one in near if one != value]


def terms(var: str, *coefficients: int) -> list[str]:
    """Signed terms of a polynomial, the highest power first."""
    found = []
    for power, c in zip(range(len(coefficients) - 1, -1, -1), coefficients, strict=True):
        letter = "" if power == 0 else var if power == 1 else f"{var}^{power}"
        size = "" if abs(c) == 1 and power else f"{abs(c)}"
        found += [f"{'-' if c < 0 else '+'}{size}{letter}"] if c else []
    return found


def joined(signed: list[str]) -> str:
    return "".join(signed).removeprefix("+")


def poly(var: str, *coefficients: int) -> str:
    return joined(terms(var, *coefficients))


def turned(var: str, *coefficients: int) -> str:
    return joined(terms(var, *coefficients)[::-1])


def times(*numbers: str | int) -> str:
    return r"\cdot ".join(f"{n}" for n in numbers)


def root(n: int) -> str:
    return rf"\sqrt{{{n}}}"


# Tasks whose formula is to be worked out


ASKS = ("Compute «@».", "What is «@»?", "Evaluate «@».", "Calculate «@».", "Work out «@».",
    "Find the value of «@».", "What is the value of «@»?", "Determine «@».")  # fmt: skip
SIMPLIFY = ("Simplify «@».", "Simplify the expression «@».", "Write «@» in simplest form.")


def ask(pick: random.Random, asks: tuple[str, ...], tex: str) -> str:
    return pick.choice(asks).replace("@", tex)


def number_task(
    pick: random.Random, copies: list[str], value: Fraction | int, more: tuple[str, ...] = ()
) -> Task:
    """A number to be computed; the first copy is the question's own."""
    question = ask(pick, ASKS, copies[0])
    misses = beside(value) + list(more)
    return Task(question, copies, printed(value), forms(value), misses, copies[0])


def product(pick: random.Random) -> Task:
    a, b = pick.randrange(3, 60), pick.randrange(3, 30)
    copies = [times(a, b), times(b, a), f"{a}({b})", f"({a})({b})", times(a, b)]
    return number_task(pick, copies, a * b)


def quotient(pick: random.Random) -> Task:
    q, b = pick.randrange(2, 90), pick.randrange(2, 16)
    copies = [rf"{q * b}\div {b}", rf"\frac{{{q * b}}}{{{b}}}", f"{q * b}/{b}"]
    return number_task(pick, copies, q)


def difference(pick: random.Random) -> Task:
    b, d = pick.randrange(3, 90), pick.randrange(2, 60)
    return number_task(pick, [f"{b + d}-{b}", f"-{b}+{b + d}"], d)


def large_sum(pick: random.Random) -> Task:
    a, b = pick.randrange(1001, 9000), pick.randrange(101, 90000)
    c = pick.randrange(11, 3000)
    if pick.random() < 0.5:
        return number_task(pick, [f"{a}+{b}", f"{b}+{a}"], a + b)
    return number_task(pick, [f"{a}+{b}+{c}", f"{c}+{a}+{b}", f"{b}+{a}+{c}"], a + b + c)


def order_of_operations(pick: random.Random) -> Task:
    a, b, c = pick.randrange(2, 40), pick.randrange(2, 15), pick.randrange(2, 15)
    bc = times(b, c)
    copies = [f"{a}+{bc}", f"{bc}+{a}", f"{a}+{times(c, b)}"]
    return number_task(pick, copies, a + b * c, (f"{a}+{b * c}",))


def root_sum(pick: random.Random) -> Task:
    r, t = pick.randrange(2, 16), pick.randrange(1, 40)
    copies = [f"{root(r * r)}+{t}", f"{t}+{root(r * r)}", f"{r * r}^{{1/2}}+{t}"]
    return number_task(pick, copies, r + t, (f"{r}+{t}",))


def power_sum(pick: random.Random) -> Task:
    b, k, t = pick.randrange(2, 8), pick.randrange(2, 5), pick.randrange(1, 30)
    copies = [f"{b}^{k}+{t}", f"{t}+{b}^{k}"]
    return number_task(pick, copies, b**k + t, (f"{b**k}+{t}",))


def power(pick: random.Random) -> Task:
    b, k = pick.randrange(2, 13), pick.randrange(2, 6)
    return number_task(pick, [f"{b}^{k}", times(*[b] * k)], b**k)


def fraction_sum(pick: random.Random) -> Task:
    p, q = (Fraction(pick.randrange(1, 8), pick.choice((2, 3, 4, 5, 8, 9))) for _ in "ab")
    while p.denominator == 1 or q.denominator == 1 or p == q:
        p, q = (Fraction(pick.randrange(1, 8), pick.choice((2, 3, 4, 5, 8, 9))) for _ in "ab")
    a, b = fraction(p), fraction(q)
    copies = [f"{a}+{b}", f"{b}+{a}", f"{p}+{q}", f"{a}+{q}"]
    if pick.random() < 0.4:
        copies = [times(a, b), times(b, a), f"({a})({b})", rf"\left({a}\right)\cdot {b}"]
        return number_task(pick, copies, p * q)
    return number_task(pick, copies, p + q)


def share(pick: random.Random) -> Task:
    q = pick.randrange(3, 9)
    p, n = pick.randrange(2, q), q * pick.randrange(2, 20)
    while gcd(p, q) > 1:
        p = pick.randrange(2, q)
    part = rf"\frac{{{p}}}{{{q}}}"
    copies = [times(part, n), times(n, part), rf"{part}\text{{ of }}{n}", rf"{p}/{q}\cdot {n}"]
    task = number_task(pick, copies, p * n // q)
    return task._replace(question=ask(pick, ASKS[:5], rf"{part}\text{{ of }}{n}"))


def per_cent(pick: random.Random) -> Task:
    p, n = pick.randrange(5, 96, 5), 20 * pick.randrange(2, 40)
    copies = [rf"{p}\%\cdot {n}", rf"{p}\%\text{{ of }}{n}", rf"\frac{{{p}}}{{100}}\cdot {n}",
        rf"{decimal(Fraction(p, 100))}\cdot {n}"]  # fmt: skip
    task = number_task(pick, copies, p * n // 100)
    return task._replace(question=ask(pick, ASKS[:5], rf"{p}\%\text{{ of }}{n}"))


def factorials(pick: random.Random) -> Task:
    n = pick.randrange(4, 9)
    k = pick.randrange(2, n - 1)
    if pick.random() < 0.5:
        return number_task(pick, [f"{n}!", f"{{{n}}}!"], factorial(n), (f"{n - 1}!",))
    return number_task(pick, [rf"\binom{{{n}}}{{{k}}}"] * 2, comb(n, k))


def logarithm(pick: random.Random) -> Task:
    b, k = pick.choice((2, 3, 5, 10)), pick.randrange(2, 6)
    copies = [rf"\log_{{{b}}} {b**k}", rf"\log_{{{b}}}({b**k})", rf"\log_{b}{{{b**k}}}"]
    copies = copies[:2] if b == 10 else copies
    return number_task(pick, copies, k)


def trigonometry(pick: random.Random) -> Task:
    name, angle, value = pick.choice([("sin", 30, Fraction(1, 2)), ("cos", 60, Fraction(1, 2)),
        ("tan", 45, 1), ("sin", 90, 1), ("cos", 120, Fraction(-1, 2)), ("sin", 150, Fraction(1, 2)),
        ("tan", 135, -1), ("cos", 180, -1)])  # fmt: skip
    k = pick.randrange(2, 12)
    size = times(k, rf"\{name} {angle}^\circ")
    copies = [rf"\{name} {angle}^\circ", rf"\{name}({angle}^\circ)"]
    if pick.random() < 0.6:
        copies = [size, rf"{k}\{name} {angle}^\circ", rf"{k}\{name}({angle}^\circ)"]
        value *= k
    return number_task(pick, copies, value)


def absolute(pick: random.Random) -> Task:
    a, b = pick.sample(range(2, 40), 2)
    copies = [f"|{a}-{b}|", rf"\left|{a}-{b}\right|", rf"\lvert {a}-{b}\rvert"]
    return number_task(pick, copies, abs(a - b))


def running_sum(pick: random.Random) -> Task:
    n = pick.randrange(6, 60)
    copies = [rf"1+2+3+\cdots+{n}", rf"1+2+\cdots+{n}", rf"1+2+3+\ldots+{n}"]
    return number_task(pick, copies, n * (n + 1) // 2)


def complex_product(pick: random.Random) -> Task:
    a, b, c = (pick.randrange(1, 9) for _ in range(3))
    re_, im = a * c - b, a + b * c  # of (a+bi)(c+i)
    while re_ == 0:
        a += 1
        re_, im = a * c - b, a + b * c
    first, second = turned("i", b, a), turned("i", 1, c)
    copies = [f"({first})({second})", f"({second})({first})", rf"({first})\cdot ({second})"]
    gold, other = turned("i", im, re_), turned("i", im, re_ + 1)
    asks = (*ASKS[:4], "Multiply out «@».")
    return Task(
        ask(pick, asks, copies[0]), copies, gold, [gold, poly("i", im, re_)], [other], copies[0]
    )


def reduced(pick: random.Random) -> Task:
    """A fraction to be reduced; any unreduced form is incorrect."""
    value = Fraction(pick.randrange(1, 12), pick.randrange(2, 13))
    while value.denominator == 1:
        value = Fraction(pick.randrange(1, 12), pick.randrange(2, 13))
    k = pick.choice((2, 3, 4, 6, 10, 12))
    p, q = k * value.numerator, k * value.denominator
    copies = [rf"\frac{{{p}}}{{{q}}}", f"{p}/{q}", rf"{p}\div {q}", rf"\frac{{{p}}}{{{q}}}"]
    misses = [*beside(value), rf"\frac{{{2 * p}}}{{{2 * q}}}"]
    asks = (*SIMPLIFY[:1], "Reduce «@» to lowest terms.", "Simplify the fraction «@».")
    question = ask(pick, asks, copies[0])
    results = [fraction(value), f"{value}"]
    return Task(question, copies, printed(value), results, misses, copies[0])


def surd(pick: random.Random) -> Task:
    s, m = pick.randrange(2, 10), pick.choice((2, 3, 5, 6, 7, 10))
    t = pick.randrange(1, 6)
    n = s * s * m
    if pick.random() < 0.6:
        copies, k = [root(n), f"{n}^{{1/2}}", root(n), rf"\sqrt{{{n}\,}}"], s
    else:
        a, b = (f"{t if t > 1 else ''}{root(m)}", root(n))
        copies, k = [f"{b}+{a}", f"{a}+{b}"], s + t
    results = [f"{k}{root(m)}", times(k, root(m)), f"{root(m)}\\cdot {k}"]
    misses = [f"{k + 1}{root(m)}", root((k + 1) ** 2 * m)] + ([f"{m}{root(k)}"] if m != k else [])
    return Task(ask(pick, SIMPLIFY, copies[0]), copies, results[0], results, misses, copies[0])


FACTOR = ("Factor «@».", "Factor «@» completely.", "Factorise «@».", "Factor the polynomial «@».")
EXPAND = ("Expand «@».", "Multiply out «@».", "Expand the product «@».", "Expand and simplify «@».")
LETTERS = "xyzntab"


def two_roots(pick: random.Random) -> tuple[str, int, int]:
    a, b = pick.sample([n for n in range(-9, 10) if n], 2)
    while a + b == 0:
        a, b = pick.sample([n for n in range(-9, 10) if n], 2)
    return pick.choice(LETTERS), a, b


def factors(var: str, a: int, b: int) -> list[str]:
    one, two = poly(var, 1, a), poly(var, 1, b)
    return [f"({one})({two})", f"({two})({one})", rf"({one})\cdot ({two})",
        f"({turned(var, 1, a)})({two})"]  # fmt: skip


def factor_squares(pick: random.Random) -> Task:
    var, a = pick.choice(LETTERS), pick.randrange(2, 16)
    copies = [poly(var, 1, 0, -a * a), turned(var, 1, 0, -a * a), rf"{var}\cdot {var}-{a * a}"]
    results = factors(var, a, -a)
    misses = [f"({var}-{a})^2", f"({var}+{a})({var}-{a + 1})", f"({var}+{a})({var}+{a})"]
    question = ask(pick, FACTOR, copies[0])
    return Task(question, copies, pick.choice(results[:2]), results, misses, copies[0])


def factor_trinomial(pick: random.Random) -> Task:
    var, a, b = two_roots(pick)
    shape = (1, a + b, a * b)
    shuffled = joined(pick.sample(terms(var, *shape), 3))
    copies = [poly(var, *shape), turned(var, *shape), shuffled]
    results = factors(var, a, b)
    misses = factors(var, -a, -b)[:2] + factors(var, a, b + 10)[:2]
    return Task(ask(pick, FACTOR, copies[0]), copies, results[0], results, misses, copies[0])


def expand(pick: random.Random) -> Task:
    var, a, b = two_roots(pick)
    shape = (1, a + b, a * b)
    copies = factors(var, a, b)
    results = [poly(var, *shape), turned(var, *shape), joined(pick.sample(terms(var, *shape), 3))]
    misses = [poly(var, 1, a + b, a * b + 1), poly(var, 1, -a - b, a * b), f"{var}^2{a * b:+d}"]
    return Task(ask(pick, EXPAND, copies[0]), copies, results[0], results, misses, copies[0])


def expand_square(pick: random.Random) -> Task:
    var, a = pick.choice(LETTERS), pick.choice((-7, -5, -4, -3, -2, 2, 3, 4, 5, 6, 9))
    inner = poly(var, 1, a)
    copies = [f"({inner})^2", f"({turned(var, 1, a)})^2", f"({inner})({inner})"]
    results = [poly(var, 1, 2 * a, a * a), turned(var, 1, 2 * a, a * a)]
    misses = [f"{var}^2+{a * a}", poly(var, 1, -2 * a, a * a), poly(var, 1, a, a * a)]
    return Task(ask(pick, EXPAND, copies[0]), copies, results[0], results, misses, copies[0])


def collect(pick: random.Random) -> Task:
    var, k, a = pick.choice(LETTERS), pick.randrange(3, 9), pick.randrange(1, 9)
    m = pick.randrange(1, k - 1)
    rest = poly(var, m, 0)
    inner, other = poly(var, 1, a), turned(var, 1, a)
    copies = [f"{k}({inner})-{rest}", f"{k}({other})-{rest}", f"-{rest}+{k}({inner})",
        rf"{k}\cdot ({inner})-{rest}"]  # fmt: skip
    shape = (k - m, k * a)
    misses = [poly(var, k - m, a), poly(var, k + m, k * a), poly(var, k - m, k * a + 1)]
    results = [poly(var, *shape), turned(var, *shape)]
    asks = (*SIMPLIFY[:2], "Expand and simplify «@».")
    return Task(ask(pick, asks, copies[0]), copies, results[0], results, misses, copies[0])


def powers(pick: random.Random) -> Task:
    var, a, b = pick.choice(LETTERS), pick.randrange(2, 9), pick.randrange(2, 9)
    x, y = f"{var}^{a}", f"{var}^{b}"
    if pick.random() < 0.5:
        copies, total = [times(x, y), times(y, x), x + y, y + x, rf"({x})({y})"], a + b
    else:
        copies, total = [f"({x})^{b}", rf"\left({x}\right)^{b}"], a * b
    miss = a * b if total == a + b else a + b
    misses = [f"{var}^{{{n}}}" for n in {miss, total + 1} - {total}]
    gold = f"{var}^{{{total}}}"
    return Task(ask(pick, SIMPLIFY[:2], copies[0]), copies, gold, [gold], misses, copies[0])


def cancel(pick: random.Random) -> Task:
    var, a = pick.choice(LETTERS), pick.randrange(2, 13)
    top, turned_top = poly(var, 1, 0, -a * a), turned(var, 1, 0, -a * a)
    copies = [rf"\frac{{{top}}}{{{var}-{a}}}", rf"\frac{{{turned_top}}}{{{var}-{a}}}",
        f"({top})/({var}-{a})", rf"\frac{{{top}}}{{-{a}+{var}}}"]  # fmt: skip
    results = [f"{var}+{a}", f"{a}+{var}", rf"({var}+{a})"]
    misses = [f"{var}-{a}", f"{var}+{a + 1}", f"{var}^2+{a}"]
    return Task(ask(pick, SIMPLIFY[:2], copies[0]), copies, results[0], results, misses, copies[0])


def integral(pick: random.Random) -> Task:
    b, k = 2 * pick.randrange(1, 8), pick.randrange(1, 5)
    body = "x" if k == 1 else f"{k}x"
    copies = [rf"\int_0^{{{b}}} {body}\,dx", rf"\int_{{0}}^{{{b}}}{body} dx",
        rf"\int\limits_0^{{{b}}} {body}\,\mathrm{{d}}x"]  # fmt: skip
    return number_task(pick, copies, k * b * b // 2)


def sigma(pick: random.Random) -> Task:
    n, k = pick.randrange(3, 20), pick.randrange(2, 6)
    copies = [rf"\sum_{{j=1}}^{{{n}}} {k}j", rf"\sum\limits_{{j=1}}^{{{n}}}{k}j",
        rf"\sum_{{j=1}}^{{{n}}} ({k}j)", rf"{k}\sum_{{j=1}}^{{{n}}} j"]  # fmt: skip
    return number_task(pick, copies, k * n * (n + 1) // 2)


def determinant(pick: random.Random) -> Task:
    a, b, c, d = pick.sample(range(1, 12), 4)
    while a * d == b * c:
        a, b, c, d = pick.sample(range(1, 12), 4)
    inside = rf"{a} & {b} \\ {c} & {d}"
    copies = [rf"\begin{{vmatrix}} {inside} \end{{vmatrix}}", f"{times(a, d)}-{times(b, c)}",
        rf"\det\begin{{pmatrix}} {inside} \end{{pmatrix}}"]  # fmt: skip
    return number_task(pick, copies, a * d - b * c)


NUMERIC = (product, quotient, difference, large_sum, order_of_operations, root_sum, power_sum,
    power, fraction_sum, share, per_cent, factorials, logarithm, trigonometry, absolute,
    running_sum, reduced, surd)  # fmt: skip
ALGEBRA = (complex_product, factor_squares, factor_trinomial, expand, expand_square, collect,
    powers, cancel)  # fmt: skip
LATEX_ONLY = (integral, sigma, determinant)


# Tasks whose answer stands in the question


def larger(pick: random.Random) -> Task:
    """Two formulas are compared, and the answer is one of them."""
    a, b, k = pick.randrange(3, 13), pick.randrange(3, 13), pick.randrange(2, 5)
    tex, value = pick.choice([(times(a, b), a * b), (f"{a}^{k}", a**k), (f"{a}+{b}", a + b),
        (rf"{a * b}\div {a}", b)])  # fmt: skip
    other = value + pick.choice((-2, -1, 1, 3))
    first, second = pick.sample((tex, f"{other}"), 2)
    word = "larger" if value > other else "smaller"
    asks = (f"Which is {word}, «{first}» or «{second}»?",
        f"Which of «{first}» and «{second}» is {word}?",
        f"Tom compares «{first}» with «{second}». Which one is {word}?")  # fmt: skip
    return Task(pick.choice(asks), [], tex, [tex], [f"{other}", f"{other + 20}"])


def factors_or_not(pick: random.Random) -> Task:
    """Two polynomials are named, and the answer is one of them as it stands."""
    var, a = pick.choice(LETTERS), pick.randrange(2, 13)
    minus, plus = f"{var}^2-{a * a}", f"{var}^2+{a * a}"
    first, second = pick.sample((minus, plus), 2)
    if pick.random() < 0.5:
        question = f"Which of «{first}» and «{second}» factors over the integers?"
        return Task(question, [], minus, [minus], [plus, f"{var}^2-{a * a + 1}"])
    question = f"Which of «{first}» and «{second}» has no real root?"
    return Task(question, [], plus, [plus, turned(var, 1, 0, a * a)], [minus])


def simple_already(pick: random.Random) -> Task:
    """The formula cannot be made simpler, and the gold repeats it."""
    value = Fraction(pick.randrange(1, 12), pick.randrange(2, 13))
    while value.denominator == 1:
        value = Fraction(pick.randrange(1, 12), pick.randrange(2, 13))
    p, q, m = value.numerator, value.denominator, pick.choice((2, 3, 5, 6, 7, 10, 11, 15))
    var, a = pick.choice("xyz"), pick.randrange(1, 9)
    return pick.choice([
        Task(f"Simplify «{fraction(value)}».", [], fraction(value), [fraction(value), f"{value}"],
             [rf"\frac{{{2 * p}}}{{{2 * q}}}", rf"\frac{{{q}}}{{{p}}}"] if p > 1 else
             [rf"\frac{{{2 * p}}}{{{2 * q}}}", f"{q}"]),
        Task(f"Simplify «{root(m)}», if possible.", [], root(m), [root(m)],
             [root(m + 1), f"{m}", f"2{root(m)}"]),
        Task(f"Factor «{var}^2+{a * a}» over the integers, or repeat it if it does not factor.",
             [], f"{var}^2+{a * a}", [f"{var}^2+{a * a}", f"{a * a}+{var}^2"],
             [f"({var}+{a})^2", f"({var}+{a})({var}-{a})"]),
        Task(f"Simplify «{var}+{a}», if possible.", [], f"{var}+{a}",
             [f"{var}+{a}", f"{a}+{var}"], [f"{a}{var}" if a > 1 else f"2{var}", f"{a + 1}{var}"]),
    ])  # fmt: skip


THINGS = ("eggs", "pens", "stickers", "apples", "tickets")


def named_number(pick: random.Random) -> Task:
    """A number of the question is the answer."""
    n, m, thing = pick.randrange(11, 90), pick.randrange(2, 9), pick.choice(THINGS)
    five = 5 * pick.randrange(3, 30)
    one, two = five + pick.choice((1, 2)), five + pick.choice((3, 4, 6))
    listed = pick.sample((f"«{five}»", f"«{one}»", f"«{two}»"), 3)
    value = Fraction(pick.randrange(1, 9), pick.choice((7, 9, 11)))
    while value.denominator == 1:
        value = Fraction(pick.randrange(1, 9), pick.choice((7, 9, 11)))
    counted = [f"{n}", f"{n}", rf"{n}\text{{ {thing}}}", f"{n}.0"]
    return pick.choice([
        Task(f"There are «{n}» {thing} in a box, and «{m}» more come in. Then «{m}» are sold. "
             f"How many {thing} are in the box now?", [f"{n}+{m}-{m}"], f"{n}", counted,
             [f"{n + m}", f"{n - m}"]),
        Task(f"There are «{n}» {thing} on a table. How many {thing} are on the table?", [],
             f"{n}", counted, [f"{n + 1}", f"{n - 1}"]),
        Task(f"Which of {listed[0]}, {listed[1]} and {listed[2]} is divisible by 5?", [],
             f"{five}", [f"{five}", f"{five}.0"], [f"{one}", f"{two}"]),
        Task(f"What is the value of «{n}»?", [], f"{n}", forms(n), beside(n)),
        Task(f"If «x+{m}={n}+{m}», what is x?", [f"{n}+{m}-{m}"], f"{n}", forms(n), [f"{n + m}"]),
        Task(f"The slope of a line is «{fraction(value)}». What is the slope of a parallel line?",
             [], fraction(value), [fraction(value), f"{value}"], beside(value)),
        Task(f"What is the absolute value of «{fraction(value)}»?", [], fraction(value),
             [fraction(value), f"{value}"], ["-" + fraction(value), *beside(value)]),
    ])  # fmt: skip


def shared_part(pick: random.Random) -> Task:
    """The result is a part of the question's formula; the whole formula is a copy."""
    n, k, m = pick.randrange(3, 90), pick.randrange(2, 9), pick.choice((2, 3, 5, 6, 7))
    var, a, b = pick.choice("xyz"), pick.randrange(2, 9), pick.randrange(2, 9)
    p, q = Fraction(1, pick.choice((2, 4, 5))), Fraction(2, pick.choice((3, 7, 9)))
    r, pf, qf = root(m), fraction(p), fraction(q)
    inner = f"{var}+{a}"
    return pick.choice([
        number_task(pick, [times(n, 1), times(1, n)], n),
        number_task(pick, [f"{n}-0", f"0+{n}"], n),
        number_task(pick, [f"{n}^1", f"{n}^{{1}}"], n),
        number_task(pick, [f"{pf}+{qf}-{qf}", f"{qf}+{pf}-{qf}", f"{p}+{q}-{q}"], p),
        number_task(pick, [f"{n}+{k}-{k}", f"{k}+{n}-{k}"], n),
        Task(ask(pick, SIMPLIFY, f"{k + 1}{r}-{k}{r}"), [f"{k + 1}{r}-{k}{r}",
             f"-{k}{r}+{k + 1}{r}"], r, [r], [f"2{r}", f"{m}"]),
        Task(ask(pick, SIMPLIFY, rf"\frac{{{k}{r}}}{{{k}}}"), [rf"\frac{{{k}{r}}}{{{k}}}",
             f"{k}{r}/{k}"], r, [r], [f"{k}{r}", f"{m}"]),
        Task(ask(pick, SIMPLIFY[:2], rf"\frac{{{k}({inner})}}{{{k}}}"),
             [rf"\frac{{{k}({inner})}}{{{k}}}", rf"\frac{{({inner})\cdot {k}}}{{{k}}}"], inner,
             [inner, f"{a}+{var}"], [f"{k}({inner})", f"{var}-{a}"]),
        Task(ask(pick, SIMPLIFY[:2], f"({inner})+({var}+{b})-({var}+{b})"),
             [f"({inner})+({var}+{b})-({var}+{b})", f"({var}+{b})+({inner})-({var}+{b})"], inner,
             [inner, f"{a}+{var}"], [f"{var}+{a + 1}", f"{var}-{a}"]),
        Task(ask(pick, FACTOR, f"({inner})({var}+{b + 9})+({inner})"),
             [f"({inner})({var}+{b + 9})+({inner})", f"({inner})+({inner})({var}+{b + 9})"],
             f"({inner})({var}+{b + 10})", factors(var, a, b + 10), factors(var, a, b + 9)),
    ])  # fmt: skip


def unchanged(pick: random.Random) -> Task:
    """The operation gives the question's own formula back."""
    a, b = pick.randrange(2, 12), pick.randrange(2, 9)
    line, z = f"{b}x+{a}", f"{a}+{b}i"
    return pick.choice([
        Task(f"What is the derivative of «{b}e^x» with respect to «x»?", [], f"{b}e^x",
             [f"{b}e^x", rf"{b}\cdot e^x", f"e^x\\cdot {b}"], [f"{b}xe^x", f"{b + 1}e^x", "e^x"]),
        Task(f"Find the inverse function of «f(x)={a}-x».", [], f"{a}-x",
             [f"{a}-x", f"-x+{a}"], [f"x-{a}", f"x+{a}", f"{a + 1}-x"]),
        Task(f"What is the conjugate of the conjugate of «{z}»?", [], z,
             [z, f"{b}i+{a}"], [f"{a}-{b}i", f"-{a}+{b}i"]),
        Task(f"The line «y={line}» is mirrored in the y-axis, and then again. What is its "
             "equation now?", [], f"y={line}", [f"y={line}", f"y={a}+{b}x", f"{line}=y"],
             [f"y=-{b}x+{a}", f"y={b}x-{a}", "y=y"]),
        Task(f"Add «0» to «{line}». What is the sum?", [], line,
             [line, f"{a}+{b}x"], [f"{b}x-{a}", f"{b + 1}x+{a}"]),
    ])  # fmt: skip


KEPT = (larger, factors_or_not, simple_already, named_number, shared_part, unchanged)


def plain_copies(pick: random.Random) -> Case:
    """The formula of a question in plain text is no answer, and its result is."""
    make = pick.choice(NUMERIC + ALGEBRA if pick.random() < 0.75 else KEPT)
    return solve(pick, make(pick), plain=True)


def other_braces(pick: random.Random) -> Case:
    """The formula of a question in another print of LaTeX is no answer."""
    groups = (NUMERIC, NUMERIC, NUMERIC, ALGEBRA, ALGEBRA, LATEX_ONLY, KEPT, KEPT)
    return solve(pick, pick.choice(pick.choice(groups))(pick), plain=False)


# Conversions


UNITS = [
    ("miles", "mi", "yards", "yd", 1760), ("kilometers", "km", "meters", "m", 1000),
    ("hours", "h", "minutes", "min", 60), ("minutes", "min", "seconds", "s", 60),
    ("kilograms", "kg", "grams", "g", 1000), ("feet", "ft", "inches", "in", 12),
    ("meters", "m", "centimeters", "cm", 100), ("liters", "L", "milliliters", "mL", 1000),
    ("weeks", "weeks", "days", "days", 7), ("days", "days", "hours", "h", 24),
    ("yards", "yd", "feet", "ft", 3), ("pounds", "lb", "ounces", "oz", 16),
    ("centimeters", "cm", "millimeters", "mm", 10),
]  # fmt: skip
UNIT_ASKS = ("Convert «@» # to %.", "Express «@» # in %.", "How many % are «@» #?",
    "Write «@» # in %.", "Change «@» # into %.", "Convert «@\\text{ #}» to %.")  # fmt: skip


def united(value: Fraction, long: str, short: str) -> list[str]:
    n = decimal(value)
    return [rf"{n}\text{{ {long}}}", rf"{n}\ \mathrm{{{short}}}", rf"{n}\,\text{{{short}}}"]


def units(pick: random.Random) -> Task:
    big, b, small, s, factor = pick.choice(UNITS)
    n = Fraction(pick.randrange(2, 60))
    n += Fraction(1, 2) if pick.random() < 0.3 and factor % 2 == 0 else 0
    value = n * factor
    if pick.random() < 0.4:
        big, b, small, s, n, value = small, s, big, b, value, n
    question = pick.choice(UNIT_ASKS).replace("@", decimal(n)).replace("#", big)
    results = [decimal(value), *united(value, small, s)]
    copies = [*united(n, big, b), decimal(n)]
    misses = [*united(n, small, s)[:2], *united(value + 1, small, s), decimal(value + 10)]
    gold = pick.choice((results[0], results[0], results[1]))
    misses += united(value, big, b)[:2] if gold == results[1] else []
    ends = tuple(results[1:])
    return Task(question.replace("%", small), copies, gold, results, misses, copies[0], ends)


def money(pick: random.Random) -> Task:
    n = pick.randrange(2, 90)
    dollars = [f"{n}", rf"\${n}", rf"{n}\text{{ dollars}}", rf"\${n}.00"]
    cents = [f"{100 * n}", rf"{100 * n}\text{{ cents}}", rf"{100 * n}\ \text{{cents}}"]
    if pick.random() < 0.5:
        asks = (
            f"Convert «{cents[0]}» cents to dollars.",
            f"How many dollars are «{cents[0]}» cents?",
        )
        copies, results = cents, dollars
        misses = [rf"{100 * n}\text{{ dollars}}", rf"\${n + 1}", f"{10 * n}"]
    else:
        asks = (f"Convert «{n}» dollars to cents.", f"How many cents are «{n}» dollars?")
        copies, results = dollars, cents
        misses = [rf"{n}\text{{ cents}}", f"{1000 * n}", rf"{100 * n + 1}\text{{ cents}}"]
    gold, question = pick.choice(results[:2]), pick.choice(asks)
    misses += [rf"{n}\text{{ cents}}"] if gold == rf"\${n}" else []
    return Task(question, copies, gold, results, misses, copies[1], tuple(results[1:]))


def angles(pick: random.Random) -> Task:
    degrees = pick.choice((30, 36, 45, 60, 72, 90, 120, 135, 150, 180, 210, 240, 270, 300, 360))
    turn = Fraction(degrees, 180)
    p, q = turn.numerator, turn.denominator
    top = r"\pi" if p == 1 else rf"{p}\pi"
    tex = top if q == 1 else rf"\frac{{{top}}}{{{q}}}"
    slashed = top if q == 1 else f"{top}/{q}"
    radians = [tex, slashed, rf"{tex}\text{{ radians}}", rf"{tex}\text{{ rad}}"]
    radians += [] if q == 1 else [rf"\frac{{{p}}}{{{q}}}\pi"]
    arcs = [rf"{degrees}^\circ", f"{degrees}", rf"{degrees}\text{{ degrees}}"]
    if pick.random() < 0.5:
        asks = (f"Convert «{tex}» radians to degrees.", f"Express «{tex}» radians in degrees.",
            f"How many degrees are «{tex}» radians?")  # fmt: skip
        gold = pick.choice(arcs[:2])
        misses = [rf"({tex})^\circ", rf"{degrees + 10}^\circ", f"{degrees // 2}"]
        misses += [rf"{degrees}\text{{ radians}}"] if gold == arcs[0] else []
        return Task(pick.choice(asks), radians, gold, arcs, misses, tex, (arcs[0], arcs[2]))
    asks = (f"Convert «{degrees}» degrees to radians.", rf"Convert «{degrees}^\circ» to radians.",
        rf"Write «{degrees}^\circ» in radians.")  # fmt: skip
    misses = [rf"{degrees}\text{{ radians}}", rf"({tex})^\circ", rf"\frac{{\pi}}{{{q + 10}}}"]
    return Task(pick.choice(asks), arcs, tex, radians, misses, arcs[0])


def parts(pick: random.Random) -> Task:
    """A number as a fraction, a decimal or a per cent."""
    value = Fraction(pick.randrange(1, 20), pick.choice((4, 5, 8, 20, 25)))
    while value.denominator == 1 or value >= 1:
        value = Fraction(pick.randrange(1, 20), pick.choice((4, 5, 8, 20, 25)))
    hundred = 100 * value
    fractions = [fraction(value), f"{value}"]
    decimals = [decimal(value), decimal(value) + "0", decimal(value).removeprefix("0")]
    per_cents = [rf"{decimal(hundred)}\%"]
    kinds = {"a fraction": fractions, "a decimal": decimals, "a percent": per_cents}
    source, target = pick.sample(list(kinds), 2)
    asked = f"{kinds[source][0]}"
    asks = (f"Write «{asked}» as {target}.", f"Express «{asked}» as {target}.",
        f"Convert «{asked}» to {target}.")  # fmt: skip
    question, misses = pick.choice(asks), []
    other = value + Fraction(1, 100)
    if target == "a fraction":
        misses = [fraction(other)] + ([fraction(1 / value)] if value.numerator > 1 else [])
        if pick.random() < 0.5:
            question = question[:-1] + " in lowest terms."
            misses += [rf"\frac{{{3 * value.numerator}}}{{{3 * value.denominator}}}"]
    elif target == "a decimal":
        misses = [decimal(value / 10), decimal(other)]
    else:
        misses = [rf"{decimal(100 * other)}\%", rf"{decimal(value)}\%", rf"{decimal(10 * value)}\%"]
    results = kinds[target] + ([decimal(hundred)] if target == "a percent" else [])
    ends = tuple(kinds[target])
    return Task(question, kinds[source], results[0], results, misses, asked, ends)


def digits_of(n: int, base: int) -> str:
    return (digits_of(n // base, base) if n >= base else "") + f"{n % base}"


WORDS = {2: "two", 3: "three", 5: "five", 8: "eight"}


def bases(pick: random.Random) -> Task:
    n, base = pick.randrange(9, 200), pick.choice(list(WORDS))
    digits, word = digits_of(n, base), WORDS[base]
    there = [f"{digits}_{{{base}}}", f"({digits})_{{{base}}}", rf"{digits}_{{\text{{{word}}}}}"]
    ten = [f"{n}", f"{n}_{{10}}"]
    if pick.random() < 0.6:
        asks = (f"Convert «{there[0]}» to base ten.", f"Write «{there[0]}» in base 10.",
            f"What is the base-ten value of «{there[0]}»?")  # fmt: skip
        misses = [f"{n + 1}", f"{n + base}", digits]
        return Task(pick.choice(asks), there, f"{n}", ten, misses, there[0])
    asks = (f"Convert «{n}» to base {word}.", f"Write «{n}_{{10}}» in base {base}.")
    misses = [f"{digits_of(n + 1, base)}_{{{base}}}", f"{digits}_{{{base + 1}}}"]
    gold = pick.choice((there[0], digits))
    results = there[:2] if gold != digits else [digits, there[0]]
    return Task(pick.choice(asks), ten, gold, results, misses, ten[1], tuple(there[:2]))


def improper(pick: random.Random) -> Task:
    value = Fraction(pick.randrange(5, 60), pick.randrange(2, 10))
    while value < 1 or value.denominator == 1:
        value = Fraction(pick.randrange(5, 60), pick.randrange(2, 10))
    whole = value.numerator // value.denominator
    rest = value - whole
    both = [mixed(value), f"{whole} {rest}", rf"{whole}\,{fraction(rest)}"]
    tops = [fraction(value), f"{value}"]
    if pick.random() < 0.5:
        asks = ("Write «@» as an improper fraction.", "Convert «@» to an improper fraction.",
            "Rewrite the mixed number «@» as an improper fraction.")  # fmt: skip
        copies = [*both, f"{whole}+{fraction(rest)}"]
        misses = [fraction(value + rest), fraction(whole * rest)]
        misses = [one for one in misses if one != tops[0] and "{1}" not in one] + beside(value)
        return Task(ask(pick, asks, both[0]), copies, tops[0], tops, misses, both[0])
    asks = ("Write «@» as a mixed number.", "Convert the improper fraction «@» to a mixed number.")
    misses = [mixed(value + 1), *([mixed(1 + whole + 1 - rest)] if rest != Fraction(1, 2) else [])]
    return Task(ask(pick, asks, tops[0]), tops, both[0], both, misses, tops[0])


def ratios(pick: random.Random) -> Task:
    a, b = pick.sample(range(1, 14), 2)
    while gcd(a, b) > 1:
        a, b = pick.sample(range(1, 14), 2)
    k = pick.choice((2, 3, 4, 5, 6, 10))
    p, q = k * a, k * b
    copies = [f"{p}:{q}", f"{p} : {q}", rf"{p}\text{{ to }}{q}", rf"\frac{{{p}}}{{{q}}}"]
    asks = ("Simplify the ratio «@».", "Write the ratio «@» in simplest form.",
        "Express the ratio «@» in lowest terms.")  # fmt: skip
    results = [f"{a}:{b}", f"{a} : {b}", rf"{a}\colon {b}"]
    misses = [f"{b}:{a}", f"{a + 20}:{b}", f"{2 * p}:{2 * q}"]
    return Task(ask(pick, asks, f"{p}:{q}"), copies, f"{a}:{b}", results, misses)


def temperatures(pick: random.Random) -> Task:
    c = pick.choice([n for n in range(-35, 120, 5) if n])
    f = 9 * c // 5 + 32
    pair = [(c, "C", "Celsius"), (f, "F", "Fahrenheit")]
    (n, s, source), (value, t, target) = pick.sample(pair, 2)
    copies = [rf"{n}^\circ\text{{{s}}}", rf"{n}^\circ {s}", f"{n}", rf"{n}^\circ\mathrm{{{s}}}"]
    results = [rf"{value}^\circ\text{{{t}}}", f"{value}", rf"{value}^\circ {t}", f"{value}"]
    misses = [rf"{n}^\circ\text{{{t}}}", rf"{value + 1}^\circ\text{{{t}}}", f"{value - 32}"]
    gold = pick.choice(results[:2])
    misses += [rf"{value}^\circ\text{{{s}}}"] if gold == results[0] else []
    question = f"Convert «{n}» degrees {source} to degrees {target}."
    return Task(question, copies, gold, results, misses)


def notations(pick: random.Random) -> Task:
    """Powers of ten, powers of a prime, and products of primes."""
    a, b, k = pick.randrange(1, 10), pick.randrange(1, 10), pick.randrange(3, 7)
    n = (10 * a + b) * 10 ** (k - 1)
    science = [rf"{a}.{b}\times 10^{k}", rf"{a}.{b}\cdot 10^{{{k}}}"]
    base, e = pick.choice((2, 3, 5, 7)), pick.randrange(3, 7)
    p, q = pick.sample((2, 3, 5, 7, 11), 2)
    i, j = pick.randrange(2, 4), pick.randrange(2, 4)
    m, primes = p**i * q**j, [times(f"{p}^{i}", f"{q}^{j}"), times(f"{q}^{j}", f"{p}^{i}")]
    return pick.choice([
        Task(f"Write «{n}» in scientific notation.", [f"{n}", f"{n}.0"], science[0], science,
             [rf"{a}.{b}\times 10^{{{k + 1}}}", rf"{b}.{a + 10}\times 10^{{{k}}}"]),
        Task(f"Write «{science[0]}» as an ordinary number without a power of ten.", science,
             f"{n}", [f"{n}", f"{n}.0"], [f"{10 * n}", f"{n // 10}"]),
        Task(f"Write «{base**e}» as a power of «{base}».", [f"{base**e}", f"{base**e}.0"],
             f"{base}^{e}", [f"{base}^{e}", f"{base}^{{{e}}}"], [f"{base}^{e + 1}", f"{e}"]),
        Task(f"Write «{m}» as a product of powers of primes.", [f"{m}", f"{m}.0"], primes[0],
             primes, [times(f"{p}^{i + 1}", f"{q}^{j}"), times(f"{p}^{i}", f"{q}^{j + 1}")]),
    ])  # fmt: skip


def roman(n: int) -> str:
    signs = [(90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    text = ""
    for value, sign in signs:
        text, n = text + sign * (n // value), n % value
    return text


def numerals(pick: random.Random) -> Task:
    n = pick.randrange(11, 90)
    letters = roman(n)
    latin = [letters, rf"\text{{{letters}}}", rf"\mathrm{{{letters}}}"]
    if pick.random() < 0.5:
        question = f"Convert the Roman numeral {letters} to an ordinary number."
        return Task(question, latin, f"{n}", [f"{n}", rf"\text{{{n}}}"], [f"{n + 1}", f"{n - 1}"])
    misses = [roman(n + 1), rf"\text{{{roman(n - 1)}}}"]
    return Task(f"Write «{n}» as a Roman numeral.", [f"{n}", f"{n}.0"], letters, latin, misses)


def rewritten(pick: random.Random) -> Task:
    """An expression or an equation that is to be rewritten in another form."""
    a, b, k = pick.randrange(2, 10), pick.randrange(2, 10), pick.randrange(3, 8)
    x, m = pick.choice("xyt"), pick.choice((2, 3, 5, 7, 11))
    c = b - a * k  # the line y - b = a(x - k)
    c, k = (c, k) if c else (c - a, k + 1)
    start = [f"y-{b}={a}(x-{k})", rf"{a}(x-{k})=y-{b}", rf"y-{b}={a}\cdot (x-{k})"]
    d, square = a * a + pick.choice((-1, 1, 2, 5)), f"({x}+{a})^2"
    rest = d - a * a
    logs = [rf"\log_{{{m}}} {m**k}={k}", rf"{k}=\log_{{{m}}} {m**k}", rf"\log_{{{m}}}({m**k})={k}"]
    top = rf"\frac{{{b}}}{{{root(m)}}}"
    over = rf"\frac{{{b}{root(m)}}}{{{m}}}"
    over = f"{b // m if b > m else ''}{root(m)}" if b % m == 0 else over
    single = [rf"\log {a * b}", rf"\log({a * b})"]
    two = [rf"\log {a}+\log {b}", rf"\log {b}+\log {a}", rf"\log({a})+\log({b})"]
    expanded = [poly(x, 1, 2 * a, d), turned(x, 1, 2 * a, d)]
    return pick.choice([
        Task(f"Rewrite «{start[0]}» in slope-intercept form.", start, f"y={a}x{c:+d}",
             [f"y={a}x{c:+d}", f"y={turned('x', a, c)}"], [f"y={a}x{c + 1:+d}", f"y=-{a}x{c:+d}"]),
        Task(f"Rewrite «{a}x+y={b}» in slope-intercept form.", [f"{a}x+y={b}", f"y+{a}x={b}",
             f"{b}={a}x+y"], f"y=-{a}x+{b}", [f"y=-{a}x+{b}", f"y={b}-{a}x"],
             [f"y={a}x+{b}", f"y=-{a}x-{b}"]),
        Task(f"Complete the square: «{expanded[0]}».", expanded, f"{square}{rest:+d}",
             [f"{square}{rest:+d}", f"({a}+{x})^2{rest:+d}"],
             [f"{square}{rest + 1:+d}" if rest != -1 else f"{square}-2", f"({x}-{a})^2{rest:+d}"]),
        Task(f"Write «{logs[0]}» in exponential form.", logs, f"{m}^{k}={m**k}",
             [f"{m}^{k}={m**k}", f"{m**k}={m}^{k}"],
             [f"{m}^{k + 1}={m**k}", f"{m**k}={m**k}", "1=1"]),
        Task(f"Rationalize the denominator of «{top}».", [top, f"{b}/{root(m)}"], over,
             [over, over.replace(r"\frac", r"\dfrac")], [rf"\frac{{{b + m}{root(m)}}}{{{m}}}"]),
        Task(f"Write «{two[0]}» as a single logarithm.", two, single[0], single,
             [rf"\log {a * b + 1}", rf"\log {a * b - 1}"]),
        Task(rf"Write «\sqrt{{{x}}}» as a power of «{x}».", [rf"\sqrt{{{x}}}",
             rf"\sqrt[2]{{{x}}}"], rf"{x}^{{\frac{{1}}{{2}}}}", [rf"{x}^{{\frac{{1}}{{2}}}}",
             f"{x}^{{1/2}}", f"{x}^{{0.5}}"], [f"{x}^2", f"{x}^{{-1/2}}", f"{x}^{{1/3}}"]),
        Task(f"Write «{x}^{{-{k}}}» with a positive exponent.", [f"{x}^{{-{k}}}"],
             rf"\frac{{1}}{{{x}^{k}}}", [rf"\frac{{1}}{{{x}^{k}}}", f"1/{x}^{k}"],
             [f"{x}^{k}", rf"\frac{{1}}{{{x}^{{{k + 1}}}}}"]),
        Task(rf"Express «\sin 2{x}» by sine and cosine of «{x}».", [rf"\sin 2{x}",
             rf"\sin(2{x})"], rf"2\sin {x}\cos {x}", [rf"2\sin {x}\cos {x}",
             rf"2\cos {x}\sin {x}", rf"2\sin({x})\cos({x})"], [rf"\sin {x}\cos {x}",
             rf"2\sin {x}"]),
    ])  # fmt: skip


def kept_digits(pick: random.Random) -> Task:
    """A conversion that leaves the digits as they are."""
    n, base = pick.randrange(20, 900), pick.choice((5, 8))
    digit, prime = pick.randrange(2, base), pick.choice((7, 11, 13, 17, 19, 23, 29, 31))
    a, b = pick.sample((2, 3, 5, 7, 11), 2)
    x = pick.choice("xyz")
    cubic = rf"{n}\text{{ cm}}^3"
    return pick.choice([
        Task(f"Convert «{digit}_{{{base}}}» to base ten.", [], f"{digit}",
             [f"{digit}", f"{digit}_{{10}}"], [f"{digit + 1}", f"{digit + base}"]),
        Task(f"Convert «{digit}» to base {WORDS[base]}.", [], f"{digit}",
             [f"{digit}", f"{digit}_{{{base}}}"], [f"{digit + base}", f"1{digit}"]),
        Task("Convert «-40» degrees Celsius to degrees Fahrenheit.", [], "-40",
             ["-40", r"-40^\circ\text{F}", "-40.0"], ["-8", "40", r"-72^\circ\text{F}"]),
        Task(f"Convert «{n}» milliliters to cubic centimeters.", [], f"{n}",
             [f"{n}", cubic, f"{n}.0"], [f"{10 * n}", f"{n + 1}"]),
        Task(f"Write «{prime}» as a product of primes, if it is not one itself.", [], f"{prime}",
             [f"{prime}"], [f"{prime + 2}", f"{prime - 1}"]),
        Task(f"Round «{n}» to the nearest whole number.", [], f"{n}", [f"{n}", f"{n}.0"],
             [f"{n + 1}", f"{n - 1}"]),
        Task(f"Simplify the ratio «{a}:{b}».", [], f"{a}:{b}", [f"{a}:{b}", f"{a} : {b}"],
             [f"{b}:{a}", f"{2 * a}:{2 * b}"]),
        Task(f"Write «y={a}x+{b}» in slope-intercept form.", [], f"y={a}x+{b}",
             [f"y={a}x+{b}", f"y={b}+{a}x"], [f"y={b}x+{a}", f"y={a}x-{b}"]),
        Task("Convert «0» hours to minutes.", [], "0", ["0", r"0\text{ minutes}"], ["60", "1"]),
        Task(f"Expand «{a}{x}+{b}», if anything can be expanded.", [], f"{a}{x}+{b}",
             [f"{a}{x}+{b}", f"{b}+{a}{x}"], [f"{a}({x}+{b})", f"{a * b}{x}"]),
    ])  # fmt: skip


CONVERT = (units, units, units, money, angles, angles, parts, parts, bases, improper, ratios,
    temperatures, notations, numerals, rewritten, rewritten)  # fmt: skip
STATED = (reduced, surd, factor_squares, factor_trinomial, expand, expand_square, collect, powers,
    cancel, logarithm, root_sum, fraction_sum, simple_already)  # fmt: skip


def conversions(pick: random.Random) -> Case:
    """What is to be converted or rewritten is no answer, unless nothing changes."""
    group = pick.choices((CONVERT, STATED, (kept_digits,)), (7, 2, 2))[0]
    return solve(pick, pick.choice(group)(pick), plain=pick.random() < 0.5)


# True statements


def constants(n: int) -> list[str]:
    """A positive integer as roots and values of functions."""
    size = "" if n == 1 else f"{n}"
    return [root(n * n), rf"{size}\tan45^\circ", rf"{size}\tan 45^{{\circ}}",
        rf"{size}\sin 90^\circ", rf"{size}\cos 0"]  # fmt: skip


def truths(pick: random.Random) -> tuple[str, float | None]:
    """A true statement, and the number that it ends in."""
    n, b, k = pick.randrange(2, 13), pick.choice((2, 3, 5)), pick.randrange(2, 5)
    m, x = pick.choice((2, 3, 5, 7)), pick.choice("xyztn")
    return pick.choice([
        (r"\tan 45^\circ=1", 1), (rf"{root(m)}{root(m)}={m}", m), (r"\sin\pi=0", 0),
        (rf"\sqrt{{{n * n * m}}}={n}{root(m)}", n * m**0.5), (rf"\log_{b} {b**k}={k}", k),
        (f"{b}^{k}={b**k}", b**k), (f"{x}={x}", None), ("0=0", 0), (f"{n}={n}", n),
        (r"\frac{\pi}{4}=\arctan 1", 0.785398), (r"e^{i\pi}+1=0", 0), (r"\cos 0=1", 1),
        ("0.5+0.5=1", 1), (f"{x}+{n}={n}+{x}", None), (rf"{root(m)}^2\le {m}", m),
        (r"\ln e=1", 1), ("i^2=-1", -1), (f"{n}<{n + 1}", n + 1), (rf"{n}\ge {n}", n),
        (f"({x}+1)^2={x}^2+2{x}+1", None), (rf"\sin^2 {x}+\cos^2 {x}=1", 1), (f"|-{n}|={n}", n),
        (rf"\frac{{{2 * n}}}{{{4 * n}}}=\frac{{1}}{{2}}", 0.5), (r"\pi+\pi=2\pi", 6.283185),
        (f"{x}-{x}=0", 0), (f"2{x}={x}+{x}", None), (rf"{x}^2\ge 0", 0), (f"{n}!={n}!", None),
        (rf"0\cdot {x}=0", 0), (rf"{n}\ne {n + 1}", n + 1), ("1=1", 1), (f"{x}^2={x}^2", None),
        (rf"{root(n * n)}={n}", n), (rf"\frac{{{x}}}{{2}}=0.5{x}", None), ("a_n=a_n", None),
    ])  # fmt: skip


TINY = ("0000001", "00000001", "000000000001")
SLOPES = {root(k): k for k in (2, 3, 5, 7)}


def line(pick: random.Random) -> Task:
    slope = pick.choice([*SLOPES, "2", "3", "4", "5", "7"])
    b, sign = pick.randrange(1, 10), pick.choice((1, 1, -1))
    up, down = f"{slope}x", f"-{slope}x"
    if sign < 0:
        up, down = down, up
    signed = f"+{up}" if sign > 0 else up
    signed_down = down if sign > 0 else f"+{down}"
    gold = f"y={up}+{b}"
    moved = [f"{up}+{b}=y", f"y={b}{signed}", f"y-{b}={up}", f"y{signed_down}={b}",
        f"{up}-y+{b}=0", f"0={up}-y+{b}", f"-y={down}-{b}", f"2y=2({up}+{b})"]  # fmt: skip
    moved += [f"y={up}+{one}" for one in constants(b)]
    moved += [f"y{signed_down}={one}" for one in constants(b)[:2]]
    if slope in SLOPES:
        k = SLOPES[slope]
        middle = rf"\frac{{{k}}}{{{slope}}}x"
        moved += [f"y={'-' if sign < 0 else ''}{middle}+{b}", f"{slope}y={sign * k}x+{b}{slope}"]
    near = [f"y={up}+{b}.{tiny}" for tiny in TINY]
    near += [f"y={up}+{b}+10^{{-{pick.choice((12, 20, 40))}}}", f"y={up}-{b}"]
    near += [f"y={down}+{b}", f"x={slope}y+{b}", f"2y={up}+{b}", rf"y\ge {up}+{b}"]
    near += [f"y^2=({up}+{b})^2", f"xy=x({up}+{b})", f"y<{up}+{b}"]
    steep = up.replace("x", f".{pick.choice(TINY)}x")
    near += [] if slope in SLOPES else [f"y={steep}+{b}", f"{steep}+{b}=y"]
    empty = ["y=y", f"{up}+{b}={up}+{b}", f"0y=0({up}+{b})", f"y-y={up}{signed_down}", f"{b}={b}",
        f"y{signed}={up}+y", rf"0\cdot y=0\cdot ({up}+{b})", f"y+{b}={b}+y"]  # fmt: skip
    whole = f"{slope}" if sign > 0 else f"-{slope}"
    asks = (f"Find an equation of the line with slope «{whole}» through «(0,{b})».",
        f"A line has slope «{whole}» and y-intercept «{b}». What is its equation?",
        f"Which line has slope «{whole}» and passes through «(0,{b})»?")  # fmt: skip
    return Task(pick.choice(asks), empty, gold, [gold, *moved], near)


def sequence(pick: random.Random) -> Task:
    p, q = pick.randrange(2, 9), pick.randrange(1, 9)
    gold = f"a_n={p}n-{q}"
    results = [gold, f"a_n=-{q}+{p}n", f"{p}n-{q}=a_n", f"a_{{n}}={p}n-{q}"]
    results += [f"a_n={p}(n-1)+{p - q}"] if p > q else []
    results += [f"a_n={p}n-{one}" for one in constants(q)]
    near = [f"a_n={p}n-{q}.{tiny}" for tiny in TINY]
    near += [f"a_n={p}n+{q}", f"b_n={p}n-{q}", f"a_n={p + 1}n-{q}", f"a_n=n-{q}"]
    near += [rf"a_n\le {p}n-{q}", f"a_n={p}n^2-{q}", f"a_n={p}n-{q}+10^{{-30}}"]
    empty = ["a_n=a_n", f"{p}n-{q}={p}n-{q}", "n=n", "a_n-a_n=0", "0a_n=0", "a_1=a_1"]
    first = ", ".join(f"«{p * n - q}»" for n in (1, 2, 3))
    question = f"An arithmetic sequence «a_n» starts {first}. Find a formula for «a_n»."
    return Task(question, empty, gold, results, near)


def circle(pick: random.Random) -> Task:
    r = pick.randrange(2, 10)
    s = r * r
    gold = f"x^2+y^2={s}"
    results = [gold, f"{s}=x^2+y^2", f"x^2+y^2-{s}=0", f"y^2={s}-x^2", f"2x^2+2y^2={2 * s}",
        rf"\frac{{x^2}}{{{s}}}+\frac{{y^2}}{{{s}}}=1", f"y^2+x^2={s}", f"x^2+y^2={r}^2",
        rf"\frac{{x^2+y^2}}{{{s}}}=1", f"x^2={s}-y^2"]  # fmt: skip
    results += [f"x^2+y^2={one}" for one in constants(s)]
    near = [f"x^2+y^2={s}.{tiny}" for tiny in TINY]
    near += [f"x^2+y^2={r}", f"x^2-y^2={s}", f"(x+y)^2={s}", rf"x^2+y^2\le {s}", f"x^2+y^2={s + 1}"]
    near += [f"x(x^2+y^2)={s}x", f"x^2+1.{TINY[0]}y^2={s}", f"x^2+y^2={s}+10^{{-25}}", "x^2+y^2=0"]
    empty = ["x^2+y^2=x^2+y^2", "x^2+y^2=y^2+x^2", f"{s}={s}", "0(x^2+y^2)=0", f"{r}^2={s}",
        f"{root(s)}={r}", f"x^2+y^2-{s}=x^2+y^2-{s}", r"x^2+y^2\ge 0"]  # fmt: skip
    question = f"Find an equation of the circle with centre «(0,0)» and radius «{r}»."
    return Task(question, empty, gold, results, near)


SIGNS = {r"\le ": r"\ge ", r"\ge ": r"\le ", "<": ">", ">": "<"}


def bound(pick: random.Random) -> Task:
    sign, k, n = pick.choice(list(SIGNS)), pick.choice((2, 3, 5, 7)), pick.randrange(2, 10)
    c, value = pick.choice([(root(k), k**0.5), (f"{n}", float(n)), (r"\pi", 3.14159265358979)])
    gold = f"x{sign}{c}"
    left, right = ("[", "]") if "e" in sign else ("(", ")")
    low = sign in (r"\le ", "<")
    interval = rf"(-\infty,{c}{right}" if low else rf"{left}{c},\infty)"
    results = [gold, f"{c}{SIGNS[sign]}x", interval, rf"x\in {interval}"]
    results += [f"x{sign}\\frac{{{k}}}{{{root(k)}}}"] if c == root(k) else []
    results += [f"x{sign}{root(n * n)}"] if c == f"{n}" else []
    near = [f"x{other}{c}" for other in SIGNS if other != sign] + [f"{c}{sign}x"]
    near += [f"x{sign}{value:.9f}" if c != f"{n}" else f"x{sign}{n}.{TINY[0]}", f"x={c}"]
    near += [f"x{sign}{c}+10^{{-{pick.choice((9, 15, 30))}}}", f"x{sign}-{c}"]
    small = rf"{c}-1{sign}{c}" if low else rf"{c}+1{sign}{c}"
    empty = [small, f"{c}={c}", "x=x", r"x\le x", rf"{root(2)}^2\le 2", r"x^2\ge 0", "0=0"]
    shift = pick.randrange(2, 20)
    shifted = f"x+{shift}{sign}" + (f"{n + shift}" if c == f"{n}" else f"{c}+{shift}")
    return Task(f"Solve the inequality «{shifted}».", empty, gold, results, near)


def identity(pick: random.Random) -> Task:
    """The gold is a true statement itself."""
    b, k, x = pick.choice((2, 3, 5, 7)), pick.randrange(2, 6), pick.choice("xyt")
    n, m = pick.sample(range(3, 20), 2)
    product_, swapped = rf"{n}\times {m}={n * m}", rf"{n * m}={n}\times {m}"
    sine, cosine = rf"\sin^2 {x}", rf"\cos^2 {x}"
    return pick.choice([
        Task("State Euler's identity.", ["0=0", "1=1", r"e^{i\pi}=e^{i\pi}", "x=x"],
             r"e^{i\pi}+1=0", [r"e^{i\pi}+1=0", r"e^{\pi i}+1=0", r"0=e^{i\pi}+1",
             r"1+e^{i\pi}=0", r"\mathrm{e}^{i\pi}+1=0"], [r"e^{i\pi}-1=0", r"e^{i\pi}+1=1"]),
        Task(f"State the Pythagorean identity for sine and cosine of «{x}».",
             ["1=1", f"{x}={x}", f"{sine}={sine}", rf"\sin {x}=\sin {x}"], f"{sine}+{cosine}=1",
             [f"{sine}+{cosine}=1", f"{cosine}+{sine}=1", f"1={sine}+{cosine}",
              rf"\sin^2({x})+\cos^2({x})=1"], [f"{sine}-{cosine}=1", f"{sine}+{cosine}=0"]),
        Task("Write the square of the sum «a+b» as an equation with its expansion.",
             ["(a+b)^2=(a+b)^2", "0=0", "a+b=b+a", "a^2+2ab+b^2=a^2+2ab+b^2"],
             "(a+b)^2=a^2+2ab+b^2", ["(a+b)^2=a^2+2ab+b^2", "a^2+2ab+b^2=(a+b)^2",
             "(a+b)^2=a^2+b^2+2ab"], ["(a+b)^2=a^2+b^2", "(a+b)^2=a^2-2ab+b^2"]),
        Task(f"Write that «{b}» to the power «{k}» is «{b**k}» as an equation.",
             [f"{b**k}={b**k}", f"{k}={k}", f"{b}^{k}={b}^{k}", "1=1"], f"{b}^{k}={b**k}",
             [f"{b}^{k}={b**k}", f"{b**k}={b}^{k}", f"{b}^{{{k}}}={b**k}"],
             [f"{b}^{k}={b**k + 1}", f"{b}^{k + 1}={b**k}"]),
        Task(f"Write an equation that says that «{n}» times «{m}» is «{n * m}».",
             [f"{n * m}={n * m}", "1=1", rf"{n}\times {m}={n}\times {m}", f"{n}={n}"], product_,
             [product_, swapped, rf"{n}\cdot {m}={n * m}"],
             [rf"{n}\times {m}={n * m + 1}", rf"{n}\times {m + 1}={n * m}"]),
    ])  # fmt: skip


def statement(pick: random.Random) -> Task:
    """The gold is a number; a chain is read by the number it ends in."""
    n, b, k = pick.randrange(2, 13), pick.choice((2, 3, 5)), pick.randrange(2, 5)
    left, value = pick.choice([(rf"\log_{b} {b**k}", k), (f"{b}^{k}", b**k), (root(n * n), n),
        (r"\tan 45^\circ", 1), (r"\cos 0", 1), (rf"\sqrt{{{b}}}\cdot \sqrt{{{b}}}", b),
        (f"0.5+{n}.5", n + 1), (f"|-{n}|", n), (r"\sin\pi", 0), (r"\ln e", 1)])  # fmt: skip
    results = [f"{left}={value}", f"x={value}", f"{value}", rf"{left}={value}.0"]
    misses = [f"{left}={value + 1}", f"{value + 1}={value + 1}", f"x={value + 1}"]
    return Task(f"Compute «{left}».", [f"{left}={left}", "x=x"], f"{value}", results, misses)


def number_beside(pick: random.Random) -> Case:
    """A true statement against a number other than the one that it ends in."""
    text, end = truths(pick)
    gold = pick.choice([2, 3, 4, 5, 8, 9, 12, 16, 42, Fraction(3, 4), Fraction(2, 7), -3, 0, 1])
    while end is not None and abs(float(gold) - end) < 1e-3:
        gold = pick.choice([2, 3, 4, 5, 8, 9, 12, 16, 42])
    a = pick.randrange(2, 30)
    question = pick.choice(("", f"Find the real number «x» with «x+{a}={printed(gold + a)}»."))
    question = mark(pick, question, plain=False) if question else ""
    return Case(say(pick, reprint(pick, text)), printed(gold), False, question)


CURVES = (line, line, line, sequence, circle, bound)


def tautologies(pick: random.Random) -> Case:
    """A true statement says nothing, unless the gold is that statement."""
    if pick.random() < 0.1:
        return number_beside(pick)
    make = pick.choices((*CURVES, identity, statement), (4, 4, 4, 3, 3, 3, 3, 2))[0]
    task = make(pick)
    if make in CURVES and pick.random() < 0.25:
        more = [text for text, _ in (truths(pick) for _ in range(3))]
        task = task._replace(copies=more)
    question = mark(pick, task.question, plain=False) if pick.random() < 0.7 else ""
    if make is line and pick.random() < 0.1:  # a gold with the tiny difference
        tail = f".{pick.choice(TINY)}"
        answer, right = (task.gold, False) if pick.random() < 0.5 else (task.gold + tail, True)
        return Case(say(pick, reprint(pick, answer)), task.gold + tail, right)
    right = pick.random() < 0.52
    wrong = task.copies if pick.random() < 0.6 else task.misses
    answer = reprint(pick, pick.choice(task.results if right else wrong))
    return Case(say(pick, answer), task.gold, right, question)


GENERATORS = (tautologies, plain_copies, other_braces, conversions)


def rows(make: Callable[[random.Random], Case], count: int) -> Iterator[Case]:
    pick = random.Random(make.__name__)
    return (make(pick) for _ in range(count))


@pytest.mark.parametrize("make", GENERATORS, ids=lambda make: make.__name__)
def test_no_copy_and_no_empty_truth_is_paid_and_results_are(make, count=ROWS):
    table = list(rows(make, count))
    texts = [f"<think>\nso\n</think>\n\n{case.text}" for case in table]
    grades = grade_all(texts, [case.gold for case in table], [case.question for case in table])
    found = [(case, one.verdict) for case, one in zip(table, grades, strict=True)]
    num_right = sum(case.right for case in table)
    assert count / 4 <= num_right <= 3 * count / 4
    paid = [(case, verdict) for case, verdict in found if not case.right and verdict == "right"]
    assert not paid, (len(paid), paid[:9])
    lost = [(case, verdict) for case, verdict in found if case.right and verdict != "right"]
    assert len(lost) <= 0.02 * num_right, (len(lost), lost[:9])
