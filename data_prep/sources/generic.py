r"""Any data set of questions and answers, by the names of its columns; and a teacher's traces.

`question: "{Body} {Question}"` makes the prompt of several columns instead of `prompt_key`'s one
(docs/data.md). A prompt is text (bare, or already in a chat template) or a list of {role, content}
or {from, value} with one user turn. The assistant's reply to it is the solution where there is no
other, and `answer_key` may name the chat too. A gold is text, a number, or a list of them of which
any may match. Of `So \boxed{18} kg.` and `… #### 18` the end is the gold.
"""

import re
from typing import Any

from data_prep.schema import Problem
from data_prep.sources import base
from data_prep.sources.templates import chat_turns
from pipeline.errors import UserError

_COLUMN = re.compile(r"\{([^{}\s][^{}]*)\}")


def build_problem(
    row: dict[str, Any],
    problem_id: str,
    where: str,
    keeps_golds: bool = False,
    *,
    answer_key: str,
    prompt_key: str = "",
    question: str = "",
    solution_key: str = "",
    solution_if: list[str] | None = None,
    level_key: str | None = None,
    apply_chat_template: bool | None = None,
) -> Problem:
    """Turn a row into a problem.

    `apply_chat_template`: whether prompts are lists of messages, to which a template is still to be
    applied (true), or text that is the prompt as it is (false), the other being refused; None takes
    both and makes the prompt of the question. `solution_if`: of a list of solutions the first one
    is taken for which all these lists of verdicts have true.
    `keeps_golds`: see `base.build_row`.
    """
    asked = [("question", name) for name in _COLUMN.findall(question)]
    for key, column in [*(asked or [("prompt_key", prompt_key)]), ("answer_key", answer_key)]:
        if base.find_value(row, (column,)) is None:
            raise base.missing_column(row, (column,), where, f"set {key} to a column that is there")
    if solution_if:
        row = row | {solution_key: choose_solution(row, solution_key, solution_if, where)}
    if question:  # not under the template as its name: a dot in it would be that of a struct
        row, prompt_key = row | {"question": fill_template(question, row, where)}, "question"
    raw = raw_prompt(row, prompt_key, apply_chat_template, where)
    level = base.get_number(row, (level_key,), where) if level_key else None
    remedy = "judge such golds by a `grader` of your own, or fix the row"
    return base.build_row(
        row,
        problem_id,
        where,
        "generic",
        (prompt_key,),
        (answer_key,),
        (solution_key,) if solution_key else (),
        keeps_golds=keeps_golds,
        gold_remedy=remedy,
        level=level,
        raw_prompt=raw,
    )


def raw_prompt(row: dict[str, Any], column: str, applies: bool | None, where: str) -> str:
    """The prompt of a row that goes in as it is; "" unless `applies`, the key's value, is false."""
    prompt = base.get_value(row, (column,))
    is_chat = chat_turns(prompt) is not None
    if applies not in (None, is_chat) and prompt is not None:
        wanted = "text" if is_chat else "a list of messages"
        remedy = f"set apply_chat_template to {str(is_chat).lower()}, or leave it out"
        raise UserError(f"{where}: {column}: {prompt!r:.80} is not {wanted}; {remedy}")
    return base.get_text(row, (column,), where) if applies is False else ""


def choose_solution(row: dict[str, Any], key: str, verdicts: list[str], where: str) -> Any:
    """The first of a list of solutions that all verdicts call good; `Drop` without one."""
    solutions = base.get_value(row, (key,))
    lists = [base.get_value(row, (name,)) for name in verdicts]
    for name, found in zip((key, *verdicts), (solutions, *lists), strict=True):
        if not isinstance(found, list) or len(found) != len(solutions):
            fault = f"{name}: {found!r:.80} is not a list as long as {key}"
            raise UserError(f"{where}: {fault}; correct solution_if, or fix the row")
    for solution, *good in zip(solutions, *lists, strict=True):
        if all(one is True for one in good):
            return solution
    raise base.Drop("no_correct_solution")


def fill_template(template: str, row: dict[str, Any], where: str) -> str:
    """A template with the text of each `{column}` in its place, "" for a null one."""

    def fill(name: re.Match) -> str:
        default = "" if base.find_value(row, (name[1],)) else None
        return base.get_text(row, (name[1],), where, default, allows_numbers=True)

    return _COLUMN.sub(fill, template)


def build_trace(
    row: dict[str, Any], problem_id: str, where: str, keeps_golds: bool = False
) -> Problem:
    """Turn a row of `traces.jsonl` of `stages.distill` into a problem of its question's source."""
    trace = base.get_number(row, ("trace",), where)
    if type(trace) is not int or trace < 0:
        raise UserError(f"{where}: trace: {trace!r} is not a number from 0; fix the row")
    name = f"{base.get_text(row, ('id',), where)}-t{trace}"
    source = base.get_text(row, ("source",), where)
    level = base.get_number(row, ("level",), where)
    subject = base.get_text(row, ("subject",), where, default="").strip()
    return base.build_row(
        row,
        name,
        where,
        source,
        ("question",),
        ("answers", "answer"),
        ("solution",),
        keeps_golds=keeps_golds,
        level=level,
        subject=subject,
        trace=trace,
    )
