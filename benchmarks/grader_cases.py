"""Completions for the grader's benchmark, with labels: integers, expressions and hostile input.

They are new in every round, so that no cache helps but within a gold's group, as in GRPO's groups.
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
    lambda k: f"2^{{{k}00000}}",
    lambda k: f"(({k}!)!)!",
    lambda k: rf"\binom{{{k}000000}}{{{k}00000}}",
    lambda k: r"\boxed{" * 5_000 + str(k),
    lambda k: "{" * 5_000 + str(k) + "}" * 5_000,
    lambda k: r"\frac{1}{1+" * 200 + str(k) + "}" * 200,
    lambda k: rf"\sum_{{i=1}}^{{{k}000000000}} \frac{{1}}{{i^2+i}}",
    lambda k: rf"\int_0^1 x^{{x^{{{k}x}}}} dx",
    lambda k: rf"\sin({k}^{{{k}^{{{k}}}}})",
    lambda k: f"import os; os.system('sleep {k}')",
    lambda k: f"{k}" * 10_000,
    lambda k: f"{k}e999999999",
    lambda k: "=".join(["x"] * 1_000 + [str(k)]),
    lambda k: rf"(1+\frac{{1}}{{{k}}})^{{{k}0000}}",
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
)  # fmt: skip
_CLOSINGS = ("The answer is {}.", "So the result is ${}$.", "This gives\n$${}$$", "**Answer:** {}")


def write_completion(prediction: str, rng: random.Random) -> str:
    """A thought of some hundred words, then one to three sentences with the prediction in a box."""
    steps = []
    for _ in range(rng.randrange(15, 60)):
        a, b = rng.randrange(2, 500), rng.randrange(2, 500)
        steps.append(rng.choice(_STEPS).format(a, b, a * b, a + b))
    thought, said = "\n".join(steps), " ".join(steps[: rng.randrange(3)])
    closing = rng.choice(_CLOSINGS).format(rf"\boxed{{{prediction}}}")
    return f"<think>\n{thought}\n</think>\n\n{said} {closing}".replace("\n\n ", "\n\n")


def in_other_print(gold: str, rng: random.Random) -> str:
    """The same answer, printed differently."""
    changes = [
        gold.replace(r"\frac", r"\dfrac"),
        re.sub(r"\\text\{([^{}]*)\}", r"\1", gold),
        re.sub(r"(?<=[\w})])([+=])(?=[\w({\\])", r" \1 ", gold),
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
    """Another value, mostly of the same shape."""
    if digits := list(re.finditer(r"\d", gold)):
        at = rng.choice(digits).start()
        return gold[:at] + rng.choice("123456789".replace(gold[at], "")) + gold[at + 1 :]
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
        right = filter(None, [in_other_print(gold, rng), rewriting or rewrite(gold, rng)])
        cases += [Case(write_completion(answer, rng), gold, True) for answer in right]
        cases.append(Case(write_completion(make_wrong(gold, rng), rng), gold, False))
    return cases


def make_round(
    at: int, num_rounds: int, golds: Sequence[tuple[str, str | None]], num_rows: int
) -> dict[str, list[Case]]:
    """The sets of round `at`, from 0: integers, expressions, and all kinds of hostile ones."""
    rng = random.Random(f"round {at}")
    kinds = random.Random("hostile").sample(HOSTILE, len(HOSTILE))
    turn = NUM_HOSTILE * at % len(kinds)  # each round shows the baselines others
    answers = [kind(rng.randrange(100, 1_000)) for kind in kinds[turn:] + kinds[:turn]]
    return {
        "integers": integer_cases(4 * num_rows, rng),  # fast, so that it takes many to time them
        "expressions": expression_cases(list(golds)[at::num_rounds], rng)[:num_rows],
        "hostile": [Case(write_completion(answer, rng), "7", False) for answer in answers],
    }
