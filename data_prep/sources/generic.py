r"""Any data set of questions and answers, by the names of its columns; and a teacher's traces.

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
from data_prep.sources.base import (
    Drop,
    build_row,
    clean_gold,
    get_number,
    get_subject,
    get_text,
    get_value,
)
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

    `apply_chat_template`: whether prompts are lists of messages, to which a template is still to be
    applied (true), or text (false), the other being refused; None takes both.
    """
    prompt = get_value(row, (prompt_key,))
    is_chat = chat_turns(prompt) is not None
    if apply_chat_template not in (None, is_chat) and prompt is not None:
        wanted = "text" if is_chat else "a list of messages"
        raise UserError(
            f"{where}: {prompt_key}: {prompt!r:.80} is not {wanted}; set apply_chat_template to "
            f"{str(is_chat).lower()}, or leave it out"
        )
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
    golds = tuple(dict.fromkeys(filter(None, tails)))
    return replace(built, answers=golds) if golds else Drop("no_answer")


def build_trace(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn a row of `traces.jsonl` of `stages.distill` into a problem of its question's source."""
    trace = get_number(row, ("trace",), where)
    if type(trace) is not int or trace < 0:
        raise UserError(f"{where}: trace: {trace!r} is not a number from 0; fix the row")
    return build_row(
        row,
        f"{get_text(row, ('id',), where)}-t{trace}",
        where,
        get_text(row, ("source",), where),
        ("question",),
        ("answers", "answer"),
        ("solution",),
        level=get_number(row, ("level",), where),
        subject=get_subject(row, ("subject",), where),
        trace=trace,
    )
