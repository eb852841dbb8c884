"""The pool's end of one worker: starts, asks and kills the processes of `grading_worker`.

Used by `grading_pool`, which decides who asks what and when. The worker is started by
exec, so it inherits no CUDA context, thread or lock of the trainer. What goes over the socket is
described at the other end.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

START_SECONDS = 120.0  # an import from a cold network disk takes long; a hung one never ends
_ENDED = "it ended before it was ready"


class Worker:
    """The pool's end: starts, asks and kills one worker. Used by one thread at a time.

    Args:
        function: "package.module:name".
        timeout: wall-clock seconds per request, counted from when its work starts.
        memory_bytes: address space of the server; no limit on macOS.
    """

    def __init__(self, function: str, timeout: float, memory_bytes: int) -> None:
        self._function = function
        # -P: with -m alone, a file of the current directory would shadow the modules named here.
        self._command = [sys.executable, "-P", "-m", "data_prep.grading.grading_worker", function]
        self._command += [str(timeout), str(memory_bytes), str(os.getpid())]
        self._process: subprocess.Popen | None = None
        self._is_ready = False
        self._number = 0
        self.start()

    def start(self) -> None:
        """Start the process and return at once; `wait_ready` waits for its import."""
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        env = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # A socket because its time-outs hold both ways and for descriptors above select's 1,023.
        self._socket, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | env,
                start_new_session=True,  # out of reach of the terminal's Ctrl-C; killed as one
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._received = b""

    def kill(self) -> None:
        """Kill supervisor and server; from any thread. One that waits in `ask` gets an OSError."""
        process = self._process
        # Only before it is reaped: its number may then belong to another group.
        if process is not None and process.returncode is None:
            # PermissionError is macOS's answer for a group of zombies.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Leave no process and no open socket."""
        self.kill()
        if self._process is not None:
            self._process.wait()
            self._socket.close()
            self._process = None
        self._is_ready = False

    def disown(self) -> None:
        """Let go of a forked process's copy: not its child, and a copy that keeps a socket open."""
        if self._process is not None:
            self._process.returncode = 0  # or Popen warns of a child left running
            self._socket.close()

    def wait_ready(self) -> None:
        """Wait for the import, after a start where there is no process.

        Raises:
            RuntimeError: it failed; with the worker's own words.
        """
        if self._is_ready:
            return
        problem = self._hear_hello()
        if problem == _ENDED:  # as by a kill from outside: once more
            problem = self._hear_hello()
        if problem:
            self.stop()
            raise RuntimeError(f"cannot start a grading worker for {self._function}: {problem}")
        self._is_ready = True

    def _hear_hello(self) -> str | None:
        """What is wrong with the start, if anything."""
        if self._process is None:
            self.start()
        try:
            return self._receive(time.monotonic() + START_SECONDS)["error"]
        except TimeoutError:
            return f"not ready after {START_SECONDS:g} s"
        except OSError:
            self.stop()
            return _ENDED

    def ask(self, text: str, seconds: float) -> dict[str, Any]:
        """The reply to a request, given as the JSON text of its arguments.

        Raises:
            TimeoutError: nothing came back in `seconds`; the worker must be stopped.
            OSError: the worker is gone.
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
