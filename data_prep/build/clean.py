"""Cleaning that takes a whole set: duplicates, contradictions, near duplicates.

Problems come in the order of their rows, whatever process checked them, and the first of its kind
stays. Reasons:

    duplicate_question   the same question, apart from case, spacing and punctuation
    conflicting_gold     the same question with another gold, and so is the one it repeats: one of
                         them is wrong, and nothing here tells which
    near_duplicate       another edition of a question, with the same numbers and the same gold
"""

import dataclasses
from array import array
from collections import Counter
from collections.abc import Iterator

import numpy as np

from data_prep.build.duplicates import find_near_duplicates, is_near_duplicate
from data_prep.build.prepare import Dropped, Kept
from data_prep.build.spool import Spool
from data_prep.grading.answers import is_same_value
from data_prep.schema import Problem

BANDS = ("", "easy", "medium", "hard")  # as stored, a byte each


class Collector:
    """The problems of one file as they come in.

    Args:
        spool: where they are kept.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._first: dict[bytes, int] = {}  # key: number of the first problem
        self._conflicts: dict[int, str] = {}  # number of a first problem: the place of the other
        self._ids: set[str] = set()
        self._copies: Counter[str] = Counter()
        self._signatures = bytearray()
        self._sources = array("H")
        self._bands = bytearray()
        self.gone: set[int] = set()

    def add(self, found: Kept, source: int) -> Dropped | None:
        """Take a problem in, or say why not; `source` is the number of its source."""
        number = self._first.get(found.key)
        if number is not None:
            return self._repeat(found, number)
        problem = found.problem
        self._first[found.key] = len(self._spool)
        self._spool.append(self._with_own_id(problem), found.where)
        self._signatures += found.signature
        self._sources.append(source)
        self._bands.append(BANDS.index(found.band or ""))
        return None

    def _repeat(self, found: Kept, number: int) -> Dropped:
        problem = found.problem
        first, where = self._spool.get(number)
        if agree(problem, first):
            return drop(problem, found.where, "duplicate_question", f"of {first.id} at {where}")
        self._conflicts.setdefault(number, f"{problem.answer!r} at {found.where}")
        detail = f"{first.answer!r} at {where}"
        return drop(problem, found.where, "conflicting_gold", detail)

    def _with_own_id(self, problem: Problem) -> Problem:
        """The problem, renamed where its id is taken: upstream ids are not always unique."""
        name = problem.id
        while name in self._ids:
            self._copies[problem.id] += 1
            name = f"{problem.id}~{self._copies[problem.id] + 1}"
        self._ids.add(name)
        return problem if name == problem.id else dataclasses.replace(problem, id=name)

    def finish(self) -> Iterator[tuple[int, Dropped]]:
        """Yield (source, drop) of the problems that others make unusable, in order."""
        drops = {number: ("conflicting_gold", detail) for number, detail in self._conflicts.items()}
        for number, first in self._near_duplicates().items():
            if number in drops or first in drops:
                continue
            problem, where = self._spool.get(first)
            detail = f"of {problem.id} at {where}: {problem.question[:300]!r}"
            drops[number] = ("near_duplicate", detail)
        for number in sorted(drops):
            yield self.leave_out(number, *drops[number])

    def _near_duplicates(self) -> dict[int, int]:
        if not self._signatures:
            return {}
        keys = np.frombuffer(bytes(self._signatures), dtype=np.uint64)
        return find_near_duplicates(keys.reshape(len(self._spool), -1), self._is_near)

    def _is_near(self, first: int, second: int) -> bool:
        (one, _), (other, _) = self._spool.get(first), self._spool.get(second)
        return (
            one.trace == other.trace
            and is_near_duplicate(one.question, other.question)
            and agree(one, other)
        )

    def leave_out(self, number: int, reason: str, detail: str = "") -> tuple[int, Dropped]:
        """Take a problem out again; (its source, the drop)."""
        self.gone.add(number)
        return self._sources[number], drop(*self._spool.get(number), reason, detail)

    def left(self) -> list[int]:
        """Numbers of the problems that are still in, in order."""
        return [number for number in range(len(self._spool)) if number not in self.gone]

    def band(self, number: int) -> str:
        """easy, medium, hard, or nothing where it is unknown."""
        return BANDS[self._bands[number]]

    def source(self, number: int) -> int:
        """The number of the problem's source."""
        return self._sources[number]


def agree(first: Problem, second: Problem) -> bool:
    """Whether some gold of one problem is one of the other's."""
    return any(a == b or is_same_value(a, b) for a in first.answers for b in second.answers)


def drop(problem: Problem, where: str, reason: str, detail: str = "") -> Dropped:
    """A problem that is left out, as it is reported."""
    return Dropped(where, reason, detail, problem.id, problem.question, problem.answer)
