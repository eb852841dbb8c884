"""Completions for the grader's benchmark, with labels: integers, expressions and hostile input.

They are new in every round, so that no cache helps but within a gold's group, as in GRPO's groups.
The expressions are a table, made once: golds of MATH-500 (MIT) and some written by hand, each in
other print, rewritten, and with an incorrect answer.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("grader_expressions.jsonl")
# What a policy may write into the box. K is a number that makes each new; no value is the gold's.
HOSTILE = (
    "9^{9^{9^{K}}}",
    "2^{K00000}",
    "((K!)!)!",
    r"\binom{K000000}{K00000}",
    r"\boxed{" * 5_000 + "K",
    "{" * 5_000 + "K" + "}" * 5_000,
    r"\frac{1}{1+" * 200 + "K" + "}" * 200,
    r"\sum_{i=1}^{K000000000} \frac{1}{i^2+i}",
    r"\int_0^1 x^{x^{Kx}} dx",
    r"\sin(K^{K^{K}})",
    "import os; os.system('sleep K')",
    "K" * 10_000,
    "Ke999999999",
    "x=" * 1_000 + "K",
    r"(1+\frac{1}{K})^{K0000}",
    # These two look harmless, reach math-verify in our worker, and take its whole time there.
    r"\sum_{i=1}^{\infty} \frac{\sin(i)}{i^3+i+K}",
    r"\int_0^{\infty} \frac{\sin(x^3) \ln(1+x)}{\sqrt{K+x^5}} dx",
)
NUM_HOSTILE = 4  # of the hostile set, that a baseline gets: they cost it seconds


@dataclass(frozen=True, slots=True)
class Case:
    """One completion, its gold, and whether it is correct."""

    completion: str
    gold: str
    is_right: bool


_STEPS = (
    "So the total is {0} times {1}, that is {2}.",
    "Wait, let me check: {0} + {1} = {3}.",
    "If I write this as $\\frac{{{0}}}{{{1}}}$, the rest follows.",
    "Then $x = {0}$ and $y = {1}$.",
)
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


def integer_cases(num: int, rng: random.Random) -> list[Case]:
    """GSM8K-like: whole numbers, eight completions to a gold, five of them correct."""
    cases: list[Case] = []
    while len(cases) < num:
        n = rng.choice([rng.randrange(1, 100), rng.randrange(1, 5_000), rng.randrange(1, 200_000)])
        right = [str(n), f"{n:,}", rf"\${n}", str(n), f"{n}.00"]
        wrong = [str(n + rng.randrange(1, 50)), str(10 * n), f"{n}.5"]
        cases += [Case(write_completion(p, rng), str(n), True) for p in right]
        cases += [Case(write_completion(p, rng), str(n), False) for p in wrong]
    return cases[:num]


def expression_cases(at: int, num_rounds: int, rng: random.Random) -> list[Case]:
    """MATH-like: the rows of the table whose golds are for round `at`."""
    rows = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    golds = list(dict.fromkeys(row["gold"] for row in rows))
    mine = set(golds[at::num_rounds])
    return [
        Case(write_completion(row["prediction"], rng), row["gold"], row["right"])
        for row in rows
        if row["gold"] in mine
    ]


def hostile_cases(at: int, rng: random.Random) -> list[Case]:
    """All kinds of hostile input; the first ones, which the baselines get, differ by round."""
    kinds = random.Random("hostile").sample(HOSTILE, len(HOSTILE))
    turn = NUM_HOSTILE * at % len(kinds)
    cases = []
    for kind in kinds[turn:] + kinds[:turn]:
        answer = kind.replace("K", str(rng.randrange(100, 1_000)))
        cases.append(Case(write_completion(answer, rng), "7", False))
    return cases


def make_round(at: int, num_rounds: int, num_rows: int) -> dict[str, list[Case]]:
    """The sets of round `at`, from 0: integers, expressions and hostile input."""
    rng = random.Random(f"round {at}")
    return {
        "integers": integer_cases(4 * num_rows, rng),  # fast, so that it takes many to time them
        "expressions": expression_cases(at, num_rounds, rng)[:num_rows],
        "hostile": hostile_cases(at, rng),
    }
