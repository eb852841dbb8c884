"""Checks across a set: `duplicate_question`, `conflicting_gold`, `near_duplicate` (docs/data.md).

Problems come in the order of their rows, whatever process checked them. The first of several copies
stays. For near duplicates, workers reduce each question to a few keys (`signature`): MinHash over
its word triples, cut into bands. `is_near_duplicate` compares only questions that agree in a band.
The numbers of the question are part of the keys, because template sets have thousands of rows that
differ in numbers only.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from zlib import crc32

import numpy as np
from datasketch import MinHash

from data_prep.builder.filters import Checked, Dropped
from data_prep.builder.write import Spool
from data_prep.decontamination.index import asks_about_figure, same_wording
from data_prep.decontamination.text import content, figures, numbers, tokenise
from data_prep.schema import Problem
from data_prep.sources.base import Drop
from grading.compare import is_same_value
from grading.own_grader import accepts

NUM_BANDS = 6
ROWS_PER_BAND = 3
SHINGLE = 3
# A row is compared with so many of the kept rows of its group, lest large groups cost their square.
MAX_COMPARED = 4
_EMPTY = MinHash(NUM_BANDS * ROWS_PER_BAND, seed=1, hashfunc=crc32, scheme="affine32")


def signature(tokens: list[str]) -> np.ndarray:
    """Keys of a question, of which near duplicates most likely share one.

    Shape (NUM_BANDS,), uint64; the same in every process and run.
    """
    words = [word.encode() for word in content(tokens)]
    starts = range(max(1, len(words) - SHINGLE + 1))
    shingles = {b" ".join(words[at : at + SHINGLE]) for at in starts}
    minhash = _EMPTY.copy()
    minhash.update_batch(sorted(shingles))
    salt = " ".join(sorted(numbers(tokens))).encode()
    keys = [
        blake2b(band.tobytes() + salt, digest_size=8).digest()
        for band in minhash.hashvalues.astype("<u4").reshape(NUM_BANDS, ROWS_PER_BAND)
    ]
    return np.frombuffer(b"".join(keys), dtype="<u8").astype(np.uint64)


def find_near_duplicates(
    signatures: np.ndarray, is_same: Callable[[int, int], bool]
) -> dict[int, int]:
    """Rows that repeat an earlier one: {index of a dropped row: that of the first copy}.

    Args:
        signatures: shape (N, NUM_BANDS), uint64, in the order of the rows.
        is_same: whether two rows, given by index, the earlier first, are one problem.
    """
    dropped: dict[int, int] = {}
    for keys in signatures.T:
        for group in _groups(keys):
            kept: list[int] = []
            for row in group:
                # A row that an earlier band dropped is compared as the row that it repeats.
                one = dropped.get(row, row)
                if one == row:
                    copied = next((other for other in kept if is_same(other, row)), None)
                    if copied is not None:
                        dropped[row] = copied
                        continue
                if one not in kept and len(kept) < MAX_COMPARED:
                    kept.append(one)
    # The kept row of one band may be a repeat in another; rows come after those they repeat.
    for row in sorted(dropped):
        dropped[row] = dropped.get(dropped[row], dropped[row])
    return dropped


def _groups(keys: np.ndarray) -> Iterator[list[int]]:
    """The rows of each key that occurs more than once, in order."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order])) + 1
    edges = np.concatenate(([0], starts, [len(keys)]))
    for at in np.flatnonzero(np.diff(edges) > 1):
        yield order[edges[at] : edges[at + 1]].tolist()


def is_near_duplicate(first: str, second: str) -> bool:
    """Whether two questions are one problem in two editions; see `same_wording`."""
    words, others = content(tokenise(first)), content(tokenise(second))
    if not same_wording(words, others):
        return False
    # The two may differ in the word that points to the figure, which must be the same.
    is_in_figure = asks_about_figure(words) or asks_about_figure(others)
    return not is_in_figure or figures(first) == figures(second)


class Collector:
    """The problems of one file as they come in; `sources` and `bands` hold those of each number."""

    def __init__(self, spool: Spool, grader: str | None = None, answer_form: str = "box") -> None:
        self._spool = spool
        self._judge = grader, answer_form
        self._first: dict[bytes, int] = {}  # key: number of the first problem
        self._conflicts: dict[int, str] = {}  # number of a first problem: the place of the other
        self._ids: set[str] = set()
        self._copies: Counter[str] = Counter()
        self._signatures = bytearray()
        self.sources: list[int] = []
        self.bands: list[str] = []  # as `find_band` says, "" where it is unknown
        self._gone: set[int] = set()

    def add(self, found: Checked, source: int) -> Dropped | None:
        """Take a problem in, or tell why not; `source` is the number of its source."""
        number = self._first.get(found.key)
        if number is not None:
            return Dropped(found.where, found.problem, self._repeat(found, number))
        self._first[found.key] = len(self.sources)
        self._spool.append(self._with_own_id(found.problem), found.where)
        self._signatures += found.signature
        self.sources.append(source)
        self.bands.append(found.band or "")
        return None

    def _repeat(self, found: Checked, number: int) -> Drop:
        first, where = self._spool.get(number)
        if agree(found.problem, first, *self._judge):
            return Drop("duplicate_question", f"of {first.id} at {where}")
        self._conflicts.setdefault(number, f"{found.problem.answers[0]!r} at {found.where}")
        return Drop("conflicting_gold", f"{first.answers[0]!r} at {where}")

    def _with_own_id(self, problem: Problem) -> Problem:
        """The problem, renamed where its id is taken: upstream ids are not always unique."""
        name = problem.id
        while name in self._ids:
            self._copies[problem.id] += 1
            name = f"{problem.id}~{self._copies[problem.id] + 1}"
        self._ids.add(name)
        return problem if name == problem.id else dataclasses.replace(problem, id=name)

    def finish(self) -> Iterator[tuple[int, Dropped]]:
        """Yield (source, dropped row) of the problems that others make unusable, in order."""
        drops = {number: Drop("conflicting_gold", at) for number, at in self._conflicts.items()}
        keys = np.frombuffer(bytes(self._signatures), dtype=np.uint64).reshape(-1, NUM_BANDS)
        for number, first in find_near_duplicates(keys, self._is_near).items():
            if number in drops or first in drops:
                continue
            problem, where = self._spool.get(first)
            detail = f"of {problem.id} at {where}: {problem.question[:300]!r}"
            drops[number] = Drop("near_duplicate", detail)
        for number in sorted(drops):
            yield self.leave_out(number, drops[number])

    def _is_near(self, first: int, second: int) -> bool:
        (one, _), (other, _) = self._spool.get(first), self._spool.get(second)
        is_near = one.trace == other.trace and is_near_duplicate(one.question, other.question)
        return is_near and agree(one, other, *self._judge)

    def leave_out(self, number: int, drop: Drop) -> tuple[int, Dropped]:
        """Take a problem out again; (its source, the dropped row)."""
        self._gone.add(number)
        problem, where = self._spool.get(number)
        return self.sources[number], Dropped(where, problem, drop)

    def sample(self, source: int, size: int, seed: str) -> int:
        """Keep `size` at random of a source's problems that are still in; how many there were.

        Drawn by a hash of seed and question: neither their order nor other sources play a part.
        """
        questions = list(self._first)
        found = [number for number in self.left() if self.sources[number] == source]
        found.sort(key=lambda number: blake2b(seed.encode() + questions[number]).digest())
        self._gone.update(found[size:])
        return len(found)

    def left(self) -> list[int]:
        """Numbers of the problems that are still in, in order."""
        return [number for number in range(len(self.sources)) if number not in self._gone]


def agree(
    first: Problem, second: Problem, grader: str | None = None, answer_form: str = "box"
) -> bool:
    """Whether some gold of one problem is one of the other's.

    Args:
        grader: the user's own, if it decides; it is shown answers in `answer_form`.
    """
    if {*first.answers} & {*second.answers}:
        return True
    if grader:
        return any(accepts(grader, one, second.answers, answer_form) for one in first.answers)
    return any(is_same_value(a, b) for a in first.answers for b in second.answers)
