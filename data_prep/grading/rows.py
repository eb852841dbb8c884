"""Rows of a file of model outputs in, rows with verdicts out.

No line is refused: one that cannot be graded gets the verdict `unparseable` or `no_answer`, and an
`error` that names its place. `python -m data_prep.grading` is the command around it and says what a
row is.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from data_prep.config import UserError
from data_prep.grading.equivalence import is_parseable
from data_prep.grading.grade import Grade
from data_prep.grading.pool import shared_pool
from data_prep.manifest import encodable
from data_prep.reading.rows import Row

MAX_ERROR_CHARS = 300
COLUMNS = ("verdict", "extracted", "seconds", "error")

Line = tuple[int, bytes]  # its number from 1
GradeTexts = Callable[[list[str], list[list[str]]], list[Grade]]


class BadRow(ValueError):
    """A row that cannot be graded: why, and the verdict it gets."""

    def __init__(self, problem: str, verdict: str = "unparseable") -> None:
        super().__init__(problem)
        self.verdict = verdict


def _unique(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise BadRow(f"the key {key[:40]!r} occurs twice in one object; remove one")
    return row


def _finite(text: str) -> float | None:
    return number if math.isfinite(number := float(text)) else None


def read_row(line: bytes) -> Row:
    """The object on one line, with null for NaN and infinities; raises BadRow."""
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
        raise BadRow(f"not UTF-8 (byte {error.start}); re-encode the file") from error
    except json.JSONDecodeError as error:
        found = f"malformed JSON ({error.msg}, column {error.pos + 1})" if line.strip() else "blank"
        raise BadRow(f"{found}; fix or remove the line") from error
    except RecursionError as error:
        raise BadRow("JSON nested too deeply; flatten it") from error
    except ValueError as error:  # Python reads no integer of over 4,300 digits
        raise BadRow(f"{error}; write it as a string") from error
    if not isinstance(row, dict):
        raise BadRow(f"a row must be an object, found {type(row).__name__}; fix the line")
    return row


def _text(row: Row, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise BadRow(f"`{key}` must be a string or a number, found {type(value).__name__}")
    if value is None and key not in row:
        raise BadRow(f"no column `{key}`")
    if value is None:
        verdict = "no_answer" if key == "prediction" else "unparseable"
        raise BadRow(f"`{key}` is null", verdict)
    return str(value)


def read_pair(row: Row) -> tuple[str, list[str]]:
    """The prediction and its golds, numbers as text; raises BadRow."""
    gold = row.get("gold")
    if gold == []:
        raise BadRow("`gold` is an empty list; give one answer at least")
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
        try:
            shared_pool().call("1", "1")
        except RuntimeError as cause:  # no worker can start: it would fail every row
            raise UserError(str(cause)) from cause
        if len(texts) > 1:
            pairs = zip(texts, golds, strict=True)
            return [_grade_safely([text], [gold], grade_texts)[0] for text, gold in pairs]
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_ERROR_CHARS]
        return [(Grade("unparseable", None), f"the grader failed on this row: {message}")]


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
            rows[at] = read_row(line)
            pairs[at] = read_pair(rows[at])
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
    """One line of UTF-8 JSON."""
    try:
        text = json.dumps(output, ensure_ascii=False, allow_nan=False) + "\n"
    except RecursionError:  # the file's own columns, nested just not too deeply to be read
        text = json.dumps({key: output[key] for key in COLUMNS if key in output}) + "\n"
    return encodable(text).encode()
