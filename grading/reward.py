"""The grader as a reward function for any TRL trainer, without the rest of this project.

    from functools import partial
    from grading import correctness_reward

    GRPOTrainer(..., reward_funcs=[partial(correctness_reward, column="solution")])

It takes plain-text and conversational data sets, and models with or without a `<think>` thought.
"""

import math
from collections.abc import Sequence
from typing import Any

from grading.boxes import last_boxed
from grading.grade import grade_rollouts
from grading.own_grader import COLUMN

COLUMNS = ("answers", "answer", "gold", "ground_truth", "target", "solution", "final_answer")


def correctness_reward(
    completions: Sequence[str | list[dict]],
    column: str | None = None,
    think_prefilled: bool | None = None,
    answer_form: str | Sequence[str] = "box",
    final_number: bool = False,
    **columns: Any,
) -> list[float | None]:
    """1.0 where the final answer equals a gold, else 0.0; None for a row without a gold.

    TRL 1.16 leaves a completion out of the training if its rewards are all None.

    Args:
        completions: texts, or conversations of which the last assistant message is graded.
        column: the column with the golds: texts, numbers, or lists of which any may match. In a
            worked solution the gold is its last box, or the text after `####`. By default the first
            column of `COLUMNS` that the data set has.
        think_prefilled: True if the prompts end with `<think>`, False if a thought is required,
            None if it is optional.
        answer_form: where an answer is looked for; one for all rows or, as TRL hands over a column
            of that name, one for each. The other keys are those of `grade.grade_all`.

    Raises:
        ValueError: the data set has no such column.
    """
    name = column or next((one for one in COLUMNS if one in columns), None)
    if name not in columns:
        known = ", ".join(key for key, value in columns.items() if isinstance(value, list))
        raise ValueError(f"column: {name or COLUMNS} is not in the data set, which has {known}")
    golds = [read_golds(value) for value in columns[name]]
    questions = columns.get("question") or [""] * len(golds)
    forms = [answer_form] * len(golds) if isinstance(answer_form, str) else answer_form
    grades = grade_rollouts(
        [last_text(completion) for completion in completions],
        golds,
        forms,
        ["" if question is None else str(question) for question in questions],
        own_graders=columns.get(COLUMN),
        think_prefilled=think_prefilled,
        final_number=final_number,
    )
    pairs = zip(grades, golds, strict=True)
    return [float(one.verdict == "right") if gold else None for one, gold in pairs]


def read_golds(value: Any) -> list[str]:
    """The golds of one row as texts; empty where there is none."""
    if isinstance(value, list | tuple | set):
        return [gold for one in value for gold in read_golds(one)]
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return []
    text = str(value).rpartition("####")[2].strip()
    return [last_boxed(text) or text] if text else []


def last_text(completion: str | list[dict]) -> str:
    """The assistant's last message; parts that are not text are left out."""
    if isinstance(completion, str):
        return completion
    written = [one.get("content") for one in completion if one.get("role") == "assistant"]
    content = written[-1] if written else ""
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content or ""
