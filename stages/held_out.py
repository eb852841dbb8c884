"""The rows that are held out for an evaluation during training."""

from typing import Any

from data_prep.decontamination.text import normalise_question
from data_prep.schema import COLUMNS, check_row, question_of
from pipeline.errors import UserError
from pipeline.rows import read_rows
from pipeline.settings import Settings

LEAST_PROBLEMS = 2  # held out; of one alone there is no standard error


def check_sft_held_out(settings: Settings) -> None:
    """Refuse held-out rows of SFT that are none, or that would be trained on."""
    if settings.eval_strategy == "no" or not settings.eval_file:
        return
    columns = ("prompt", "completion")
    held_out = _first_places(settings.eval_file, columns)
    if not held_out:
        raise UserError(f"eval_file: {settings.eval_file} has no rows; add some")
    check_disjoint(held_out, _first_places(settings.train_file, columns))


def check_held_out(settings: Settings) -> None:
    """Refuse too few validation problems, and validation problems that would be trained on."""
    if settings.eval_strategy == "no":
        return
    key = "eval_file" if settings.eval_file else "train_file"
    file, num = settings[key], settings.eval_problems
    train = _first_places(settings.train_file)
    held_out = _first_places(file) if key == "eval_file" else train
    if len(held_out) < LEAST_PROBLEMS:
        raise UserError(
            f"{key}: {file} has {len(held_out)} problems, an evaluation needs {LEAST_PROBLEMS} or "
            "more; add problems"
        )
    if num is not None and num > len(held_out):
        raise UserError(
            f"eval_problems: {num} is more than the {len(held_out)} different problems of {file}; "
            "use fewer"
        )
    if key == "train_file" and num == len(train):
        raise UserError(
            f"eval_problems: {num} is all of {file}, none is left to train on; lower it"
        )
    if key == "eval_file":
        check_disjoint(held_out, train)


def check_disjoint(held_out: dict[str, str], train: dict[str, str]) -> None:
    """Refuse an `eval_file` that shares questions with the training file."""
    shared = [question for question in held_out if question in train]
    if shared:
        raise UserError(
            f"eval_file: {held_out[shared[0]]}: the question is also in {train[shared[0]]} "
            f"({len(shared)} of {len(held_out)} are); take them out of one of the files"
        )


def key_of(row: dict[str, Any]) -> str:
    """What two copies of a problem have in common: the normalised question."""
    return normalise_question(question_of(row))


def _first_places(path: str, columns: tuple[str, ...] = COLUMNS) -> dict[str, str]:
    """`key_of` each problem of a file, with the place where it stands first."""
    places: dict[str, str] = {}
    for where, row in read_rows(path):
        check_row(row, columns, where)
        places.setdefault(key_of(row), where)
    return places
