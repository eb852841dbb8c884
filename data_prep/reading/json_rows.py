"""JSON rows: one object per line, or one list of all rows; whatever is damaged is told by its row.

Data files are untrusted: what Python's decoder would accept in silence (a name twice, NaN) or
choke on (deep nesting, long integers) is a fault of its row, and the next one is read.
"""

import json
import math
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from data_prep.reading.raw_files import BadRow, bad_row, lines_and_fault, read_start

MAX_DEPTH = 64  # levels of nesting; below it, what walks through rows may recurse
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BLANK = re.compile(r"[ \t\n\r]*")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_NOT_UTF8 = "not UTF-8 (byte 0x{:02x}); re-encode the file"
_CUT_OFF = "truncated: the list is cut off here; fetch the file again"
_SNIFFED = 1 << 20
_NEXT = {"{": re.compile(r"\}\s*,\s*(\{)"), "[": re.compile(r"\]\s*,\s*(\[)")}
_MAX_FAILURES = 1000  # each costs a pass over the text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {doubled!r:.80} stands twice in one object; remove one")
    return row


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON; write null or a number")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"the number {text:.40} is too large; write it as a string")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite)


def is_conversation(row: Any) -> bool:
    """Whether a row is a bare list of chat turns, as in the training files of ORZ."""
    return (
        isinstance(row, list)
        and bool(row)
        and all(isinstance(turn, dict) and turn.keys() & {"from", "role"} for turn in row)
    )


def _depth(value: Any, room: int = MAX_DEPTH) -> None:
    if isinstance(value, dict | list):
        if not room:
            raise ValueError(f"nested over {MAX_DEPTH} levels deep; fix or remove the row")
        for item in value.values() if isinstance(value, dict) else value:
            _depth(item, room - 1)


def decode_at(text: str, start: int) -> tuple[Any, int]:
    """Decode the JSON value that begins at `start`: (value, end).

    Raises:
        ValueError: what is wrong with it and the remedy; a `json.JSONDecodeError` if it is no JSON.
    """
    try:
        row, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply; fix or remove the row") from None
    except ValueError as error:
        if "digits" in str(error):  # Python reads no integer of over 4,300 digits
            raise ValueError("an integer of over 4,300 digits; write it as a string") from error
        raise
    _depth(row)
    return row, end


def _check_text(row: Any, source: str, where: str) -> Any:
    """The row, or a `BadRow` where its text cannot be written as UTF-8."""
    # Most rows hold no such sign at all, so that the costly check is rarely made.
    if source.isascii() and not _ESCAPED_SURROGATE.search(source):
        return row
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        sign = error.object[error.start]
        if "\udc80" <= sign <= "\udcff" and sign in source:  # `surrogateescape` put it there
            return bad_row(where, _NOT_UTF8.format(ord(sign) - 0xDC00))
        fault = f"a lone surrogate (\\u{ord(sign):04x}) is no character; fix or remove the row"
        return bad_row(where, fault, row=row if isinstance(row, dict | list) else None)
    return row


def _is_cut_short(text: str) -> bool:
    """Whether text ends inside a string or with brackets open, as a half-downloaded file does."""
    rest = _STRING.sub("", text)
    return '"' in rest or sum(map(rest.count, "{[")) > sum(map(rest.count, "}]"))


def read_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield `(file:line, row or BadRow)` of a file with one row per line.

    Raises:
        UserError: it holds a single object, in which a list holds the rows.
    """
    for number, line in lines_and_fault(path):
        where = f"{path}:{number}"
        if isinstance(line, BadRow):
            yield where, line
            continue
        text = line.decode("utf-8", "surrogateescape").removeprefix("\ufeff" if number == 1 else "")
        if _skip(text, 0) < len(text):
            row = _decode_line(text, where)
            if number == 1 and (name := _holds_rows(row)) and _is_one_line(path):
                raise UserError(
                    f"{path}: holds one object with a list of rows in {name!r:.80}; write that "
                    "list alone, [{…}, {…}], or one object per line"
                )
            yield where, row


def _holds_rows(row: Any) -> str | None:
    """The name under which an object holds a list of objects that is no chat, or None."""
    for name, value in row.items() if isinstance(row, dict) else ():
        is_list = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
        if is_list and not is_conversation(value):
            return name
    return None


def _is_one_line(path: Path) -> bool:
    lines = (line for _, line in lines_and_fault(path) if isinstance(line, BadRow) or line.strip())
    return sum(1 for _ in islice(lines, 2)) == 1


def _decode_line(text: str, where: str) -> Any:
    try:
        row, end = decode_at(text, _skip(text, 0))
        if _skip(text, end) < len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except json.JSONDecodeError as error:
        if not text.endswith("\n") and _is_cut_short(text):
            fault = "truncated: the file ends in the middle of this row; fetch it again"
            return bad_row(where, fault, is_end=True)
        if any("\udc80" <= sign <= "\udcff" for sign in text):
            return bad_row(where, "not UTF-8; re-encode the file")
        if "\0" in text:
            return bad_row(where, "holds zero bytes: a damaged or half-downloaded file; fetch it")
        found = f"malformed JSON ({error.msg}, column {error.colno})"
        return bad_row(where, f"{found}; fix or remove the line")
    except ValueError as error:
        return bad_row(where, str(error))
    return _check_text(row, text, where)


def holds_list(path: Path) -> bool:
    """Whether a JSON file holds one list of rows rather than one row per line, whatever its name.

    Raises:
        UserError: it holds an object that spans lines.
    """
    text = (
        read_start(path, _SNIFFED)[0]
        .decode("utf-8", "surrogateescape")
        .removeprefix("\ufeff")
        .lstrip()
    )
    if text.startswith("["):
        try:
            first, _ = decode_at(text, _skip(text, 1))
        except ValueError:
            return True
        return not is_conversation([first])  # else the line is one row, a bare conversation
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and _is_cut_short(lines[0]) and not lines[1].lstrip().startswith("{"):
        raise UserError(
            f"{path}: holds an object that spans lines; write one list of rows, [{{…}}, {{…}}], or "
            "one object per line"
        )
    return False


def read_json_list(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield `(file: row N, row or BadRow)` of a file that holds one list of all rows.

    Rows are decoded one by one; the text is held in memory. Behind a damaged row the next one is
    looked for; what lies between counts as one row.
    """
    content, end_fault = read_start(path, sys.maxsize)
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    del content
    at = _skip(text, _skip(text, 0) + 1)
    opener, number, row = text[at : at + 1], 0, None
    while not (number == 0 and opener == "]"):
        number += 1
        where = f"{path}: row {number}"
        try:
            row, end = decode_at(text, at)
        except ValueError as error:
            at = _find_row(text, at, opener, row)
            if at is None:
                fault = end_fault or _CUT_OFF if _is_open(text) else _describe(error)
                yield where, bad_row(where, fault, is_end=True)
                return
            yield where, bad_row(where, _describe(error))
            continue
        yield where, _check_text(row, text[at:end], where)
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] == "]" and _skip(text, at + 1) == len(text):
            break
        else:
            number += 1
            where = f"{path}: row {number}"
            if at == len(text):
                yield where, bad_row(where, end_fault or _CUT_OFF, is_end=True)
                return
            fault = f"malformed JSON (no comma before it, line {_line(text, at)}); fix or remove it"
            at = _find_row(text, at, opener, row)
            yield where, bad_row(where, fault, is_end=at is None)
            if at is None:
                return
    if end_fault:
        where = f"{path}: row {number + 1}"
        yield where, bad_row(where, end_fault, is_end=True)


def _find_row(text: str, start: int, opener: str, like: Any) -> int | None:
    """Where the next row begins that can be decoded, or None.

    Objects occur inside rows too (the turns of a chat), so it must be like the row before the
    damaged one; where there is none, any object but a chat's turn will do.
    """
    if opener not in _NEXT:
        return None
    failures = 0
    for found in _NEXT[opener].finditer(text, start):
        try:
            row, end = decode_at(text, found.start(1))
        except ValueError:
            failures += 1
            if failures == _MAX_FAILURES:
                return None
            continue
        if _is_like(row, like) and text[(after := _skip(text, end)) : after + 1] in ",]":
            return found.start(1)
    return None


def _is_like(row: dict | list, other: Any) -> bool:
    if isinstance(row, list):
        return is_conversation(row)
    if isinstance(other, dict):
        return 2 * len(row.keys() & other.keys()) >= len(other)
    return not is_conversation([row])


def _describe(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        place = f"line {error.lineno}, column {error.colno}"
        return f"malformed JSON ({error.msg}, {place}); fix or remove the row"
    return str(error)


def _skip(text: str, start: int) -> int:
    return _BLANK.match(text, start).end()


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _is_open(text: str) -> bool:
    return not text.rstrip().endswith("]")
