"""A sweep with the tiny model: killed, gone on with, and left alone once it is finished."""

import json
import os
import signal
import sys
import time

import pytest

from tests.integration.stages.stage_processes import start, steps_on_disk

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NAMES = [f"learning_rate={rate},beta={beta}" for rate in ("1e-3", "1e-4") for beta in ("0.1", "0")]


@pytest.fixture
def sweep(write_recipe, tmp_path):
    """Start a sweep of two rates and two KL weights; returns the process and the runs' folder."""
    config = write_recipe("grpo", max_steps=6, save_steps=1)

    def call(*entries):
        command = ["-m", "stages.sweep", "--grpo_config", config, "--run", tmp_path / "run"]
        return start(*command, "--launcher", f"{sys.executable} -m", "--sweep", *entries)

    return call, tmp_path / "run" / "sweep"


def finish(process):
    out, err = process.communicate(timeout=600)  # up to four processes, one after the other
    assert process.returncode == 0, err
    return out


def stop_when(process, ready):
    deadline = time.monotonic() + 600
    while not ready():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return process.returncode


def pids_of(folder):
    """Processes whose command line names a folder."""
    found = []
    for process in (p for p in os.listdir("/proc") if p.isdigit()):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                found += [int(process)] * (f"{folder}/grpo".encode() in file.read())
        except OSError:
            continue
    return found


def test_a_killed_sweep_goes_on_where_it_stopped(sweep):
    call, root = sweep
    entries = ["learning_rate=1e-3,1e-4", "beta=0.1,0"]
    second = root / NAMES[1] / "grpo"
    finish(call("learning_rate=1e-3", "beta=0.1"))  # one of the four
    process = call(*entries)
    assert stop_when(process, lambda: 1 in steps_on_disk(second)) == 143
    assert not pids_of(root / NAMES[1])  # the run has ended with the sweep
    assert not (second / "manifest.json").exists()
    first = (root / NAMES[0] / "grpo" / "manifest.json").stat().st_mtime_ns

    out = finish(call(*entries))
    assert f"1 of 4, {NAMES[0]}: finished before" in out
    assert f"resuming from {second}/checkpoint-" in out
    assert (root / NAMES[0] / "grpo" / "manifest.json").stat().st_mtime_ns == first
    table = json.loads((root / "table.json").read_text())
    assert [(row["run"], row["steps"], row["ended"]) for row in table] == [
        (name, 6, "finished") for name in NAMES
    ]
    for name, row in zip(NAMES, table, strict=True):
        config = json.loads((root / name / "grpo" / "manifest.json").read_text())["config"]
        assert f"learning_rate={config['learning_rate']:.0e}".replace("e-0", "e-") in name
        assert f"beta={config['beta']:g}" in name
        assert row["reward"] is not None
        assert name in out  # the table on the terminal


def test_a_mistake_in_a_later_run_is_found_before_the_first(sweep):
    call, root = sweep
    process = call("num_generations=4,3")
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2
    assert err.startswith("error: num_generations: 3 does not divide") and err.count("\n") == 1
    assert not root.exists()
