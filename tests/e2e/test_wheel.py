"""The wheel in environments of its own: the whole chain, and both ends of the ranges."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv

import pytest

from pipeline.venv import pinned
from tests import demo
from tests.demo import ROOT
from tests.golden.__main__ import NUM_ROWS, SHORT
from tests.integration.conftest import build_tiny_model
from tests.integration.test_examples import EXAMPLES

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
# Neither the clone's modules nor what a build leaves beside them may be found.
ENV = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
PACKAGES = ("pipeline", "grading", "data_prep", "stages", "eval")
IMPORT_ALL = f"""
import importlib, pkgutil, sys
import stages.trainer, data_prep
assert "torch" not in sys.modules
for name in {PACKAGES}:
    package = importlib.import_module(name)
    assert "site-packages" in package.__path__[0], package.__path__
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            sys.stdout.write(module.name + "\\n")
"""


class Environment:
    """A virtual environment, and an empty folder from which its commands start."""

    def __init__(self, folder, with_pip):
        self.folder, self.place = folder / "empty", folder / "venv"
        self.folder.mkdir()
        venv.create(self.place, with_pip=with_pip)

    def install(self, *words):
        """Install packages; skips the test where there is no package index."""
        command = [*PIP, "--python", str(self.place), "install", *map(str, words)]
        done = subprocess.run(command, env=ENV, capture_output=True, text=True, check=False)
        if done.returncode and "No matching distribution" in done.stderr:
            pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr

    def run(self, command, *words):
        """Run a command of the environment; returns what it printed."""
        command = [str(self.place / "bin" / command), *map(str, words)]
        env = ENV | {"HF_HUB_OFFLINE": "1"}
        pipes = {"capture_output": True, "text": True, "check": False}
        done = subprocess.run(command, cwd=self.folder, env=env, **pipes)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "tree" / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "tree")
    build = [*PIP, "wheel", "--no-deps", "-w", str(folder), str(folder / "tree")]
    subprocess.run(build, env=ENV, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_the_examples_run_at_both_ends_of_the_ranges(wheel, tmp_path, end):
    """All else is of this environment. The highest torch comes with CUDA's libraries."""
    other = Environment(tmp_path, with_pip=False)
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ranges = [one for one in config["project"]["dependencies"] if ">=" in one]
    (torch,) = (one for one in ranges if re.match(r"torch\W", one))
    ranges.remove(torch)
    if end == "lowest":  # torch's is that of this environment
        ranges = [re.match(r"[^,]+", one)[0].replace(">=", "==") for one in ranges]
    else:
        other.install(torch)
    other.install(*(one for one in ranges if one.startswith("pydantic")))  # with its core
    other.install("--no-deps", *ranges, wheel)
    # A path alone: the editable install's own .pth, which names the clone, is not read.
    (place,) = (other.place / "lib").glob("python3*/site-packages")
    (place / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "model").mkdir()
    build_tiny_model(tmp_path / "model")
    for name, parts in EXAMPLES.items():
        given = [] if name == "grade" else [tmp_path / "model"]
        printed = other.run("python", ROOT / f"examples/{name}.py", *given)
        assert [part for part in parts if part not in printed] == [], printed
    assert "tiny-cpu" in other.run("sft-grpo-math")
    other.run("sft-grpo-math", "data", "RECIPE=tiny-cpu", "RUN=mine")
    assert (other.folder / "mine/data/manifest.json").is_file()


def test_the_whole_chain_beside_files_of_the_user(wheel, tmp_path):
    """A user's own eval.py and pipeline.py do no harm, and their reward is found."""
    own = Environment(tmp_path, with_pip=True)
    (tmp_path / "versions.txt").write_text("\n".join(pinned("cpu")) + "\n")
    own.install("-c", tmp_path / "versions.txt", f"{wheel}[eval]")
    found = own.run("python", "-c", IMPORT_ALL).split()
    assert {"grading.grade", "stages.trainer.grpo_trainer"} <= {*found}

    demo.write_recipe(own.folder, NUM_ROWS, SHORT)
    (own.folder / "configs").mkdir()
    (own.folder / "tiny-cpu").rename(own.folder / "configs/mine")
    for name in ("eval", "pipeline", "stages", "grading"):
        (own.folder / f"{name}.py").write_text("raise SystemExit('a file of the user')")
    (own.folder / "brevity.py").write_text(
        "def few_lines(completions, **columns):\n    return [0.0 for _ in completions]\n"
    )
    reward = "reward_funcs=correctness_reward,brevity:few_lines reward_weights=1,0.5"
    for words in ("plan", "doctor", "preflight", "data", "sft", f"grpo {reward}", "eval", "report"):
        printed = own.run("sft-grpo-math", *words.split(), "RECIPE=mine")
        assert "a file of the user" not in printed
    shutil.copytree(own.folder / "runs/mine", own.folder / "runs/again")
    own.run("sft-grpo-math", "compare", "RUNS=runs/mine runs/again")
    assert (own.folder / "runs/mine/report/report.html").is_file()
