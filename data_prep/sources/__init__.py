"""One module per data set: `build_problem(row, problem_id, where) -> Problem | Drop`.

To add one, write its module and name it in `data_prep.recipe.BUILDERS`. What rows of several data
sets have in common is read here: columns under many names, prompts, ids, broken escapes.
`problem_id` is `<source>-<split>-<position>`.
"""

import re
from dataclasses import dataclass
from typing import Any

from data_prep.config import UserError

# DAPO's prompt around the bare question.
_WRAPPER = re.compile(
    r"\s*Solve the following math problem step by step\. The last line of your response should be"
    r" of the form Answer: .{1,20} \(without quotes\) where .{1,20} is the answer to the problem\."
    r'(.*)Remember to put your answer on its own line after "Answer:"\.\s*',
    re.DOTALL,
)
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
            column has a value: parquet files and the hub write it for a missing one.
    """
    found = None
    for column in columns:
        value: Any = row
        for name in column.split("."):
            if not isinstance(value, dict) or name not in value:
                break
            value = value[name]
        else:
            if value is not None:
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
    column, value = found
    if allows_numbers and type(value) in (int, float):
        value = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not isinstance(value, str):
        raise UserError(f"{where}: {column}: {value!r:.80} is not text; fix the row")
    return value


def get_question(row: dict[str, Any], columns: tuple[str, ...], where: str) -> str:
    """The bare question, from text or from a chat prompt of one user turn.

    A chat is a list of {role, content} (verl, DAPO) or {from, value} (ORZ). DAPO's instructions
    around the question are taken off, and broken escapes repaired.

    Raises:
        UserError: see `get_text`; or a chat without exactly one user turn of text.
    """
    found = find_value(row, columns)
    if found is None or not isinstance(found[1], list):
        text = get_text(row, columns, where)
    else:
        turns = [turn for turn in found[1] if isinstance(turn, dict)]
        texts = [
            turn.get("content", turn.get("value"))
            for turn in turns
            if turn.get("role", turn.get("from")) in ("user", "human")
        ]
        if len(texts) != 1 or not isinstance(texts[0], str):
            raise UserError(
                f"{where}: {found[0]}: {found[1]!r:.80} has no single user turn of text; write "
                "[{role: user, content: the question}]"
            )
        text = texts[0]
    wrapped = _WRAPPER.fullmatch(text)
    return repair_escapes(wrapped[1] if wrapped else text).strip()


def repair_escapes(text: str) -> str:
    """Undo what a JSON or Python reader made of LaTeX: form feed + `rac` is `\\frac` again."""
    return _BROKEN.sub(lambda match: "\\" + _COMMANDS[match[0]][0], text)


def own_id(problem_id: str, value: Any) -> str:
    """`problem_id` with the row's own id in place of its position; as it is where there is none."""
    if value is None or not str(value).strip():
        return problem_id
    return f"{problem_id.rpartition('-')[0]}-{str(value).strip()}"
