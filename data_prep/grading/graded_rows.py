"""Graded rows: lines of a file of model outputs in, lines with verdicts out.

`grade_file` is the command around it and says what a row is. No line is refused: one that
cannot be graded gets the verdict `unparseable` or `no_answer`, and an `error` that names its place.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from data_prep.config import UserError
from data_prep.grading.answers import Grade, is_parseable
from data_prep.grading.grading_pool import shared_pool
from data_prep.reading.reading import Row

MAX_ERROR_CHARS = 300
COLUMNS = ("verdict", "extracted", "seconds", "error")

Line = tuple[int, bytes]  # its number from 1
GradeTexts = Callable[[list[str], list[list[str]]], list[Grade]]


class BadRow(ValueError):
    """A row that cannot be graded: the verdict it gets, and why."""

    def __init__(self, verdict: str, problem: str) -> None:
        super().__init__(problem)
        self.verdict = verdict


def _unique(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise BadRow("unparseable", f"the key {key[:40]!r} stands twice in one object; remove one")
    return row


def _finite(text: str) -> float | None:
    return number if math.isfinite(number := float(text)) else None


def _read_row(line: bytes) -> Row:
    """The object on one line; raises BadRow."""
    try:
        row = json.loads(
            line.decode("utf-8-sig"),  # some editors begin a file with a byte order mark
            object_pairs_hook=_unique,
            parse_float=_finite,
            parse_constant=lambda name: None,
        )
    except BadRow:
        raise
    except UnicodeDecodeError as error:
        raise BadRow(
            "unparseable", f"not UTF-8 (byte {error.start}); re-encode the file"
        ) from error
    except json.JSONDecodeError as error:
        problem = (
            f"malformed JSON ({error.msg}, column {error.pos + 1})" if line.strip() else "blank"
        )
        raise BadRow("unparseable", f"{problem}; fix or remove the line") from error
    except RecursionError as error:
        raise BadRow("unparseable", "JSON nested too deeply; flatten it") from error
    except ValueError as error:  # Python reads no integer of over 4,300 digits
        raise BadRow("unparseable", f"{error}; write it as a string") from error
    if not isinstance(row, dict):
        raise BadRow(
            "unparseable", f"a row must be an object, found {type(row).__name__}; fix the line"
        )
    return row


def _text(row: Row, key: str, value: Any) -> str:
    """A string, or a number as text; raises BadRow."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise BadRow(
            "unparseable", f"`{key}` must be a string or a number, found {type(value).__name__}"
        )
    if value is None:
        problem = f"`{key}` is null" if key in row else f"no column `{key}`"
        is_empty = key == "prediction" and key in row
        raise BadRow("no_answer" if is_empty else "unparseable", problem)
    return str(value)


def _read_pair(row: Row) -> tuple[str, list[str]]:
    """The prediction and its golds; raises BadRow."""
    gold = row.get("gold")
    if gold == []:
        raise BadRow("unparseable", "`gold` is an empty list; give one answer at least")
    golds = [_text(row, "gold", one) for one in (gold if isinstance(gold, list) else [gold])]
    return _text(row, "prediction", row.get("prediction")), golds


def _check_golds(grade: Grade, golds: list[str]) -> tuple[Grade, str | None]:
    """The grade, and an error where nothing but the very same text could match the golds."""
    if grade.verdict == "right" or any(map(is_parseable, golds)):
        return grade, None
    verdict = "unparseable" if grade.verdict == "wrong" else grade.verdict
    problem = f"the gold cannot be read: {', '.join(golds)[:100]!r}"
    return Grade(verdict, grade.prediction, grade.seconds), problem


def _grade_safely(
    texts: list[str], golds: list[list[str]], grade_texts: GradeTexts
) -> list[tuple[Grade, str | None]]:
    """Grades with errors; one by one where grading all raised, so that one costs no other."""
    try:
        return list(map(_check_golds, grade_texts(texts, golds), golds))
    except Exception as error:  # untrusted text decides what is raised
        _check_pool()
        if len(texts) > 1:
            pairs = zip(texts, golds, strict=True)
            return [_grade_safely([text], [gold], grade_texts)[0] for text, gold in pairs]
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_ERROR_CHARS]
        return [(Grade("unparseable", None), f"the grader failed on this row: {message}")]


def _check_pool() -> None:
    """Refuse to go on where no worker can start: no row's fault, and it would fail them all."""
    try:
        shared_pool().call("1", "1")
    except RuntimeError as error:
        raise UserError(str(error)) from error


def grade_lines(
    path: str, lines: Sequence[Line], grade_texts: GradeTexts
) -> list[tuple[Row, str | None]]:
    """For each (line number, bytes) of a file, in order: the output row, and its error if any.

    Args:
        path: the file's name, for the errors.
        grade_texts: grades predictions, given their golds.
    """
    rows: list[Row] = []
    problems: dict[int, str] = {}
    pairs: dict[int, tuple[str, list[str]]] = {}
    for at, (_, line) in enumerate(lines):
        rows.append({})
        try:
            rows[at] = _read_row(line)
            pairs[at] = _read_pair(rows[at])
        except BadRow as bad:
            rows[at] |= {"verdict": bad.verdict, "extracted": None, "seconds": 0.0}
            problems[at] = str(bad)
    texts, golds = [pair[0] for pair in pairs.values()], [pair[1] for pair in pairs.values()]
    for at, (grade, problem) in zip(pairs, _grade_safely(texts, golds, grade_texts), strict=True):
        rows[at] |= {"verdict": grade.verdict, "extracted": grade.prediction}
        rows[at]["seconds"] = round(grade.seconds, 6)
        if problem:
            problems[at] = problem
    outputs: list[tuple[Row, str | None]] = []
    for at, row in enumerate(rows):
        error = f"{path}:{lines[at][0]}: {problems[at]}" if at in problems else None
        outputs.append((row | {"error": error} if error else row, error))
    return outputs


def encode(output: Row) -> bytes:
    """One line of UTF-8 JSON; halves of surrogate pairs, which UTF-8 lacks, become U+FFFD."""
    try:
        text = json.dumps(output, ensure_ascii=False, allow_nan=False) + "\n"
    except RecursionError:  # the file's own columns, nested just not too deeply to be read
        text = json.dumps({key: output[key] for key in COLUMNS if key in output}) + "\n"
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")
