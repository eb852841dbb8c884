"""Rows of files: local JSON, CSV, TSV, parquet and Arrow files, and data sets of the hub.

Every row comes with its place (`file:line`, or `file: row N`). A row that cannot be read becomes a
`BadRow`, and the next one is read. Some damage hides the rows behind it: in a JSON list, gzip, a
parquet page, or by an open quote in a CSV file. There the reader stops with the place.
"""

import contextlib
import csv
import glob
import gzip
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from pipeline.errors import UserError, disk_fault
from pipeline.json_files import refuse_repeated
from pipeline.manifest import check_made

Row = dict[str, Any]
FORMATS = (".jsonl", ".json", ".csv", ".tsv")
SUFFIXES = (*FORMATS, *(f"{name}.gz" for name in FORMATS), ".parquet", ".arrow")
SPLITS = ("train", "test", "validation", "valid", "val", "dev", "eval")
_PARQUET_ROWS = 256  # a row of worked solutions can take 200 kB: a few hundred are held at once
EXACT = 2.0**53  # below, a float holds every whole number
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_OWN_MAGIC = {".gz": b"\x1f\x8b", ".parquet": b"PAR1"}
_NOT_DATA = {
    rb"version https://git-lfs": "a Git LFS pointer, not the data; run `git lfs pull` in its "
    "repository or download the file itself",
    rb"(?i)(?:\xef\xbb\xbf)?\s*<(?:!doctype|html|\?xml|head|body|error)\b": "a web page, not the "
    "data; fetch the raw file",
    rb"\x1f\x8b": "packed by gzip; end its name in .gz, or unpack it",
    rb"PAR1": "a parquet file; name it .parquet",
    rb"PK\x03\x04": "a zip archive; unpack it",
}


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read.

    Args:
        message: the error in one line: where, what is wrong, and the remedy.
        row: the row all the same, where a lone surrogate is all that is wrong with it.
    """

    message: str
    row: Row | None = None


def read_rows(path: str | Path) -> Iterator[tuple[str, Row]]:
    """Yield `(where, row)` of a local file; the first row that cannot be read ends it.

    A file that a stage wrote must be as it left it. Lone surrogates pass: models write them. In
    data they are faults, see `read_rows_and_faults`.
    """
    check_made(Path(path))
    for where, row in read_rows_and_faults(path):
        if isinstance(row, BadRow):
            if row.row is None:
                raise UserError(row.message)
            row = row.row
        yield where, row


def read_rows_and_faults(path: str | Path) -> Iterator[tuple[str, Row | BadRow]]:
    """Yield `(where, row)` of a local file, with a `BadRow` for each row that cannot be read.

    Rows are streamed, but for a list. JSON is objects line by line, or one list of them. CSV and
    TSV need a header, which shows their separator, and every value is text. These may be packed as
    `.gz`. Parquet, and the Arrow of `save_to_disk`, are read too. A bare list of chat turns (the
    training files of ORZ) becomes `{"conversations": row}`.

    Raises:
        UserError: a missing file, an unknown suffix, no data (a Git LFS pointer, a web page), or
            damage behind which no row can be read.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; check file and data_root")
    if not path.name.endswith(SUFFIXES):
        raise UserError(f"{path}: unknown format; convert it to one of {', '.join(SUFFIXES)}")
    with path.open("rb") as file:
        start = file.read(512)
    own_magic = _OWN_MAGIC.get(path.suffix)
    if not (own_magic and start.startswith(own_magic)):
        for magic, fault in _NOT_DATA.items():
            if re.match(magic, start):
                raise UserError(f"{path}: {fault}")
    if path.suffix in (".parquet", ".arrow"):
        yield from _read_table(path)
    elif Path(path.name.removesuffix(".gz")).suffix in (".csv", ".tsv"):
        yield from _read_csv(path)
    elif _holds_list(path):
        yield from _read_list(path)
    else:
        yield from _read_json_lines(path)


def list_files(place: Path, split: str) -> list[Path]:
    """The data files at a place, sorted by name: one file, those of a folder, or those of a glob.

    In a folder these are the files that name the split (`train-00000.parquet`, `train/data.arrow`),
    else those that name no split. JSON beside files of another format describes them, and `cache-…`
    are copies by `datasets`: both are left out.

    Raises:
        UserError: there are none, or files of several formats.
    """
    if place.is_file():
        return [place]
    is_folder = place.is_dir()
    pattern = f"{glob.escape(str(place))}/**/*" if is_folder else str(place)
    found = map(Path, sorted(glob.glob(pattern, recursive=True)))
    files = [path for path in found if path.name.endswith(SUFFIXES) and path.is_file()]
    files = [path for path in files if not path.name.startswith("cache-")]

    def naming(*splits: str) -> list[Path]:
        words = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(map(re.escape, splits))})(?![a-z0-9])")
        return [one for one in files if words.search(one.relative_to(place).as_posix().lower())]

    if is_folder and files and (known := naming(split.lower(), *SPLITS)):
        files = naming(split.lower()) or [path for path in files if path not in known]
        if not files:
            remedy = "set split, or name a file"
            raise UserError(f"{place} has no file of the split {split!r}; {remedy}")
    formats = {path: Path(path.name.removesuffix(".gz")).suffix for path in files}
    kinds = sorted({*formats.values()} - {".json"}) or [*formats.values()][:1]
    if not kinds:
        fault = f"is a folder without {', '.join(SUFFIXES)}" if is_folder else "does not exist"
        raise UserError(f"{place} {fault}; check file and data_root, the folder it is relative to")
    if len(kinds) > 1:
        raise UserError(f"{place} has files of several formats, {kinds}; choose one with a glob")
    return [path for path in files if formats[path] in kinds]


@contextlib.contextmanager
def _open(path: Path) -> Iterator[gzip.GzipFile | BinaryIO]:
    """A plain or gzipped file, to read its bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb", 1 << 20) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        fault = f"truncated or damaged gzip ({error})"
        raise UserError(f"{path}: {fault}; fetch the file again") from error


def _read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number from 1, bytes)`."""
    # Binary mode splits on \n alone; text mode's splitlines breaks rows that hold U+2028.
    with _open(path) as file:
        yield from enumerate(file, 1)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON; write null or a number")


def _read_float(text: str) -> float | int:
    """A JSON number with a point or an exponent; a large whole one keeps all of its digits."""
    value = float(text)
    if abs(value) < EXACT or math.isinf(value):
        return value
    exact = Decimal(text)
    return int(exact) if exact == exact.to_integral_value() else value


_DECODER = json.JSONDecoder(
    parse_float=_read_float, parse_constant=_refuse, object_pairs_hook=refuse_repeated
)


def is_conversation(row: Any) -> bool:
    """Whether a row is a bare list of chat turns, as in the training files of ORZ."""
    return (
        isinstance(row, list)
        and bool(row)
        and all(isinstance(turn, dict) and turn.keys() & {"from", "role"} for turn in row)
    )


def _to_row(value: Any, source: str, where: str) -> Row | BadRow:
    """A decoded value as a row, or what is wrong with it."""
    row = {"conversations": value} if is_conversation(value) else value
    if not isinstance(row, dict):
        found = type(row).__name__
        return BadRow(f"{where}: a row must be an object, found {found}; fix or remove it")
    # Most rows hold no such sign at all, so that the costly check is rarely made.
    if source.isascii() and not _ESCAPED_SURROGATE.search(source):
        return row
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        if 0xDC80 <= code <= 0xDCFF and chr(code) in source:  # `surrogateescape` put it there
            return BadRow(f"{where}: not UTF-8 (byte 0x{code - 0xDC00:02x}); re-encode the file")
        fault = f"a lone surrogate (\\u{code:04x}) is not a character; fix or remove the row"
        return BadRow(f"{where}: {fault}", row)
    return row


def _holds_list(path: Path) -> bool:
    """Whether a JSON file, whatever its name, holds one list of rows, not one row per line."""
    for _, line in _read_lines(path):
        text = line.lstrip(b"\xef\xbb\xbf \t\r\n")
        if text:
            return text.startswith(b"[")
    return False


def _read_json_lines(path: Path) -> Iterator[tuple[str, Row | BadRow]]:
    for number, line in _read_lines(path):
        where = f"{path}:{number}"
        text = line.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        if not text.strip():
            continue
        try:
            row = _to_row(_DECODER.decode(text.rstrip()), text, where)
        except (ValueError, RecursionError) as error:
            fault, remedy = str(error).replace("line 1 ", ""), "fix or remove the line"
            if text.strip() == "{":
                fault, remedy = "an object over several lines", "write one row a line, or a list"
            row = BadRow(f"{where}: malformed JSON ({fault}); {remedy}")
            if not text.endswith("\n"):
                row = BadRow(f"{row.message}, or fetch the file again: it may be truncated here")
        yield where, row


def _read_list(path: Path) -> Iterator[tuple[str, Row | BadRow]]:
    """Yield `(file: row N, row or BadRow)` of a file that holds one list of all rows."""
    with _open(path) as file:
        text = file.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    try:
        values = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        remedy = "fix the list, or fetch the file again if it is truncated"
        fault = f"malformed JSON ({error}), so no row can be read; {remedy}"
        raise UserError(f"{path}: {fault}") from error
    for number, value in enumerate(values, 1):
        where = f"{path}: row {number}"
        yield where, _to_row(value, text, where)


def _find_delimiter(header: str, usual: str) -> str:
    """What separates the names of a header: the usual sign, or where it has none, another one."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max((usual, ";", "\t", ",", "|"), key=bare.count) if usual not in bare else usual


def _read_csv(path: Path) -> Iterator[tuple[str, Row | BadRow]]:
    csv.field_size_limit(2**31 - 1)  # the module's own is 128 kB
    # Spreadsheets begin the file with a byte order mark, which would belong to a name.
    texts = (line.decode("utf-8", "surrogateescape") for _, line in _read_lines(path))
    lines = (text.removeprefix("\ufeff") for text in texts)
    header = next(lines, "")
    delimiter = _find_delimiter(header, "\t" if ".tsv" in path.suffixes[-2:] else ",")
    reader = csv.DictReader(itertools.chain([header], lines), strict=True, delimiter=delimiter)
    try:
        names = reader.fieldnames or []
    except csv.Error as error:
        raise UserError(f"{path}:1: malformed CSV ({error}); fix the header") from error
    if len(set(names)) < len(names):
        raise UserError(f"{path}:1: two columns have one name; rename one of {names!s:.200}")
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            where = f"{path}:{reader.reader.line_num}"
            message = f"{where}: malformed CSV ({error}); fix the row"
            if "end of data" in str(error):
                raise UserError(f"{message}: its quote is never closed") from error
            yield where, BadRow(message)
            continue
        if row is None:
            return
        where = f"{path}:{reader.line_num}"  # a row ends there: a quoted value may span lines
        if None in row or None in row.values():
            message = f"{where}: not {len(names)} values, as the header has; quote values"
            yield where, BadRow(f"{message} that hold {delimiter!r}, quotes or line ends")
        else:
            yield where, _to_row(row, "".join(row.values()), where)


def _read_table(path: Path) -> Iterator[tuple[str, Row | BadRow]]:
    import pyarrow  # late: most files are JSON

    number = 0
    try:
        for batch in _open_table(path):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if disk_fault(error):  # the file may be as it was
            raise
        message = str(error).partition("\n")[0] or type(error).__name__
        fault = f"not readable as {path.suffix[1:]} ({message})"
        raise UserError(f"{path}: row {number + 1}: {fault}; fetch the file again") from error


def _open_table(path: Path) -> Iterator[Any]:
    """Yield the batches of a parquet or Arrow file."""
    import pyarrow
    import pyarrow.parquet

    if path.suffix == ".parquet":
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            yield from _read_batches(file)
        return
    with pyarrow.ipc.open_stream(path) as file:
        for batch in file:
            batch.validate(full=True)  # an offset out of its buffer would end the process
            yield batch


def _read_batches(file: Any) -> Iterator[Any]:
    """Yield a few hundred rows at a time; a short float keeps its digits."""
    import pyarrow

    fields, texts = [], []
    for field in file.schema_arrow:
        if pyarrow.types.is_dictionary(field.type):
            field = field.with_type(field.type.value_type)
        # As text 0.1, but as float64 0.10000000149.
        is_narrow = pyarrow.types.is_float32(field.type)
        texts.append(field.with_type(pyarrow.string()) if is_narrow else field)
        fields.append(field.with_type(pyarrow.float64()) if is_narrow else field)
    for batch in file.iter_batches(_PARQUET_ROWS):
        yield batch.cast(pyarrow.schema(texts)).cast(pyarrow.schema(fields))


@contextlib.contextmanager
def _asking_hub(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        message = str(error).partition("\n")[0] or type(error).__name__
        remedy = "check the names, or set DATA_ROOT to a folder that holds `file`"
        raise UserError(f"hub: {what}: {message}; {remedy}") from error


def load_hub(hub_id: str, split: str, config: str | None = None) -> Iterator[tuple[str, Row]]:
    """Yield `(where, row)` of one split of a hub data set, downloaded or from the local cache."""
    import datasets  # late: takes about a second

    with _asking_hub(f"{hub_id} (config {config}, split {split})"):
        rows = datasets.load_dataset(hub_id, config, split=split)
    return ((f"{hub_id}/{split}: row {number}", row) for number, row in enumerate(rows, 1))


def fetch_hub_file(hub_id: str, name: str) -> Path:
    """The local copy of one file of a hub data set, downloaded where it is not cached.

    This is for sets whose files are not tables, or have no columns in common. They are read like
    local files.
    """
    from huggingface_hub import hf_hub_download

    with _asking_hub(f"{hub_id}: hub_file: {name}"):
        return Path(hf_hub_download(hub_id, name, repo_type="dataset"))
