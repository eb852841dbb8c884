"""Six faults of `make chaos`, most of them on stages that are half done."""

import os
import subprocess
import sys

import pytest

from tests.demo import OUTER, ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
# Another configuration, two spellings of a folder, a deleted file, SIGKILL, a second start, an
# error of the system. The state of each stage comes from the seed: four are half done, but a kill
# may come too late for one that ends early.
SEED = "1231"


def test_six_faults_lose_nothing():
    command = [sys.executable, "-m", "tests.chaos", "--seed", SEED, "--faults", "6"]
    env = {key: value for key, value in os.environ.items() if key not in OUTER}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" (half") >= 2, done.stdout
