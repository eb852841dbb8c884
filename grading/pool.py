"""Killable workers for untrusted symbolic algebra: a call returns, or ends at its limit.

A call may hang, use up memory or be in C code. Then the process that runs it (`pool_worker`) is
killed and another takes over. Workers are started by exec, so they inherit no CUDA context, thread
or lock of the trainer, and any thread may call. No pool library does all of that. Pebble's breaks
when an idle worker is killed or a forked process exits, and every worker imports the main script.
"""

import contextlib
import functools
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

FUNCTION = "grading.equivalence.fallback:compare_in_worker"
WARM_UP = "grading.equivalence.fallback:warm_up"
TIMEOUT_SECONDS = 2.0
MAX_WORKERS = 4
# The worker's own timer is exact; the pool steps in only where a worker is stopped or swapped out.
PATIENCE = 1.15
START_SECONDS = 120.0  # an import from a cold network disk takes long; a hung one never ends
MAX_LOGGED_CHARS = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one call."""

    value: Any  # what the function returned; None unless status is "ok"
    status: str  # "ok"; "timeout": over the limit of time or memory; "error": it raised
    seconds: float  # of work, without start-up and waiting
    error: str | None  # one line, None where status is "ok"


class Worker:
    """The pool's end of one `pool_worker`, used by one thread at a time."""

    def __init__(self, function: str, timeout: float, memory_bytes: int, warm_up: str = "") -> None:
        self._function = function
        # -P: with -m alone, a file of the current directory would shadow the modules named here.
        self._command = [sys.executable, "-P", "-m", "grading.pool_worker", function]
        self._command += [str(timeout), str(memory_bytes), warm_up, str(os.getpid())]
        self._is_ready = False
        self._number = 0
        self.start()

    def start(self) -> None:
        """Start the process and return at once; `wait_ready` waits for its import."""
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        env = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        # A socket because its time-outs hold both ways and for descriptors above select's 1,023.
        self._socket, theirs = socket.socketpair()
        with theirs:
            # Its own session: out of reach of the terminal's Ctrl-C, and killed as one.
            self._process = subprocess.Popen(
                self._command, stdin=theirs, env=os.environ | env, start_new_session=True, **quiet
            )
        self._received = b""

    def kill(self) -> None:
        """Kill supervisor and server; from any thread. One that waits in `ask` gets an OSError."""
        process = self._process
        # Only before it is reaped: its number may then belong to another group.
        if process.returncode is None:
            # PermissionError is macOS's answer for a group of zombies.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Leave no process and no open socket."""
        self.kill()
        self._process.wait()
        self._socket.close()
        self._is_ready = False

    def disown(self) -> None:
        """Let go of a forked process's copy: not its child, and a copy that keeps a socket open."""
        self._process.returncode = 0  # or Popen warns of a child left running
        self._socket.close()

    def wait_ready(self) -> None:
        """Wait for the import, or start again; raises RuntimeError with the worker's own words."""
        if self._is_ready:
            return
        for _ in range(2):
            if self._process.returncode is not None:  # stopped
                self.start()
            try:
                problem = self._receive(time.monotonic() + START_SECONDS)["error"]
                break
            except TimeoutError:
                problem = f"not ready after {START_SECONDS:g} s"
                break
            except OSError:
                problem = "it ended before it was ready"
                self.stop()  # killed from outside: once more
        if problem:
            self.stop()
            raise RuntimeError(f"cannot start a grading worker for {self._function}: {problem}")
        self._is_ready = True

    def ask(self, text: str, seconds: float) -> dict[str, Any]:
        """The reply to a request, given as the JSON text of its arguments.

        Raises TimeoutError if the worker must be stopped, OSError if it is gone.
        """
        deadline = time.monotonic() + seconds
        self._number += 1
        self._socket.settimeout(seconds)
        self._socket.sendall(f"{self._number} {text}\n".encode())
        while True:
            reply = self._receive(deadline)
            # A server killed just after it replied leaves a notice of a request long answered.
            if reply["id"] == self._number:
                return reply

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._received:
            # Never 0, so that a reply that is there counts although this thread comes late.
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("the worker closed its socket")
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)


def _end(owner: int, executor: Executor, workers: list[Worker], idle: queue.SimpleQueue) -> None:
    if os.getpid() != owner:
        for worker in workers:
            worker.disown()
        return
    executor.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()  # so that a thread that waits for it hands it back now
    taken = [idle.get() for _ in workers]
    for worker in taken:
        worker.stop()
        idle.put(worker)  # a thread that just took up a call needs one to learn of the end


class GradingPool:
    """Workers that each run `function`, and the outcomes of the latest calls.

    Args:
        function: "package.module:name", imported by the workers only. Arguments and result are
            JSON values. It must start no process and leave SIGALRM alone.
        num_workers: worker processes, and calls at a time.
        timeout: wall-clock seconds per call. No call takes more than 1.2 times as long.
        memory_bytes: address space per worker; no limit on macOS.
        cache_size: outcomes kept, the least recently used forgotten first.
        warm_up: "package.module:name", called once in each worker before its first call.
        logs_stopped: whether calls over the limit are logged.
    """

    def __init__(
        self,
        function: str,
        num_workers: int,
        timeout: float,
        memory_bytes: int = 2 << 30,
        cache_size: int = 10_000,
        warm_up: str = "",
        logs_stopped: bool = True,
    ) -> None:
        self._function, self._timeout, self._cache_size = function, timeout, cache_size
        self._logs_stopped = logs_stopped
        self._cache: OrderedDict[str, Outcome] = OrderedDict()
        self._lock = threading.Lock()  # of the cache
        self._owner = os.getpid()
        # Threads because an interrupt (Ctrl-C) reaches the main thread only: a call that was sent
        # is always waited for by a thread that cannot be interrupted, so no reply goes astray.
        self._executor = ThreadPoolExecutor(num_workers, thread_name_prefix="grading")
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        workers: list[Worker] = []
        ends = self._owner, self._executor, workers, self._idle
        self._finalizer = weakref.finalize(self, _end, *ends)
        for _ in range(num_workers):
            workers.append(Worker(function, timeout, memory_bytes, warm_up))
            self._idle.put(workers[-1])

    def close(self) -> None:
        """End every worker. Calls on the way raise; also runs at exit and when forgotten."""
        self._finalizer()

    def call(self, *args: Any) -> Outcome:
        """The outcome of one call; see `map`."""
        return self.map([args])[0]

    def map(self, calls: Sequence[tuple]) -> list[Outcome]:
        """Outcomes in the order of `calls`, each a tuple of arguments; equal calls are made once.

        Raises RuntimeError if no worker can start, or the pool is closed or of another process.
        """
        self._check_usable()
        texts = [json.dumps(args) for args in calls]
        with self._lock:
            outcomes = {text: self._cache[text] for text in texts if text in self._cache}
            for text in outcomes:
                self._cache.move_to_end(text)
        futures: dict[str, Future[Outcome]] = {}
        try:
            for text in texts:
                if text not in outcomes and text not in futures:
                    futures[text] = self._executor.submit(self._run, text)
            outcomes |= {text: future.result() for text, future in futures.items()}
        except (CancelledError, RuntimeError):
            self._check_usable()  # closed meanwhile: say that, not what it led to
            raise
        finally:
            for future in futures.values():
                future.cancel()
        return [outcomes[text] for text in texts]

    def _check_usable(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError("the grading pool belongs to another process; make one after fork")
        if not self._finalizer.alive:
            raise RuntimeError("the grading pool is closed; make a new one")

    def _run(self, text: str) -> Outcome:
        """Make one call on an idle worker; keep its outcome, log it if over the limit."""
        worker = self._idle.get()
        try:
            outcome, keep = self._ask(worker, text)
        finally:
            self._idle.put(worker)
        if keep:
            with self._lock:
                self._cache[text] = outcome
                while len(self._cache) > self._cache_size:
                    self._cache.popitem(last=False)
        if outcome.status == "timeout" and self._logs_stopped:
            shown = text
            if len(text) > MAX_LOGGED_CHARS:
                shown = text[:MAX_LOGGED_CHARS] + "..."
            logger.warning("stopped %s%s: %s", self._function, shown, outcome.error)
        return outcome

    def _ask(self, worker: Worker, text: str) -> tuple[Outcome, bool]:
        """The outcome, and whether it is kept: a policy repeats the same bomb through a group."""
        for _ in range(2):
            self._check_usable()
            worker.wait_ready()
            start = time.monotonic()
            try:
                reply = worker.ask(text, PATIENCE * self._timeout)
            except OSError as error:
                worker.stop()
                seconds = time.monotonic() - start
                # An orphaned server's timer rings too, but nobody is left to say so.
                if isinstance(error, TimeoutError) or seconds >= self._timeout:
                    self._check_usable()
                    worker.start()  # its import overlaps with whatever comes before the next call
                    return Outcome(None, "timeout", seconds, f"over {self._timeout:g} s"), True
                continue  # killed from outside: once more
            seconds = reply.get("seconds", time.monotonic() - start)
            return Outcome(reply["value"], reply["status"], seconds, reply["error"]), True
        return Outcome(None, "error", seconds, "the worker was killed, twice"), False


def count_cpus() -> int:
    """The CPUs that this process may use."""
    get_cpus = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(get_cpus(0)) if get_cpus else os.cpu_count() or 1


def share_of_cpus() -> int:
    """How many workers this process may keep busy: its CPUs, shared with the node's other ranks."""
    num_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # set by torchrun
    return max(1, min(MAX_WORKERS, count_cpus() // num_ranks))


@functools.cache  # of threads that first come at once each makes one, and the last is kept
def shared_pool() -> GradingPool:
    """The grader's pool of this process, made at the first call: plain numbers never need one."""
    os.register_at_fork(after_in_child=shared_pool.cache_clear)  # the workers are the parent's
    return GradingPool(FUNCTION, share_of_cpus(), TIMEOUT_SECONDS, warm_up=WARM_UP)
