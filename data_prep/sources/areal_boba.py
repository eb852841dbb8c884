r"""AReaL-boba (`inclusionAI/AReaL-boba-Data`): 106k RL problems in the R1-distill prompt template.

`prompt` holds the question between template tokens, `solutions` the golds, each in a `\boxed{}`, of
which any may match. `query_id` is no id (the published example has "xx"), so positions are. `Drop`
reasons: `not_math`, a `task` other than math; `no_answer`.
"""

from typing import Any

from data_prep.schema import Problem
from data_prep.sources.base import Drop, build_row, get_text


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn a boba row into a problem; `level` stays None, and there is no solution.

    Raises:
        UserError: a missing column, one of a wrong type, or a prompt that is no single question.
    """
    task = get_text(row, ("task",), where, default="math").strip()
    if task.lower() != "math":
        return Drop("not_math", f"task {task!r:.40}")
    return build_row(row, problem_id, where, "areal_boba", ("prompt",), ("solutions", "answer"), ())
