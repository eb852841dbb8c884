"""Launches of several processes: what two hosts share, how they end, and how they start again."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.errors import run_cli
from tests.demo import ROOT
from tests.integration.trainer.runs import tell

pytestmark = pytest.mark.integration

# Hosts that do not share the run's folder, its inputs or its command are refused by name


def prepare_runs(folder):
    """The whole of a process: it prepares runs in which the other host sees something else."""
    from pipeline import folders as places
    from pipeline.errors import UserError
    from stages.run import training

    training.VISIBLE_SECONDS = 0.5
    rank = int(os.environ["RANK"])
    os.environ["GROUP_RANK"] = str(rank)
    file = training.RUN_FILE
    cases = (file, 0, "1"), (f"{rank}.json", 0, "1"), (file, rank, "1"), (file, 0, str(rank))
    for number, (seen, beta, digest) in enumerate(cases):
        work = Path(folder, str(number))
        places.RUN_FILE = training.RUN_FILE = seen
        values = {"use_cpu": True, "beta": beta, "output_dir": f"own-{rank}"}
        try:
            start = training.prepare("sft", str(work), values, {"a.jsonl": digest})
            tell("FOUND shared", start.folder == str(work))
        except UserError as error:
            tell("FOUND", error)
    sys.exit()


def test_hosts_that_see_something_else(fork_server, tmp_path):
    setup = (prepare_runs, str(tmp_path))
    for lines in fork_server.finish(tmp_path / "process", 2, setup=setup):
        shared, *faults = [line[6:] for line in lines if line.startswith("FOUND")]
        assert shared == "shared True"
        for fault, key in zip(faults, ("output_dir", "beta", "a.jsonl"), strict=True):
            assert fault.startswith(f"{key}: ") and "all hosts must share" in fault
            assert "(host 0 (" in fault and " and host 1 (" in fault


# How a launch of two processes ends, or starts them again

SCRIPT = """
import os, signal, sys, time
from pipeline.errors import UserError, run_cli
from pipeline.launched import in_launch, note_for_launcher

def main():
    rank, kind = os.environ["RANK"], sys.argv[1]
    num_restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if kind == f"refused {rank}":
        raise UserError("seed: 'x' must be a whole number")
    if kind == "killed once" and rank == "1" and num_restarts == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "killed later" and rank == "0":
        note_for_launcher(checkpoint="checkpoint-8")
    if kind == "killed later" and rank == "1":
        time.sleep(3)
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "nohup" and rank == "0":
        os.kill(os.getppid(), signal.SIGHUP)
        time.sleep(1)
    with open(f"{sys.argv[0]}.starts-{rank}", "a") as file:
        file.write("x")
    if kind.startswith("broken") and rank == "0":
        if kind == "broken further" and num_restarts == 1:
            note_for_launcher(checkpoint="checkpoint-8")
        raise MemoryError if kind == "broken memory" else OverflowError("same")
    time.sleep(0 if kind in ("well", "nohup") or num_restarts == 1 else 60)

run_cli(in_launch(main))
"""
LINE = "error: seed: 'x' must be a whole number\n"


def launch(*words):
    """The whole of `python -m stages.run.launch` with these words."""
    from stages.run import launch

    sys.argv = ["launch", *words]
    if words[-1] == "nohup":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run_cli(launch.main, is_first=False)
    sys.exit()


@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [
        ("well", 0, ""),
        ("nohup", 0, ""),
        ("refused 1", 2, LINE),
        ("killed later", 137, "error: rank 1 was ended by SIGKILL"),
        ("killed once", 0, "notice: rank 1 ended with SIGKILL; all processes start again"),
        ("broken memory", 71, ""),
        ("broken further", 1, ""),
    ],
)
def test_a_launch_ends_with_one_line(fork_server, tmp_path, kind, code, line):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = ["--config_file", "configs/accelerate/cpu.yaml", "--num_processes", "2"]
    words += ["--max_restarts", "0"] if kind == "killed later" else []
    words += [str(script), kind]
    if kind == "well":  # a process of its own, whose imports say nothing either
        command = [sys.executable, "-m", "stages.run.launch", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        found, log = done.returncode, done.stdout + done.stderr
    else:
        (found,), (log,) = fork_server.run(tmp_path / "launch", setup=(launch, *words))
    assert found == code, log
    if kind.startswith("broken"):  # it is not tried once more, unless there is a new checkpoint
        starts = len((tmp_path / "script.py.starts-0").read_text())
        assert starts == 2 + ("further" in kind) and "the same error again" in log, log
        return
    (shown,) = log.splitlines(keepends=True) or [""]
    assert shown == line if line in ("", LINE) else shown.startswith(line)


# Two launchers that stand for two hosts: what one does when the other's processes die or hang

HOST = """
import os, sys, time
from pathlib import Path
from pipeline.errors import UserError, run_cli
from pipeline.launched import in_launch

def main():
    folder, host = Path(sys.argv[1]), os.environ["HOST"]
    with (folder / f"starts-{host}").open("a") as file:
        file.write(f"{os.getpid()}\\n")
    while not (folder / "go").exists():
        if (folder / f"refuse-{host}").exists():
            raise UserError("train_file: /nowhere is missing")
        if (folder / f"broken-{host}").exists():
            (folder / f"broken-{host}").unlink()
            raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection reset by peer")
        time.sleep(0.05)

run_cli(in_launch(main))
"""


class Hosts:
    """Two hosts on one address; they notice a lost one after three seconds."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}
        (folder / "script.py").write_text(HOST)
        # Not of those that the system gives away: a client that waits could meet itself there.
        self.port = next(port for port in range(2000 + os.getpid() % 7000, 9999) if is_free(port))

    def launch(self, host):
        flags = ["--config_file", "configs/accelerate/multi_node.yaml", "--num_processes", 2]
        flags += ["--main_process_ip", "127.0.0.1", "--main_process_port", self.port]
        flags += ["--rdzv_conf", "keep_alive_interval=1,keep_alive_max_attempt=3"]
        flags += ["--num_machines", 2, "--machine_rank", host, self.folder / "script.py"]
        command = [sys.executable, "-m", "stages.run.launch", *map(str, flags), str(self.folder)]
        env = os.environ | {"PYTHONPATH": str(ROOT), "HOST": str(host), "OMP_NUM_THREADS": "1"}
        with self.log(host).open("w") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        self.processes[host] = process

    def log(self, host):
        return self.folder / f"{host}.log"

    def workers(self, host):
        """Pids of the host's worker, in the order in which it was started."""
        file = self.folder / f"starts-{host}"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def wait(self, condition, seconds=120):
        deadline = time.monotonic() + seconds
        while not condition():
            logs = [self.log(host).read_text() for host in self.processes]
            assert time.monotonic() < deadline, logs
            time.sleep(0.05)

    def wait_for_starts(self, number, hosts=(0, 1)):
        self.wait(lambda: all(len(self.workers(host)) >= number for host in hosts))

    def finish(self):
        (self.folder / "go").touch()
        codes = [process.wait(timeout=120) for process in self.processes.values()]
        assert codes == [0, 0], [self.log(host).read_text() for host in self.processes]


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def hosts(tmp_path):
    hosts = Hosts(tmp_path)
    try:
        for host in range(2):
            hosts.launch(host)
        hosts.wait_for_starts(1)
        yield hosts
    finally:
        for process in hosts.processes.values():
            process.kill()
            process.wait()
        hosts.wait(lambda: not any(is_running(p) for host in (0, 1) for p in hosts.workers(host)))


def test_a_killed_process_and_a_broken_collective(hosts, tmp_path):
    os.kill(hosts.workers(1)[-1], signal.SIGKILL)
    hosts.wait_for_starts(2)
    assert "notice: rank" in hosts.log(1).read_text() and "SIGKILL" in hosts.log(1).read_text()
    (tmp_path / "broken-0").touch()
    hosts.wait_for_starts(3)
    assert "Traceback" not in hosts.log(0).read_text()
    hosts.finish()


@pytest.mark.slow
def test_a_killed_launcher_takes_its_processes_along_and_is_waited_for(hosts):
    hosts.processes[1].kill()
    hosts.processes[1].wait()
    hosts.wait(lambda: not is_running(hosts.workers(1)[-1]))
    hosts.wait(lambda: "is lost" in hosts.log(0).read_text())
    hosts.launch(1)
    hosts.wait_for_starts(2)
    hosts.finish()


@pytest.mark.slow
def test_without_the_main_host_the_others_end_and_can_be_started_again(hosts):
    hosts.processes[0].kill()
    hosts.processes[0].wait()
    assert hosts.processes[1].wait(timeout=120) == 75
    hosts.wait(lambda: not any(is_running(hosts.workers(host)[-1]) for host in (0, 1)))
    (line,) = [one for one in hosts.log(1).read_text().splitlines() if one.startswith("error: ")]
    assert line.startswith("error: the main host is lost: ")
    assert line.endswith("to resume from the last checkpoint")
    for host in (0, 1):
        hosts.launch(host)
    hosts.wait_for_starts(2)
    hosts.finish()


@pytest.mark.slow
def test_a_host_that_hangs_is_noticed_and_comes_back(hosts):
    frozen = [hosts.processes[1].pid, hosts.workers(1)[-1]]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        hosts.wait(lambda: "notice: a host of the run is lost" in hosts.log(0).read_text())
        assert not is_running(hosts.workers(0)[-1])
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    hosts.wait_for_starts(2)
    hosts.finish()


def test_a_mistake_ends_both_hosts_and_nothing_starts_again(hosts, tmp_path):
    (tmp_path / "refuse-1").touch()
    assert [process.wait(timeout=60) for process in hosts.processes.values()] == [2, 2]
    assert [len(hosts.workers(host)) for host in range(2)] == [1, 1]
    lines = [hosts.log(host).read_text().splitlines() for host in range(2)]
    assert [line for line in lines[1] if "error" in line] == [
        "error: train_file: /nowhere is missing"
    ]
    assert [line for line in lines[0] if "error" in line] == [
        "error: another host of the run has stopped with a mistake; see its log"
    ]
