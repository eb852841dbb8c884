"""Ends a host's processes, with one line that says why, when another host of the run is gone.

A stage that runs on several hosts stands in `run_cli(watched(main))`. Nothing happens on one host.

Left alone, a host whose peer vanished (power, network) waits in a collective for `ddp_timeout`,
half an hour by default; one whose peer was killed ends at once, in a page of traceback. Here one
process of each host (local rank 0) holds a TCP connection to the main host's, on the port above
the rendezvous. While all is well nothing is sent over it: the kernels probe each other (keep-alive)
and answer for a process that is busy, however long. So neither a long generation nor a checkpoint
is ever taken for a dead host; for a process that hangs there still is `ddp_timeout`.

The main host passes on what it sees. It needs nothing but the standard library, because it starts
before the stage imports torch.
"""

import contextlib
import functools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from data_prep.config import UserError
from data_prep.manifest import encodable

JOIN_SECONDS = 120  # all have met at the rendezvous by now, and need but start Python
GRACE_SECONDS = 5  # time to find out whether an error is another host's loss
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: the same command may succeed later
HELLO = re.compile(r"hello (\d+) (\S+)")


class HostLoss:
    """The watch of one host over the others.

    Args:
        rank: this host's number; 0 is the main host.
        num_hosts: of the run, at least 2.
        address: the main host's, as the others reach it, and the port of the watch there.
        seconds: how long a host may be silent, its kernel that is.
        end: called with one line once a host is lost; must not return.

    Raises:
        UserError: the port is in use.
    """

    def __init__(
        self,
        rank: int,
        num_hosts: int,
        address: tuple[str, int],
        seconds: int,
        end: Callable[[str], None],
    ) -> None:
        self.rank, self.num_hosts, self.address = rank, num_hosts, address
        self.seconds, self.end = seconds, end
        self.peers: dict[int, socket.socket] = {}  # by the host's number
        self.lock = threading.Lock()
        self.is_over = False
        if rank == 0:
            self.server = self._listen()
            self._spawn(self._accept)
            self._spawn(self._await_all)
        else:
            self._spawn(self._join)

    def _spawn(self, target: Callable, *args: object) -> None:
        threading.Thread(target=target, args=args, name="host-loss", daemon=True).start()

    def _listen(self) -> socket.socket:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            return socket.create_server(
                ("", self.address[1]), family=family, dualstack_ipv6=both, backlog=self.num_hosts
            )
        except OSError as error:
            raise UserError(
                f"main_process_port: {self.address[1] - 1} needs the port above it too, where the "
                f"hosts watch each other: {error.strerror}; choose another"
            ) from error

    def _keep_alive(self, peer: socket.socket) -> None:
        peer.settimeout(None)
        probe = max(1, self.seconds // 6)
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, probe),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * self.seconds),
        ):
            peer.setsockopt(level, option, value)

    def _accept(self) -> None:
        while True:
            try:
                peer, (address, *_) = self.server.accept()
            except OSError:  # closed: the stage is done
                return
            self._spawn(self._greet, peer, address.removeprefix("::ffff:"))

    def _greet(self, peer: socket.socket, address: str) -> None:
        peer.settimeout(self.seconds)
        lines = peer.makefile("rb")
        try:
            hello = HELLO.fullmatch(read_line(lines))
        except OSError:
            hello = None
        if hello is None or not 0 < int(hello[1]) < self.num_hosts:
            lines.close()  # not one of us: a scan of ports
            peer.close()
            return
        with self.lock:
            self.peers[int(hello[1])] = peer
        self._watch(peer, lines, f"host {hello[1]} ({hello[2]}, {address})")

    def _await_all(self) -> None:
        time.sleep(JOIN_SECONDS)
        with self.lock:
            missing = sorted(set(range(1, self.num_hosts)) - set(self.peers))
        if missing:
            self.lose(f"host {missing[0]} did not start the stage within {JOIN_SECONDS} s")

    def _join(self) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        while True:
            try:
                peer = socket.create_connection(self.address, timeout=self.seconds)
                break
            except OSError as error:
                why = error.strerror or str(error)
            if time.monotonic() > deadline:
                host, port = self.address
                self.lose(f"the main host's stage does not answer at {host}:{port}: {why}")
                return
            time.sleep(0.2)
        with contextlib.suppress(OSError):  # reading will say so, too
            peer.sendall(f"hello {self.rank} {socket.gethostname()}\n".encode())
        with self.lock:
            self.peers[0] = peer
        self._watch(peer, peer.makefile("rb"), f"the main host ({self.address[0]})")

    def _watch(self, peer: socket.socket, lines: BinaryIO, name: str) -> None:
        self._keep_alive(peer)
        try:
            line = read_line(lines)
        except ConnectionResetError:
            line = ""
        except OSError:
            self.lose(f"{name} is lost: no answer for {self.seconds} s, it died or is cut off")
            return
        if line.startswith("lost "):
            self.lose(line.removeprefix("lost "))
        elif line.startswith("error "):
            self.lose(f"{name} stopped, its log says more: {line.removeprefix('error ')}")
        elif line != "bye":
            self.lose(f"{name} is lost: its processes ended, killed or by an error in its log")

    def lose(self, what: str) -> None:
        """Tell the others, and end this process."""
        if self._tell(f"lost {what}"):
            self.end(what)

    def stop(self, error: str | None = None) -> None:
        """End the watch: this host is done, or stops with the error."""
        self._tell(f"error {error}" if error else "bye")

    def _tell(self, line: str) -> bool:
        """Send a host's only word to all peers; False if it has been sent before."""
        with self.lock:
            if self.is_over:
                return False
            self.is_over = True
            for peer in self.peers.values():
                with contextlib.suppress(OSError):  # it is the lost one
                    peer.send(encodable(f"{line}\n").encode(), socket.MSG_DONTWAIT)
            return True


def read_line(lines: BinaryIO) -> str:
    """The next line of a peer, without its end; "" if the peer closes before."""
    line = lines.readline(1 << 16)
    return line.decode(errors="replace").strip() if line.endswith(b"\n") else ""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, "" where it has none."""
    return next(iter(str(error).splitlines()), "")


def find_checkpoint() -> Path | None:
    """What the run would resume from; `shared_folder` puts the run's own in its place."""
    return None


def remedy() -> str:
    """What the user has to do, and where the run will go on."""
    found: list[Path | None] = []
    # The lost host may be the one that serves the folder: then reading never returns.
    looking = threading.Thread(target=lambda: found.append(find_checkpoint()), daemon=True)
    looking.start()
    looking.join(GRACE_SECONDS)
    checkpoint = found[0] if found else "its last checkpoint"
    goes_on = f"resumes from {checkpoint}" if checkpoint else "has no checkpoint and begins anew"
    return f"start the same command on every host again, it {goes_on}"


def end_process(what: str) -> None:
    """One line on stderr, the same for torchrun's report, and the end of this process."""
    try:
        line = f"error: {what}; {remedy()}"
        # Past all locks: another thread may hold that of sys.stderr and wait for the lost host.
        os.write(2, encodable(f"\n{line}\n").encode())
        if report := os.environ.get("TORCHELASTIC_ERROR_FILE"):
            # torchrun shows the call stack: this line in its place.
            details = {"py_callstack": line, "timestamp": str(int(time.time()))}
            message = {"message": {"message": line, "extraInfo": details}}
            Path(report).write_text(json.dumps(message))
    finally:
        os._exit(EXIT_CODE)


def start(env: Mapping[str, str]) -> HostLoss:
    """Start the watch that torchrun's environment variables describe.

    Raises:
        UserError: HOST_LOSS_SECONDS is no whole number from 1, or the port is in use.
    """
    seconds = env.get("HOST_LOSS_SECONDS", "30")
    if not re.fullmatch(r"[1-9]\d{0,4}", seconds):
        raise UserError(f"HOST_LOSS_SECONDS: {seconds!r} is not a number of seconds from 1")
    address = env["MASTER_ADDR"], int(env["MASTER_PORT"]) + 1
    hosts = int(env["GROUP_RANK"]), int(env["GROUP_WORLD_SIZE"])
    return HostLoss(*hosts, address, int(seconds), end_process)


def watched(main: Callable[[], None]) -> Callable[[], None]:
    """The same entry point; on several hosts it ends where another host is lost."""

    @functools.wraps(main)
    def run() -> None:
        # Set by torchrun and `accelerate launch`: hosts of the run, and the process on its host.
        if int(os.environ.get("GROUP_WORLD_SIZE", "1")) < 2:
            return main()
        watch = start(os.environ) if os.environ["LOCAL_RANK"] == "0" else None
        error = None
        try:
            main()
        except (UserError, KeyboardInterrupt) as caught:
            error = first_line(caught) or "interrupted"
            raise
        except SystemExit as caught:
            error = f"exit code {first_line(caught)}" if caught.code else None
            raise
        except Exception as caught:
            # Perhaps the collective's error of a host that is gone: then the watch, here or in
            # local rank 0, knows in a moment, and its one line is all that the user has to read.
            time.sleep(GRACE_SECONDS)
            error = f"{type(caught).__name__}: {first_line(caught)}"
            raise
        finally:
            if watch is not None:
                watch.stop(error)

    return run
