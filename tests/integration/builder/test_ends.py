"""A build that is ended from outside: no worker survives it, nothing is half-written."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml

from tests.files import write_rows

pytestmark = pytest.mark.integration


@pytest.fixture
def command(tmp_path):
    rows = [
        {"q": f"What is {n} plus {n + 3}, in words?", "a": str(2 * n + 3)} for n in range(10_000)
    ]
    write_rows(tmp_path / "a.jsonl", rows)
    source = {"name": "generic", "file": "a.jsonl", "prompt_key": "q", "answer_key": "a"}
    recipe = {"data_root": str(tmp_path), "grpo": [source], "num_workers": 2, "languages": ["en"]}
    path = tmp_path / "data.yaml"
    path.write_text(yaml.safe_dump(recipe | {"output_dir": str(tmp_path / "out")}))
    return [sys.executable, "-m", "data_prep.builder", "--config", str(path)]


def start(command):
    """A build with both of its workers at work; returns it and them."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal: what runs in the background of a shell ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        children = psutil.Process(process.pid).children(recursive=True)
        if sum(child.cpu_times().user > 0.5 for child in children) >= 2:
            return process, children
        time.sleep(0.05)
    raise AssertionError("the workers did not start")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_no_worker_survives_and_nothing_is_half_written(command, tmp_path, number, code):
    process, children = start(command)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)  # would hang on a worker that holds stderr
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive and process.returncode == code and "Traceback" not in err
    left = {path.name for path in (tmp_path / "out").iterdir()}
    if number == signal.SIGKILL:  # built over by the next, as a unit test shows
        assert "manifest.json" not in left and "build.partial" in left
    else:
        assert left == set()
