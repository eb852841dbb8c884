"""The wheel in environments of its own: modules, commands, recipes, examples, ends of ranges."""

import importlib.metadata
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
def command(wheel, tmp_path_factory):
    """Runs a command of an environment that has the wheel and the packages of `make`."""
    folder = tmp_path_factory.mktemp("whole")
    venv.create(folder / "venv", with_pip=True)
    (folder / "versions.txt").write_text("\n".join(pinned("cpu")) + "\n")
    install = [*PIP, "--python", str(folder / "venv"), "install", "-c", folder / "versions.txt"]
    subprocess.run([*install, f"{wheel}[eval]"], cwd=folder, env=ENV, check=True)
    call = caller(folder)
    call.folder = folder / "empty"
    return call


@pytest.fixture
def run(command):
    """The environment's Python."""
    return lambda *words: command("python", *words)


@pytest.fixture(scope="module", params=["lowest", "highest"])
def project(request, wheel, tmp_path_factory):
    """Another project's environment: one end of the ranges, all else from this environment.

    The highest torch comes with CUDA's libraries: gigabytes.
    """
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder / "venv", with_pip=False)
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ranges = [one for one in config["project"]["dependencies"] if ">=" in one]
    (torch,) = (one for one in ranges if re.match(r"torch\W", one))
    ranges.remove(torch)
    install = [*PIP, "--python", str(folder / "venv"), "install"]
    if request.param == "lowest":  # torch's is that of this environment
        ranges = [re.match(r"[^,]+", one)[0].replace(">=", "==") for one in ranges]
        assert importlib.metadata.version("torch").startswith(re.search(r">=([\d.]+)", torch)[1])
        wanted = []
    else:
        wanted = [[*install, torch]]
    (pydantic,) = (one for one in ranges if one.startswith("pydantic"))
    wanted.append([*install, pydantic])  # with its core, of one version alone
    for words in (*wanted, [*install, "--no-deps", *ranges, str(wheel)]):
        done = subprocess.run(words, env=ENV, capture_output=True, text=True, check=False)
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
    assert done.stdout.startswith("1.16.0 5.16.0" if is_lowest else "1.16.")
    for name, parts in EXAMPLES.items():
        given = [] if name == "grade" else [folder / "model"]
        done = call("python", ROOT / f"examples/{name}.py", *given)
        assert done.returncode == 0, done.stderr
        assert [part for part in parts if part not in done.stdout] == [], done.stdout


def test_the_private_names_of_trl_are_there_at_both_ends_of_the_ranges(project):
    call, _ = project
    words = ["-q", "-p", "no:cacheprovider", ROOT / "tests/integration/trainer/test_trl_names.py"]
    done = call("python", "-m", "pytest", "--rootdir", ROOT, *words)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_the_command_finds_the_recipes_of_the_wheel(project):
    call, folder = project
    done = call("sft-grpo-math")
    assert done.returncode == 0 and "tiny-cpu" in done.stdout
    for words in (
        ("preflight", "RECIPE=tiny-cpu"),
        ("base", "--help"),
        ("data", "RECIPE=tiny-cpu", "RUN=mine"),
    ):
        done = call("sft-grpo-math", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "empty/mine/data/manifest.json").is_file()
    assert call("sft-grpo-math", "trian").returncode == 2


def test_every_module_imports(run):
    done = run("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert {"grading.grade", "stages.trainer.grpo_trainer"} <= {*done.stdout.split()}


def test_the_commands_answer(run):
    done = run("-m", "stages.grpo", "--help")
    assert done.returncode == 0 and "curriculum" in done.stdout, done.stderr
    done = run("-m", "stages.preflight", "--recipe", ROOT / "configs/tiny-cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_whole_chain_beside_files_of_the_user(command):
    """A user's own eval.py and pipeline.py do no harm, and their reward is found."""
    recipe = command.folder / "configs/mine"
    demo.write_recipe(command.folder, NUM_ROWS, SHORT)
    recipe.parent.mkdir()
    (command.folder / "tiny-cpu").rename(recipe)
    for name in ("eval", "pipeline", "stages", "grading"):
        (command.folder / f"{name}.py").write_text("raise SystemExit('a file of the user')")
    (command.folder / "brevity.py").write_text(
        "def few_lines(completions, **columns):\n    return [0.0 for _ in completions]\n"
    )
    reward = ["reward_funcs=correctness_reward,brevity:few_lines", "reward_weights=1,0.5"]
    for words in (
        ["plan"],
        ["doctor"],
        ["preflight"],
        ["data"],
        ["sft"],
        ["grpo", *reward],
        ["eval"],
        ["report"],
    ):
        done = command("sft-grpo-math", *words, "RECIPE=mine")
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        assert "a file of the user" not in done.stdout + done.stderr
    shutil.copytree(command.folder / "runs/mine", command.folder / "runs/again")
    done = command("sft-grpo-math", "compare", "RUNS=runs/mine runs/again")
    assert done.returncode == 0, done.stderr
    assert (command.folder / "runs/mine/report/report.html").is_file()
