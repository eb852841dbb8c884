"""Commands that run some at a time, on GPUs of their own, and end with this process."""

import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO

from pipeline.errors import UserError


def visible_gpus() -> list[str]:
    """Numbers or names of the GPUs that this process may use."""
    if (said := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [] if said.strip() in ("", "-1") else said.replace(" ", "").split(",")
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


class Runner:
    """At most `num_jobs` commands at a time.

    Several get `num_gpus` GPUs each, of their own. Without a GPU each gets its share of the cores,
    unless OMP_NUM_THREADS says otherwise.

    Raises:
        UserError: fewer GPUs are visible than all commands need.
    """

    def __init__(self, num_jobs: int, num_gpus: int = 1) -> None:
        self._num_jobs, self._lock, self._is_over = num_jobs, threading.Lock(), False
        self._running: set[subprocess.Popen] = set()
        self._places: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
        gpus = visible_gpus()
        if gpus and num_jobs > 1 and num_jobs * num_gpus > len(gpus):
            fault = f"{num_jobs} runs of {num_gpus} GPUs each, and {len(gpus)} GPUs are visible"
            raise UserError(f"parallel: {fault}; use {max(1, len(gpus) // num_gpus)}")
        share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // num_jobs))}
        for place in range(num_jobs):
            mine = gpus[place * num_gpus : (place + 1) * num_gpus]
            env = {"CUDA_VISIBLE_DEVICES": ",".join(mine)} if gpus else share
            is_free = num_jobs == 1 or (not gpus and "OMP_NUM_THREADS" in os.environ)
            self._places.put({} if is_free else env)

    def run(self, words: Sequence[str], output: IO | None = None, **env: str) -> int:
        """Run a command to its end; returns its exit code.

        Args:
            output: where stdout and stderr go; by default to those of this process.
            env: further variables of the environment.

        Raises:
            UserError: another command had failed.
        """
        place = self._places.get()  # a free one
        try:
            with self._lock:
                if self._is_over:
                    raise UserError("not started, as another run had failed")
                process = subprocess.Popen(
                    words, stdout=output, stderr=output, env=os.environ | env | place
                )
                self._running.add(process)
            code = process.wait()
            self._running.discard(process)
            return code
        finally:
            self._places.put(place)

    def run_all(self, job: Callable[..., None], calls: Iterable[tuple]) -> None:
        """Call `job` with each of the arguments; the first that raises ends all the others."""
        with ThreadPoolExecutor(self._num_jobs) as pool:
            futures = [pool.submit(job, *call) for call in calls]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                with self._lock:
                    self._is_over = True
                for process in [*self._running]:
                    process.terminate()
                raise
