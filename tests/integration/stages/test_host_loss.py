"""Two processes that stand for two hosts watch each other: one dies, fails or ends."""

import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys, time
from data_prep.config import UserError, run_cli
from stages.host_loss import watched
def main():
    print("started", flush=True)
    word = sys.stdin.readline()
    if word == "fail\\n":
        raise UserError("train_file: /nowhere is missing")
    if word == "collective\\n":
        raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection reset by peer")
run_cli(watched(main))
"""


@pytest.fixture
def hosts():
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=30))
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOST_LOSS_SECONDS": "3"}
    env |= {"GROUP_WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_MAX_RESTARTS": "0"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "OMP_NUM_THREADS": "1"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", PROGRAM]
    processes = [
        subprocess.Popen(command, env=env | {"GROUP_RANK": rank}, cwd=ROOT, text=True, **pipes)
        for rank in "01"
    ]
    for process in processes:
        assert process.stdout.readline() == "started\n", process.communicate()
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("action", "code", "line"),
    [
        ("kill", 75, "error: host 1 (NAME) is lost: no sign of it for 3 s; start the same command"),
        ("fail\n", 75, "error: host 1 (NAME) stopped: train_file: /nowhere is missing"),
        ("done\n", 0, ""),
    ],
)
def test_what_the_other_host_says(hosts, action, code, line):
    survivor, other = hosts
    time.sleep(2.5)  # they have seen each other
    if action == "kill":
        other.send_signal(signal.SIGKILL)
    else:
        other.stdin.write(action)
        other.stdin.flush()
    if not line:
        time.sleep(6)  # longer than a host may be silent
        survivor.stdin.write("done\n")
        survivor.stdin.flush()
    assert survivor.wait(timeout=20) == code
    err = survivor.stderr.read()
    assert err.strip().startswith(line.replace("NAME", socket.gethostname()))
    assert err.count("\n") <= 2
    assert "error" not in err if not line else err.count("error:") == 1


def test_a_broken_collective_is_one_line(hosts):
    for process in hosts:
        process.stdin.write("collective\n")
        process.stdin.flush()
    for process in hosts:
        assert process.wait(timeout=20) == 2
        assert process.stderr.read().startswith("error: another host is lost or failed")
