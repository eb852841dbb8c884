"""Reading rows: local JSON lines, JSON lists, CSV and parquet files, and data sets of the hub.

Every row comes with its place (`file:line`, or `file: row N`), so that whatever is wrong with it
later can be reported by file and line. A row that cannot be read is a `BadRow` in its place.
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from data_prep.reading.json_rows import holds_list, is_conversation, read_json_lines, read_json_list
from data_prep.reading.raw_files import (
    BadRow,
    bad_row,
    lines_and_fault,
    read_lines,
    refuse_what_is_no_data,
)

__all__ = ["BadRow", "Row", "load_hub", "read_lines", "read_rows", "read_rows_and_faults"]

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".parquet")
# A row of worked solutions can take 200 kB: a few hundred are held at once.
_PARQUET_ROWS = 256
_LONGEST_CSV_VALUE = 1 << 26


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
            pointer, a web page, UTF-16, a parquet file cut short, a CSV file without its header.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; check `file` and `data_root`")
    if not path.name.endswith(SUFFIXES):
        raise UserError(f"{path}: unknown format; convert it to one of {', '.join(SUFFIXES)}")
    refuse_what_is_no_data(path)
    if path.suffix == ".parquet":
        rows = _read_parquet(path)
    elif path.suffix == ".csv":
        rows = _read_csv(path)
    else:
        rows = read_json_list(path) if holds_list(path) else read_json_lines(path)
    for where, row in rows:
        if is_conversation(row):
            row = {"conversations": row}
        elif not isinstance(row, dict | BadRow):
            kind = type(row).__name__
            row = bad_row(where, f"a row must be an object, found {kind}; fix or remove it")
        yield where, row


def _read_csv(path: Path) -> Iterator[tuple[str, Row | BadRow]]:
    csv.field_size_limit(_LONGEST_CSV_VALUE)  # the module's own is 128 kB
    # Spreadsheets begin the file with a byte order mark, which would belong to the first name.
    reader = csv.reader(
        (
            line.decode("utf-8", "surrogateescape").removeprefix("\ufeff" if number == 1 else "")
            for number, line in lines_and_fault(path)
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
                fault = (
                    f"damaged parquet page ({message}); {end - number:,} of the file's "
                    f"{file.metadata.num_rows:,} rows cannot be read; fetch the file again"
                )
                is_end = group + 1 == file.num_row_groups
                yield where, BadRow(where, f"{where}: {fault}", is_end, end - number)
            number = end


def _to_rows(batch: Any) -> list[Row | str]:
    """The rows of a batch, with what is wrong in place of those that are not UTF-8."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:
        if len(batch) == 1:
            return [f"not UTF-8 ({error.reason}); fix or remove the row"]
        return [row for at in range(len(batch)) for row in _to_rows(batch.slice(at, 1))]


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
