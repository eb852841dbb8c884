"""Traces that `stages.distill` kept: a question with one worked solution of a teacher.

A question may occur several times, with another `trace` each, which is added to the id.
"""

from typing import Any

from data_prep.config import UserError
from data_prep.schema import Problem
from data_prep.sources.base import Drop, get_golds, get_number, get_subject, get_text


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn a row of `traces.jsonl` into a problem of the source that its question came from.

    Raises:
        UserError: a missing column, or one of a wrong type.
    """
    trace = get_number(row, ("trace",), where)
    if type(trace) is not int or trace < 0:
        raise UserError(f"{where}: trace: {trace!r} is not a number from 0; fix the row")
    golds = get_golds(row, ("answers", "answer"), where)
    if not golds:
        return Drop("no_answer")
    return Problem(
        f"{get_text(row, ('id',), where)}-t{trace}",
        get_text(row, ("source",), where),
        get_text(row, ("question",), where).strip(),
        tuple(golds),
        get_text(row, ("solution",), where).strip(),
        get_number(row, ("level",), where),
        get_subject(row, ("subject",), where),
        trace=trace,
    )
