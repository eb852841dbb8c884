"""The process that runs one function on untrusted input and can be killed at any instruction.

Started by `grading.pool`. Algebra may sit in C code where no Python signal handler ever runs, so a
worker is two processes. The *supervisor* imports the function, warms it up once, and forks. The
*server*, its child, answers requests under a kernel timer and a memory limit whose breach kills it.
The supervisor then says what became of the request and forks again, in milliseconds.

They share one socket, standard input; the pool has at most one request on the way:

    request   7 ["1/2", "0.5"]\\n                  a number, then the arguments as JSON
    reply     {"id": 7, "status": "ok", "value": true, "seconds": 0.01, "error": null}\\n

`status` is "ok", "error" (it raised) or "timeout" (over the limit of time or memory). Id 0 is the
first message, after the import: "ready", or "error" and its text. No process stays when the trainer
is gone, even by kill -9: each one watches the one above it, and the timer ends a busy server.
"""

import gc
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from mmap import mmap
from socket import socket
from typing import Any

REQUESTS_PER_SERVER = 1_000  # then forked again: sympy's and antlr's caches only ever grow
CHECK_SECONDS = 1.0  # how often an orphan looks for its parent; the end of the socket comes sooner
MAX_ERROR_CHARS = 300

# Exit codes of the server. Any other end while no request is at work ends the supervisor too.
OVER_MEMORY = 71
RECYCLED = 72


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_ERROR_CHARS]


def _reply(number: int, status: str, **fields: Any) -> bytes:
    reply = {"id": number, "status": status, "value": None, "error": None} | fields
    return json.dumps(reply).encode() + b"\n"


def _next_request(channel: socket, supervisor: int) -> bytes:
    """The next line; empty when the pool or the supervisor is gone."""
    line = b""
    while not line.endswith(b"\n"):
        is_waiting = select.select([channel], [], [], CHECK_SECONDS)[0]
        if os.getppid() != supervisor:  # leaves the request unread, so the pool makes it elsewhere
            return b""
        if is_waiting:
            chunk = channel.recv(1 << 16)
            if not chunk:
                return b""
            line += chunk
    return line


def _serve(
    channel: socket, function: Callable, timeout: float, at_work: mmap, supervisor: int
) -> int:
    """Answer requests until the pool is gone or this server has had its share; the exit code.

    `at_work` shares with the supervisor the number of the request at work, else 0.
    """
    for _ in range(REQUESTS_PER_SERVER):
        head, _, arguments = _next_request(channel, supervisor).partition(b" ")
        if not head:
            return 0
        number = int(head)
        at_work[:] = number.to_bytes(8, "little")
        # The default action, not a handler: Python runs handlers between bytecodes only, and the
        # power of a large integer is a single one that may take hours.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout)
        start = time.monotonic()
        try:
            value = function(*json.loads(arguments))
            data = _reply(number, "ok", value=value, seconds=time.monotonic() - start)
        except MemoryError:
            return OVER_MEMORY  # there may be no room left to say so; the supervisor does
        except BaseException as error:  # SystemExit too: untrusted text decides what is raised
            seconds = time.monotonic() - start
            data = _reply(number, "error", error=_one_line(error), seconds=seconds)
        signal.setitimer(signal.ITIMER_REAL, 0)
        channel.sendall(data)
        at_work[:] = bytes(8)
    return RECYCLED


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _fork_server(
    channel: socket, function: Callable, timeout: float, memory_bytes: int, at_work: mmap
) -> tuple[int, int]:
    """Fork a server; returns its pid and a descriptor that becomes readable when it ends."""
    ended, held_by_server = os.pipe()
    supervisor = os.getpid()
    server = os.fork()
    if server == 0:
        code = 1
        try:
            os.close(ended)
            _limit(resource.RLIMIT_CORE, 0)
            if sys.platform != "darwin":  # which maps more than any limit from the start
                _limit(resource.RLIMIT_AS, memory_bytes)
            code = _serve(channel, function, timeout, at_work, supervisor)
        finally:
            os._exit(code)
    os.close(held_by_server)
    return server, ended


def _supervise(
    channel: socket, function: Callable, timeout: float, memory_bytes: int, parent: int
) -> None:
    """Keep a server running until the pool is gone; say what a request came to that killed it."""
    at_work = mmap(-1, 8)
    while True:
        server, ended = _fork_server(channel, function, timeout, memory_bytes, at_work)
        # A process forked by the trainer may hold a copy of the pool's socket, and then the end of
        # the trainer is not the end of the socket.
        while not select.select([ended], [], [], CHECK_SECONDS)[0]:
            if os.getppid() != parent:
                os.kill(server, signal.SIGKILL)
                return
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
        number = int.from_bytes(at_work[:], "little")
        at_work[:] = bytes(8)
        if number == 0 and code != RECYCLED:
            return  # the pool is gone; or servers die at once, and forking could go on for ever
        if number:
            status, problem = {
                -signal.SIGALRM: ("timeout", f"over {timeout:g} s"),
                -signal.SIGKILL: ("timeout", "killed, as by a machine that is out of memory"),
                OVER_MEMORY: ("timeout", f"over {memory_bytes / 2**30:.3g} GiB of memory"),
            }.get(code, ("error", f"died of signal {-code}" if code < 0 else f"exited with {code}"))
            channel.sendall(_reply(number, status, error=problem))


def main() -> None:
    path, timeout, memory_bytes, warm_up, parent = sys.argv[1:]
    channel = socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)  # a function that reads its input must not eat a request
    # Both outlive exec: a blocked timer would not kill, an ignored child could not be waited for.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        function = pkgutil.resolve_name(path)
        if warm_up:
            pkgutil.resolve_name(warm_up)()
    except Exception as error:
        channel.sendall(_reply(0, "error", error=_one_line(error)))
        return
    gc.freeze()  # a collection in the server would copy every page it shares with the supervisor
    channel.sendall(_reply(0, "ready"))
    _supervise(channel, function, float(timeout), int(memory_bytes), int(parent))


if __name__ == "__main__":
    main()
