"""GPQA (`Idavidrein/gpqa`, config `gpqa_diamond`): graduate questions in science, four options.

Upstream the right option has a column of its own, so the options are put in an order that
the question alone decides: the same in every run, whichever copy the row comes from. AReaL's copy
(`ori_question`, `options`, the letter in `answer`) is read as well. The gold is the letter.
The set is gated: accept its terms on the hub, and keep its questions out of public files.
"""

import hashlib
from typing import Any

from data_prep.config import UserError
from data_prep.schema import Problem
from data_prep.sources.base import (
    LETTERS,
    Drop,
    check_options,
    find_value,
    get_text,
    own_id,
    show_options,
)

RIGHT = "Correct Answer"
OPTIONS = (RIGHT, "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn a GPQA row into a problem; `level` stays None, `solution` is GPQA's explanation.

    Raises:
        UserError: a missing or empty column, options that are not four, or a gold that is none of
            their letters.
    """
    question = get_text(row, ("Question", "ori_question"), where).strip()
    if found := find_value(row, ("options",)):
        options = check_options(found[1], "options", range(4, 5), where)
        letter = get_text(row, ("answer",), where).strip()
        if len(letter) != 1 or letter not in LETTERS[:4]:
            raise UserError(f"{where}: answer: {letter!r} is none of A, B, C, D; fix the row")
        right = LETTERS.index(letter)
    else:
        options = [get_text(row, (column,), where, allows_numbers=True) for column in OPTIONS]
        check_options(options, "the answers", range(4, 5), where)
        right = OPTIONS.index(RIGHT)
    order = sorted(range(4), key=lambda at: _draw(question, options[at]))
    own = find_value(row, ("Record ID", "id"))
    return Problem(
        own_id(problem_id, own and own[1]),
        "gpqa",
        show_options(question, [options[at] for at in order]),
        (LETTERS[order.index(right)],),
        get_text(row, ("Explanation",), where, default="").strip(),
    )


def _draw(question: str, option: str) -> bytes:
    """An option's place by lot; a hash, since `random`'s shuffle may change with Python."""
    key = " ".join(question.split()) + "\n" + " ".join(option.split())
    return hashlib.sha256(key.encode()).digest()
