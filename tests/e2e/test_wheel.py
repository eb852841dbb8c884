"""The wheel in an environment of its own: every module imports, the commands answer."""

import os
import shutil
import subprocess
import sys
import venv

import pytest

from tests.demo import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in ("data_prep", "stages", "eval"):
    package = importlib.import_module(name)
    assert "site-packages" in package.__path__[0], package.__path__
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            sys.stdout.write(module.name + "\\n")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the environment's Python in an empty folder; returns what subprocess does."""
    folder = tmp_path_factory.mktemp("wheel")
    # Neither the clone's modules nor what a build leaves beside them may be found.
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for name in ("data_prep", "stages", "eval"):
        shutil.copytree(ROOT / name, folder / "tree" / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "tree")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "-w", str(folder), str(folder / "tree")]
    subprocess.run(build, env=env, check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv/bin/python")
    install = [python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, f"{wheel}[eval]"], cwd=folder, env=env, check=True)
    (folder / "empty").mkdir()

    def call(*command):
        words, place = [python, *map(str, command)], {"cwd": folder / "empty"}
        place["env"] = env | {"HF_HUB_OFFLINE": "1"}
        return subprocess.run(words, **place, capture_output=True, text=True, check=False)

    return call


def test_every_module_imports(run):
    done = run("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert {"data_prep.grading.grade", "stages.trainer.trainer"} <= {*done.stdout.split()}


def test_the_commands_answer(run):
    done = run("-m", "stages.grpo", "--help")
    assert done.returncode == 0 and "curriculum" in done.stdout, done.stderr
    done = run("-m", "stages.preflight", "--recipe", ROOT / "configs/tiny-cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
