r"""DeepMath-103K (`zwhe99/DeepMath-103K`): hard problems, each with three solutions by R1.

`difficulty` runs from about 1 to 10 in halves, with -1 for unknown; `topic` is a path such as
`Mathematics -> Algebra -> Group Theory`. The solutions are R1's completions, `…</think>…\boxed{x}`:
their thought becomes the solution, unless their box is not the gold.
"""

from dataclasses import replace
from typing import Any

from data_prep.config import UserError
from data_prep.schema import Problem
from data_prep.sources.base import Drop, build_row, get_number, get_subject, get_text, right_thought

NUM_TRACES = 3


def build_problem(
    row: dict[str, Any], problem_id: str, where: str, *, trace: int = 1
) -> Problem | Drop:
    """Turn a DeepMath row into a problem; `solution` is "" where that trace is not right.

    Args:
        trace: which of the three solutions to take, from 1; `-t1` or `-t2` is added to the ids of
            the second and third, so that one recipe can list all.

    Raises:
        UserError: a missing column, one of a wrong type, or no such trace.
    """
    if type(trace) is not int or not 1 <= trace <= NUM_TRACES:
        raise UserError(f"deepmath: options: trace: {trace!r} is not 1 to {NUM_TRACES}; change it")
    level = get_number(row, ("difficulty",), where)
    topic = get_subject(row, ("topic",), where)
    built = build_row(
        row,
        problem_id if trace == 1 else f"{problem_id}-t{trace - 1}",
        where,
        "deepmath",
        ("question", "problem"),
        ("final_answer", "answer"),
        (),
        level=None if level is None or level < 0 else level,
        subject=topic.rpartition("->")[2].strip(),
        trace=trace - 1,
    )
    if isinstance(built, Drop):
        return built
    text = get_text(row, (f"r1_solution_{trace}",), where, default="")
    return replace(built, solution=right_thought(text, built.answers))
