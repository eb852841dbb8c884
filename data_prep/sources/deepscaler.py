r"""DeepScaleR-Preview (`agentica-org/DeepScaleR-Preview-Dataset`): 40k problems of AIME, AMC, MATH.

Upstream rows have `problem`, `answer` and `solution`, empty in most. Its component files in rllm
also have `difficulty` and `type`, and verl's parquet files the prompt with the suffix "Let's
think step by step and output the final answer within \boxed{}." `Drop` reason: `no_answer`.
"""

from typing import Any

from data_prep.schema import Problem
from data_prep.sources.base import SUBJECTS, Drop, build_row, get_number, get_subject


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn a DeepScaleR row into a problem; `level` is its difficulty where the file has one.

    Raises:
        UserError: a missing column, or one of a wrong type.
    """
    return build_row(
        row,
        problem_id,
        where,
        "deepscaler",
        level=get_number(row, ("difficulty",), where),
        subject=get_subject(row, SUBJECTS, where),
    )
