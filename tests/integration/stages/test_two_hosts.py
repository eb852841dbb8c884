"""GRPO on two hosts: one dies or vanishes, the other says so and ends, the same command goes on."""

import json
import time

import pytest

from tests.integration.stages.stage_processes import steps_on_disk
from tests.integration.stages.two_hosts import TwoHosts

pytestmark = [pytest.mark.integration, pytest.mark.slow]
SECONDS = 10  # without a sign of a host, HOST_LOSS_SECONDS; 120 by default


@pytest.fixture
def hosts():
    with TwoHosts() as hosts:
        yield hosts
    assert not [pid for host in range(2) for pid in hosts.pids(host)]


def wait_for_more(folder, step, processes, read):
    """Until there is a checkpoint behind that of `step`."""
    deadline = time.monotonic() + 240
    while [0, *steps_on_disk(folder)][-1] <= step:
        assert time.monotonic() < deadline and not any(p.poll() for p in processes), read()
        time.sleep(0.02)


# The attempts, one after the other in one run folder: what happens to which host, the launcher, and
# the hosts that survive. Cut off from each other, both do.
LOSSES = [
    ("kill", 1, "accelerate", [0]),
    ("cut_off", 0, "torchrun", [0, 1]),
    ("kill", 0, "torchrun", [1]),
]


def test_a_lost_host_ends_the_run_and_the_same_command_resumes(hosts, write_recipe, tmp_path):
    settings = {"per_device_train_batch_size": 4, "max_steps": 60, "save_steps": 5}
    recipe = write_recipe("grpo", **settings)
    folder, resumed = tmp_path / "grpo", 0
    logs = [tmp_path / f"host{rank}.log" for rank in range(2)]

    def read(rank):
        return logs[rank].read_text()

    for action, lost, launcher, survivors in LOSSES:
        processes = hosts.launch(launcher, "grpo", recipe, logs, HOST_LOSS_SECONDS=SECONDS)
        wait_for_more(folder, resumed, processes, lambda: (read(0), read(1)))
        getattr(hosts, action)(lost)
        for rank in survivors:
            assert processes[rank].wait(timeout=60) != 0, read(rank)
            (line,) = (line for line in read(rank).splitlines() if line.startswith("error: "))
            lost_name = f"host {1 - rank} (" if action == "cut_off" else "another host is lost"
            assert line.startswith(f"error: {lost_name}"), line
            assert "start the same command on every host again" in line
        hosts.plug_in(lost)
        assert [hosts.pids(host) for host in range(2)] == [[], []]
        if resumed:
            assert f"resuming from {folder}/checkpoint-{resumed}\n" in read(0)
        resumed = steps_on_disk(folder)[-1]
        assert resumed < settings["max_steps"], "it was done before it was stopped"

    processes = hosts.launch("accelerate", "grpo", recipe, logs)
    assert [process.wait(timeout=240) for process in processes] == [0, 0], (read(0), read(1))
    assert f"resuming from {folder}/checkpoint-{resumed}\n" in read(0)
    assert "error: " not in read(0) + read(1)  # the end of one host is no loss to the other
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["counts"]["steps"] == settings["max_steps"]
