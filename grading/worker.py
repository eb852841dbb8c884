"""Killable workers: a function on untrusted input returns, or its process ends at its limit.

A call may hang in C code or use up memory. Then its process is killed, and the next call starts
another. Workers are started by exec, so they inherit no CUDA context, thread or lock of the
trainer. `python -m grading.worker` is the process itself; both ends speak JSON over a socket.
"""

import contextlib
import json
import multiprocessing
import os
import pkgutil
import queue
import resource
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MAX_WORKERS = 4
START_SECONDS = 120.0  # an import from a cold network disk takes long; a hung one never ends
GRACE_SECONDS = 5.0  # after which a worker ends by its own timer, where its parent was killed
MAX_ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one call."""

    value: Any  # what the function returned; None unless status is "ok"
    status: str  # "ok"; "timeout": over the limit of time or memory; "error": it raised or died
    seconds: float  # of work, without the start of the process
    error: str | None  # one line; None where status is "ok"


class Worker:
    """One process, started at its first call and again after its end; for one thread at a time."""

    def __init__(self, function: str, seconds: float, memory_bytes: int) -> None:
        self._function, self._seconds, self._memory = function, seconds, memory_bytes
        self._process: subprocess.Popen | None = None

    def ask(self, arguments: Sequence[Any]) -> Outcome:
        """The outcome of one call; a worker that something else killed gets it once more.

        Raises:
            RuntimeError: the function cannot be imported.
        """
        for _ in range(2):
            if self._process is None:
                self._start()
            start = time.monotonic()
            try:
                self._connection.send_bytes(json.dumps(arguments).encode())
                reply = self._receive(self._seconds)
                return Outcome(**reply, seconds=time.monotonic() - start)
            except TimeoutError:
                self.stop()
                return Outcome(None, "timeout", self._seconds, f"over {self._seconds:g} s")
            except (EOFError, OSError):
                self.stop()
        return Outcome(None, "error", 0.0, "its process was killed, twice")

    def _receive(self, seconds: float) -> Any:
        """What the process sends; raises TimeoutError, and EOFError or OSError if it has ended."""
        if not self._connection.poll(seconds):
            raise TimeoutError
        return json.loads(self._connection.recv_bytes())

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # -P: with -m alone, a file of the current folder would shadow the modules named here.
        command = [sys.executable, "-P", "-m", "grading.worker", self._function]
        command += [f"{self._seconds + GRACE_SECONDS}", f"{self._memory}"]
        with theirs:
            # Its own session: out of reach of the terminal's Ctrl-C, and killed as one.
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        try:
            problem = self._receive(START_SECONDS)
        except (EOFError, OSError):
            problem = f"it ended or was not ready after {START_SECONDS:g} s"
        if problem:
            self.stop()
            raise RuntimeError(f"cannot start a worker for {self._function}: {problem}")

    def kill(self) -> None:
        """End the process, from any thread; a call on the way ends too."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Leave no process and no open socket."""
        self.kill()
        if self._process is not None:
            self._process.wait()
            self._connection.close()
        self._process = None


class Workers:
    """Workers that each run `function`; any thread may call.

    Args:
        function: "package.module:name", imported by the workers only. Arguments and result are
            JSON values.
        num_workers: calls at a time.
        seconds: wall-clock limit of a call.
        memory_bytes: address space of a worker; no limit on macOS.
    """

    def __init__(self, function: str, num_workers: int, seconds: float, memory_bytes: int) -> None:
        workers = [Worker(function, seconds, memory_bytes) for _ in range(num_workers)]
        self._workers = workers
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="grading")
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in workers:
            self._idle.put(worker)
        weakref.finalize(self, _end, os.getpid(), workers)

    def map(self, calls: Sequence[Sequence[Any]]) -> list[Outcome]:
        """The outcomes of calls, each given as its arguments, in order."""
        try:
            return list(self._threads.map(self._ask, calls))
        except KeyboardInterrupt:
            for worker in self._workers:
                worker.kill()  # or the interpreter would wait for a call that hangs
            raise

    def _ask(self, arguments: Sequence[Any]) -> Outcome:
        worker = self._idle.get()
        try:
            return worker.ask(arguments)
        finally:
            self._idle.put(worker)


def _end(owner: int, workers: list[Worker]) -> None:
    if os.getpid() == owner:  # a forked process has copies, which are not its own to kill
        for worker in workers:
            worker.kill()


def count_cpus() -> int:
    """The CPUs that this process may use."""
    get_cpus = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(get_cpus(0)) if get_cpus else os.cpu_count() or 1


def share_of_cpus() -> int:
    """How many workers this process may keep busy: its CPUs, shared with the node's other ranks."""
    if multiprocessing.parent_process():
        return 1  # a build has its own worker processes, each of which grades
    num_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # set by torchrun
    return max(1, min(MAX_WORKERS, count_cpus() // num_ranks))


# The process


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_ERROR_CHARS]


def _answer(function: Any, arguments: list[Any]) -> bytes:
    """The reply to one call, as JSON."""
    try:
        return json.dumps({"value": function(*arguments), "status": "ok", "error": None}).encode()
    except MemoryError:
        reply = {"value": None, "status": "timeout", "error": "over the limit of memory"}
    except BaseException as error:  # SystemExit too: untrusted text decides what is raised
        reply = {"value": None, "status": "error", "error": _one_line(error)}
    return json.dumps(reply).encode()


def main() -> None:
    name, seconds, memory_bytes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    connection = Connection(os.dup(0))
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)  # a function that reads its input must not eat a request
    if sys.platform != "darwin":  # which maps more than any limit from the start
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a blocked timer, outliving exec, ends nothing
    try:
        function = pkgutil.resolve_name(name)
    except Exception as error:
        connection.send_bytes(json.dumps(_one_line(error)).encode())
        return
    connection.send_bytes(json.dumps("").encode())
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        while True:
            arguments = json.loads(connection.recv_bytes())
            # The default action, not a handler, which Python runs between bytecodes only.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            reply = _answer(function, arguments)
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.send_bytes(reply)


if __name__ == "__main__":
    main()
