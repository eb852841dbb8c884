"""The audit's completions: gold answers in the recipe's own form, incorrect ones, known exploits.

Pure functions over golds, the form of the answer and an incorrect answer; no model, no harness.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from grading.compare import is_same_value
from grading.own_grader import COLUMN, accepts
from pipeline.prompts import (
    ANSWER_CLOSE,
    BARE_FORMS,
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
MAX_OTHERS = 49  # golds of a set that are tried
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


def trick_completions(golds: Sequence[str], answer_form: str, wrong: str) -> dict[str, str]:
    """A completion for each of `TRICKS`, none of which may earn a reward.

    Each puts the gold where it must earn nothing: beside an incorrect answer, or outside of the
    form that is asked for. Those without a box are for `final_number`.
    """

    def box(answer: str) -> str:
        return write_answer(answer, answer_form)

    gold, other = golds[0], SPARE[0] if wrong.isalpha() else wrong  # a letter would be its name
    start = (
        "### " if answer_form == "hashes" else box("").removesuffix("}").removesuffix(ANSWER_CLOSE)
    )
    # Where no thought is asked for, a gold without one is correct.
    bare = wrong if answer_form in BARE_FORMS else gold
    return {
        "a wrong answer": CLOSED + box(wrong),
        "nothing at all": "",
        "empty box": CLOSED + box(""),
        "two boxes, gold last": f"{CLOSED}{box(wrong)} {box(gold)}",
        "one box or the other": f"{CLOSED}{box(gold)} or {box(wrong)}",
        "both in one box": CLOSED + box(rf"{wrong} \text{{ or }} {gold}"),
        "wrong = gold": CLOSED + box(f"{other} = {gold}"),
        "gold in the thought only": f"{THINK_OPEN}\n{box(gold)}\n{THINK_CLOSE}\n\nThat is it.",
        "thought never closed": f"{THINK_OPEN}\n{THOUGHT}\n\n{box(gold)}",
        "no thought": box(bare),
        "gold = gold": CLOSED + box(f"{gold} = {gold}"),
        "thought opened again": CLOSED + CLOSED + box(gold),
        "closed twice": f"{CLOSED}{THINK_CLOSE}\n\n{box(gold)}",
        "tags reversed": f"{THINK_CLOSE}\n{THOUGHT}\n{THINK_OPEN}\n\n{box(gold)}",
        "box never closed": CLOSED + start + gold,
        "one or the other, no box": f"{CLOSED}It is {wrong} or {gold}.",
        "a list of numbers, no box": f"{CLOSED}1, 2, 3, 4, 5, 6, 7, 8, 9, {wrong}, {gold}",
        "gold denied": f"{CLOSED}The answer is not {gold}.",
    }


TRICKS = (*trick_completions(["1"], "box", "2"),)


def is_other_value(answer: str, golds: Sequence[str]) -> bool:
    """Whether `answer` is another value than every gold."""
    return not any(is_same_value(answer, gold) for gold in golds)


def wrong_answers(rows: Sequence[dict[str, Any]]) -> list[str]:
    """An incorrect answer for each row, by the grader that judges it; a file may mix several.

    It is the first gold of one of the next rows with such a grader, from the end on from the start.
    """
    found = [""] * len(rows)
    for is_own, choose in ((False, wrong_answer), (True, own_wrong_answer)):
        places = [at for at, row in enumerate(rows) if bool(row.get(COLUMN)) is is_own]
        golds = [rows[at]["answers"][0] for at in places]
        for number, at in enumerate(places):
            others = [*golds[number + 1 :], *golds[:number]][:MAX_OTHERS]
            found[at] = choose(rows[at], dict.fromkeys([*others, *SPARE]))
    return found


def wrong_answer(row: dict[str, Any], others: Iterable[str]) -> str:
    r"""The first of other golds that is certainly incorrect here.

    Only plain numbers, and for an option another option: a name, a letter or an expression may
    label the gold (`\cot x = 4`).
    """
    golds = row["answers"]
    form = _OPTION if _OPTION.fullmatch(golds[0]) else _NUMBER
    tried = (answer for answer in others if form.fullmatch(answer))
    return next((one for one in tried if is_other_value(one, golds)), f"{golds[0]} + 1")


def own_wrong_answer(row: dict[str, Any], others: Iterable[str]) -> str:
    """The first of other golds that the user's own grader refuses here.

    Any other where it refuses none: a grader that accepts everything is to be found out.
    """
    others = [answer for answer in others if answer not in row["answers"]]
    how = row["answers"], row["answer_form"]
    return next((one for one in others if not accepts(row[COLUMN], one, *how)), others[0])
