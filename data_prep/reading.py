"""Reading rows: local JSON lines, JSON lists, CSV and parquet files, and data sets of the hub.

Every row comes with its place (`file:line`, or `file: row N`), so that whatever is wrong with it
later can be reported by file and line.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_prep.config import UserError

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".parquet")


def read_rows(path: str | Path) -> Iterator[tuple[str, Row]]:
    """Yield `(where, row)` of a local file, streaming where the format allows it.

    Args:
        path: a `.jsonl`, `.json` (one list), `.csv` (with a header; every value is text) or
            `.parquet` file; the first two may end in `.gz`.

    Raises:
        UserError: missing file, unknown suffix, malformed content; names file, line and remedy.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; check `file` and `data_root`")
    if not path.name.endswith(SUFFIXES):
        raise UserError(f"{path}: unknown format; convert it to one of {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        rows = _read_parquet(path)
    elif path.suffix == ".csv":
        rows = _read_csv(path)
    elif path.name.removesuffix(".gz").endswith(".json"):
        rows = _read_json(path)
    else:
        rows = _read_jsonl(path)
    for where, row in rows:
        if not isinstance(row, dict):
            raise UserError(f"{where}: a row must be an object, found {type(row).__name__}; fix it")
        yield where, row


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number from 1, bytes)` of a plain or gzipped file."""
    number = 0
    try:
        # Binary mode splits on \n alone; text mode's splitlines breaks rows that hold U+2028.
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path}:{number + 1}: truncated or damaged gzip ({error}); fetch the file again"
        ) from error


def _decode(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 (byte {error.start}); re-encode the file") from error


def _read_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        text = _decode(line, where)
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{where}: malformed JSON ({error.msg}, column {error.colno}); "
                "fix or remove the line"
            ) from error
        except ValueError as error:  # Python reads no integer of over 4,300 digits
            raise UserError(f"{where}: {error}; write it as a string") from error
        yield where, row


def _read_json(path: Path) -> Iterator[tuple[str, Any]]:
    text = "".join(_decode(line, f"{path}:{number}") for number, line in read_lines(path))
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{error.lineno}: malformed JSON ({error.msg}, column {error.colno}); "
            "fix it, or name the file .jsonl if it holds one object per line"
        ) from error
    except ValueError as error:  # Python reads no integer of over 4,300 digits
        raise UserError(f"{path}: {error}; write it as a string") from error
    if not isinstance(rows, list):
        raise UserError(f"{path}: must hold one list of rows, found {type(rows).__name__}; wrap it")
    return _number(str(path), rows)


def _read_csv(path: Path) -> Iterator[tuple[str, Any]]:
    # Spreadsheets begin the file with a byte order mark, which would belong to the first name.
    lines = (
        _decode(line, f"{path}:{number}").removeprefix("\ufeff" if number == 1 else "")
        for number, line in read_lines(path)
    )
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    start = 1  # of the row: a quoted value may span lines
    try:
        for values in reader:
            where, start = f"{path}:{start}", reader.line_num + 1
            if not values:
                continue  # a blank line
            if not header:
                header = values
                if doubled := [name for name in header if header.count(name) > 1]:
                    raise UserError(f"{where}: two columns are named {doubled[0]!r}; rename one")
            elif len(values) != len(header):
                raise UserError(
                    f"{where}: {len(values)} values for {len(header)} columns; quote values that "
                    "hold commas, quotes or line ends"
                )
            else:
                yield where, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise UserError(f"{path}:{start}: malformed CSV ({error}); fix the row") from error


def _read_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow  # late: most files are JSON
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            batches = (batch.to_pylist() for batch in file.iter_batches())
            yield from _number(str(path), (row for batch in batches for row in batch))
    except (pyarrow.ArrowException, OSError) as error:
        message = str(error).splitlines()[0]
        raise UserError(f"{path}: not a readable parquet file ({message}); fetch it") from error


def _number(name: str, rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{name}: row {number}", row) for number, row in enumerate(rows, 1))


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
    return _number(f"{hub_id}/{split}", rows)
