"""The audit's completions: gold answers in the recipe's own form, incorrect ones, known exploits.

Pure functions over golds, the form of the answer and an incorrect answer; no model, no harness.
"""

import re
from collections.abc import Sequence
from typing import Any

from grading.compare import is_same_value
from grading.own_grader import COLUMN, accepts
from pipeline.prompts import (
    ANSWER_CLOSE,
    ANSWER_OPEN,
    BARE_FORMS,
    HASHES,
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
# Exploits. Each puts the gold where it must earn nothing: next to an incorrect answer, or outside
# of the form that is asked for (`box_…`). Those without a box are for `final_number`.
TRICKS = {
    "a wrong answer": "{closed}{box_wrong}",
    "nothing at all": "",
    "empty box": "{closed}{box_empty}",
    "two boxes, gold last": "{closed}{box_wrong} {box_gold}",
    "one box or the other": "{closed}{box_gold} or {box_wrong}",
    "both in one box": "{closed}{box_both}",
    "wrong = gold": "{closed}{box_equal}",
    "gold in the thought only": "{open}\n{box_gold}\n{close}\n\nThat is it.",
    "thought never closed": "{open}\n{thought}\n\n{box_gold}",
    "no thought": "{box_gold}",
    "gold = gold": "{closed}{box_same}",
    "thought opened again": "{closed}{closed}{box_gold}",
    "closed twice": "{closed}{close}\n\n{box_gold}",
    "tags reversed": "{close}\n{thought}\n{open}\n\n{box_gold}",
    "box never closed": "{closed}{box_unclosed}",
    "one or the other, no box": "{closed}It is {wrong} or {gold}.",
    "a list of numbers, no box": "{closed}1, 2, 3, 4, 5, 6, 7, 8, 9, {wrong}, {gold}",
    "gold denied": "{closed}The answer is not {gold}.",
}

# Those that a grader of the user's own must refuse, too. The others test how ours reads boxes and
# mathematics; such a grader may read its texts in another way.
GENERAL_TRICKS = (
    "a wrong answer",
    "nothing at all",
    "empty box",
    "gold in the thought only",
    "thought never closed",
)

# How reasoning models end when no form is asked for. Each is correct, and must be read.
ENDINGS = {
    "own form": "{box}",
    "sentence": "So the answer is ${box}$.",
    "displayed": "**Final answer:**\n\n$$\n{box}\n$$",
}


def gold_completion(golds: Sequence[str], answer_form: str) -> str:
    """The first gold in the form of the recipe's own completions, after a short thought."""
    return build_completion(THOUGHT, golds[0], answer_form)


def ending_completion(golds: Sequence[str], answer_form: str, ending: str) -> str:
    """The first gold with one of `ENDINGS`; a form without a box has its own ending only."""
    own = gold_completion(golds, answer_form)
    if "box" not in answer_form:
        return own
    box = write_answer(golds[0], answer_form)
    return own.removesuffix(box) + ENDINGS[ending].replace("{box}", box)


def trick_completions(golds: Sequence[str], answer_form: str, wrong: str) -> list[str]:
    """One completion for each of `TRICKS`, none of which may earn a reward."""
    gold, before, after = golds[0], "\\boxed{", "}"
    if answer_form == "tags":
        before, after = ANSWER_OPEN, ANSWER_CLOSE
    elif answer_form == "hashes":
        before, after = f"{HASHES} ", ""
    boxed = {
        "wrong": wrong,
        "gold": gold,
        "empty": "",
        "same": f"{gold} = {gold}",
        "both": rf"{wrong} \text{{ or }} {gold}",
        # A letter would be the gold's name.
        "equal": f"{SPARE[0] if wrong.isalpha() else wrong} = {gold}",
    }
    values = {f"box_{name}": f"{before}{answer}{after}" for name, answer in boxed.items()}
    values |= {"gold": gold, "wrong": wrong, "thought": THOUGHT}
    values["box_unclosed"] = (before if after else "### ") + gold
    values |= {"open": THINK_OPEN, "close": THINK_CLOSE, "closed": CLOSED}
    asked = dict(TRICKS)
    if answer_form in BARE_FORMS:  # no thought is asked for, so a gold without one is correct
        asked["no thought"] = "{box_wrong}"
    return [text.format(**values) for text in asked.values()]


def is_other_value(answer: str, golds: Sequence[str]) -> bool:
    """Whether `answer` is another value than every gold."""
    return not any(is_same_value(answer, gold) for gold in golds)


def wrong_answers(all_golds: Sequence[Sequence[str]]) -> list[str]:
    r"""For each problem of a set the gold of a later problem that is certainly incorrect here.

    Only plain numbers, and for an option another option: a name, a letter or an expression may
    label the gold (`\cot x = 4`).
    """
    found = []
    for place, golds in enumerate(all_golds):
        later = later_golds(all_golds, place)
        form = _OPTION if _OPTION.fullmatch(golds[0]) else _NUMBER
        tried = dict.fromkeys(answer for answer in [*later, *SPARE] if form.fullmatch(answer))
        found.append(next((a for a in tried if is_other_value(a, golds)), f"{golds[0]} + 1"))
    return found


def later_golds(all_golds: Sequence[Sequence[str]], place: int) -> list[str]:
    """The first golds of the problems that follow one, from the end on from the start."""
    return [all_golds[(place + i) % len(all_golds)][0] for i in range(1, MAX_TRIES)]


def own_wrong_answers(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The same for rows of the user's own grader: another gold that it refuses here.

    Any other gold where it refuses none: a grader that accepts everything is to be found out.
    """
    all_golds = [row["answers"] for row in rows]
    found = []
    for place, row in enumerate(rows):
        tried = dict.fromkeys([*later_golds(all_golds, place), *SPARE])
        others = [answer for answer in tried if answer not in row["answers"]]
        how = row["answers"], row["answer_form"]
        refused = (one for one in others if not accepts(row[COLUMN], one, *how))
        found.append(next(refused, others[0]))
    return found


def wrong_answers_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """An incorrect answer for each row, by the grader that judges it; a file may mix several."""
    ours = iter(wrong_answers([row["answers"] for row in rows if not row.get(COLUMN)]))
    own = iter(own_wrong_answers([row for row in rows if row.get(COLUMN)]))
    return [next(own if row.get(COLUMN) else ours) for row in rows]
