r"""Classes of text around a box, from templates: equations, several boxes, operators, denials.

A wrong row is the near twin of a right one, and its label follows from how it was drawn.
In a template `<b>` is a framed box, `<i>` a bare one, `<v>` its value and `<o>` another value.
"""

import random
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import pytest

from grading.grade import grade_all

ROWS, SHOWN = 320, 9
NAMES = "Mary", "Tom", "Ali", "Chen", "Zoë", "The shop", "Each class"
THINGS = "eggs", "red marbles", "students", "pages", "m", "dollars", "more cookies"


class Case(NamedTuple):
    """A completion's text behind its thought, and whether it is right for the gold."""

    text: str
    gold: str
    right: bool
    question: str = ""
    thought: str = "<think>\nso\n</think>\n\n"
    options: tuple[tuple[str, bool | None], ...] = ()  # of grade_all


def fill(template: str, **parts: object) -> str:
    return re.sub(r"<([a-z]+)>", lambda found: str(parts[found[1]]), template)


def spelled(pick: random.Random, value: Fraction, plain: bool = False) -> str:
    """One of the notations of an exact value."""
    top, bottom = abs(value.numerator), value.denominator
    sign = "-" if value < 0 else ""
    if bottom == 1:
        forms = [f"{top}"] * (1 if plain else 4) + ([] if plain else [f"{top}.0"])
        return sign + pick.choice(forms + ([f"{top:,}"] if top > 999 else []))
    forms = [rf"\frac{{{top}}}{{{bottom}}}", rf"\dfrac{{{top}}}{{{bottom}}}", f"{top}/{bottom}"]
    return sign + pick.choice(forms + ([f"{top / bottom}"] if bottom in (2, 4, 5, 8) else []))


def number(pick: random.Random, positive: bool = False) -> Fraction:
    """A value that is not 0 or 1, mostly a whole number."""
    sign = -1 if not positive and pick.random() < 0.15 else 1
    kind = pick.random()
    if kind < 0.75:
        return Fraction(sign * pick.choice((pick.randrange(2, 60), pick.randrange(2, 3000))))
    bottom = pick.choice((2, 3, 4, 5, 6, 7))
    whole, rest = pick.randrange(0, 12), pick.randrange(1, bottom)
    return Fraction(sign * (whole * bottom + rest), bottom)


def another(pick: random.Random, value: Fraction) -> Fraction:
    """A value near to this one, and not it nor its negative."""
    near = [value + 1, value - 1, value + pick.randrange(2, 20), 10 * value, 2 * value]
    return pick.choice([one for one in near if abs(one) not in (0, abs(value))])


def unlike(pick: random.Random, value: Fraction) -> int:
    """A small number k, so that k - v, k / v, (k + v) / 2 and (v + k) / k are not v."""
    taken = value, value**2, 2 * value
    return pick.choice([k for k in range(2, 13) if k not in taken and value * (k - 1) != k])


def arithmetic(pick: random.Random, value: Fraction) -> str:
    """A calculation that gives the value, sometimes over an intermediate step."""
    part = Fraction(pick.randrange(2, 40))
    first, second = spelled(pick, value - part, True), spelled(pick, part, True)
    forms = [f"{first} + {second}", f"{first}+{second}"]
    larger = spelled(pick, value + part, True)
    forms += [f"{larger} - {second}", f"{larger}-{second}"]
    times = pick.choice(("*", r"\times", r"\cdot", "\xd7"))
    divisors = [k for k in range(2, 40) if value.denominator == 1 and value % k == 0]
    if divisors:
        k = pick.choice(divisors)
        forms += [f"{value / k} {times} {k}", f"{value / k}{times} {k}"]
        forms += [f"{part * value} / {part}"]
    form = pick.choice(forms)
    if pick.random() < 0.15:
        step = pick.randrange(2, 9)
        form += f" = {spelled(pick, value - step, True)} + {step}"
    return form


FRAMES = ("<i>",) * 4 + ("$<i>$", r"\(<i>\)", "**<i>**", "**$<i>$**", "$$<i>$$", r"\[<i>\]")
MATHS = ("$<f>$",) * 3 + (r"\(<f>\)", r"\[<f>\]", "$$<f>$$", "$ <f> $", "\\[\n<f>\n\\]")
CONTENTS = ("<v>",) * 6 + (" <v> ", r"\text{<v>}", r"\mathbf{<v>}", "<v>.", r"{<v>}")


def box(pick: random.Random, value: str) -> str:
    forms = [form for form in CONTENTS if "." not in value or not form.endswith(".")]
    return rf"\boxed{{{fill('<v>' if 'frac' in value else pick.choice(forms), v=value)}}}"


def framed(pick: random.Random, value: str) -> str:
    return fill(pick.choice(FRAMES), i=box(pick, value))


BEFORE = "", "", "", "Let us see. ", "We add them up.\n\n", "**Solution.** ", "Step 1: read.\n"
COSTLY = "A ticket costs $20. ", "He paid $5 for it.\n\n", r"Each of the 3 costs \$4. "
AFTER = "", "", "", ".", "\n", " ."

EQUATIONS = (
    "<e> = <v>. <b>", "<e> = <v>. <b>", "<x> = <v> <b>", "<x>=<v> <b>", "<x> = <v>, <b>",
    "<name> has <e>=<v> <thing> <b>", "<name> has <e> = <v> <thing>. <b>", "$<x> = <v>$ <b>",
    r"\(<x> = <v>\) <b>", "$<x> = <v>$. <b>", "$<e> = <v>$ <b>", "$<e> = <v>$, so <b>",
    r"\[<e> = <v>\] <b>", "<e> = <v> = <b>", "<e>=<i>", "<e> = <b>", "Total: <v> <b>",
    "$<e> = <i>$", "$<e> = <v> = <i>$", r"\[ <x> = <e> = <i> \]", "Thus $<x> = <i>$", "$<e>$ = <b>",
    "$<e> =$ <b>", "$<e>$ is <b>", "$<e>$: <b>", "$<e>$, <b>", "so <w> < <v>, <b>", "<v> <b>",
    "so $<w> < <v>$, <b>", "so $<w> < <v>$ and the larger is <b>", "<w> < <v> <b>", "$<v>$ <b>",
    "$<v>$<i>", "**<e> = <v>** <b>", "**Total** <v> <b>", "There are <v> <b>", "Problem <k> <b>",
    "Question <k>. <b>", "Answer <v> <b>", "Step <k>: <b>", "In <k> days it makes <b>",
    "<e> = <v> and hence <b>", "<e> = <v>; <b>", "<e> = <v>: <b>",
    "<name> needs <e> = <<<e>=<v>>><v> <thing>. <b>", "$<y> = <k>$ and $<x> = <v>$. <b>",
    "$<y> = <k>$, so $<x> = <e> = <v>$ <b>", "<y> = <k> and <x> = <v>. <b>", "<x> = <e> = <v> <b>",
    "<y> = <k>. <b>", "<y> = <k>, so <x> = <v>. The answer is <b>", "Total = <e> = <v> <b>",
    "As $<y> = <k>$, <b>", "As $<y> > <k>$, <b>", r"$\sqrt{<q>} = <k>$, and we get <b>",
    r"Since $\frac{<k>}{<k>} = 1$, <b>", "Part <k>: <v> <thing>\t<b>", "$<e> = <v>. <i>$",
)  # fmt: skip
PRICES = (
    "$<v> <b>", "$<v>. <b>", "<name> pays $<v>. <b>", "<name> pays $<w> + $<k> = $<v> <b>",
    "It costs $<w> + $<k> = $<v>. <b>", r"It costs \$<w> + \$<k> = \$<v> <b>", "Total: $<v> <b>",
    "The price rises from $<w> to $<v>: <b>", "$<w> + $<k> = $<v>, <b>", "**$<v>** <b>",
    r"<name> saves \$<v> <b>", "$<w> < $<v>, <b>", "Cost = $<v> <b>", "so $<w> and $<k> make <b>",
    "<name> earns $<k>, so $<x> = <i>$", "<name> earns $<k>, so in all $<w> + <k> = <i>$",
    "US$<v> <b>", "<v>$ <b>", "$<w> plus $<k> is $<v> <b>",
)  # fmt: skip
POLYNOMIALS = (
    "$<e> = <v>$ <b>", "$<e> = <v>$. <b>", "<e> = <v>. <b>", "$<e> = <i>$", r"\[<e> = <i>\]",
    "<e> = <v> <b>", "<e> = <v>, so <b>", "$<y> = <v>$ <b>", "<y> = <e> = <v> <b>",
)  # fmt: skip
FORMULAS = (  # within delimiters
    "<k> + <i>", r"<x> = <k> \cdot <i>", r"\frac{<i>}{<k>}", r"\frac{<k>}{<i>}", r"\frac{1}{<i>}",
    r"\sqrt{<i>}", r"<k> \times <i>", "<k><i>", "<x>=<k><i>", "<i>^{<k>}", "<i>^2", "-<i>",
    "<x> = <k> + <i>", "<x> = <k> - <i>", "<k> - <i>", "<i> + <k>", "<x> = <i> - <k>", "<k>(<i>)",
    r"<i> \cdot <k>", "<k>(<i> + 1)", "(<i>)^2", "<k>^{<i>}", r"\log <i>", r"\sqrt[3]{<i>}",
    "<i>x", "<k>/<i>", "<i>/<k>", "<x> = -<i>", r"<x> = \frac{<i>}{<k>}", r"<x> = \sqrt{<i>}",
    r"\left(<i>\right)^{<k>}", r"2\pi <i>", r"<i>\pi", r"<i>\sqrt{<k>}", r"\sin(<i>)", "<x><i>",
    "<x> = <k><x> + <i>", "<v> = <k> + <i>", "<e> = <k> + <i>", r"<x> = \frac{<k> + <i>}{2}",
    r"<x> = <k>\left(<i> + <k>\right)", r"<e> = <k> \cdot <i>", r"\frac{<i> + <k>}{<k>}",
)  # fmt: skip
BARE_FORMULAS = (
    r"\frac{<i>}{<k>}", r"\frac{<k>}{<i>}", r"\frac{1}{<i>}", r"\sqrt{<i>}", r"<k> \times <i>",
    "<i>^2", "<i>^{<k>}", "<x> = <k> + <i>", r"<x> = <k> \cdot <i>", "<k> * <i>", "<x> = -<i>",
    r"<x> = \frac{<i>}{<k>}", "<e> = <k> + <i>", "<x> = <k> - <i>", r"<i> \times <k>", "<i> + <k>",
    "<i> / <k>", "<k> + <i>", "<x> = <k> * <i>", "<k> \xd7 <i>", "<x>=<k>+<i>", "<v> = <k> + <i>",
    "<x> = -<i>", r"<x> = \sqrt{<i>}", r"<x> = <v> + \frac{<i>}{<k>}", "<x> = <i> + <k>",
)  # fmt: skip
LEADS = "So ", "The answer is ", "Hence ", "We get ", "Finally, ", "<x> = <v>. ", "<y> = <k>, so "


def box_after_equation(pick: random.Random) -> Case:
    """An equation, a price or a chain, then the box, against a box within a formula."""
    x, y = pick.sample("xyznabt", 2)
    priced = pick.random() < 0.25
    value = number(pick, priced)
    if priced:
        value = Fraction(pick.randrange(12, 2500))
    k, right = unlike(pick, abs(value)), pick.random() < 0.5
    start, end = pick.choice(BEFORE), pick.choice(AFTER)
    parts = {"x": x, "y": y, "k": k, "q": k * k, "name": pick.choice(NAMES)}
    if not right and pick.random() < 0.6:
        value = abs(value)
        v = spelled(pick, value)
        parts |= {"v": v, "i": box(pick, v), "e": arithmetic(pick, value + k)}
        formula = fill(pick.choice(FORMULAS), **parts)
        lead = fill(pick.choice(LEADS), **parts) if pick.random() < 0.7 else ""
        text = lead + fill(pick.choice(MATHS), f=formula)
        if pick.random() < 0.4:
            text = lead + fill(pick.choice(BARE_FORMULAS), **parts)
        elif pick.random() < 0.1:
            text = f"{parts['name']} pays $20, so ${k} + {parts['i']}$"
        elif pick.random() < 0.15:
            text = f"The answer is -{parts['i']}"
        return Case(start + text + end, spelled(pick, value), False)
    if pick.random() < 0.1:
        signs = (1, 1) if right else pick.choice([(1, -1), (-1, 1)])
        gold, given = (
            f"{x}^2{'+' if sign > 0 else '-'}{2 * k}{x}{'+' if last > 0 else '-'}{k * k}"
            for sign, last in ((1, 1), signs)
        )
        inner = rf"\boxed{{{given}}}"
        parts |= {"e": f"({x}+{k})^2", "v": given, "i": inner}
        parts |= {"b": fill(pick.choice(FRAMES), i=inner)}
        return Case(start + fill(pick.choice(POLYNOMIALS), **parts) + end, gold, right)
    given = value if right else another(pick, value)
    told = given if pick.random() < 0.7 else value  # a wrong box may follow a right equation
    v = spelled(pick, given)
    parts |= {"v": spelled(pick, told, True), "b": framed(pick, v), "i": box(pick, v)}
    parts |= {"w": spelled(pick, told - k, True), "e": arithmetic(pick, told)}
    parts["thing"] = pick.choice(THINGS)
    text = fill(pick.choice(PRICES if priced else EQUATIONS), **parts)
    start = pick.choice(BEFORE + COSTLY)
    return Case(start + text + end, spelled(pick, value, True), right)


STYLES = (  # of options: each one, their joint, what surrounds them
    ("(<l>) <v>", " ", "<a>"), ("(<l>) <v>", ", ", "<a>"), ("(<l>) $<v>$", "\n", "\n<a>"),
    ("<l>: <v>", " ", "<a>"), ("<l>: <v>", ", ", "Options: <a>"), ("<l>: $<v>$", "\n", "\n<a>"),
    ("<l>) <v>", " ", "<a>"), ("<l>) $<v>$", "\n", "\n<a>\n"), ("<l>. <v>", "\n", "\n<a>"),
    ("<l>. $<v>$", "\n", "\n\n<a>"), ("<l>. $<v>$", " ", "<a>"), ("- <l>) $<v>$", "\n", "\n<a>"),
    (r"\textbf{(<l>)}\ <v>", r" \qquad ", "$<a>$"), (r"\textbf{(<l>) }<v>", r"\qquad", "$<a>$"),
    (r"\text{(<l>)}\ <v>", r"\quad ", "$<a>$"), (r"$\mathrm{(<l>) \ } <v>$", " ", "<a>"),
    (r"\textbf{(<l>)} $<v>$", r" \qquad ", "<a>"), ("**<l>.** $<v>$", "\n", "\n<a>"),
    ("[<l>] $<v>$", "\n", "\nChoices:\n<a>"), ("(<l>) $<v>$", "; ", "Choose one: <a>."),
    (r"\textbf{(<l>)}\ $<v>$", "\n", "<a>"), (r"\textbf{(<l>)}~<v>", r"\qquad ", r"\[<a>\]"),
)  # fmt: skip
STEMS = (
    "What is the value of $x$? ", "How many of them are there?\n", "In triangle $ABC$, find $x$. ",
    "Which is the sum of $a$ and $b$?\n\n", "The points A, B and C form a set. Find its size. ",
    "Choose the right answer: what is $f(2)$? ", "A man walks from A to B. How far is it? ",
)  # fmt: skip
LETTERS = "<l>", "(<l>)", r"\text{<l>}", r"\textbf{(<l>)}", r"\mathrm{<l>}", r"\text{(<l>)}"
PAIRS = (
    "The value is <p>. The answer is <q>.", "<p>\n\n<q>", "We get <p>, which is option <q>.",
    "So the result is <p>, that is, <q>", "<p> <q>", "We find <p>, so we choose <q>.",
    "**Value:** <p>\n**Answer:** <q>", "First we get <p>. This is option <q>", "<p>, i.e. <q>",
    "It equals <p>.\n\nTherefore, the correct option is <q>.", "<p> … <q>",
)  # fmt: skip
LETTER_FIRST = "The answer is <q>, since the value is <p>.", "**Answer:** <q> (value <p>)"


def option_and_value(pick: random.Random) -> Case:
    """The box of a value and the box of its option's letter."""
    letters = "ABCDE"[: pick.randrange(3, 6)]
    start, step = pick.randrange(2, 60), pick.randrange(1, 7)
    bottom = pick.choice((1, 1, 1, 2, 3))
    values = [Fraction(start + i * step, bottom) for i in range(len(letters))]
    if pick.random() < 0.4:
        pick.shuffle(values)
    notation = pick.choice(("{0}/{1}", r"\frac{{{0}}}{{{1}}}"))

    def write(value: Fraction) -> str:
        top, under = value.numerator, value.denominator
        return f"{top}" if under == 1 else notation.format(top, under)

    one, joint, around = pick.choice(STYLES)
    listed = [fill(one, l=x, v=write(y)) for x, y in zip(letters, values, strict=True)]
    question = pick.choice(STEMS) + fill(around, a=joint.join(listed))
    at, off = pick.sample(range(len(letters)), 2)
    right = pick.random() < 0.5
    value, letter = values[at], letters[at]
    gold = pick.choice(("<l>", "<l>", "(<l>)", r"\text{(<l>)}", r"\textbf{(<l>)}", "<v>", "<v>"))
    gold = fill(gold, l=letter, v=write(value))
    if not right:
        outside = max(values) + pick.randrange(1, 9)
        value, letter = pick.choice([
            (values[off], letters[off]), (value, letters[off]), (values[off], letter),
            (outside, letter), (value, letters[off]), (values[off], letter),
        ])  # fmt: skip
    inner = fill(pick.choice(LETTERS), l=letter)
    if right and pick.random() < 0.1:
        inner = rf"\textbf{{({letter})}}\ {write(value)}"
    q = fill(pick.choice(FRAMES), i=rf"\boxed{{{inner}}}")
    template = pick.choice(PAIRS if pick.random() < 0.85 else LETTER_FIRST)
    return Case(fill(template, p=framed(pick, spelled(pick, value)), q=q), gold, right, question)


EMPTY = (
    "", "", " ", "?", "?", r"\phantom{4}", r"\phantom{00}", r"\quad", r"\qquad", r"\ldots",
    r"\dots", "...", r"\,", "~", r"\ ", r"\text{ }", r"\text{?}", r"\hspace{1cm}", r"\_\_",
    r"\phantom{<v>}",
)  # fmt: skip
WITH_EMPTY = (
    "I write the answer in <m>. The answer is <b>.", "<m>\n\n<b>", "The answer goes in <m>: <b>",
    "The final answer is <b>, as <m> asks.", "<b> (in a <m>, as asked)", "<b>\n\n<m>",
    "We solve $<k> + <m> = <s>$. The missing number is <b>.", "The answer: <m> = ? It is <b>",
    "First, <m> is to be found. We subtract and get <b>.", "**Answer** <m>\n\nIt is <b>.",
    r"\[ <k> + <m> = <s> \] so the blank is <b>.", "Put the result in <m>.\n\n$<x> = <i>$",
)  # fmt: skip
ONLY_EMPTY = (
    "The answer is <v>. <m>", "<m>", "<x> = <v> <m>", "$<k> + <m> = <s>$, so it is <v>.",
    "The answer goes in <m>: <v>", "**<v>** <m>", "<v> in a <m>, and again <m>",
)  # fmt: skip
NOT_EMPTY = "0", r"\emptyset", r"\text{none}", r"\phantom{0}<o>", r"\varnothing", r"\infty"


def empty_beside_real(pick: random.Random) -> Case:
    """Empty boxes beside a real one, and empty boxes alone."""
    value = Fraction(pick.randrange(2, 900))
    right = pick.random() < 0.55
    other, k = another(pick, value), pick.randrange(2, 50)
    v = spelled(pick, value if right else other)
    empty = fill(pick.choice(EMPTY), v=value)
    parts = {"k": k, "s": value + k, "x": pick.choice("xnt"), "m": rf"\boxed{{{empty}}}"}
    parts |= {"b": framed(pick, v), "i": box(pick, v)}
    text = fill(pick.choice(WITH_EMPTY), **parts)
    kind = pick.random()
    if not right and kind < 0.4:
        text = fill(pick.choice(ONLY_EMPTY), **parts | {"v": value})
    elif not right and kind < 0.7:
        full = fill(pick.choice(NOT_EMPTY), o=abs(other))
        parts |= {"m": rf"\boxed{{{full}}}", "b": framed(pick, spelled(pick, value))}
        text = fill(pick.choice(PAIRS), p=parts["m"], q=parts["b"])
        if kind < 0.55:
            text = fill(pick.choice(PAIRS), p=parts["b"], q=parts["m"])
    return Case(text, f"{value}", right)


QUOTED = (  # the question, and how a completion repeats it
    ("What is $<s> - <k>$? Write your answer in \\boxed{}.", "It asks for \\boxed{}. "),
    ("Find the number.\nPut your final answer within \\boxed{}.", "Answer within \\boxed{}:\n\n"),
    ("Fill in the \\boxed{?} in $<k> + \\boxed{?} = <s>$.", "$<k> + \\boxed{?} = <s>$. "),
    ("Fill in the \\boxed{?}: $<k> + \\boxed{?} = <s>$", "We fill in the \\boxed{?}. "),
    ("Find the missing number: $<k> + \\boxed{\\phantom{0}} = <s>$.",
     "The equation is $<k> + \\boxed{\\phantom{0}} = <s>$. "),
    ("$<s> - \\boxed{\\phantom{0}} = <k>$. What belongs in the box?",
     "\\[<s> - \\boxed{\\phantom{0}} = <k>\\]\n\n"),
    ("$<k> + \\boxed{ } = <s>$: which number is missing?", "**Task.** $<k> + \\boxed{ } = <s>$\n"),
)  # fmt: skip
REPLIES = (
    "The missing number is <b>.", "The answer is <b>", "<b>", "it is <b>", "$<s> - <k> = <i>$",
    "we get $<s> - <k> = <v>$, thus <b>", "the number is <b>.", "**Answer:** <b>",
)  # fmt: skip


def quoted_from_the_question(pick: random.Random) -> Case:
    """An empty box of the question, repeated beside the answer or in its place."""
    value, k = Fraction(pick.randrange(2, 400)), pick.randrange(2, 90)
    right = pick.random() < 0.55
    given = value if right else another(pick, value)
    question, quote = pick.choice(QUOTED)
    parts = {"k": k, "s": value + k, "v": given, "b": framed(pick, spelled(pick, given))}
    parts["i"] = box(pick, f"{given}")
    reply = pick.choice(REPLIES)
    if not right and pick.random() < 0.5:
        parts |= {"b": f"{value}", "i": f"{value}", "v": value}
    text = fill(quote + reply, **parts)
    if right and pick.random() < 0.2:
        text = fill(f"{reply}\n\n(As asked: {quote.strip()})", **parts)
    return Case(text, f"{value}", right, fill(question, **parts | {"v": value}))


SPELLINGS = (  # one value thrice, then values near to it
    ((r"\frac12", "0.5", "1/2", r"\frac{2}{4}", r"50\%"), ("0.6", r"\frac{2}{3}", "2", r"5\%")),
    ((r"\frac{3}{4}", "0.75", "3/4", r"75\%"), ("0.7", r"\frac{4}{3}", "7.5", r"\frac{3}{5}")),
    ((r"1\frac{1}{2}", "1.5", r"\frac{3}{2}", "3/2"), ("1.2", r"\frac{2}{3}", r"\frac{11}{2}")),
    (("1000", "1,000", "1{,}000", r"1\,000", "1000.0"), ("100", "10,000", "1,001")),
    (("x = 5", "5", "5.0", "x=5"), ("x = 6", "-5", "x = -5", "0.5")),
    ((r"2\sqrt{2}", r"\sqrt{8}", r"2 \sqrt 2"), (r"\sqrt{2}", r"2\sqrt{3}", "2.83", r"\sqrt{6}")),
    ((r"\frac13", "1/3", r"\frac{2}{6}", r"\dfrac{1}{3}"), ("0.33", "0.333", "3", r"\frac{1}{4}")),
    ((r"\pi", r"{\pi}", "π"), ("3.14", r"2\pi", r"\frac{22}{7}", r"\frac{\pi}{2}")),
    ((r"40\text{ cm}", r"40\,\mathrm{cm}", r"0.4\text{ m}"), (r"4\text{ m}", r"4\text{ cm}")),
    (("x+1", "1+x", "1 + x"), ("x-1", "x+2", "2x+1", "x")),
    (("(1, 2)", r"\left(1,2\right)", "(1,2)"), ("(2, 1)", "(1, 3)", "(1, -2)")),
    ((r"\{1, 2\}", r"\{2, 1\}", r"\left\{1, 2\right\}"), (r"\{1\}", r"\{1, 2, 3\}", r"\{1, 3\}")),
    (("[0, 1)", "[0,1)", r"\left[0, 1\right)"), ("[0, 1]", "(0, 1)", "(0, 1]")),
)  # fmt: skip


def one_value_or_two(pick: random.Random) -> Case:
    """Boxes of one value in several notations, and boxes of different values."""
    right = pick.random() < 0.5
    if pick.random() < 0.2:  # the gold is a list
        a, b, c = pick.sample(range(2, 90), 3)
        boxes = [a, b] if right else pick.choice([[a, c], [c, b], [a, b, c], [a]])
        pick.shuffle(boxes)
        joint = pick.choice((" and ", ", ", "\n\n", " or "))
        return Case(joint.join(framed(pick, f"{one}") for one in boxes), f"{a}, {b}", right)
    if pick.random() < 0.5:
        same, near = pick.choice(SPELLINGS)
    else:
        value = number(pick)
        same = [spelled(pick, value) for _ in range(3)]
        near = [spelled(pick, another(pick, value))]
    gold, *boxes = [pick.choice(same) for _ in range(pick.choice((3, 3, 3, 4)))]
    if not right:
        boxes[pick.randrange(len(boxes))] = pick.choice(near)
    p, q, *more = (fill(pick.choice(FRAMES), i=rf"\boxed{{{one}}}") for one in boxes)
    template = pick.choice((
        *PAIRS[:2], "<p> <q>", "We get <p>, which is <q>.", "<p>, or <q>", "<p>\n\nThat is <q>",
        "So <p>. The final answer is <q>.", "*Result*: <p> … <q>", "**Answer:** <p>\n\nIn all: <q>",
    ))  # fmt: skip
    return Case(fill(template, p=p, q=q) + "".join(f"\n\n{one}" for one in more), gold, right)


def several_boxes(pick: random.Random) -> Case:
    """A value and its option, empty boxes, quoted boxes, and one value in two notations."""
    kinds = option_and_value, empty_beside_real, quoted_from_the_question, one_value_or_two
    return pick.choices(kinds, (8, 4, 3, 5))[0](pick)


RELATIONS = (
    r"\simeq", r"\cong", r"\rightarrow", r"\to", r"\Longrightarrow", r"\Rightarrow", r"\implies",
    r"\iff", r"\triangleq", r"\propto", r"\equiv", r"\approx", "=+", r"\leadsto", r"\mapsto", ":=",
    r"\doteq", r"\coloneqq", r"\longrightarrow", "=", r"\Leftrightarrow",
)  # fmt: skip
SIGNS = "→", "⇒", "≈", "≃", "≡", "=>", "->", "-->", "==>", "⟹", "↦", "≅", "∴", "="
RELATED = (
    "$<x> <r> <i>$", "$<x> <r> <i>$", r"\[ <x> <r> <i> \]", "$$<e> <r> <i>$$", "$<x><r><i>$",
    "$<e> <r> <v> <r> <i>$", r"\(<x> <r> <i>\)", "<x> <r> <i>", "$<x> = <v> <r> <i>$",
    "<e> <r> <b>", "$<x> <r>$ <b>", "$<e> = <v>$ $<r>$ <b>", "Hence $<x> <r> <i>$.", "$<r> <i>$",
    "$<e> <r><i>$", "\\[\n<e> <r> <i>\n\\]", r"$<x> <r> \, <i>$", r"$<x>\;<r>\;<i>$",
    "$<x> <r> {<i>}$",
)  # fmt: skip
SIGNED = (
    "<x> = <v> <r> <b>", "<e> = <v> <r> <b>", "$<x> = <v>$ <r> <b>", "<r> <b>", "<e> <r> <b>",
    "Adding up <r> <b>", "$<x> <r> <i>$", "$<e> <r> <i>$", "<e> = <v> <r> <x> = <b>",
    "We add them.\n<r> <b>", "$<x> = <v> <r> <i>$", "**Answer** <r> <b>",
)  # fmt: skip
BULLETS = (
    "- ", "- ", "* ", "+ ", "1. ", "2. ", "  - ", "- Answer: ", "* Answer: ", "- **Answer:** ",
    "• ", "3) ", "+ The answer is ", "   * ", "-   ", "-\t", "10. ",
)  # fmt: skip
ABOVE = (
    "", "", "So the answer is:\n\n", "The answer is\n", "- We add both.\n", "We have <e> = <v>.\n",
    "* First we add.\n* Then we halve.\n", "1. Add.\n", "**Answer**\n\n", "**Answer:**\n",
    "# Answer\n\n", "Thus:\n", "- $<e> = <v>$.\n", "The sum is $<e> = <v>$.\n\n",
    "$$<e> = <v>$$\n\n", "Here is a list:\r\n", "\\[<e> = <v>\\]\n", "Step 1 is done.\n\n",
)  # fmt: skip
OPERATORS = (
    r"<x> \times <i>", "<k> - <i>", "<k>^{<i>}", r"\pm<i>", r"\pm <i>", r"<x> = \pm <i>",
    "<k> + <i>", r"<k> \cdot <i>", r"<k> \div <i>", r"<x> \cdot <i>", "<x> - <i>", "<x> + <i>",
    r"<k> \mp <i>", r"<x> = <k> \times <i>", "<x> = <k> - <i>", r"<k> / <i>", "<k>*<i>",
    r"<x> \ast <i>", r"<x> \to <k> - <i>", r"<x> \approx <k> + <i>",
    r"<x> \Rightarrow <k> \cdot <i>", "<k>\u2212<i>", r"<x> \equiv <k>\times<i>", r"<k> \pm <i>",
    "<x>^{<i>}", r"\sqrt{<k>}\cdot<i>", "<k> ÷ <i>", "<x> = <v>\n- <i>", "<x> = <v> + <k>\n+ <i>",
    "<e>\n* <i>", "<x> = <k>\n\\times <i>",
)  # fmt: skip
BARE_OPERATORS = (
    r"<x> \times <i>", r"<x> = <k> - <i>", r"<x> = \pm<i>", r"<k> \cdot <i>", r"<x> \to <k> - <i>",
    "<x> → <k> \xd7 <i>", r"<x> \approx <k> + <i>", "<x> = <k> * <i>", r"<x> = <k> \div <i>",
)  # fmt: skip
MINUS = (
    "$<x> = -<i>$", "$<x> = - <i>$", r"\[<x> = -<i>\]", "$<x> <r> -<i>$", "$-<i>$", "- $-<i>$",
    "The answer is $-<i>$.", "<x> = -<i>", "$<e> - <s> = -<i>$", "* $<x> = -<i>$",
    "$<x> <r> - <i>$", r"\(<x> = -<i>\)", "1. $-<i>$", "$<x> <r> {-<i>}$", "So $$-<i>$$",
)  # fmt: skip


def before_the_box(pick: random.Random) -> Case:
    """Relations, arrows and bullets before the box, against operators and a minus."""
    value, right = number(pick, True), pick.random() < 0.5
    v, k = spelled(pick, value), unlike(pick, value)
    gold, minus = spelled(pick, value, True), spelled(pick, -value, True)
    relation, start = pick.choice(RELATIONS), pick.choice(BEFORE)
    parts = {"x": pick.choice("xyznab"), "k": k, "v": v, "b": framed(pick, v), "i": box(pick, v)}
    parts |= {"e": arithmetic(pick, value), "r": relation, "s": spelled(pick, 2 * value, True)}
    if pick.random() < 0.2:
        parts["r"] = "=" if relation == "=+" else relation
        return Case(fill(pick.choice(MINUS), **parts), minus if right else gold, right)
    if not right and pick.random() < 0.6:
        kind, formula = pick.random(), fill(pick.choice(OPERATORS), **parts)
        if "\n" in formula:
            text = fill(pick.choice(("\\[\n<f>\n\\]", "$$\n<f>\n$$", "$<f>$")), f=formula)
        elif kind < 0.05:
            sign = pick.choice((r"\ne", r"\neq", "≠", r"\not="))
            return Case(f"${parts['x']} {sign} {parts['i']}$", gold, False, "Find the number.")
        elif kind < 0.25:
            text = fill(pick.choice(BARE_OPERATORS), **parts)
        else:
            text = fill(pick.choice(MATHS), f=formula)
        return Case(start + text, gold, False)
    kind = pick.random()
    if kind < 0.45:
        text = fill(pick.choice(ABOVE) + pick.choice(BULLETS) + "<b>", **parts)
        text += pick.choice(("", "", ".", "\n", "\n\nWe checked it twice."))
    elif kind < 0.75:
        text = start + fill(pick.choice(RELATED), **parts)
    else:
        text = start + fill(pick.choice(SIGNED), **parts | {"r": pick.choice(SIGNS)})
    other = spelled(pick, another(pick, value), True)
    return Case(text, gold if right else pick.choice((minus, other)), right)


SUBJECTS = "answer", "answer", "result", "value", "total", "number", "solution", "final answer"
WRONG = "wrong", "false", "incorrect", "not true", "not correct", "not right"
DENIED = (
    "It is <wrong> that the <n> is <b>; it is <o>.", "It is <wrong> that the <n> is <b>.",
    "It is simply <wrong> that the <n> is <b>", "It is not the case that the <n> is <b>.",
    "The <n> is <not> <b>.", "The <n> is <not> <b>; it is <o>.", "The <n> isn't <b>.",
    "It isn't <b>.", "The <n> is certainly <not> <b>.", "The <n> is definitely <not> <b>, but <o>.",
    "It is <not> <b>.", "The <n> is <not> equal to <b>.", "The <n> <cannot> be <b>.",
    "The <n> <cannot> possibly be <b>.", "The <n> <cannot> be <b>, as it is odd. It is <o>.",
    "<b> is <wrong>.", "<b> is clearly <wrong>.", "<b> is <not> the <n>.", "<b> isn't the <n>.",
    "<b> is not the right <n>.", "<b> is a wrong <n>.", "<b> is the wrong <n>.",
    "<b> cannot be the <n>.", "It would be a mistake to answer <b>.",
    "It would be wrong to answer <b>.", "It would be a mistake to say that the <n> is <b>.",
    "It is a mistake to think that the <n> is <b>.", "We must not answer <b>.", "Don't answer <b>.",
    "One might think that it is <b>, but <this> is <wrong>.", "The <n> <b> is <wrong>; it is <o>.",
    "One may think the <n> is <b>, but it is <not>.", "Some say <b>, but <this> is a mistake.",
    "I don't think the <n> is <b>", "I do <not> think that the <n> is <b>.",
    "I don't believe the <n> is <b>; it is <o>.", "That the <n> is <b> is <wrong>.",
    "Many students answer <b>, which is <wrong>.", "A common wrong answer is <b>; it is <o>.",
    "The <n> is <o>, <not> <b>.", "The <n> is <o> rather than <b>.", "It is <o> instead of <b>.",
    "The <n> is <b>. <That> is <wrong>.", "The <n> is <b>. No, <this> is <wrong>: it is <o>.",
    "Is it <b>? No, it is <o>.", "At first I got <b>. <That> was a mistake: the <n> is <o>.",
    "<b>\n\n<That> is <wrong>.", "<b>. <That> is <wrong>; it is <o>.",
    "By no means is the <n> <b>.", "The <n> is anything but <b>.",
    "Neither <o> nor <b> is the <n>.", "Nobody should answer <b>.",
    "It is an error to claim that the <n> is <b>.", "The claim that the <n> is <b> is <wrong>.",
    "The statement “the <n> is <b>” is <wrong>.", "$<x> = <i>$ is <wrong>.", "$<x>$ is <not> <b>.",
    "You may get <b>, but <this> is <wrong>, since we must add <k>.", "$<x>$ <cannot> be <b>.",
    "If we forget <k>, we get <b>, which is <wrong>.", "The <n> is <o>. <b> is <wrong>.",
    "It is <wrong> to say that the <n> is <b>.", "There is no way that the <n> is <b>.",
    "It is impossible that the <n> is <b>.", "The <n> was said to be <b>, but <this> is <wrong>.",
    "The <n> is <b>? <That> is <wrong>.", "The <n> does <not> equal <b>.",
    "$<x>$ does <not> equal <b>.",
)  # fmt: skip
AFFIRMED = (
    "It is wrong to add; instead we multiply, so the <n> is <b>.", "Not <o>, but <b>.",
    "Not <o> but <b>", "The <n> is <b>, <not> <o>.", "The <n> is <b>, and <not> <o>.",
    "<b>, not <o>.", "The <n> is <b> (<not> <o>).", "The <n> is <b> rather than <o>.",
    "It is <b> instead of <o>.", "<o> is <wrong>. The <n> is <b>.",
    "<o> is <wrong>; the <n> is <b>.", "The <n> isn't <o> but <b>.",
    "The <n> is <not> <o>. It is <b>.", "It is <not> <o>, it is <b>.",
    "It is <not> <o>; it is <b>.", "It is not hard to see that the <n> is <b>",
    "It is not difficult to check that the <n> is <b>.", "<b>. This is not a coincidence.",
    "The <n> is <b>. This is no surprise.", "No doubt: it is <b>.",
    "There is no doubt that the <n> is <b>", "I have no doubt that the <n> is <b>.",
    "If that is false, then $<x>$ is even. Hence <b>", "You can't go wrong: <b>",
    "The <n> is none other than <b>.", "The first claim is false, so $<x>$ is odd. The <n> is <b>.",
    "It would be a mistake to stop here; we add <k> and get <b>.", "The <n> is not negative: <b>.",
    "We do not need the second condition. The <n> is <b>.",
    "Do not forget the last <k>: we get <b>.",
    "One might think that it is <o>, but <this> is <wrong>. It is <b>.",
    "One might think it is <o>, but <this> is <wrong>; the <n> is <b>.",
    "A common mistake gives <o>; the correct <n> is <b>.",
    "A wrong answer is <o>; the right <n> is <b>.",
    "The <n> is <b>. It is <not> <o>, because we add <k>.", "<b>. (<o> is <wrong>.)",
    "It is <wrong> that the <n> is <o>; it is <b>.", "I don't think it is <o>. The <n> is <b>.",
    "$<x>$ is not negative, so $<x> = <i>$.", "Since $<x>$ <cannot> be negative, $<x> = <i>$.",
    "$<x> = -<k>$ is not possible, so the <n> is <b>.",
    "This is false, a contradiction. Hence <b>.",
    "This is wrong for $n = 2$, so we take $n = 3$ and get <b>.",
    "It is no mistake: the <n> is <b>.", "Wait, that is wrong. We add again. The <n> is <b>.",
    "<b>. If you got <o>, you were wrong.", "The <n> is <b>. Any other answer is wrong.",
    "<b>, and nothing else.", "<b>. <o> is <wrong>.", "The <n> is <b>. There is no other solution.",
    "<b>. This does not depend on the order.",
    "The <n> is <b>. The answer <o> is <wrong>, since we must add <k>.",
    "Without doubt, it is <b>.", "The statement that all are even is false. Thus the <n> is <b>.",
    "The <n> can only be <b>.",
    "It is false that $<x>$ is even, so $<x>$ is odd and the <n> is <b>.", "It is <b>, never <o>.",
    "The <n> <cannot> be <o>. So it must be <b>.", "The <n> <cannot> be <o>, so it is <b>.",
    "If $<x>$ were odd, the sum would be wrong. So $<x>$ is even: <b>.",
    "Rather than <o>, it is <b>.", "The <n> is <b>; <o> would be <wrong>.",
    "$<x>$ does <not> equal <k>. The <n> is <b>.", "<b>\n\nThis is not the same as <o>.",
)  # fmt: skip


def denial(pick: random.Random) -> Case:
    """A box that the text denies, against one that it affirms near such words."""
    value = number(pick, True)
    other = another(pick, value)
    v, right = spelled(pick, value), pick.random() < 0.5
    parts = {"b": framed(pick, v), "i": box(pick, v), "x": pick.choice("xynm")}
    parts |= {"k": pick.randrange(2, 12), "n": pick.choice(SUBJECTS), "wrong": pick.choice(WRONG)}
    parts["this"] = pick.choice(("this", "that"))
    parts["cannot"] = pick.choice(("cannot", "can't", "can not", "could not", "can **not**"))
    parts["not"] = pick.choice(("not", "not", "**not**", "*not*", "NOT"))
    bare = spelled(pick, other)
    parts["o"] = (
        pick.choice((bare, f"${bare}$", f"**{bare}**")) if "frac" not in bare else f"${bare}$"
    )
    if pick.random() < 0.2:
        parts["wrong"] = f"**{parts['wrong']}**"
    affirms = right or pick.random() < 0.15
    template = pick.choice(AFFIRMED if affirms else DENIED)
    that = pick.choice(("This", "That"))
    text = pick.choice(BEFORE) + fill(template.replace("<That>", that), **parts)
    text += pick.choice(("", "", "\n", "\n\nThat is all."))
    denied_gold = value if pick.random() < 0.85 else other  # the other value has no box
    gold = value if right else other if affirms else denied_gold
    return Case(text, spelled(pick, gold, True), right)


BLANKS = "", "\n", "\n\n", " ", "\t", "\u200b", "\n \n", "\r\n", "\u00a0", "\ufeff", " \u200b\n"
ANSWERS = (
    "<b>", "<b>", "The answer is <b>.", "So <b>", "We add and get $<e> = <i>$.", "**Answer:** <b>",
    "<e> = <v>. <b>", "Step 1: we add.\n\n<b>", "$<x> = <i>$", "First, <e> = <v>.\n\nHence <b>\n",
)  # fmt: skip
THOUGHTS = "so", "Let me add.", "<v>?", "I get <o>, no, <v>.", r"Maybe \boxed{<o>}.", r"\boxed{<v>}"
CLOSED = "<think><w></think><s>"
TAGS = (  # a form, whether it is right, and the values of think_prefilled ("" for the default)
    (CLOSED + "<a>", True, ("", "", "", False, None)), (CLOSED + "<a>", True, ("", "", "", None)),
    ("<think>\n\n</think>\n\n<a>", True, ("", "", False, None)),
    ("<think></think><a>", True, ("", "", None)), ("<think><t></think><s><a>", True, ("", None)),
    ("<w><a>", True, (None,)), ("<a>", True, (None,)), ("<w></think><s><a>", True, (True,)),
    ("\n</think>\n<a>", True, (True,)), ("<t></think><s><a>", True, (True,)),
    ("<w><a>", False, ("", "", False, True)), ("<think><w><a>", False, ("", None, False)),
    ("<think><t><s><a>", False, ("", None)),
    ("<think><w></think><think><w></think><a>", False, ("",)),
    ("<think><think><w></think><s><a>", False, ("",)),
    ("<think><w></think></think><a>", False, ("",)), (CLOSED + "<a><think>", False, ("", None)),
    (CLOSED + "<a><think><w></think>", False, ("", None)),
    (CLOSED + "<think><w><a>", False, ("", None)), ("</think><w><think><a>", False, ("", None)),
    ("</think><s><a><think>", False, ("",)), ("<s><a><think><w></think>", False, ("", None, True)),
    ("<think><a></think><s>", False, ("", None)), ("<think><a></think><s>It is <v>.", False, ("",)),
    (CLOSED + "It is <v>.", False, ("", None)), (CLOSED + r"\boxed{}", False, ("", None)),
    ("<w><a></think><s>", False, (True,)), ("<a></think>\n\nIt is <v>.", False, (True,)),
    (CLOSED + "<a>", False, (True,)), ("<w></think><s><a><think>", False, (True,)),
    ("<w></think><s><a></think>", False, (True,)), ("<w></think><think><w><a>", False, (True,)),
    ("<w></think><s><a>", False, ("", False)), ("<t></think><s>It is <v>.", False, (True,)),
)  # fmt: skip


def empty_thoughts(pick: random.Random) -> Case:
    """Empty thoughts and none, against unclosed, doubled and reversed ones."""
    value = number(pick)
    other = another(pick, value)
    wanted = pick.random() < 0.55
    form, right, prefilled = pick.choice([one for one in TAGS if one[1] is wanted])
    given = other if right and pick.random() < 0.1 else value
    v = spelled(pick, given)
    parts = {"v": v, "b": framed(pick, v), "i": box(pick, v), "e": arithmetic(pick, given)}
    answer = fill(pick.choice(ANSWERS), **parts, x=pick.choice("xyn"))
    pieces = {"<w>": pick.choice(BLANKS), "<s>": pick.choice(("", *BLANKS)), "<a>": answer}
    pieces |= {"<t>": fill(pick.choice(THOUGHTS), v=value, o=other), "<v>": v}
    text = re.sub("<[wsatv]>", lambda found: pieces[found[0]], form)
    flag = pick.choice(prefilled)
    options = () if flag == "" else (("think_prefilled", flag),)
    gold = spelled(pick, value, True)
    return Case(text, gold, right and given == value, thought="", options=options)


def verdicts(cases: Sequence[Case]) -> list[str]:
    found = dict.fromkeys(range(len(cases)), "")
    for options in dict.fromkeys(case.options for case in cases):
        at = [i for i, case in enumerate(cases) if case.options == options]
        grades = grade_all(
            [cases[i].thought + cases[i].text for i in at],
            [cases[i].gold for i in at],
            [cases[i].question for i in at],
            **dict(options),
        )
        found |= dict(zip(at, (one.verdict for one in grades), strict=True))
    return list(found.values())


MAKERS = box_after_equation, several_boxes, before_the_box, denial, empty_thoughts


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_no_wrong_box_is_accepted_and_nearly_every_right_one_is(make):
    pick = random.Random(make.__name__)
    cases = [make(pick) for _ in range(ROWS)]
    right = sum(case.right for case in cases)
    assert ROWS / 4 <= right <= 3 * ROWS / 4
    graded = list(zip(cases, verdicts(cases), strict=True))
    accepted = [case for case, verdict in graded if verdict == "right" and not case.right]
    refused = [pair for pair in graded if pair[0].right and pair[1] != "right"]
    assert not accepted, (len(accepted), accepted[:SHOWN])
    assert len(refused) <= 0.02 * right, (len(refused), refused[:SHOWN])
