"""A stage as a real process: started, stopped by a signal at a chosen moment, or finished."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def start(*command):
    """Start a Python process whose SIGINT works as in a terminal."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        env={key: value for key, value in env.items() if key not in ("RANK", "WORLD_SIZE")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def stop_when(process, ready, number):
    """Send the signal as soon as `ready()`; returns (exit code, stdout, stderr)."""
    deadline = time.monotonic() + 120
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"ended or hung before it could be stopped: {process.communicate()}")
        time.sleep(0.005)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def finish(process, timeout=240):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out
