"""Rollouts: grade each completion in the form that its prompt asked for.

`stages.difficulty`, `stages.rewards` and `eval.harness.scoring` all call this, so that pass rates,
rewards and evaluation cannot disagree about a completion.
"""

from collections.abc import Sequence

from data_prep.grading.answers import Golds, Grade, grade_all
from data_prep.prompts import wants_answer_tags


def grade_rollouts(
    prompts: Sequence[list[dict[str, str]]],
    completions: Sequence[str],
    golds: Sequence[Golds],
    *,
    think_prefilled: bool,
    final_number: bool,
) -> list[Grade]:
    """Grade completions in order, with one call of `grade_all` for each form of answer.

    Args:
        prompts: for each completion the chat messages it answers.
        completions: what the model wrote, without the prompts.
        golds: for each completion one gold answer, or several of which any may match.
        think_prefilled: the rendered prompts already end with `<think>`.
        final_number: the recipe's key; without a box, the plain number at the end counts.
    """
    rows = list(zip(prompts, completions, golds, strict=True))
    grades: dict[int, Grade] = {}
    for answer_tags in (False, True):
        chosen = [i for i, row in enumerate(rows) if wants_answer_tags(row[0]) == answer_tags]
        found = grade_all(
            [rows[i][1] for i in chosen],
            [rows[i][2] for i in chosen],
            think_prefilled=think_prefilled,
            answer_tags=answer_tags,
            final_number=final_number,
        )
        grades |= zip(chosen, found, strict=True)
    return [grades[i] for i in range(len(rows))]
