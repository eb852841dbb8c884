"""One module per data set: `build_problem(row, problem_id, where) -> Problem | Drop`.

To add one, write its module and name it in `BUILDERS`. What rows of several data
sets have in common is read here: columns under many names, prompts, ids, broken escapes.
`problem_id` is `<source>-<split>-<position>`. A prompt in a template that is not known is a `Drop`
of reason `unknown_template` in every set; the modules name their other reasons.
"""

import re
from dataclasses import dataclass
from typing import Any

from data_prep.config import UserError
from data_prep.sources.templates import (
    SeveralTurns,
    bare_question,
    chat_turns,
    find_foreign_token,
    is_prefill,
)  # fmt: skip

# What a control character and the rest of a LaTeX command were before a reader took `\f` of `\frac`
# for a form feed. The characters have uses of their own (MATH's figures are indented with tabs, a
# form feed stands before a word in DeepScaleR), so only the rest of a known command counts, and
# only one that is no English word.
_COMMANDS = {
    "\a": ("a", r"lpha|ngle|pprox|rc(?:sin|cos|tan)"),
    "\b": ("b", r"ar|egin|eta|inom|mod|oxed|ullet|oldsymbol|igcup|igcap|igg?[lr]?|f"),
    "\f": ("f", r"rac|orall|rown"),
    "\v": ("v", r"ec|ert|ee|dots|ar(?:phi|epsilon|theta|nothing)"),
    "\t": (
        "t",
        r"imes|riangle(?:left|right)?|heta|au|ilde|frac|binom|o|anh|an(?=[\\^_({])"
        r"|ext(?:bf|it|rm|tt|sf|sc|normal|style)?",
    ),
    "\r": ("r", r"ight|ightarrow|ho|ceil|vert|brace|brack"),
}
_BROKEN = re.compile(
    "|".join(f"{sign}(?=(?:{rests})(?![A-Za-z]))" for sign, (_, rests) in _COMMANDS.items())
)


@dataclass(frozen=True, slots=True)
class Drop:
    """A row left out on purpose: a named `reason` that is counted, and a `detail` to look at."""

    reason: str
    detail: str = ""


def find_value(row: dict[str, Any], columns: tuple[str, ...]) -> tuple[str, Any] | None:
    """(name, value) of the first of `columns` that the row has, or None where it has none.

    Args:
        columns: names; `a.b` is the column b of the struct a. A null counts only if no other
            column has a value: parquet files and the hub write it for a missing one. NaN is null:
            pandas writes it for a missing number.
    """
    found = None
    for column in columns:
        value: Any = row
        for name in column.split("."):
            if not isinstance(value, dict) or name not in value:
                break
            value = value[name]
        else:
            if value is not None and value == value:
                return column, value
            found = found or (column, None)
    return found


def get_text(
    row: dict[str, Any],
    columns: tuple[str, ...],
    where: str,
    default: str | None = None,
    allows_numbers: bool = False,
) -> str:
    """The text of the first of `columns` that the row has; see `find_value`.

    Args:
        default: what a missing or null column means; None makes it an error.
        allows_numbers: a number counts as its text, `27.0` as `27`.

    Raises:
        UserError: the row has none of them, or something other than text there.
    """
    found = find_value(row, columns)
    if default is not None and (found is None or found[1] is None):
        return default
    if found is None:
        raise UserError(
            f"{where}: missing column {' or '.join(map(repr, columns))}, found "
            f"{', '.join(map(repr, row)) or 'none'}; rename the column or choose another source"
        )
    return to_text(found[1], found[0], where, allows_numbers)


def to_text(value: Any, column: str, where: str, allows_numbers: bool = False) -> str:
    """The text of one value; see `get_text`."""
    if allows_numbers and type(value) in (int, float):
        value = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not isinstance(value, str):
        raise UserError(f"{where}: {column}: {value!r:.80} is not text; fix the row")
    return value


def get_question(row: dict[str, Any], columns: tuple[str, ...], where: str) -> str | Drop:
    """The bare question, from text or from a chat prompt of one user turn.

    A chat is a list of {role, content} (verl, DAPO) or {from, value} (ORZ), or the JSON text of
    one. Template tokens and instructions on how to answer are taken off, see
    `data_prep.sources.templates`, and broken escapes repaired. `Drop` reason: `unknown_template`,
    tokens are left.

    Raises:
        UserError: see `get_text`; or a prompt of more than one user turn and a prefill.
    """
    found = find_value(row, columns)
    turns = chat_turns(found[1]) if found else None
    column = found[0] if found else ""
    if turns is None:
        text = get_text(row, columns, where)
    else:
        text = _user_turn(turns)
        if text is None:
            raise UserError(
                f"{where}: {column}: {turns!r:.80} has no single user turn of text; write "
                "[{role: user, content: the question}]"
            )
    try:
        question = bare_question(repair_escapes(text))
    except SeveralTurns as error:
        raise UserError(
            f"{where}: {column}: no single question ({error}); write one question without examples "
            "or answers"
        ) from error
    if token := find_foreign_token(question):
        return Drop("unknown_template", f"{where}: {token!r:.60} is left in {column}")
    return question


def _user_turn(turns: list) -> str | None:
    """The text of the one user turn, or None; system turns and a prefilled answer are ignored."""
    users = []
    for turn in turns:
        if not isinstance(turn, dict):
            return None
        role, text = turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))
        if role in ("user", "human"):
            users.append(text)
        elif role in ("system", "developer") or text is None:
            continue
        elif not users or not isinstance(text, str) or not is_prefill(text):
            return None
    return users[0] if len(users) == 1 and isinstance(users[0], str) else None


def repair_escapes(text: str) -> str:
    """Undo what a JSON or Python reader made of LaTeX: form feed + `rac` is `\\frac` again."""
    return _BROKEN.sub(lambda match: "\\" + _COMMANDS[match[0]][0], text)


def own_id(problem_id: str, value: Any) -> str:
    """`problem_id` with the row's own id in place of its position; as it is where there is none."""
    if value is None or not str(value).strip():
        return problem_id
    return f"{problem_id.rpartition('-')[0]}-{str(value).strip()}"
