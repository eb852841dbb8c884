"""Start a launch's processes again without a person, by torch elastic and some additions.

Torch elastic restarts the processes when one of them dies, and lets the hosts meet again. It lacks
the following (docs/scale.md has the table):

in_launch           a worker ends with its launcher; elastic would leave it as an orphan
                    (pipeline/launched.py)
make_elastic        the main host is named by its rank, not by a name that may not resolve
Agent               a mistake (exit code 2), and the same error again without a checkpoint in
                    between, end all hosts; a host that gives no sign is noticed

Without the main host, where the store is, the others end: Slurm or a person starts them again.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from pipeline.console import notice, write_past_locks
from pipeline.errors import LOST, OUT_OF_MEMORY, UserError
from pipeline.launched import FULL
from pipeline.launched import is_lost_peer as is_lost_peer  # for stages.trainer
from pipeline.memory import num_oom_kills

MAX_RESTARTS = 3  # of the processes of one host; accelerate's --max_restarts
MISTAKE = 2  # exit code of a UserError
KEEP_ALIVE = {"keep_alive_interval": 5, "keep_alive_max_attempt": 6}  # a host is lost after 30 s
STORE_SECONDS = 60  # without an answer of the main host
REMEDY = "run the same command on every host again to resume from the last checkpoint"
# A person or the system sends them; the next attempt may end otherwise.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def same_error(before: Iterable[str], failures: Iterable[Any], is_oom_kill: bool) -> set[str]:
    """The errors of `failures` that are known from the attempt before; none where it got further.

    Args:
        before: what this function's `errors_of` gave for the attempt before.
        failures: torch elastic's, of one attempt.
        is_oom_kill: whether the kernel has killed a process for lack of memory.
    """
    failures = list(failures)
    if any(failure.error_file_data.get("checkpoint") for failure in failures):
        return set()
    return {*before} & errors_of(failures, is_oom_kill)


def errors_of(failures: Iterable[Any], is_oom_kill: bool) -> set[str]:
    """The errors of an attempt's processes, without those that come from outside the process."""
    found = set()
    for failure in failures:
        code = failure.exitcode
        if code == OUT_OF_MEMORY or (code == -signal.SIGKILL and is_oom_kill):
            found.add(FULL)
        elif code < 0 and -code not in FROM_OUTSIDE:
            found.add(failure.signal_name())
        elif code > 0 and code != LOST:
            found.add(failure.error_file_data.get("error") or f"exit code {code}")
    return found


def cause(failures: Mapping[int, Any]) -> tuple[int, Any]:
    """The rank and the failure that ended an attempt; the others ended for it.

    Torch elastic takes the oldest, by whole seconds of a time that `note_for_launcher` writes too,
    and may so name a process that the launcher itself has ended.

    Args:
        failures: torch elastic's, by rank.
    """

    def order(rank: int) -> tuple[int, int]:
        code = failures[rank].exitcode
        if code == MISTAKE:
            kind = 0
        elif code == LOST:  # another process was gone
            kind = 2
        elif code == -signal.SIGTERM:  # the launcher ends the others with it
            kind = 3
        else:
            kind = 1
        return kind, failures[rank].timestamp

    rank = min(failures, key=order)
    return rank, failures[rank]


def make_elastic(config: Any, asked: Mapping[str, Any]) -> Any:
    """Make torch's LaunchConfig one whose processes can start again; `asked`: flags and file."""
    from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

    # A store that outlives the processes would give the next ones the addresses of the dead.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    is_main = True
    if config.max_nodes == 1:
        config.rdzv_endpoint, config.local_addr = "localhost:0", "localhost"
    else:
        is_main = int(asked["machine_rank"]) == 0
        host, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=29500)
        config.local_addr = host if is_main else address_towards(host, port)
    config.rdzv_backend = "c10d"
    config.rdzv_configs = KEEP_ALIVE | {"is_host": is_main} | config.rdzv_configs
    config.max_restarts = asked.get("max_restarts", MAX_RESTARTS)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup: a lost terminal ends nothing
        config.signals_to_handle = "SIGTERM,SIGINT,SIGQUIT"
    return config


def address_towards(host: str, port: int) -> str:
    """This host's address on the network on which it reaches another one; nothing is sent."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return probe.getsockname()[0]


def end_without_main_host(why: str) -> NoReturn:
    """End this launcher, whose workers end with it, in one line."""
    write_past_locks(f"error: the main host is lost: {why}; {REMEDY}\n")
    os._exit(LOST)  # torch's threads would wait for the store


def install(asked: Mapping[str, Any]) -> None:
    """Let torch's launcher restart, with an agent that knows of mistakes and of lost hosts."""
    from torch.distributed import DistStoreError
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
    from torch.distributed.launcher import api

    class Agent(api.LocalElasticAgent):
        """One host's agent: it starts the host's processes, and looks after them and its peers."""

        _errors: frozenset[str] | set[str] = frozenset()  # of the last attempt
        _num_oom_kills = num_oom_kills()

        def run(self, *args: Any) -> Any:
            threading.Thread(target=self._watch_main_host, daemon=True).start()
            return super().run(*args)

        def _watch_main_host(self) -> None:
            """Count seconds, not the clock: while this process is stopped none goes by."""
            rendezvous, silent, seen = self._worker_group.spec.rdzv_handler._state_holder, 0, None
            while silent < STORE_SECONDS:
                time.sleep(1)
                silent = silent + 1 if rendezvous._last_sync_time == seen else 0
                seen = rendezvous._last_sync_time
            end_without_main_host(f"no sign of it for {STORE_SECONDS} s")

        def _rendezvous(self, group: WorkerGroup) -> None:
            try:
                super()._rendezvous(group)
            except DistStoreError:  # a host was lost after it had joined: without it
                super()._rendezvous(group)

        def _monitor_workers(self, group: WorkerGroup) -> RunResult:
            result, num_hosts = super()._monitor_workers(group), group.group_world_size or 1
            codes = {failure.exitcode for failure in result.failures.values()}
            if MISTAKE in codes or (codes and self._is_repeated(result.failures)):
                self._end_all_hosts(group, num_hosts)
                return result
            if codes and self._remaining_restarts:
                self._announce_restart(result, num_hosts)
            if num_hosts > 1 and group.store.check(["mistake"]):
                raise UserError("another host of the run has stopped with a mistake; see its log")
            meeting = self._worker_group.spec.rdzv_handler._state_holder.state
            if result.state == WorkerState.HEALTHY and len(meeting.participants) < num_hosts:
                notice("a host of the run is lost; waiting until it starts the same command again")
                self._restart_workers(group)
            return result

        def _is_repeated(self, failures: Mapping[int, Any]) -> bool:
            """Whether the attempt before ended with the same error, and none got further since."""
            number = num_oom_kills()
            is_oom_kill, self._num_oom_kills = number != self._num_oom_kills, number
            again = same_error(self._errors, failures.values(), is_oom_kill)
            self._errors = errors_of(failures.values(), is_oom_kill)
            if again and self._remaining_restarts:
                what = f"the same error again ({', '.join(sorted(again))})"
                notice(f"{what}, and no new checkpoint in between; nothing is started again")
            return bool(again)

        def _end_all_hosts(self, group: WorkerGroup, num_hosts: int) -> None:
            """Start nothing again here, and leave word for the other hosts."""
            self._remaining_restarts = 0
            group.store.set("mistake", "1")
            if num_hosts > 1:
                time.sleep(3)  # the others look, while the store is there

        def _announce_restart(self, result: RunResult, num_hosts: int) -> None:
            if num_hosts > 1:
                time.sleep(1)  # a mistake elsewhere may be the cause
            left = f"{self._remaining_restarts} of {self._worker_group.spec.max_restarts} left"
            rank, failure = cause(result.failures)
            end = failure.signal_name() if failure.exitcode < 0 else failure.exitcode
            notice(f"rank {rank} ended with {end}; all processes start again ({left})")

    launch_agent = api.launch_agent

    def launch_elastic(config: Any, *args: Any, **kwargs: Any) -> Any:
        return launch_agent(make_elastic(config, asked), *args, **kwargs)

    api.LocalElasticAgent = Agent
    api.launch_agent = launch_elastic
