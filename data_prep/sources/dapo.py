"""DAPO-Math-17k (`BytedTsinghua-SIA/DAPO-Math-17k`): problems rewritten to have integer answers.

Copies come in verl's schema, with and without the prompt's wrapper, in slime's (`prompt`, `label`)
and in TTRL's (`prompt` as text, `answer`). Upstream every problem occurs a hundred times, and
`extra_info.index` repeats with it, so positions are the ids. `Drop` reason: `no_answer`.
"""

from typing import Any

from data_prep.schema import Problem
from data_prep.sources.base import Drop, build_row


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn a DAPO row into a problem; `level` stays None, and there is no solution.

    Raises:
        UserError: a missing column, or one of a wrong type.
    """
    golds = ("reward_model.ground_truth", "label", "answer", "solution")
    return build_row(row, problem_id, where, "dapo", ("prompt", "problem", "question"), golds, ())
