"""The rows of one source: read or generated, turned into problems and checked.

The main process reads; any process checks, one chunk at a time, as a check depends on the row
alone. `data_prep.builder.duplicates` compares rows with each other, in their order. With one
worker, or if all rows fit one chunk, this process does all of it. At most a few chunks are under
way at a time, so that a fast reader does not fill the memory.
"""

import itertools
import json
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from tqdm import tqdm

from data_prep.builder.duplicates import signature
from data_prep.builder.filters import (
    Checked,
    check_for_own_grader,
    check_problem,
    find_band,
    find_foreign,
)
from data_prep.builder.recipe import TRAINING, DataArguments, Source, find_files, is_by_source
from data_prep.decontamination.index import EvalIndex
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
Result = tuple[list[Checked], Counter[str]]  # one for each row; seconds by step


@dataclass(frozen=True)
class Job:
    """What is to be done with the rows of one source; sent to the workers with every chunk."""

    source: Source
    part: str  # middle of the ids
    key: str  # the file that they are for, of `FILES`
    args: DataArguments


class SourceRows:
    """Iterates over (position, where, row, fault or ready problem) of one source, once."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.num_read = 0
        self.seconds = 0.0  # spent reading

    def __iter__(self) -> Iterator[Item]:
        source, key, args = self._job.source, self._job.key, self._job.args
        files = find_files(source, args.data_root)
        if source.name == "synthetic":
            rows = self._generate()
        elif not files and not source.hub_file:
            rows = load_hub(source.hub, source.split, source.config)
        else:
            files = files or [fetch_hub_file(source.hub, source.hub_file)]
            rows = itertools.chain.from_iterable(map(read_rows_and_faults, files))
        numbered = enumerate(self._counted(self._of_split(rows)))
        items: Iterable[Item] = ((position, *row) for position, row in numbered)
        yield from show(items, f"{key}: {source.name}")
        if not self.num_read:
            place = source.file or source.hub
            raise UserError(f"{key}: {source.name}: {place} has no rows; check the file or split")

    def _of_split(self, rows: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The rows without those of another split; a row that names none is of the source's."""
        source = self._job.source
        split_of = SPLITS.get(source.name)
        for where, row in rows:
            found = split_of(row) if split_of and isinstance(row, dict) else None
            if found in (None, source.split):
                yield where, row

    def _generate(self) -> Iterator[tuple[str, Any]]:
        source, key, seed = self._job.source, self._job.key, self._job.args.seed
        try:
            found = synthetic.load(source.split, source.sample, seed, **source.options)
            yield from ((problem.id, problem) for problem in found)
        except (TypeError, ValueError) as error:  # an option unknown or out of range
            raise UserError(f"{key}: synthetic: {error}; fix its options or split") from error

    def _counted(self, rows: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        started = time.perf_counter()
        for where, row in rows:
            self.seconds += time.perf_counter() - started
            self.num_read += 1
            yield where, row
            started = time.perf_counter()


class Checker:
    """Checks rows against a recipe and the questions of evaluation sets."""

    def __init__(self, questions: Sequence[Problem]) -> None:
        self._index = EvalIndex(questions) if questions else None
        self._seconds: Counter[str] = Counter()
        self._last = 0.0

    def check_rows(self, job: Job, items: Sequence[Item]) -> Result:
        """One result for each row, in order; and the seconds of each step."""
        self._seconds, self._last = Counter(), time.perf_counter()
        return [self._check(job, *item) for item in items], self._seconds

    def _lap(self, step: str) -> None:
        """Count the time since the last lap as `step`'s."""
        now = time.perf_counter()
        self._seconds[step] += now - self._last
        self._last = now

    def _check(self, job: Job, position: int, where: str, row: Row | BadRow | Problem) -> Checked:
        try:
            built = self._build(job, position, where, row)
        except Drop as drop:
            is_bad = drop.reason == "bad_row"
            text = "" if is_bad else json.dumps(row, ensure_ascii=False, default=str)
            return Checked(where, None, drop, text[:EXCERPT])
        finally:
            self._lap("build")
        is_training = job.key in TRAINING
        if grader := job.args.grader:
            own_grader.take(grader)  # a worker process has its own
            form = job.args.form_of(job.key)
            golds = check_for_own_grader(built, job.source, job.key, grader, form)
        else:
            golds = check_problem(built, job.source, job.key)
        self._lap("gold and kind")
        if isinstance(golds, Drop):
            return Checked(where, built, golds)
        problem, notes = replace(built, answers=golds), self._notes(job, row, built, golds)
        if job.key == "sft":
            try:
                thought = strip_ending(read_thought(problem.solution), golds)
            except Drop as drop:
                return Checked(where, problem, drop)
            if not thought:
                return Checked(where, problem, Drop("no_solution"))
            problem = replace(problem, solution=thought)
        if is_training and job.args.languages:
            language = find_foreign(problem.question, tuple(job.args.languages))
            self._lap("language")
            if language:
                return Checked(where, problem, Drop("foreign_language", language))
        if self._index and job.key != "test":
            match = self._index.find_repeated(problem)
            self._lap("decontamination")
            if match:
                drop = Drop("in_eval_set", f"{match.benchmark} {match.id}")
                return Checked(where, problem, drop, match=match)
        key = question_key(problem.question, problem.trace)
        near = signature(tokenise(problem.question)).tobytes() if is_training else b""
        band = find_band(job.source.difficulty, problem.level)
        if is_by_source(job.args.mix.get(job.key) or {}):
            band = job.source.name
        self._lap("signature")
        return Checked(where, problem, notes=notes, key=key, signature=near, band=band)

    def _notes(
        self, job: Job, row: Row | BadRow | Problem, built: Problem, golds: tuple[str, ...]
    ) -> tuple[str, ...]:
        """What is to be told of a row, names of `NOTES`."""
        if job.args.grader or not isinstance(row, dict):
            return ()
        is_unchecked = (
            job.key == "sft"
            and job.source.name not in SOLUTIONS_OF_THEIR_GOLD
            and judge_solution(built.solution, golds) is None
        )
        notes = {
            "unchecked_solution": is_unchecked,
            "lost_digits": lost_digits(row, golds),
            "asks_for_box": asks_for_box(built.question),
        }
        return tuple(name for name, is_so in notes.items() if is_so)

    def _build(self, job: Job, position: int, where: str, row: Row | BadRow | Problem) -> Problem:
        """The problem of a row; raises `Drop`."""
        if isinstance(row, Problem):
            return row
        try:
            if isinstance(row, BadRow):
                raise UserError(row.message)
            name = f"{job.source.name}-{job.part}-{position}"
            options = job.source.builder_options()
            if job.args.grader and job.source.name in ("generic", "traces"):
                options["keeps_golds"] = True
            return BUILDERS[job.source.name](row, name, where, **options)
        except UserError as error:
            if job.args.on_bad_row == "stop":
                raise UserError(f"{error} (to leave such rows out: --on_bad_row skip)") from error
            raise Drop("bad_row", str(error)) from error


_checker: Checker | None = None  # in a worker process


def _start_worker(questions: Sequence[Problem]) -> None:
    global _checker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _checker = Checker(questions)


def _end_with_parent() -> None:
    """End this process when its parent is gone: a killed one cannot say so."""
    wait([parent_process().sentinel])
    os._exit(1)


def _check_in_worker(job: Job, items: list[Item]) -> Result:
    return _checker.check_rows(job, items)


class Workers(AbstractContextManager):
    """The processes of one phase of the build, started when they are needed."""

    def __init__(self, number: int, questions: Sequence[Problem]) -> None:
        self._number, self._questions = number, questions
        self._here: Checker | None = None
        self._pool: ProcessPoolExecutor | None = None

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def check(self, job: Job, items: Iterable[Item], seconds: Counter[str]) -> Iterator[Checked]:
        """Yield a result for each item, in order; adds the seconds of each step."""
        stream = iter(items)
        chunks = iter(lambda: list(itertools.islice(stream, CHUNK)), [])
        first = list(itertools.islice(chunks, 2))
        chunks = itertools.chain(first, chunks)
        if self._number == 1 or len(first) < 2:
            self._here = self._here or Checker(self._questions)
            results = (self._here.check_rows(job, chunk) for chunk in chunks)
        else:
            results = self._map(job, chunks)
        for found, spent in results:
            seconds.update(spent)
            yield from found

    def _map(self, job: Job, chunks: Iterable[Sequence[Item]]) -> Iterator[Result]:
        if self._pool is None:
            # Not forked: this process may have threads (a progress bar's).
            self._pool = ProcessPoolExecutor(
                self._number, get_context("spawn"), _start_worker, (self._questions,)
            )
        waiting: deque = deque()
        try:
            for chunk in chunks:
                waiting.append(self._pool.submit(_check_in_worker, job, chunk))
                if len(waiting) >= AHEAD * self._number:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            fault = "a worker process was killed, most likely out of memory"
            raise OutOfMemoryError(f"num_workers: {fault}; set num_workers to 1") from error
