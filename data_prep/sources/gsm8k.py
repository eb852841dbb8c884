"""GSM8K (`openai/gsm8k`, config `main`): grade-school word problems with worked answers.

A row's `answer` is the rationale, with calculator marks `<<48/2=24>>`, and `#### 24` at its end.
`thought: equation` keeps the marks alone: `48 / 2 = 24`, one line each.
"""

import re
from typing import Any

from data_prep.schema import Problem
from data_prep.sources.base import (
    MARK,
    Drop,
    behind_mark,
    find_value,
    get_question,
    get_text,
)
from data_prep.sources.equations import write_thought
from pipeline.errors import UserError

_CALCULATION = re.compile(r"<<([^<>=]*)[^<>]*>>")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


def build_problem(
    row: dict[str, Any], problem_id: str, where: str, *, thought: str | None = None
) -> Problem:
    """Turn a GSM8K row into a problem; `level` stays None. `Drop` reason: `no_answer`.

    `thought: equation` makes the marks the solution, and the number of their operations the level;
    `Drop` reasons: those of `equations.write_thought`.

    No single `####`, or a gold that is not a number, is an error: GSM8K has no such rows, so the
    file is damaged or is another data set, and dropping would hide it.
    """
    question = get_question(row, ("question",), where)
    found = find_value(row, ("answer",))
    if found and found[1] in (None, ""):
        raise Drop("no_answer")
    rationale, *golds = get_text(row, ("answer",), where).split(MARK)
    if len(golds) != 1:
        fault = f"has {len(golds)} {MARK!r} instead of one; end it with '#### <number>'"
        raise UserError(f"{where}: answer: {row['answer'][-60:]!r} {fault}")
    gold = behind_mark(MARK + golds[0])
    answer = gold.replace(",", "")
    if not _NUMBER.fullmatch(answer):
        raise UserError(f"{where}: answer: {gold!r} after {MARK!r} is not a number; fix it")
    if thought:
        lines = write_thought(_CALCULATION.findall(rationale), (answer,))
        text = "\n".join(lines)
        return Problem(problem_id, "gsm8k", question, (answer,), text, level=len(lines))
    solution = _CALCULATION.sub("", rationale).strip()
    return Problem(problem_id, "gsm8k", question, (answer,), solution)
