"""The steps of one row: read, build a problem, check it, clean its solution, look for benchmarks.

The main process reads; any process checks, one chunk at a time, as a check depends on the row
alone. `data_prep.builder.sets` compares rows with each other, in their order. With one worker, or
if all rows fit one chunk, this process does all of it. At most a few chunks are under way at a
time, so that a fast reader does not fill the memory.
"""

import itertools
import json
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from tqdm import tqdm

from data_prep.builder.duplicates import signature
from data_prep.builder.filters import (
    Checked,
    Dropped,
    check_for_own_grader,
    check_language,
    check_problem,
    find_band,
)
from data_prep.builder.recipe import TRAINING, DataArguments, Source, find_files, is_by_source
from data_prep.decontamination.index import EvalIndex, Match
from data_prep.decontamination.text import question_key, tokenise
from data_prep.schema import Problem
from data_prep.sources import synthetic
from data_prep.sources.base import Drop, lost_digits
from data_prep.sources.registry import BUILDERS, SOLUTIONS_OF_THEIR_GOLD, SPLITS
from data_prep.sources.solutions import judge_solution, strip_ending
from data_prep.sources.templates import asks_for_box
from data_prep.sources.thoughts import read_thought
from grading import own_grader
from pipeline.errors import OutOfMemoryError, UserError
from pipeline.rows import BadRow, Row, fetch_hub_file, load_hub, read_rows_and_faults

EXCERPT = 1000  # characters of a row that its source drops
CHUNK = 500  # rows
AHEAD = 3  # chunks under way for each worker
show = partial(tqdm, leave=False, disable=None)  # a bar, where stderr is a terminal

Item = tuple[int, str, Row | BadRow | Problem]  # position from 0, where, what was read


@dataclass(frozen=True)
class Job:
    """What is to be done with the rows of one source; sent to the workers with every chunk."""

    source: Source
    part: str  # middle of the ids
    key: str  # the file that they are for, of `FILES`
    args: DataArguments


def read_source(job: Job) -> Iterator[Item]:
    """The rows of one source, its faults, or its ready problems; `UserError` if it has none."""
    source = job.source
    rows = _generate(job) if source.name == "synthetic" else _read(source, job.args.data_root)
    num_read = 0
    for num_read, (where, row) in enumerate(show(rows, f"{job.key}: {source.name}"), 1):
        yield num_read - 1, where, row
    if not num_read:
        place = source.file or source.hub
        raise UserError(f"{job.key}: {source.name}: {place} has no rows; check the file or split")


def _read(source: Source, data_root: str | None) -> Iterator[tuple[str, Row | BadRow]]:
    """The rows of the source's split; a row that names none is of it."""
    files = find_files(source, data_root)
    if not files and source.hub and source.hub_file:
        files = [fetch_hub_file(source.hub, source.hub_file)]
    rows: Iterable[tuple[str, Row | BadRow]] = itertools.chain.from_iterable(
        map(read_rows_and_faults, files)
    )
    if not files and source.hub:
        rows = load_hub(source.hub, source.split, source.config)
    split_of = SPLITS.get(source.name)
    for where, row in rows:
        found = split_of(row) if split_of and isinstance(row, dict) else None
        if found in (None, source.split):
            yield where, row


def _generate(job: Job) -> Iterator[tuple[str, Problem]]:
    source = job.source
    try:
        found = synthetic.load(source.split, source.sample or 0, job.args.seed, **source.options)
        yield from ((problem.id, problem) for problem in found)
    except (TypeError, ValueError) as error:  # an option unknown or out of range
        raise UserError(f"{job.key}: synthetic: {error}; fix its options or split") from error


def check_row(
    job: Job, index: EvalIndex | None, position: int, where: str, row: Row | BadRow | Problem
) -> Checked | Dropped:
    """All steps of one row; `index` has the questions of evaluation sets."""
    is_training = job.key in TRAINING
    problem: Problem | None = None
    match: Match | None = None
    try:
        problem = build_problem(job, position, where, row)
        golds = check_golds(job, problem)
        notes = find_notes(job, row, problem, golds)
        problem = replace(problem, answers=golds)
        if job.key == "sft":
            problem = replace(problem, solution=clean_solution(problem))
        if is_training:
            check_language(problem.question, job.args.languages)
        match = index.find_repeated(problem) if index and job.key != "test" else None
        if match:
            raise Drop("in_eval_set", f"{match.benchmark} {match.id}")
    except Drop as drop:
        is_shown = problem is None and drop.reason != "bad_row"
        text = json.dumps(row, ensure_ascii=False, default=str) if is_shown else ""
        return Dropped(where, problem, drop, text[:EXCERPT], match)
    key = question_key(problem.question, problem.trace)
    near = signature(tokenise(problem.question)).tobytes() if is_training else b""
    band = find_band(job.source.difficulty, problem.level)
    if is_by_source(job.args.mix.get(job.key) or {}):
        band = job.source.name
    return Checked(where, problem, notes, key, near, band)


def build_problem(job: Job, position: int, where: str, row: Row | BadRow | Problem) -> Problem:
    """The problem of a row; raises `Drop`."""
    if isinstance(row, Problem):
        return row
    try:
        if isinstance(row, BadRow):
            raise UserError(row.message)
        options = job.source.builder_options()
        if job.args.grader and job.source.name in ("generic", "traces"):
            options["keeps_golds"] = True
        name = f"{job.source.name}-{job.part}-{position}"
        return BUILDERS[job.source.name](row, name, where, **options)
    except UserError as error:
        if job.args.on_bad_row == "stop":
            raise UserError(f"{error} (to leave such rows out: --on_bad_row skip)") from error
        raise Drop("bad_row", str(error)) from error


def check_golds(job: Job, problem: Problem) -> tuple[str, ...]:
    """The golds of a problem that can serve, by our grader or the user's; raises `Drop`."""
    grader = job.args.grader
    if not grader:
        return check_problem(problem, job.source, job.key)
    own_grader.take(grader)  # a worker process has its own
    return check_for_own_grader(problem, job.source, job.key, grader, job.args.form_of(job.key))


def find_notes(
    job: Job, row: Row | BadRow | Problem, problem: Problem, golds: tuple[str, ...]
) -> tuple[str, ...]:
    """What is to be told of a row that stays, names of `NOTES`."""
    if job.args.grader or not isinstance(row, dict):
        return ()
    is_unchecked = (
        job.key == "sft"
        and job.source.name not in SOLUTIONS_OF_THEIR_GOLD
        and judge_solution(problem.solution, golds) is None
    )
    notes = {
        "unchecked_solution": is_unchecked,
        "lost_digits": lost_digits(row, golds),
        "asks_for_box": asks_for_box(problem.question),
    }
    return tuple(name for name, is_so in notes.items() if is_so)


def clean_solution(problem: Problem) -> str:
    """The solution as a thought that SFT can teach; raises `Drop`."""
    thought = strip_ending(read_thought(problem.solution), problem.answers)
    if not thought:
        raise Drop("no_solution")
    return thought


_index: EvalIndex | None = None  # in a worker process


def _start_worker(questions: Sequence[Problem]) -> None:
    global _index
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _index = EvalIndex(questions) if questions else None


def _end_with_parent() -> None:
    """End this process when its parent is gone: a killed one cannot say so."""
    if parent := parent_process():
        wait([parent.sentinel])
        os._exit(1)


def _check_chunk(job: Job, items: list[Item]) -> list[Checked | Dropped]:
    return [check_row(job, _index, *item) for item in items]


class Workers(AbstractContextManager):
    """The processes of one phase of the build, started when they are needed.

    Args:
        questions: of the evaluation sets that its rows must not repeat.
    """

    def __init__(self, number: int, questions: Sequence[Problem]) -> None:
        self._number, self._questions = number, questions
        self._index: EvalIndex | None = None
        self._pool: ProcessPoolExecutor | None = None

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def check(self, job: Job) -> Iterator[Checked | Dropped]:
        """Yield a result for each row of a source, in order."""
        stream = read_source(job)
        chunks = iter(lambda: list(itertools.islice(stream, CHUNK)), [])
        first = list(itertools.islice(chunks, 2))
        chunks = itertools.chain(first, chunks)
        if self._number > 1 and len(first) == 2:
            yield from itertools.chain.from_iterable(self._map(job, chunks))
            return
        if self._questions and not self._index:
            self._index = EvalIndex(self._questions)
        for item in itertools.chain.from_iterable(chunks):
            yield check_row(job, self._index, *item)

    def _map(self, job: Job, chunks: Iterable[list[Item]]) -> Iterator[list[Checked | Dropped]]:
        if self._pool is None:
            # Not forked: this process may have threads (a progress bar's).
            self._pool = ProcessPoolExecutor(
                self._number, get_context("spawn"), _start_worker, (self._questions,)
            )
        waiting: deque = deque()
        try:
            for chunk in chunks:
                waiting.append(self._pool.submit(_check_chunk, job, chunk))
                if len(waiting) >= AHEAD * self._number:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            fault = "a worker process was killed, most likely out of memory"
            raise OutOfMemoryError(f"num_workers: {fault}; set num_workers to 1") from error
