"""End a host's processes, with one line that says why, when another host of the run is gone.

A stage that runs on several hosts is called as `run_cli(watched(main))`. Left alone, it would wait
in a collective for `ddp_timeout`, half an hour by default. Here one process of each host (local
rank 0) counts up a key of its own in the store where the launch met, and reads the others'. One
that cannot run Python for HOST_LOSS_SECONDS (stopped, or in a call that keeps the interpreter's
lock) is taken for lost; collectives, generation and saving release it.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping

from data_prep.config import UserError
from stages.launch import refuse_if

BEAT_SECONDS = 1
REMEDY = "start the same command on every host again, it resumes from the last checkpoint"


class HostLoss:
    """The watch of one host over the others; `env` is torchrun's."""

    def __init__(self, env: Mapping[str, str]) -> None:
        from torch.distributed import PrefixStore, TCPStore

        seconds = env.get("HOST_LOSS_SECONDS", "120")
        refuse_if(not seconds.isdecimal(), f"HOST_LOSS_SECONDS: {seconds!r} is no whole number")
        self.host, self.seconds = int(env["GROUP_RANK"]), int(seconds)
        # A connection of its own: a call that waits for the lost host blocks no other user.
        address = env["MASTER_ADDR"], int(env["MASTER_PORT"])
        client = TCPStore(*address, is_master=False, wait_for_workers=False)
        self.store = PrefixStore("host_loss", client)
        self.store.set(f"name/{self.host}", f"host {self.host} ({socket.gethostname()})")
        hosts = range(int(env["GROUP_WORLD_SIZE"]))
        self.names = [self.store.get(f"name/{host}").decode() for host in hosts]  # waits 5 min
        # Seconds without a sign of each host; for this one, without an answer of the store.
        self.silent: dict[int, float] = dict.fromkeys(hosts, 0)
        self.last_word = threading.Lock()  # one line ends the process: the stage's or the watch's
        threading.Thread(target=self._judge, daemon=True).start()
        self.beating = threading.Thread(target=self._beat, daemon=True)
        self.beating.start()

    def _beat(self) -> None:
        counts: dict[int, int] = {}
        with contextlib.suppress(RuntimeError):  # the store is gone: `_judge` ends the process
            while not self.last_word.locked():
                self.store.add(f"beat/{self.host}", 1)
                for host in self.silent:
                    count = self.store.add(f"beat/{host}", 0)
                    if counts.get(host) != count:
                        counts[host], self.silent[host] = count, 0
                    if host != self.host and self.store.check([f"end/{host}"]):
                        self.silent[host] = float("-inf")
                        if error := self.store.get(f"end/{host}").decode():
                            time.sleep(BEAT_SECONDS)  # if it is this host's too it says so itself
                            self._lose(f"{self.names[host]} stopped: {error}")
                time.sleep(BEAT_SECONDS)

    def _judge(self) -> None:
        """Count seconds, not the clock: while this process is stopped none goes by."""
        while not self.last_word.locked():
            time.sleep(BEAT_SECONDS)
            # Where the store is silent nothing is heard of any host: host 0, which has it, is lost.
            for host in sorted(self.silent, key=lambda host: host != self.host):
                self.silent[host] += BEAT_SECONDS
                if self.silent[host] > self.seconds:
                    lost = self.names[0 if host == self.host else host]
                    self._lose(f"{lost} is lost: no sign of it for {self.seconds} s; {REMEDY}")

    def _lose(self, line: str) -> None:
        if self.last_word.acquire(blocking=False):
            # Past all locks: another thread may hold that of sys.stderr.
            os.write(2, f"\nerror: {line}\n".encode())
            os._exit(75)  # EX_TEMPFAIL of sysexits.h: the same command may succeed later

    def stop(self, error: str) -> None:
        """End the watch: this host is done, or stops with an error, which the others repeat."""
        with contextlib.suppress(RuntimeError):  # the store's host is the lost one
            self.store.set(f"end/{self.host}", error)
        self.last_word.acquire()
        self.beating.join(3 * BEAT_SECONDS)
        if error:
            time.sleep(3 * BEAT_SECONDS)  # the others read it before this host's connections break


def watched(main: Callable[[], None]) -> Callable[[], None]:
    """The same entry point; on several hosts it ends when another host is lost or stops."""

    def run() -> None:
        env = os.environ
        # Torch elastic watches the hosts itself where it may restart them.
        if int(env.get("GROUP_WORLD_SIZE", 1)) < 2 or env.get("TORCHELASTIC_MAX_RESTARTS") != "0":
            return main()
        from torch.distributed import DistError

        watch, fault = None, ""
        try:
            watch = HostLoss(env) if env["LOCAL_RANK"] == "0" else None
            main()
        except BaseException as error:
            fault = (str(error) or type(error).__name__).splitlines()[0]
            if isinstance(error, DistError) or (type(error) is RuntimeError and "gloo" in fault):
                fault = f"another host is lost or failed: {fault}; {REMEDY}"
                raise UserError(fault) from error
            raise
        finally:
            if watch is not None:
                watch.stop(fault)

    return run
