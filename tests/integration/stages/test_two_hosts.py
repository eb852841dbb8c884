"""GRPO on two hosts goes on by itself after kills, and ends in the same weights."""

import json
import os
import signal
import time

import pytest

from tests.integration.stages.stage_processes import steps_on_disk
from tests.integration.stages.two_hosts import TwoHosts

pytestmark = [pytest.mark.integration, pytest.mark.slow]
NUM_STEPS = 40


@pytest.fixture
def hosts():
    with TwoHosts() as hosts:
        yield hosts
    assert not [pid for host in range(2) for pid in hosts.pids(host)]


def test_killed_processes_and_hosts_are_resumed(hosts, write_recipe, fork_server, tmp_path):
    """A worker, a host and the main host, after which both hosts are started again."""
    settings = {"per_device_train_batch_size": 4, "max_steps": NUM_STEPS, "save_steps": 5}
    recipe, folder = write_recipe("grpo", **settings), tmp_path / "grpo"
    logs, processes = [], []

    def launch(host):
        logs.append(tmp_path / f"{len(logs)}.log")
        return hosts.launch(host, "grpo", recipe, logs[-1])

    def wait_for_more(step):
        deadline = time.monotonic() + 400
        while [0, *steps_on_disk(folder)][-1] <= step:
            ended = any(process.poll() is not None for process in processes)
            assert time.monotonic() < deadline and not ended, [log.read_text() for log in logs]
            time.sleep(0.02)
        return steps_on_disk(folder)[-1]

    processes = [launch(host) for host in range(2)]
    reached = wait_for_more(0)
    for kind, host in (("worker", 1), ("host", 1), ("host", 0)):
        if kind == "worker":
            (worker,) = hosts.workers(host)
            os.kill(worker, signal.SIGKILL)
        else:
            hosts.kill(host)
            processes[host].wait()
            if host == 0:
                assert processes[1].wait(timeout=120) == 75
                processes[1] = launch(1)
            processes[host] = launch(host)
        reached = wait_for_more(reached)
        assert reached < NUM_STEPS, "it was done before it was stopped"
    assert [process.wait(timeout=400) for process in processes] == [0, 0]

    out = "".join(log.read_text() for log in logs)
    assert out.count(f"resuming from {folder.resolve()}/checkpoint-") == 3
    assert out.count("error: the main host is lost: ") == out.count("error: ") == 1
    assert "Traceback" not in out
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["counts"]["steps"] == NUM_STEPS

    straight = tmp_path / "straight"
    fork_server.finish(write_recipe("grpo", **settings, output_dir=str(straight)), 2)
    file = "model.safetensors"
    assert (folder / file).read_bytes() == (straight / file).read_bytes()
