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


def test_an_unknown_check_is_refused(check):
    done = check("--dry --checks sft-single no-such")
    assert done.stderr.startswith("error: checks: ") and "no-such" in done.stderr


def test_without_a_gpu_no_page_is_written(check, tmp_path):
    done = check()
    assert done.returncode == 2 and "no GPU" in done.stderr and "--dry" in done.stderr
    assert not (tmp_path / "page.md").exists()


def test_a_check_comes_with_those_it_needs(check):
    lines = check("--dry --checks sft-flash").stdout.splitlines()
    found = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
    assert found == ["base", "sft-packed", "sft-flash"]


def host(num_gpus, is_standin=False):
    return gpu_check.Host(num_gpus, is_standin, "no GPU")


def build(**fields):
    return gpu_check.Check("a", **({"gpu": [], "cpu": [], "seconds": 9, "needs": []} | fields))


def test_what_is_missing_is_said(monkeypatch):
    assert host(1).why_not(build(), []) == ""
    assert host(0).why_not(build(num_gpus=0), []) == ""
    assert "2 GPUs needed, 1 here" in host(1).why_not(build(num_gpus=2), [])
    assert host(1).why_not(build(needs=["no_such"]), []) == "no_such missing"
    monkeypatch.setattr(gpu_check, "find_spec", lambda name: "varlen" not in name or None)
    old = host(1).why_not(build(needs=["torch.nn.attention.varlen"]), [])
    assert "torch 2.13" in old and "one by one" in old
    monkeypatch.undo()
    flash = build(needs=["flash_attn"])
    assert host(0, is_standin=True).why_not(flash, [[sys.executable]]) == ""
    assert "vllm missing" in host(0, is_standin=True).why_not(flash, [["no/such/python"]])


@pytest.mark.parametrize(("num_gpus", "n"), [(1, 1), (2, 2), (3, 2), (8, 8), (16, 8)])
def test_the_rows_of_a_step_are_shared_out(num_gpus, n, tmp_path):
    check = build(gpu=["-m x {run} {out} {a}"])
    texts = {"a": "{n} {sft_rows}"}
    found = host(num_gpus).commands(check, texts, tmp_path)
    rows = gpu_check.ROWS["sft_rows"] // n
    assert found == [
        [sys.executable, "-m", "x", str(tmp_path), str(tmp_path / "a"), str(n), str(rows)]
    ]


def run(commands, folder, limit=60, **fields):
    words = [[sys.executable, "-c", command] for command in commands]
    task = gpu_check.Task(build(**fields), words, {"commands": words})
    return gpu_check.read_record(task, folder) or gpu_check.run_check(task, host(0), folder, limit)


def test_a_check_runs_once_whether_it_passes_or_fails(tmp_path):
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    for _ in range(2):
        assert run([count], tmp_path)["result"] == "passed"
    assert (tmp_path / "count").read_text() == "x"
    bad = f"{count}; raise SystemExit(3)"
    for _ in range(2):
        found = run([bad, count], tmp_path)
        assert found["result"] == "failed" and "exit code 3" in found["figure"]
    assert (tmp_path / "count").read_text() == "xx"  # the second command never


def test_other_code_or_another_device_is_another_key(tmp_path, monkeypatch):
    def key(check, device="a GPU"):
        on = gpu_check.Host(1, False, device)
        return gpu_check.prepare(checks[check], on, {}, tmp_path).key

    checks = {name: gpu_check.Check(name, [f"-m {name}"], [], 9, []) for name in ("base", "one")}
    before = key("one")
    assert before == key("one") != key("base") and before != key("one", "another")
    (tmp_path / "stages").mkdir()
    monkeypatch.setattr(gpu_check, "ROOT", tmp_path)
    gpu_check.hash_project.cache_clear()
    assert key("one") != before
    gpu_check.hash_project.cache_clear()


def test_a_check_ends_with_its_time_and_leaves_no_process(tmp_path):
    pid = tmp_path / "pid"
    child = "import time; time.sleep(100)"
    start = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}])"
    command = f"{start}; open({str(pid)!r}, 'w').write(str(p.pid)); p.wait()"
    found = run([command], tmp_path, limit=3)
    assert found["result"] == "failed" and "stopped after 3 s" in found["figure"]
    stat = Path(f"/proc/{pid.read_text()}/stat")
    for _ in range(100):  # killed, and on a busy machine not gone at once
        if is_gone := not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    assert is_gone


def test_a_check_starts_only_if_its_limit_is_left(tmp_path):
    task = gpu_check.Task(build(seconds=9), [[sys.executable, "-c", "1"]], {})
    now = time.monotonic()
    found = gpu_check.do(task, host(1), tmp_path, now + 8)
    assert found["result"] == "not run" and "9 s" in found["figure"] and not [*tmp_path.iterdir()]
    assert gpu_check.do(task, host(0, is_standin=True), tmp_path, now)["result"] == "passed"


def test_a_failed_check_runs_again_if_it_is_named(tmp_path):
    count = tmp_path / "count"
    fails = f"open({str(count)!r}, 'a').write('x'); raise SystemExit(1)"
    task = gpu_check.Task(build(), [[sys.executable, "-c", fails]], {})
    for is_named, runs in ((False, 1), (False, 1), (True, 2)):
        found = gpu_check.do(task, host(1), tmp_path, time.monotonic() + 60, is_named=is_named)
        assert found["result"] == "failed" and count.read_text() == "x" * runs


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
