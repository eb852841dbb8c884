"""The Slurm script with the real stages on two hosts: a dead host, the job again, the report."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.demo import OUTER
from tests.integration.stages.stage_processes import steps_on_disk
from tests.integration.stages.two_hosts import TwoHosts

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
# A task in the namespace of each host, which is named by its address. As Slurm's own it ends all
# tasks when one has failed.
SRUN = f"""#!{sys.executable}
import json, os, subprocess, sys, time
command = sys.argv[1:]
flags = []
while command[0].startswith("--"):
    flags.append(command.pop(0))
(hosts,) = (flag.partition("=")[2].split(",") for flag in flags if flag.startswith("--nodelist="))
names = json.loads(os.environ["NAMESPACES"])
tasks = [
    subprocess.Popen(
        ["ip", "netns", "exec", names[host], *command], env=os.environ | {{"SLURMD_NODENAME": host}}
    )
    for host in hosts
]
while any(task.poll() is None for task in tasks):
    if any(task.poll() for task in tasks):
        [task.terminate() for task in tasks]
    time.sleep(0.05)
sys.exit(max(abs(task.wait()) for task in tasks))
"""
SCONTROL = '#!/bin/sh\nfor host in $3; do echo "$host"; done\n'


@pytest.fixture
def hosts():
    with TwoHosts() as hosts:
        yield hosts


@pytest.fixture
def submit(hosts, tmp_path):
    """Start the job in a process group of its own; returns its process and its log."""
    recipe = tmp_path / "recipe"
    shutil.copytree(ROOT / "configs/tiny-cpu", recipe)
    for name, keys in (
        ("sft", {"num_train_epochs": 0.03, "save_steps": 10}),
        ("grpo", {"max_steps": 6, "save_steps": 2, "eval_problems": 8, "guard_no_signal": "off"}),
        ("eval", {"num_samples": 1, "limit": 8, "checkpoints": ["grpo={run}/grpo"]}),
    ):
        file = recipe / f"{name}.yaml"
        known = yaml.safe_load(file.read_text())
        for key in ("curriculum", "pass_rates"):  # no pass rates, which take a minute
            known.pop(key, None)
        file.write_text(yaml.safe_dump(known | keys))
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    env = {key: value for key, value in os.environ.items() if key not in OUTER} | {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "NAMESPACES": json.dumps(dict(zip(hosts.addresses, hosts.names, strict=True))),
        "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": " ".join(hosts.addresses),
        "SLURM_GPUS_ON_NODE": "1", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0",
        "RECIPE": str(recipe), "RUN": str(tmp_path / "run"), "ACCELERATE": "multi_node",
        "AUDIT": "off",
    }  # fmt: skip
    jobs = []

    def start():
        log = tmp_path / f"job-{len(jobs)}.log"
        with log.open("w") as file:
            job = subprocess.Popen(
                ["bash", "configs/accelerate/slurm.sh"], cwd=ROOT, env=env,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        jobs.append(job)
        return job, log

    yield start
    for job in jobs:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def test_after_a_host_has_died_the_job_ends_with_the_report(hosts, submit, tmp_path):
    job, log = submit()
    grpo, deadline = tmp_path / "run/grpo", time.monotonic() + 400
    while not steps_on_disk(grpo):
        assert job.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    hosts.kill(1)  # then Slurm ends the job and puts it back into the queue
    os.killpg(job.pid, signal.SIGKILL)
    hosts.kill(0)
    job.wait()
    made = {file: file.stat().st_mtime_ns for file in tmp_path.glob("run/*/manifest.json")}
    assert {file.parent.name for file in made} >= {"data", "base", "sft"}

    job, log = submit()
    assert job.wait(timeout=400) == 0, log.read_text()
    said = log.read_text()
    assert f"resuming from {grpo.resolve()}/checkpoint-" in said and "Traceback" not in said
    assert (tmp_path / "run/report/report.html").is_file()
    counts = json.loads((grpo / "manifest.json").read_text())["counts"]
    assert counts["steps"] == 6
    assert made == {file: file.stat().st_mtime_ns for file in made}  # nothing was done twice
