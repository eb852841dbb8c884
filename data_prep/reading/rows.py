"""Rows of files: local JSON lines, JSON lists, CSV and parquet files, and data sets of the hub.

Every row comes with its place (`file:line`, or `file: row N`). Data files are untrusted: a row that
cannot be read is a `BadRow` in its place, and the next one is read. What Python's JSON decoder
would accept in silence (a name twice, NaN) or choke on (deep nesting, long integers) is a fault of
its row as well. A JSON list that is no valid JSON cannot be read behind the damage: it stops the
reader with file and row.
"""

import csv
import gzip
import json
import math
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from data_prep.config import UserError

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".parquet")
MAX_DEPTH = 64  # levels of nesting; below it, what walks through rows may recurse
_PARQUET_ROWS = 256  # a row of worked solutions can take 200 kB: a few hundred are held at once
_LONGEST_CSV_VALUE = 1 << 26
_SNIFFED = 1 << 20  # bytes that tell a list from lines
_BLANK = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_UTF_BOMS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_PAGE = re.compile(rb"\s*<(?:!doctype|html|\?xml|head|body|error)\b", re.IGNORECASE)
# ASCII in UTF-16 without a byte order mark: every second byte is zero.
_WIDE = re.compile(rb"(?:[^\x00]\x00){8}|(?:\x00[^\x00]){8}")
_GZIP = b"\x1f\x8b"
# What other containers begin with, whatever the file's name says.
_CONTAINERS = {
    b"PAR1": "a parquet file; name it .parquet",
    b"ARROW1": "an Arrow file; convert it to parquet",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"BZh": "packed by bzip2; unpack it",
    b"\xfd7zXZ": "packed by xz; unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it",
}
_GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read.

    Args:
        message: the error in one line: where, what is wrong, and the remedy.
        num_rows: how many rows are lost, where the file tells (parquet), else 1.
        row: the row all the same, where a lone surrogate is all that is wrong with it.
    """

    message: str
    num_rows: int = 1
    row: dict | list | None = None


def bad_row(where: str, fault: str, is_end: bool = False, row: dict | list | None = None) -> BadRow:
    """A `BadRow` whose message is its place and `fault`; `is_end`: nothing follows it."""
    lost = "; everything behind it is lost" if is_end else ""
    return BadRow(f"{where}: {fault}{lost}", row=row)


def read_rows(path: str | Path) -> Iterator[tuple[str, Row]]:
    """Yield `(where, row)` of a local file; the first row that cannot be read ends it.

    Lone surrogates pass: models write them. In data they are faults, see `read_rows_and_faults`.

    Args:
        path: see `read_rows_and_faults`.

    Raises:
        UserError: missing file, unknown suffix, malformed content; names file, line and remedy.
    """
    for where, row in read_rows_and_faults(path):
        if isinstance(row, BadRow):
            if row.row is None:
                raise UserError(row.message)
            row = row.row
        yield where, row


def read_rows_and_faults(path: str | Path) -> Iterator[tuple[str, Row | BadRow]]:
    """Yield `(where, row)` of a local file, with a `BadRow` for each row that cannot be read.

    Rows are streamed but for JSON lists, whose text is held in memory. A bare list of chat turns
    (the training files of ORZ) becomes `{"conversations": row}`.

    Args:
        path: a `.jsonl` or `.json` file (objects line by line, or one list of them), a `.csv` file
            (with a header; every value is text) or a `.parquet` file; JSON may end in `.gz`.

    Raises:
        UserError: missing file, unknown suffix, or a file that holds no rows at all: a Git LFS
            pointer, a web page, UTF-16, a parquet file cut short, a CSV file without its header;
            or a JSON list that is damaged, at the damage.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; check `file` and `data_root`")
    if not path.name.endswith(SUFFIXES):
        raise UserError(f"{path}: unknown format; convert it to one of {', '.join(SUFFIXES)}")
    _refuse_what_is_no_data(path)
    if path.suffix == ".parquet":
        rows = _read_parquet(path)
    elif path.suffix == ".csv":
        rows = _read_csv(path)
    else:
        rows = _read_list(path) if _holds_list(path) else _read_json_lines(path)
    for where, row in rows:
        if is_conversation(row):
            row = {"conversations": row}
        elif not isinstance(row, dict | BadRow):
            kind = type(row).__name__
            row = bad_row(where, f"a row must be an object, found {kind}; fix or remove it")
        yield where, row


def _open(path: Path):
    """The file's content as bytes, unpacked if it ends in `.gz`."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _refuse_what_is_no_data(path: Path) -> None:
    """Refuse a file that holds something else than rows.

    Raises:
        UserError: a Git LFS pointer, a web page, or (but for parquet) another container than the
            name says, or UTF-16 text.
    """
    with path.open("rb") as file:
        start = file.read(512)
    if start.startswith(b"version https://git-lfs"):
        raise UserError(
            f"{path}: a Git LFS pointer, not the data; run `git lfs pull` in its repository or "
            "download the file itself"
        )
    bare = start.removeprefix(b"\xef\xbb\xbf")
    if _PAGE.match(bare):
        raise UserError(
            f"{path}: a web page, not the data ({bare.strip()[:40]!r}); fetch the raw file"
        )
    if path.suffix == ".parquet":
        return
    if start.startswith(_GZIP):
        if path.suffix == ".gz":
            return
        raise UserError(f"{path}: packed by gzip; name it {path.name}.gz, or unpack it")
    for magic, what in _CONTAINERS.items():
        if start.startswith(magic):
            raise UserError(f"{path}: {what}")
    if path.suffix == ".gz":
        return  # damaged: its reader says so
    encoding = next((name for bom, name in _UTF_BOMS.items() if start.startswith(bom)), None)
    if encoding or _WIDE.match(start):
        raise UserError(
            f"{path}: {encoding or 'UTF-16'} text; re-encode it: "
            f"iconv -f {encoding or 'UTF-16'} -t UTF-8"
        )


def _lines_and_fault(path: Path) -> Iterator[tuple[int, bytes | BadRow]]:
    """Yield `(line number from 1, bytes)`, and last the fault of a gzip file that is damaged."""
    number = 0
    try:
        # Binary mode splits on \n alone; text mode's splitlines breaks rows that hold U+2028.
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                yield number, line
    except _GZIP_ERRORS as error:
        yield number + 1, bad_row(f"{path}:{number + 1}", _gzip_fault(error), is_end=True)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number from 1, bytes)` of a plain or gzipped file.

    Raises:
        UserError: a gzip file that is damaged or ends early.
    """
    for number, line in _lines_and_fault(path):
        if isinstance(line, BadRow):
            raise UserError(line.message)
        yield number, line


def _read_start(path: Path, size: int) -> tuple[bytes, str | None]:
    """The first `size` bytes of a file, and what kept a damaged gzip file from giving more."""
    chunks, num_bytes = [], 0
    try:
        with _open(path) as file:
            # `read` would lose what it had unpacked before the damage.
            while num_bytes < size and (chunk := file.read1(min(size - num_bytes, 1 << 16))):
                chunks.append(chunk)
                num_bytes += len(chunk)
    except _GZIP_ERRORS as error:
        return b"".join(chunks), _gzip_fault(error)
    return b"".join(chunks), None


def _gzip_fault(error: Exception) -> str:
    return f"truncated or damaged gzip ({error}); fetch the file again"


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
            return bad_row(
                where, f"not UTF-8 (byte 0x{ord(sign) - 0xDC00:02x}); re-encode the file"
            )
        fault = f"a lone surrogate (\\u{ord(sign):04x}) is no character; fix or remove the row"
        return bad_row(where, fault, row=row if isinstance(row, dict | list) else None)
    return row


def _is_cut_short(text: str) -> bool:
    """Whether text ends inside a string or with brackets open, as a half-downloaded file does."""
    rest = _STRING.sub("", text)
    return '"' in rest or sum(map(rest.count, "{[")) > sum(map(rest.count, "}]"))


def _read_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield `(file:line, row or BadRow)` of a file with one row per line.

    Raises:
        UserError: it holds a single object, in which a list holds the rows.
    """
    for number, line in _lines_and_fault(path):
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
    lines = (line for _, line in _lines_and_fault(path) if isinstance(line, BadRow) or line.strip())
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


def _holds_list(path: Path) -> bool:
    """Whether a JSON file holds one list of rows rather than one row per line, whatever its name.

    Raises:
        UserError: it holds an object that spans lines.
    """
    text = (
        _read_start(path, _SNIFFED)[0]
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


def _read_list(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield `(file: row N, row or BadRow)` of a file that holds one list of all rows.

    Raises:
        UserError: the list is damaged; the rows before are read by then.
    """
    content, gzip_fault = _read_start(path, sys.maxsize)
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    del content
    at, number = _skip(text, _skip(text, 0) + 1), 1
    try:
        while text[at : at + 1] != "]":
            row, end = decode_at(text, at)
            where = f"{path}: row {number}"
            yield where, _check_text(row, text[at:end], where)
            number, at = number + 1, _skip(text, end)
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
                if text[at : at + 1] == "]":
                    raise json.JSONDecodeError("a comma, and no row behind it", text, at)
            elif text[at : at + 1] != "]":
                raise json.JSONDecodeError("no comma before it", text, at)
        if gzip_fault or _skip(text, at + 1) < len(text):
            raise json.JSONDecodeError("text behind the list", text, at + 1)
    except ValueError as error:
        fault = gzip_fault or str(error)
        if not gzip_fault and not text.rstrip().endswith("]"):
            fault = "truncated: the list is cut off here; fetch the file again"
        elif not gzip_fault and isinstance(error, json.JSONDecodeError):
            place = f"line {error.lineno}, column {error.colno}"
            fault = f"malformed JSON ({error.msg}, {place}); fix the list"
        raise UserError(f"{path}: row {number}: {fault}; no row behind it can be read") from error


def _skip(text: str, start: int) -> int:
    return _BLANK.match(text, start).end()


def _read_csv(path: Path) -> Iterator[tuple[str, Row | BadRow]]:
    csv.field_size_limit(_LONGEST_CSV_VALUE)  # the module's own is 128 kB
    # Spreadsheets begin the file with a byte order mark, which would belong to the first name.
    reader = csv.reader(
        (
            line.decode("utf-8", "surrogateescape").removeprefix("\ufeff" if number == 1 else "")
            for number, line in _lines_and_fault(path)
        ),
        strict=True,
    )
    header: list[str] = []
    while True:
        where = f"{path}:{reader.line_num + 1}"  # of the row: a quoted value may span lines
        try:
            values = next(reader, None)
        except csv.Error as error:
            fault = f"malformed CSV ({error}); fix the row"
            if not header:
                raise UserError(f"{where}: {fault}") from error
            yield where, bad_row(where, fault, is_end="end of data" in str(error))
            continue
        if values is None:
            return
        if not values:
            continue  # a blank line
        if any("\udc80" <= sign <= "\udcff" for value in values for sign in value):
            row: Row | BadRow = bad_row(where, "not UTF-8; re-encode the file")
        elif header and len(values) != len(header):
            row = bad_row(
                where,
                f"{len(values)} values for {len(header)} columns; quote values that hold commas, "
                "quotes or line ends",
            )
        else:
            row = dict(zip(header or values, values, strict=True))
        if header:
            yield where, row
        elif isinstance(row, BadRow):
            raise UserError(row.message)
        elif doubled := [name for name in values if values.count(name) > 1]:
            raise UserError(f"{where}: two columns are named {doubled[0]!r}; rename one")
        else:
            header = values


def _read_parquet(path: Path) -> Iterator[tuple[str, Row | BadRow]]:
    import pyarrow  # late: most files are JSON
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    except (pyarrow.ArrowException, OSError) as error:
        message = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{path}: not a readable parquet file ({message}); fetch it again"
        ) from error
    number, end = 0, 0  # rows so far, and rows up to the group's end
    with file:
        for group in range(file.num_row_groups):  # one by one: behind a damaged one is the next
            end += file.metadata.row_group(group).num_rows
            message = "it ends early"
            try:
                for batch in file.iter_batches(_PARQUET_ROWS, [group]):
                    for row in _to_rows(batch):
                        number += 1
                        where = f"{path}: row {number}"
                        yield where, bad_row(where, row) if isinstance(row, str) else row
            except (pyarrow.ArrowException, OSError) as error:
                message = (str(error) or type(error).__name__).splitlines()[0]
            if number < end:
                where = f"{path}: row {number + 1}"
                message = (
                    f"{where}: damaged parquet page ({message}); {end - number:,} of the file's "
                    f"{file.metadata.num_rows:,} rows cannot be read; fetch the file again"
                )
                yield where, BadRow(message, num_rows=end - number)
            number = end


def _to_rows(batch: Any) -> list[Row | str]:
    """The rows of a batch, with what is wrong in place of those that are not UTF-8."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:
        if len(batch) == 1:
            return [f"not UTF-8 ({error.reason}); fix or remove the row"]
        return [row for at in range(len(batch)) for row in _to_rows(batch.slice(at, 1))]


def load_hub(hub_id: str, split: str, config: str | None = None) -> Iterator[tuple[str, Row]]:
    """Yield `(where, row)` of one split of a hub data set, downloaded or from the local cache.

    Raises:
        UserError: no such data set, config or split, or the hub cannot be reached.
    """
    import datasets  # late: takes about a second

    try:
        rows = datasets.load_dataset(hub_id, config, split=split)
    except (OSError, ValueError) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"hub: {hub_id} (config {config}, split {split}): {message}; check the names, "
            "or set --data_root to a folder that holds `file`"
        ) from error
    return ((f"{hub_id}/{split}: row {number}", row) for number, row in enumerate(rows, 1))
