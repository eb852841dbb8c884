"""`make gpu-check` on a host without a GPU: what it lists, runs, repeats and says."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from benchmarks import gpu_check
from tests import demo

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(torch.cuda.is_available(), reason="this host has a GPU: make gpu-check"),
]
CHECKS = yaml.safe_load(gpu_check.CHECKS.read_text())["checks"]


@pytest.fixture
def check(tmp_path):
    """Run `make gpu-check` with some ARGS; returns the process and what its records say."""
    (tmp_path / "ready").touch()  # newer than pyproject.toml: make installs nothing

    def call(args="", **given):
        given |= {"VENV": tmp_path, "PY": sys.executable, "OUT": tmp_path / "page.md"}
        words = [f"{key}={value}" for key, value in given.items()]
        env = {key: value for key, value in os.environ.items() if key not in demo.OUTER}
        command = ["make", "gpu-check", f"ARGS=--run {tmp_path}/run {args}", *words]
        return subprocess.run(
            command, cwd=demo.ROOT, env=env, capture_output=True, text=True, check=False
        )

    return call


def test_a_dry_run_names_each_check_its_command_and_why_not(check, tmp_path):
    done = check("--dry")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for name, fields in CHECKS.items():
        at = next(at for at, line in enumerate(lines) if line.startswith(f"{name}: "))
        is_possible = fields.get("num_gpus") == 0
        assert ("would run" if is_possible else "no GPU") in lines[at]
        commands = lines[at + 1 : at + 1 + len(fields["gpu"])]
        assert all(line.startswith("    python -m ") and "{" not in line for line in commands)
    for name, package in (("sft-flash", "flash_attn"), ("vllm-server", "vllm")):
        line = next(line for line in lines if line.startswith(f"{name}: "))
        assert f"{package} missing" in line or gpu_check.find_spec(package)
    assert not (tmp_path / "run").exists() and not (tmp_path / "page.md").exists()


def test_without_a_gpu_no_page_is_written(check, tmp_path):
    done = check()
    assert done.returncode == 2 and "no GPU" in done.stderr and "--dry" in done.stderr
    assert not (tmp_path / "page.md").exists()


@pytest.fixture
def start(tmp_path):
    """Do a check of some Python scripts; returns its record."""

    def call(*scripts, limit=60, left=100.0, is_named=False):
        commands = []
        for script in scripts:
            path = tmp_path / f"{abs(hash(script))}.py"
            path.write_text(script)
            commands.append(f"{sys.executable} {path}")
        check = gpu_check.Check("a", gpu=commands, cpu=[], seconds=limit, needs=[], num_gpus=0)
        host = gpu_check.Host(0, False, "no GPU", tmp_path / "run", {})
        return gpu_check.do(check, host, time.monotonic() + left, is_named)

    return call


def test_a_check_runs_once_unless_one_that_failed_is_named(start, tmp_path):
    count = tmp_path / "count"
    good = f"open({str(count)!r}, 'a').write('x')"
    for _ in range(2):
        assert start(good)["result"] == "passed"
    assert count.read_text() == "x"
    bad = f"{good}; raise SystemExit(3)"
    for is_named, runs in ((False, 2), (False, 2), (True, 3)):
        found = start(bad, good, is_named=is_named)  # the second command never
        assert found["result"] == "failed" and "exit code 3" in found["figure"]
        assert count.read_text() == "x" * runs


def test_a_check_ends_with_its_time_and_leaves_no_process(start, tmp_path):
    pid = tmp_path / "pid"
    child = "import time; time.sleep(100)"
    script = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}])"
    found = start(f"{script}; open({str(pid)!r}, 'w').write(str(p.pid)); p.wait()", limit=3)
    assert found["result"] == "failed" and "stopped after 3 s" in found["figure"]
    stat = Path(f"/proc/{pid.read_text()}/stat")
    for _ in range(100):  # killed, and on a busy machine not gone at once
        if is_gone := not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    assert is_gone


def test_a_check_starts_only_if_its_limit_is_left(start, tmp_path):
    found = start("1", limit=9, left=8)
    assert found["result"] == "not run" and "9 s" in found["figure"]
    assert not (tmp_path / "run").exists()


def test_no_check_is_longer_than_a_piece():
    minutes = gpu_check.CheckArguments(out="").minutes
    assert all(fields["seconds"] <= 60 * minutes for fields in CHECKS.values())
    for name, fields in CHECKS.items():
        assert fields.get("like", "base") in list(CHECKS)[: list(CHECKS).index(name) + 1]


@pytest.mark.slow
def test_lines_run_on_a_cpu(check, tmp_path):
    checks = "varlen update-7B packing-0.5B host-waits memory-grpo generation-0.5B evaluate "
    args = f"--checks {checks} grpo-killed grpo-lora sft-fsdp2 sft-flash"
    done = check(args, CPU_STANDIN="1")
    assert done.returncode == 0, done.stdout[-3000:]
    page = (tmp_path / "page.md").read_text()
    for name in ["base", "sft-single", "sft-packed", *args.split()[1:]]:
        assert f"\n|{name}|" in page
        record = json.loads((tmp_path / f"run/{name}.json").read_text())
        assert record["result"] == "passed" and record["seconds"] > 1
    assert page.count("\n## ") == 6 and "within" in page
    before = {path: path.read_bytes() for path in tmp_path.glob("run/*.json")}
    assert check(args, CPU_STANDIN="1").returncode == 0
    assert {path: path.read_bytes() for path in tmp_path.glob("run/*.json")} == before
