"""One module per data set: `build_problem(row, problem_id, where) -> Problem | Drop`.

To add one, write its module and name it in `data_prep.recipe.BUILDERS`.
"""

from dataclasses import dataclass
from typing import Any

from data_prep.config import UserError


@dataclass(frozen=True, slots=True)
class Drop:
    """A row left out on purpose: a named `reason` that is counted, and a `detail` to look at."""

    reason: str
    detail: str = ""


def get_text(row: dict[str, Any], columns: tuple[str, ...], where: str) -> str:
    """The text of the first of `columns` that the row has.

    Raises:
        UserError: the row has none of them, or something other than text there.
    """
    column = next((name for name in columns if name in row), None)
    if column is None:
        raise UserError(
            f"{where}: missing column {' or '.join(map(repr, columns))}, found "
            f"{', '.join(map(repr, row)) or 'none'}; rename the column or choose another source"
        )
    if not isinstance(row[column], str):
        raise UserError(f"{where}: {column}: {row[column]!r} is not text; fix the row")
    return row[column]
