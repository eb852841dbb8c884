"""Problems on disk, in the order in which they came, read back by number.

A set of 860,000 problems with worked solutions would take gigabytes of memory; their places take
eight bytes each.
"""

import json
from array import array
from pathlib import Path
from typing import Any

from data_prep.schema import Problem

FIELDS = tuple(Problem.__dataclass_fields__)


class Spool:
    """An append-only file of problems with what is known beside each.

    Args:
        path: a new file; the caller removes it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._starts = array("Q")
        self._end = 0
        self._is_at_end = True

    def __len__(self) -> int:
        return len(self._starts)

    def append(self, problem: Problem, where: str) -> int:
        """Store a problem and its place; returns its number, from 0."""
        values = [getattr(problem, name) for name in FIELDS]
        # Escaped: data may hold what UTF-8 cannot.
        line = json.dumps([where, *values]).encode() + b"\n"
        if not self._is_at_end:
            self._file.seek(self._end)
            self._is_at_end = True
        self._file.write(line)
        self._starts.append(self._end)
        self._end += len(line)
        return len(self._starts) - 1

    def get(self, number: int) -> tuple[Problem, str]:
        """The problem with this number, and its place."""
        self._is_at_end = False
        self._file.seek(self._starts[number])
        where, *values = json.loads(self._file.readline())
        fields: dict[str, Any] = dict(zip(FIELDS, values, strict=True))
        return Problem(**fields | {"other_answers": tuple(fields["other_answers"])}), where

    def close(self) -> None:
        """Close the file."""
        self._file.close()
