"""OlympiadBench and Minerva, whose golds need a repair before they can be read.

OlympiadBench (`math-ai/olympiadbench`, text alone): `context` before `question`, and in
`final_answer` one text with all values that are asked for. Minerva (`math-ai/minervamath`,
problems of MIT's courses): `answer`, or the last box of the solution.
"""

import re
from typing import Any

from data_prep.schema import Problem
from data_prep.sources import math
from data_prep.sources.base import get_text, get_value
from pipeline.errors import UserError

# Where one bracket is round and the other square, the letter before them names no function.
_NAMED_INTERVAL = re.compile(r"([a-z])(?=\([^()]*\]|\[[^\[\]]*\))")
_NUMPY = re.compile(r"\bnp\.(?=[a-z])")


def build_olympiadbench(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Turn a row of OlympiadBench into a problem; one with an image is refused."""
    question = get_text(row, ("question", "problem"), where)
    if get_value(row, ("image_1",)) or "<img_" in question:
        raise UserError(f"{where}: image_1: the question needs an image; take the set's text part")
    context = get_text(row, ("context",), where, default="").strip()
    values = get_value(row, ("final_answer", "answer"))
    text = ", ".join(map(str, values)) if isinstance(values, list) else str(values or "")
    gold = _NAMED_INTERVAL.sub(r"\1 \\in ", text.replace("$", ""))
    solution = get_value(row, ("solution",))
    if isinstance(solution, list):
        solution = "\n\n".join(map(str, solution))
    told = {"problem": f"{context}\n\n{question}".strip(), "answer": gold, "solution": solution}
    return math.build_problem(told | {"id": row.get("id")}, problem_id, where)


def build_minerva(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Turn a row of Minerva into a problem; one of its golds is written as numpy's code."""
    solution = get_text(row, ("solution",), where, default="")
    repaired = {"solution": _NUMPY.sub(r"\\", solution), "id": row.get("idx")}
    if answer := get_text(row, ("answer",), where, default="", allows_numbers=True):
        repaired["answer"] = _NUMPY.sub(r"\\", answer)
    return math.build_problem(row | repaired, problem_id, where)
