"""ARC (`allenai/ai2_arc`, config `ARC-Challenge`): school science questions, three to five options.

Options keep their order and are shown as A to E; upstream labels some rows 1 to 5. The gold is the
letter shown.
"""

from typing import Any

from data_prep.config import UserError
from data_prep.schema import Problem
from data_prep.sources.base import (
    LETTERS,
    Drop,
    check_options,
    find_value,
    get_text,
    own_id,
    show_options,
)


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn an ARC row into a problem; `level` stays None, and there is no solution.

    Raises:
        UserError: a missing column, options that are not three to five, labels that are not one
            for each, or an answer key that is none of them.
    """
    question = get_text(row, ("question",), where)
    _, texts = find_value(row, ("choices.text",)) or ("", None)
    _, labels = find_value(row, ("choices.label",)) or ("", None)
    options = check_options(texts, "choices.text", range(3, 6), where)
    check_options(labels, "choices.label", range(len(options), len(options) + 1), where)
    key = get_text(row, ("answerKey",), where).strip()
    if labels.count(key) != 1:
        raise UserError(
            f"{where}: answerKey: {key!r} is not one of the labels {', '.join(labels)}; fix the row"
        )
    own = find_value(row, ("id",))
    return Problem(
        own_id(problem_id, own and own[1]),
        "arc",
        show_options(question, options),
        (LETTERS[labels.index(key)],),
    )
