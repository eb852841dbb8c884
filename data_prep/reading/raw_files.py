"""Files as bytes: lines of plain and gzipped files, faults in them, and files that are no data.

Below `data_prep.reading.reading`, which turns the lines into rows.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.config import UserError

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
        where: its place, `file:line` or `file: row N`.
        message: the error in one line: where, what is wrong, and the remedy.
        is_end: nothing after it could be read either.
        num_rows: how many rows it stands for, as far as the file tells (parquet), else 1.
        row: the row all the same, where a lone surrogate is all that is wrong with it.
    """

    where: str
    message: str
    is_end: bool = False
    num_rows: int = 1
    row: dict | list | None = None


def bad_row(where: str, fault: str, is_end: bool = False, row: dict | list | None = None) -> BadRow:
    """A `BadRow` whose message is its place and `fault`."""
    lost = "; everything behind it is lost" if is_end else ""
    return BadRow(where, f"{where}: {fault}{lost}", is_end, row=row)


def open_bytes(path: Path):
    """The file's content as bytes, unpacked if it ends in `.gz`."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def refuse_what_is_no_data(path: Path) -> None:
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


def lines_and_fault(path: Path) -> Iterator[tuple[int, bytes | BadRow]]:
    """Yield `(line number from 1, bytes)`, and last the fault of a gzip file that is damaged."""
    number = 0
    try:
        # Binary mode splits on \n alone; text mode's splitlines breaks rows that hold U+2028.
        with open_bytes(path) as file:
            for number, line in enumerate(file, 1):
                yield number, line
    except _GZIP_ERRORS as error:
        yield number + 1, bad_row(f"{path}:{number + 1}", _gzip_fault(error), is_end=True)


def read_start(path: Path, size: int) -> tuple[bytes, str | None]:
    """The first `size` bytes of a file, and what kept a damaged gzip file from giving more."""
    chunks, num_bytes = [], 0
    try:
        with open_bytes(path) as file:
            # `read` would lose what it had unpacked before the damage.
            while num_bytes < size and (chunk := file.read1(min(size - num_bytes, 1 << 16))):
                chunks.append(chunk)
                num_bytes += len(chunk)
    except _GZIP_ERRORS as error:
        return b"".join(chunks), _gzip_fault(error)
    return b"".join(chunks), None


def _gzip_fault(error: Exception) -> str:
    return f"truncated or damaged gzip ({error}); fetch the file again"


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number from 1, bytes)` of a plain or gzipped file.

    Raises:
        UserError: a gzip file that is damaged or ends early.
    """
    for number, line in lines_and_fault(path):
        if isinstance(line, BadRow):
            raise UserError(line.message)
        yield number, line
