"""Completions for the grader's benchmark: integers, expressions and hostile input, with labels.

Every round gets completions of its own, so that no grader's cache helps it from one round to the
next; within a round the completions to one gold follow each other, as those of a GRPO group do.
"""

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# A gold, and a rewriting of it that takes mathematics to see through.
_TEXT = Path(__file__).with_name("grader_pairs.json").read_text(encoding="utf-8")
PAIRS: list[tuple[str, str]] = [(gold, rewriting) for gold, rewriting in json.loads(_TEXT)]

# What a policy may write into the box. `k` makes each of them new; none has the gold's value.
HOSTILE: tuple[Callable[[int], str], ...] = (
    lambda k: f"9^{{9^{{9^{{{k}}}}}}}",
    lambda k: f"{k}^{{{k}^{{{k}^{{{k}}}}}}}",
    lambda k: f"2^{{{k}00000}}",
    lambda k: f"{k}00000!",
    lambda k: f"(({k}!)!)!",
    lambda k: rf"\binom{{{k}000000}}{{{k}00000}}",
    lambda k: r"\boxed{" * 300 + str(k) + "}" * 300,
    lambda k: r"\boxed{" * 5_000 + str(k),
    lambda k: "{" * 5_000 + str(k) + "}" * 5_000,
    lambda k: "(" * 2_000 + str(k) + ")" * 2_000,
    lambda k: r"\frac{1}{1+" * 200 + str(k) + "}" * 200,
    lambda k: r"\sqrt{1+" * 150 + str(k) + "}" * 150,
    lambda k: rf"\sum_{{i=1}}^{{{k}000000000}} \frac{{1}}{{i^2+i}}",
    lambda k: rf"\prod_{{i=1}}^{{{k}00000}} \frac{{i+1}}{{i+2}}",
    lambda k: f"(x+y+z+{k})^{{{k}0}}",
    lambda k: rf"\int_0^1 x^{{x^{{{k}x}}}} dx",
    lambda k: rf"\sin({k}^{{{k}^{{{k}}}}})",
    lambda k: f"import os; os.system('sleep {k}')",
    lambda k: f"__import__('time').sleep({k})",
    lambda k: f"{k}" * 10_000,
    lambda k: "0." + "0" * 20_000 + str(k),
    lambda k: f"{k}e999999999",
    lambda k: "+".join([str(k)] * 3_000),
    lambda k: "-" * 3_000 + str(k),
    lambda k: r"\{" + ",".join(str(k + i) for i in range(3_000)) + r"\}",
    lambda k: "=".join(["x"] * 1_000 + [str(k)]),
    lambda k: rf"(1+\frac{{1}}{{{k}}})^{{{k}0000}}",
    lambda k: rf"\binom{{{k}000}}{{{k}00}}",
    # These two are sane to look at, reach math-verify in our worker, and take its whole time there.
    lambda k: rf"\sum_{{i=1}}^{{\infty}} \frac{{\sin(i)}}{{i^3+i+{k}}}",
    lambda k: rf"\int_0^{{\infty}} \frac{{\sin(x^3) \ln(1+x)}}{{\sqrt{{{k}+x^5}}}} dx",
)


NUM_HOSTILE = 4  # of the hostile set, that a baseline gets: they cost it seconds


@dataclass(frozen=True, slots=True)
class Case:
    """One completion, its gold, and whether it is right."""

    completion: str
    gold: str
    is_right: bool


_STEPS = (
    "So the total is {0} times {1}, that is {2}.", "Wait, let me check: {0} + {1} = {3}.",
    "If I write this as $\\frac{{{0}}}{{{1}}}$, the rest follows.", "Then $x = {0}$ and $y = {1}$.",
    "First, she has {0} of them and gives away {1}.", "Hmm, {2} looks too large, so try {1}.",
    "Therefore $({0} + {1})^2 = {4}$.", "Now I have to divide by {0}, which leaves {1}.",
)  # fmt: skip
_CLOSINGS = (
    "The answer is {}.", "Therefore the final answer is {}.", "So the result is ${}$.",
    "Adding everything up gives\n$${}$$", "**Answer:** {}", "Thus we have $x$ as asked: {}",
)  # fmt: skip


def write_completion(prediction: str, rng: random.Random) -> str:
    """A thought of some hundred words, then one to three sentences with the prediction in a box."""
    steps = []
    for _ in range(rng.randrange(15, 60)):
        a, b = rng.randrange(2, 500), rng.randrange(2, 500)
        steps.append(rng.choice(_STEPS).format(a, b, a * b, a + b, (a + b) ** 2))
    thought, said = "\n".join(steps), " ".join(steps[: rng.randrange(3)])
    closing = rng.choice(_CLOSINGS).format(rf"\boxed{{{prediction}}}")
    return f"<think>\n{thought}\n</think>\n\n{said} {closing}".replace("\n\n ", "\n\n")


def in_other_print(gold: str, rng: random.Random) -> str:
    """The same answer, printed differently."""
    changes = [
        gold.replace(r"\frac", r"\dfrac"),
        gold.replace(r"\left", "").replace(r"\right", "") if r"\left" in gold else gold,
        re.sub(r"\\text\{([^{}]*)\}", r"\1", gold),
        re.sub(r"(?<=[\w})])([+=])(?=[\w({\\])", r" \1 ", gold),
        re.sub(r"(?<=,)\s*", " ", gold) if "," in gold and gold[0] in r"(\[" else gold,
    ]
    changed = [text for text in changes if text != gold]
    return rng.choice(changed) if changed else rng.choice([f" {gold} ", f"{gold}.", f"{{{gold}}}"])


def rewrite(gold: str, rng: random.Random) -> str | None:
    """The same value in another form, where that is easy."""
    k = rng.randrange(2, 9)
    if re.fullmatch(r"-?\d{1,9}", gold):
        n = int(gold)
        return rng.choice([rf"\frac{{{k * n}}}{{{k}}}", f"{n - k} + {k}", f"{n}.0"])
    if match := re.fullmatch(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}", gold):
        return rf"{match[1]}\frac{{{k * int(match[2])}}}{{{k * int(match[3])}}}"
    if re.fullmatch(r"(?:[\d+*/^.()a-z{} -]|\\[dt]?frac|\\sqrt|\\pi)+", gold) and "." not in gold:
        return rng.choice([rf"\frac{{{k} ({gold})}}{{{k}}}", f"({gold}) + {k} - {k}"])
    return None


def make_wrong(gold: str, rng: random.Random) -> str:
    """Another value of the same shape."""
    if digits := list(re.finditer(r"\d", gold)):
        at = rng.choice(digits).start()
        return gold[:at] + rng.choice("123456789".replace(gold[at], "")) + gold[at + 1 :]
    if re.fullmatch(r"(\\text\{)?\(?[A-J]\)?\}?", gold):
        return re.sub("[A-J]", lambda m: "ABCDEFGHIJA"["ABCDEFGHIJ".index(m[0]) + 1], gold)
    return rng.choice(["17", r"\frac{3}{17}", r"\sqrt{17}"])


def integer_cases(num: int, rng: random.Random) -> list[Case]:
    """GSM8K-like: whole numbers, eight completions to a gold, five of them right."""
    cases: list[Case] = []
    while len(cases) < num:
        n = rng.choice([rng.randrange(1, 100), rng.randrange(1, 5_000), rng.randrange(1, 200_000)])
        right = [str(n), f"{n:,}", rf"\${n}", str(n), f"{n}.00"]
        wrong = [str(n + rng.randrange(1, 50)), str(10 * n), f"{n}.5"]
        cases += [Case(write_completion(p, rng), str(n), True) for p in right]
        cases += [Case(write_completion(p, rng), str(n), False) for p in wrong]
    return cases[:num]


def expression_cases(golds: Sequence[tuple[str, str | None]], rng: random.Random) -> list[Case]:
    """MATH-like: for each (gold, rewriting) other print, the rewriting, and a wrong answer."""
    cases = []
    for gold, rewriting in golds:
        rewriting = rewriting or rewrite(gold, rng)
        answers = [
            (in_other_print(gold, rng), True),
            (rewriting, True),
            (make_wrong(gold, rng), False),
        ]
        cases += [Case(write_completion(a, rng), gold, right) for a, right in answers if a]
    return cases


def hostile_cases(which: Sequence[int], rng: random.Random) -> list[Case]:
    """The numbered ones of `HOSTILE`, with new numbers in them."""
    cases = []
    for at in which:
        prediction = HOSTILE[at % len(HOSTILE)](rng.randrange(100, 1_000))
        cases.append(Case(write_completion(prediction, rng), str(rng.randrange(1, 100)), False))
    return cases


def make_round(
    at: int, num_rounds: int, golds: Sequence[tuple[str, str | None]], num_rows: int
) -> dict[str, list[Case]]:
    """The three sets of one round: integers, expressions, hostile.

    Args:
        at: which round, from 0; its golds are its own.
        num_rows: the most completions per set; but four times as many integers, and of the hostile
            ones one of each kind.
    """
    rng = random.Random(f"round {at}")
    order = random.Random("hostile").sample(range(len(HOSTILE)), len(HOSTILE))
    turn = NUM_HOSTILE * at % len(order)  # each round shows the baselines others
    return {
        "integers": integer_cases(4 * num_rows, rng),  # fast, so that it takes many to time them
        "expressions": expression_cases(list(golds)[at::num_rounds], rng)[:num_rows],
        "hostile": hostile_cases(order[turn:] + order[:turn], rng),
    }
