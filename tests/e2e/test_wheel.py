"""The wheel in environments of its own: modules, commands, recipes, examples, ends of ranges."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv

import pytest

from tests.demo import ROOT
from tests.integration.conftest import build_tiny_model
from tests.integration.test_examples import EXAMPLES

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in ("pipeline", "grading", "data_prep", "stages", "eval"):
    package = importlib.import_module(name)
    assert "site-packages" in package.__path__[0], package.__path__
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            sys.stdout.write(module.name + "\\n")
"""


# Neither the clone's modules nor what a build leaves beside them may be found.
ENV = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
PARTS = """
import sys, stages, data_prep
from stages.trainer import Curriculum, GuardSettings, PredictiveCurriculum
assert "torch" not in sys.modules
assert all("site-packages" in one.__file__ for one in (stages, data_prep))
import importlib.metadata
sys.stdout.write(" ".join(importlib.metadata.version(one) for one in ("trl", "transformers")))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pipeline", "grading", "data_prep", "stages", "eval"):
        shutil.copytree(ROOT / name, folder / "tree" / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "tree")
    build = [*PIP, "wheel", "--no-deps", "-w", str(folder), str(folder / "tree")]
    subprocess.run(build, env=ENV, check=True)
    (found,) = folder.glob("*.whl")
    return found


def caller(folder):
    """Runs a command of the environment in an empty folder."""
    (folder / "empty").mkdir()

    def call(command, *rest):
        words = [str(folder / "venv/bin" / command), *map(str, rest)]
        env = ENV | {"HF_HUB_OFFLINE": "1"}
        place = {"cwd": folder / "empty", "env": env, "capture_output": True, "text": True}
        return subprocess.run(words, **place, check=False)

    return call


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """The environment's Python, with the packages of `make`."""
    folder = tmp_path_factory.mktemp("whole")
    venv.create(folder / "venv", with_pip=True)
    install = [*PIP, "--python", str(folder / "venv"), "install", "-c", ROOT / "constraints.txt"]
    subprocess.run([*install, f"{wheel}[eval]"], cwd=folder, env=ENV, check=True)
    call = caller(folder)
    return lambda *words: call("python", *words)


@pytest.fixture(scope="module", params=["lowest", "highest"])
def project(request, wheel, tmp_path_factory):
    """Another project's environment: one end of the ranges, all else from this environment."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder / "venv", with_pip=False)
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ranges = [
        one for one in config["project"]["dependencies"] if ">=" in one and "torch" not in one
    ]
    if request.param == "lowest":
        ranges = [re.match(r"[^,]+", one)[0].replace(">=", "==") for one in ranges]
    install = [*PIP, "--python", str(folder / "venv"), "install", "--no-deps", *ranges, str(wheel)]
    done = subprocess.run(install, env=ENV, capture_output=True, text=True, check=False)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    # A path alone: the editable install's own .pth, which names the clone, is not read.
    (place,) = (folder / "venv/lib").glob("python3*/site-packages")
    (place / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    build_tiny_model_in(folder / "model")
    return caller(folder), folder


def build_tiny_model_in(folder):
    folder.mkdir()
    build_tiny_model(folder)


def test_the_examples_run_at_both_ends_of_the_ranges(project):
    call, folder = project
    done = call("python", "-c", PARTS)
    assert done.returncode == 0, done.stderr
    is_lowest = "lowest" in str(folder)
    assert done.stdout.startswith("1.12.0 5.16.0" if is_lowest else "1.16.")
    for name, parts in EXAMPLES.items():
        given = [] if name == "grade" else [folder / "model"]
        done = call("python", ROOT / f"examples/{name}.py", *given)
        assert done.returncode == 0, done.stderr
        assert [part for part in parts if part not in done.stdout] == [], done.stdout


def test_the_command_finds_the_recipes_of_the_wheel(project):
    call, folder = project
    done = call("sft-grpo-math")
    assert done.returncode == 0 and "tiny-cpu" in done.stderr
    for words in (
        ("preflight", "--recipe", "tiny-cpu"),
        ("base", "--config", "configs/tiny-cpu/model.yaml", "--help"),
        ("data", "--config", "tiny-cpu/data.yaml", "--run_dir", "mine"),
    ):
        done = call("sft-grpo-math", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "empty/mine/data/manifest.json").is_file()
    assert call("sft-grpo-math", "trian").returncode == 2


def test_every_module_imports(run):
    done = run("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert {"grading.grade", "stages.trainer.trainer"} <= {*done.stdout.split()}


def test_the_commands_answer(run):
    done = run("-m", "stages.grpo", "--help")
    assert done.returncode == 0 and "curriculum" in done.stdout, done.stderr
    done = run("-m", "stages.preflight", "--recipe", ROOT / "configs/tiny-cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
