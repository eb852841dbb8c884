r"""Any data set of questions and answers, by the names of its columns.

    name: generic
    file: mine.jsonl
    prompt_key: prompt
    answer_key: reward_model.ground_truth
    apply_chat_template: true

A prompt is text (bare, or in a chat template already) or a list of {role, content} or {from, value}
with one user turn. A gold is text, a number, or a list of them of which any may match; a `\boxed{}`
around all of it is taken off, and of `… #### 18` the tail counts. `Drop` reason: `no_answer`.
"""

from dataclasses import replace
from typing import Any

from data_prep.config import UserError
from data_prep.schema import Problem
from data_prep.sources.base import Drop, build_row, clean_gold, find_value, get_number
from data_prep.sources.templates import chat_turns

MARK = "####"


def build_problem(
    row: dict[str, Any],
    problem_id: str,
    where: str,
    *,
    prompt_key: str,
    answer_key: str,
    solution_key: str | None = None,
    level_key: str | None = None,
    apply_chat_template: bool | None = None,
) -> Problem | Drop:
    """Turn a row into a problem.

    Args:
        prompt_key, answer_key, solution_key, level_key: columns; `a.b` is b of the struct a.
        apply_chat_template: whether prompts are lists of messages, to which a template is still to
            be applied (true), or text (false); None takes both.

    Raises:
        UserError: a missing column, one of a wrong type, or a prompt of the other shape.
    """
    _check_shape(row, prompt_key, apply_chat_template, where)
    built = build_row(
        row,
        problem_id,
        where,
        "generic",
        (prompt_key,),
        (answer_key,),
        (solution_key,) if solution_key else (),
        level=get_number(row, (level_key,), where) if level_key else None,
    )
    if isinstance(built, Drop):
        return built
    tails = (clean_gold(gold.rpartition(MARK)[2]) for gold in built.answers)
    golds = list(dict.fromkeys(filter(None, tails)))
    if not golds:
        return Drop("no_answer")
    return replace(built, answers=tuple(golds))


def _check_shape(row: dict[str, Any], key: str, is_chat: bool | None, where: str) -> None:
    found = find_value(row, (key,))
    if is_chat is None or found is None or found[1] is None:
        return
    if (chat_turns(found[1]) is not None) != is_chat:
        wanted = "a list of messages" if is_chat else "text"
        raise UserError(
            f"{where}: {key}: {found[1]!r:.80} is not {wanted}; set apply_chat_template to "
            f"{str(not is_chat).lower()}, or leave it out"
        )
