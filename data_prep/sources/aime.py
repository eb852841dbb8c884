"""AIME (`HuggingFaceH4/aime_2024`, `Maxwell-Jia/AIME_2024`, `math-ai/aime25`): 30 problems a year.

Every answer is an integer from 0 to 999, on the answer sheet with leading zeros. Mirrors write it
as a number, as `073` or as `336^\\circ`; the gold here is the bare integer, `73`. ORZ's and verl's
evaluation files are read as well, see `data_prep.sources.math`; DAPO's repeats every row 32 times.
"""

import re
from typing import Any

from data_prep.config import UserError
from data_prep.schema import Problem
from data_prep.sources.base import (
    Drop,
    clean_gold,
    find_value,
    get_question,
    get_text,
    own_id,
    repair_escapes,
)

_GOLD = re.compile(r"\s*\$?\s*0*(\d{1,3})\s*(?:\^\s*\{?\s*\\circ\s*\}?|\N{DEGREE SIGN})?\s*\$?\s*")


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn an AIME row into a problem; `level` stays None. `Drop` reason: `no_answer`.

    Raises:
        UserError: a missing column, or a gold that is no integer from 0 to 999. AIME has no such
            rows: the file is damaged or is another data set, and dropping would hide it.
    """
    question = get_question(row, ("problem", "question", "Problem", "prompt"), where)
    if isinstance(question, Drop):
        return question
    columns = ("answer", "final_answer", "Answer", "reward_model.ground_truth")
    if (found := find_value(row, columns)) and found[1] in (None, ""):
        return Drop("no_answer")
    text = clean_gold(get_text(row, columns, where, allows_numbers=True))
    gold = _GOLD.fullmatch(text)
    if not gold:
        raise UserError(
            f"{where}: {find_value(row, columns)[0]}: the gold {text!r:.80} is no integer from 0 "
            "to 999; fix the row"
        )
    solution = get_text(row, ("solution", "Solution"), where, default="")
    own = find_value(row, ("id", "ID", "extra_info.index"))
    return Problem(
        own_id(problem_id, own and own[1]),
        "aime",
        question,
        (str(int(gold[1])),),
        repair_escapes(solution).strip(),
    )
