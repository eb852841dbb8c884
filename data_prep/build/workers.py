"""Chunks of rows to worker processes, results in the order of the rows.

With one worker, or where all rows fit one chunk, the work is done in this process. At most a few
chunks are under way at a time, so that a fast reader does not fill the memory.
"""

import itertools
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from data_prep.build.filters import Checked
from data_prep.build.rows import Checker, Item, Job
from data_prep.config import UserError
from data_prep.decontamination.index import EvalQuestion

CHUNK = 500  # rows
AHEAD = 3  # chunks under way for each worker

Result = tuple[list[Checked], Counter[str]]  # one for each row; seconds by step

_checker: Checker | None = None  # in a worker process


def count_workers(wanted: int) -> int:
    """The number of worker processes; 0 is one for each core that this process may use."""
    if wanted:
        return wanted
    # sched_getaffinity is Linux's own.
    get_cores = getattr(os, "sched_getaffinity", None)
    return len(get_cores(0)) if get_cores else os.cpu_count() or 1


def _start_worker(questions: Sequence[EvalQuestion], pass_rates: dict[str, float]) -> None:
    global _checker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _checker = Checker(questions, pass_rates)


def _end_with_parent() -> None:
    """End this process when its parent is gone: a killed one cannot say so."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _check(job: Job, items: list[Item]) -> Result:
    assert _checker is not None
    return _checker.check_rows(job, items)


class Workers:
    """The processes of one phase of the build.

    Args:
        number: of processes.
        questions: evaluation questions to keep out of the training sets.
        pass_rates: see `Checker`.
    """

    def __init__(
        self, number: int, questions: Sequence[EvalQuestion], pass_rates: dict[str, float]
    ) -> None:
        self._number, self._state = number, (questions, pass_rates)
        self._here: Checker | None = None
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def check(self, job: Job, items: Iterable[Item], seconds: Counter[str]) -> Iterator[Checked]:
        """Yield a result for each item, in order; adds the seconds of each step.

        Raises:
            UserError: see `Checker.check_rows`; or a worker was killed.
        """
        chunks = iter(lambda: list(itertools.islice(stream, CHUNK)), [])
        stream = iter(items)
        first, second = next(chunks, []), next(chunks, [])
        chunks = itertools.chain(filter(None, (first, second)), chunks)
        is_here = self._number == 1 or not second
        for found, spent in self._here_map(job, chunks) if is_here else self._map(job, chunks):
            seconds.update(spent)
            yield from found

    def _here_map(self, job: Job, chunks: Iterable[list[Item]]) -> Iterator[Result]:
        self._here = self._here or Checker(*self._state)
        return (self._here.check_rows(job, chunk) for chunk in chunks)

    def _map(self, job: Job, chunks: Iterable[list[Item]]) -> Iterator[Result]:
        if self._pool is None:
            # Not forked: this process may have threads (a progress bar's).
            self._pool = ProcessPoolExecutor(
                self._number, get_context("spawn"), _start_worker, self._state
            )
        waiting: deque = deque()
        try:
            for chunk in chunks:
                waiting.append(self._pool.submit(_check, job, chunk))
                if len(waiting) >= AHEAD * self._number:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                "num_workers: a worker process was killed, most likely for want of memory; "
                "set --num_workers 1"
            ) from error
