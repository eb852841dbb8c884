"""The README's own commands, copied into a clone: from a folder of weights to the report."""

import json
import re
import subprocess
import sys

import pytest

from tests import demo
from tests.e2e.test_user_weights import Project
from tests.files import write_rows

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
README = (demo.ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", README, re.S | re.M))
OWN = SECTIONS["Train your own model"]
ADD = SECTIONS["Add your own data, reward, curriculum or benchmark"]


def blocks(text, language=""):
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)
    return [block for name, block in found if name == language]


@pytest.fixture(scope="module")
def clone(tmp_path_factory, shared_data):
    """Run a line of the README in a clone, with the weights and data of a user without a GPU."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "user").mkdir()
    project = Project(folder / "user", shared_data, "Qwen2")
    weights = project.weights.rename(folder / "weights")
    subprocess.run(["git", "clone", "-q", demo.ROOT, folder / "clone"], check=True)
    (folder / "clone/venv").mkdir()
    (folder / "clone/venv/ready").touch()

    def run(line, **variables):
        line = line.partition("#")[0].replace("/my/weights", str(weights))
        given = {"VENV": "venv", "PY": sys.executable} | variables
        line += "".join(f" {key}='{value}'" for key, value in given.items())
        done = demo.run(["bash", "-c", line], folder / "clone", PYTHONPATH="")
        assert done.returncode == 0, f"{line}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    run.folder, run.data = folder / "clone", project.data
    return run


def test_what_needs_no_gpu_runs_as_written(clone, shared_data):
    preflight, plan, check, install, report = blocks(OWN)[0].splitlines()
    assert "GPU:" in report and "GPU:" in install and "GPU:" not in preflight + plan + check
    assert "grpo memory" in clone(preflight)
    assert "GPU-hours" in clone(plan)
    clone(check, DATA_ROOT=shared_data)


def test_a_model_of_ones_own_gets_to_the_report(clone):
    line = blocks(OWN)[0].splitlines()[-1].partition("#")[0].replace("grpo7b", "tiny-cpu")
    assert line.split() == ["make", "report", "RECIPE=tiny-cpu", "MODEL=/my/weights"]
    clone(line)
    (page,) = (clone.folder / "runs").glob("tiny-cpu-weights-*/report/report.json")
    report = json.loads(page.read_text())
    assert report["base_model"] == "weights" and set(report["checkpoints"]) >= {"base", "grpo"}


def test_data_and_a_reward_are_added_without_an_edit_of_the_package(clone):
    copy = re.search(r"`(cp -r [^`]*)`", ADD)[1]
    subprocess.run(copy.split(), cwd=clone.folder, check=True)
    (example,) = re.findall(r"`(\{[^`]*\})`", ADD)
    columns = [*json.loads(example)]
    rows = [
        dict(zip(columns, (f"What is {n} plus {n}?", str(2 * n)), strict=True)) for n in range(140)
    ]
    write_rows(clone.folder / "problems.jsonl", rows)
    clone("make data RECIPE=mine")
    built = (clone.folder / "runs/mine/data/grpo_train.jsonl").read_text().splitlines()
    assert 30 <= len(built) <= 40  # 100 are kept for the report
    (source,) = blocks(ADD, "python")
    (clone.folder / "brevity.py").write_text(source)
    (name,) = re.findall(r"correctness_reward,(\w+:\w+)", ADD)
    given = f"load_own({name!r}, 'reward_funcs')(completions=[[{{'content': 'a\\nb'}}]])"
    line = f"from pipeline.own_code import load_own; assert {given} == [-0.1]"
    subprocess.run([sys.executable, "-c", line], cwd=clone.folder, check=True)
