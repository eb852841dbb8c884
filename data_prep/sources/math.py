"""MATH (`hendrycks/MATH`) and MATH-500 (`HuggingFaceH4/MATH-500`): competition problems, 5 levels.

The gold is `answer`, or the last `\\boxed{…}` of the solution. ORZ's evaluation files (`prompt` of
{from, value}, `final_answer`) and verl's parquet files (`prompt` of {role, content},
`reward_model.ground_truth`, the rest in `extra_info`) and MathArena's contests (`problem_idx`,
`problem`, `answer`, `problem_type`) are read as well. Some mirrors have no solutions.
"""

import re
from typing import Any

from data_prep.schema import Problem
from data_prep.sources import base
from grading.boxes import last_boxed
from pipeline.errors import UserError

QUESTIONS = ("problem", "question", "prompt")
GOLDS = ("answer", "final_answer", "reward_model.ground_truth")
SOLUTIONS = ("solution", "extra_info.solution")
_LEVEL = re.compile(r"(?:Level )?(?:([1-5])|\?)")
# A mirror of the train split says test/ in every row. Numbers run through both splits, so subject
# and number tell problems apart without that word.
_UNIQUE_ID = re.compile(r"(?:train|test)/(\w+)/(\d+)\.json")


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Turn a MATH row into a problem; `level` is 1 to 5, or None where it is unknown."""
    solution = base.get_text(row, SOLUTIONS, where, default="")
    # Rows with solutions need no column of golds, rows without must have one.
    if solution and not base.clean_gold(
        base.get_text(row, GOLDS, where, default="", allows_numbers=True)
    ):
        row = row | {"answer": last_boxed(base.repair_escapes(solution)) or ""}
    name, columns = _name(row, problem_id, where), (QUESTIONS, GOLDS, SOLUTIONS)
    subject = base.get_text(row, base.SUBJECTS, where, default="").strip()
    level = _level(row, where)
    return base.build_row(row, name, where, "math", *columns, level=level, subject=subject)


def _name(row: dict[str, Any], problem_id: str, where: str) -> str:
    columns = ("unique_id", "extra_info.unique_id", "id", "problem_idx")
    name = base.get_text(row, columns, where, default="", allows_numbers=True)
    parts = _UNIQUE_ID.fullmatch(name)
    return base.own_id(problem_id, f"{parts[1]}-{parts[2]}" if parts else name)


def _level(row: dict[str, Any], where: str) -> int | None:
    columns = ("level", "extra_info.level")
    text = base.get_text(row, columns, where, default="?", allows_numbers=True)
    level = _LEVEL.fullmatch(text.strip())
    if not level:
        raise UserError(f"{where}: level: {text!r} is not 1 to 5, 'Level 1' or 'Level ?'; fix it")
    return int(level[1]) if level[1] else None
