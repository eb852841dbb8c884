"""What the audit pushes through: gold answers in the recipe's own form, wrong ones, known tricks.

Pure functions over golds, the form of the answer and a wrong answer; no model, no harness.
"""

import re
from collections.abc import Callable, Sequence

from data_prep.grading.equivalence import TooLarge, compare
from data_prep.prompts import (
    ANSWER_CLOSE,
    ANSWER_OPEN,
    THINK_CLOSE,
    THINK_OPEN,
    build_completion,
    write_answer,
)

THOUGHT = "The steps lead to the answer."
CLOSED = f"{THINK_OPEN}\n{THOUGHT}\n{THINK_CLOSE}\n\n"
# Tried where no other problem's gold is certainly another value.
SPARE = ("17", "-3", "1000", "A", "B")
_NUMBER, _OPTION = re.compile(r"-?\d+(?:\.\d+)?"), re.compile("[A-J]")
MAX_TRIES = 50
SPAM = ", ".join(map(str, range(1, 10)))
# What closes each form of an empty answer.
CLOSERS = {"\\boxed{}": "}", ANSWER_OPEN + ANSWER_CLOSE: ANSWER_CLOSE}

# Each puts the gold where it must not be paid: next to a wrong answer, or outside of the form that
# is asked for. `box` writes an answer in the asked form. Those without a box are for recipes with
# `final_number`, whose readers look at prose too.
TRICKS: dict[str, Callable[[str, str, Callable[[str], str]], str]] = {
    "a wrong answer": lambda gold, wrong, box: CLOSED + box(wrong),
    "nothing at all": lambda gold, wrong, box: "",
    "empty box": lambda gold, wrong, box: CLOSED + box(""),
    "two boxes, gold last": lambda gold, wrong, box: f"{CLOSED}{box(wrong)} {box(gold)}",
    "one box or the other": lambda gold, wrong, box: f"{CLOSED}{box(gold)} or {box(wrong)}",
    "both in one box": lambda gold, wrong, box: CLOSED + box(rf"{wrong} \text{{ or }} {gold}"),
    # A letter would be the gold's name.
    "wrong = gold": lambda gold, wrong, box: (
        CLOSED + box(f"{SPARE[0] if wrong.isalpha() else wrong} = {gold}")
    ),
    "gold in the thought only": lambda gold, wrong, box: (
        f"{THINK_OPEN}\n{box(gold)}\n{THINK_CLOSE}\n\nThat is it."
    ),
    "thought never closed": lambda gold, wrong, box: f"{THINK_OPEN}\n{THOUGHT}\n\n{box(gold)}",
    "no thought": lambda gold, wrong, box: box(gold),
    "empty thought": lambda gold, wrong, box: f"{THINK_OPEN}\n{THINK_CLOSE}\n\n{box(gold)}",
    "thought opened again": lambda gold, wrong, box: (
        f"{CLOSED}{THINK_OPEN}\n{THOUGHT}\n{THINK_CLOSE}\n\n{box(gold)}"
    ),
    "closed twice": lambda gold, wrong, box: f"{CLOSED}{THINK_CLOSE}\n\n{box(gold)}",
    "tags reversed": lambda gold, wrong, box: (
        f"{THINK_CLOSE}\n{THOUGHT}\n{THINK_OPEN}\n\n{box(gold)}"
    ),
    "box never closed": lambda gold, wrong, box: CLOSED + box(gold).removesuffix(CLOSERS[box("")]),
    "one or the other, no box": lambda gold, wrong, box: f"{CLOSED}It is {wrong} or {gold}.",
    "a list of numbers, no box": lambda gold, wrong, box: f"{CLOSED}{SPAM}, {wrong}, {gold}",
    "gold denied": lambda gold, wrong, box: f"{CLOSED}The answer is not {gold}.",
}

# How reasoning models end when nothing holds them to a form: each is right, and must be read.
ENDINGS = {
    "own form": "{box}",
    "sentence": "So the answer is ${box}$.",
    "displayed": "**Final answer:**\n\n$$\n{box}\n$$",
}


def gold_completion(golds: Sequence[str], answer_form: str) -> str:
    """The first gold as the recipe's own completions have it, after a short thought."""
    return build_completion(THOUGHT, golds[0], answer_form)


def ending_completion(golds: Sequence[str], answer_form: str, ending: str) -> str:
    """The first gold with one of `ENDINGS`; in tags there is the own form only."""
    own = gold_completion(golds, answer_form)
    if answer_form == "tags":
        return own
    box = write_answer(golds[0], answer_form)
    return own.removesuffix(box) + ENDINGS[ending].replace("{box}", box)


def trick_completions(golds: Sequence[str], answer_form: str, wrong: str) -> list[str]:
    """One completion for each of `TRICKS`, none of which may be paid."""

    def box(answer: str) -> str:
        return write_answer(answer, answer_form)

    return [write(golds[0], wrong, box) for write in TRICKS.values()]


def is_certainly_other(answer: str, golds: Sequence[str]) -> bool:
    """Whether `answer` is another value than every gold beyond doubt."""
    try:
        return all(compare(answer, gold) is False for gold in golds)
    except TooLarge:
        return False


def wrong_answers(all_golds: Sequence[Sequence[str]]) -> list[str]:
    r"""For each problem of a set the gold of a later problem that is certainly wrong here.

    Plain numbers, and options for options: a name, a letter or an expression may label the gold
    (`\cot x = 4`).
    """
    found = []
    for place, golds in enumerate(all_golds):
        later = [all_golds[(place + i) % len(all_golds)][0] for i in range(1, MAX_TRIES)]
        form = _OPTION if _OPTION.fullmatch(golds[0]) else _NUMBER
        tried = dict.fromkeys(answer for answer in [*later, *SPARE] if form.fullmatch(answer))
        found.append(next((a for a in tried if is_certainly_other(a, golds)), f"{golds[0]} + 1"))
    return found
