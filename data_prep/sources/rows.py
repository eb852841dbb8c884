"""Rows of one question and its golds, which most data sets have, under whatever names.

verl's parquet files (`prompt` of {role, content}, `reward_model.ground_truth`), slime's (`label`)
and ORZ's (`final_answer`) are read by the same names for every source.
"""

import math
import re
from typing import Any

from data_prep.config import UserError
from data_prep.grading.extraction import find_boxes
from data_prep.schema import Problem
from data_prep.sources import Drop, find_value, get_question, get_text, repair_escapes, to_text

QUESTIONS = ("problem", "question", "Problem", "prompt", "instruction", "input")
GOLDS = (
    "answer", "final_answer", "Answer", "solutions", "label", "target", "reward_model.ground_truth",
    "ground_truth",
)  # fmt: skip
SOLUTIONS = ("solution", "Solution", "extra_info.solution")
SUBJECTS = ("subject", "type", "extra_info.subject", "extra_info.type")
_BOXED = re.compile(
    r"\$*+\s*+(?:\\\(|\\\[)?+\s*+\\boxed\s*+(\{.*\})\s*+(?:\\\)|\\\])?+\s*+\$*+\.?+", re.DOTALL
)


def build_row(
    row: dict[str, Any],
    problem_id: str,
    where: str,
    source: str,
    questions: tuple[str, ...] = QUESTIONS,
    golds: tuple[str, ...] = GOLDS,
    solutions: tuple[str, ...] = SOLUTIONS,
    **fields: Any,
) -> Problem | Drop:
    """A problem from the columns that most sets have; `Drop`s for want of a gold or a question.

    Args:
        questions, golds, solutions: names of columns, of which the first that the row has counts.
        fields: further fields of the problem.

    Raises:
        UserError: no such column of questions or golds, or one of a wrong type.
    """
    question = get_question(row, questions, where)
    if isinstance(question, Drop):
        return question
    values = get_golds(row, golds, where)
    if not values:
        return Drop("no_answer", where)
    solution = get_text(row, solutions, where, default="") if solutions else ""
    fields = {"solution": repair_escapes(solution).strip()} | fields
    return Problem(
        problem_id, source, question, values[0], other_answers=tuple(values[1:]), **fields
    )


def get_golds(row: dict[str, Any], columns: tuple[str, ...], where: str) -> list[str]:
    """The golds of a row, each once, of which any may match; none where they are null or empty.

    Raises:
        UserError: the row has no such column, or something other than text, numbers or a list of
            them there.
    """
    found = find_value(row, columns)
    if found is None:
        get_text(row, columns, where)  # names the columns that are missing
    column, value = found
    values = value if isinstance(value, list) else [value]
    texts = [to_text(v, column, where, allows_numbers=True) for v in values if v is not None]
    return list(dict.fromkeys(filter(None, map(clean_gold, texts))))


def clean_gold(text: str) -> str:
    r"""A gold without broken escapes, white space around it, or a `\boxed{}` around all of it."""
    text = repair_escapes(text).strip()
    while found := _BOXED.fullmatch(text):
        boxes = find_boxes("\\boxed" + found[1])
        if len(boxes) != 1 or len(boxes[0]) + 2 != len(found[1]):
            break  # two boxes, one at either end
        text = boxes[0].strip()
    return text


def get_number(row: dict[str, Any], columns: tuple[str, ...], where: str) -> int | float | None:
    """The number in the first of `columns` that the row has, or None where it has none.

    Raises:
        UserError: something other than a finite number there.
    """
    found = find_value(row, columns)
    if found is None or found[1] is None or found[1] == "":
        return None
    value = found[1]
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if type(value) not in (int, float) or not math.isfinite(value):
        raise UserError(f"{where}: {found[0]}: {found[1]!r:.80} is not a number; fix the row")
    return value


def get_share(row: dict[str, Any], columns: tuple[str, ...], where: str) -> float | None:
    """A share from 0 to 1, see `get_number`."""
    value = get_number(row, columns, where)
    if value is not None and not 0 <= value <= 1:
        raise UserError(f"{where}: {columns[0]}: {value!r} is not a share from 0 to 1; fix the row")
    return value


def get_subject(row: dict[str, Any], columns: tuple[str, ...], where: str) -> str:
    """The topic of a row, or "" where the row has none."""
    return get_text(row, columns, where, default="").strip()
