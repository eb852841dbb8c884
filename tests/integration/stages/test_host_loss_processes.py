"""The watch of hosts over each other in real processes on loopback, which stop, fail and die."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
NAME = socket.gethostname()
ENDED = "its processes ended, killed or by an error in its log"
PROGRAM = """
import sys, time
from stages import host_loss
from stages.host_loss import watched
host_loss.GRACE_SECONDS = 20
def main():
    print("started", flush=True)
    if sys.stdin.readline() == "fail\\n":
        raise RuntimeError("connection reset")  # a collective's
watched(main)()
"""


@pytest.fixture
def start(tmp_path):
    """Start a program as local rank 0 of a host, which may be silent for two seconds."""
    started = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(rank):
        env = {"GROUP_RANK": str(rank), "GROUP_WORLD_SIZE": "2", "LOCAL_RANK": "0"}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port - 1)}
        env |= {"HOST_LOSS_SECONDS": "2", "TORCHELASTIC_ERROR_FILE": str(tmp_path / f"{rank}.json")}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-c", PROGRAM]
        process = subprocess.Popen(command, env=os.environ | env, cwd=ROOT, text=True, **pipes)
        started.append(process)
        assert process.stdout.readline() == "started\n"
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def test_a_stopped_process_is_not_a_dead_host(start):
    """Its kernel answers for it: so does one that generates for an hour."""
    processes = [start(rank) for rank in range(2)]
    time.sleep(0.5)  # they have met
    for process in processes:
        process.send_signal(signal.SIGSTOP)
        time.sleep(5)
        process.send_signal(signal.SIGCONT)
    assert [process.poll() for process in processes] == [None, None]
    for process in processes:
        assert process.communicate("done\n", timeout=10) == ("", "")
        assert process.returncode == 0


@pytest.mark.parametrize("lost", [0, 1])
def test_one_line_and_no_traceback(start, lost, tmp_path):
    processes = [start(rank) for rank in range(2)]
    time.sleep(0.5)
    survivor = processes[1 - lost]
    survivor.stdin.write("fail\n")  # what a collective does then; it may come first
    survivor.stdin.flush()
    time.sleep(0.2)
    processes[lost].kill()
    _, err = survivor.communicate(timeout=10)
    name = ["the main host (127.0.0.1)", f"host 1 ({NAME}, 127.0.0.1)"][lost]
    remedy = "start the same command on every host again, it has no checkpoint and begins anew"
    assert err == f"\nerror: {name} is lost: {ENDED}; {remedy}\n"
    assert survivor.returncode == 75
    report = json.loads((tmp_path / f"{1 - lost}.json").read_text())
    assert report["message"]["message"] == err.strip()
