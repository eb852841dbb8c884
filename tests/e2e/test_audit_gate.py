"""`make grpo` and `make eval` start after a passing audit only; real make, a copied recipe."""

import json
import time
from itertools import pairwise

import pytest
import yaml

from tests import demo
from tests.files import write_rows

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NUM_ROWS = {"sft": 200, "grpo": 20, "validation": 10, "test": 10, "transfer": 10}


class Project:
    """A recipe whose data, base and difficulty are built, and whose SFT is said to be."""

    def __init__(self, folder):
        self.folder, self.run = folder, folder / "run"
        demo.write_recipe(folder, NUM_ROWS, {})

    def make(self, *goals, **variables):
        return demo.make(self.folder, *goals, **variables)

    def modules(self, *goals):
        """The modules that `make -n` would run."""
        done = self.make("-n", *goals)
        assert done.returncode == 0, done.stderr
        words = done.stdout.split()
        return [word for before, word in pairwise(words) if before == "-m"]

    def edit(self, stage, **values):
        """Change keys of a recipe's YAML, which makes it newer than everything built."""
        path = self.folder / "tiny-cpu" / f"{stage}.yaml"
        config = yaml.safe_load(path.read_text(encoding="utf-8")) | values
        time.sleep(0.01)
        path.write_text(yaml.safe_dump(config), encoding="utf-8")

    def pretend(self, *stages):
        """Write the manifests of stages that would take long, in order."""
        for stage in stages:
            time.sleep(0.01)
            (self.run / stage).mkdir(exist_ok=True)
            (self.run / stage / "manifest.json").write_text("{}")

    @property
    def manifest(self):
        return self.run / "audit/manifest.json"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("gate"))
    done = project.make("base")
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def project(built):
    """The project as built, with the shipped limits."""
    yield built
    built.edit("eval", max_new_tokens=96)
    built.manifest.unlink(missing_ok=True)
    for stage in ("sft", "difficulty", "grpo"):
        (built.run / stage / "manifest.json").unlink(missing_ok=True)


def test_a_failing_audit_refuses_grpo_and_eval_and_off_goes_past_it(project):
    project.pretend("audit", "sft", "difficulty", "grpo")  # an earlier one, which had passed
    project.edit("eval", max_new_tokens=16)
    project.edit("grpo")  # so that make has something to do for both goals
    for goal in ("grpo", "eval"):
        done = project.make(goal)
        assert done.returncode != 0 and "held_out: task passes 0.0 %" in done.stderr
        assert "AUDIT=off" in done.stderr and "Traceback" not in done.stderr
        assert "failed: held_out, row " in done.stdout and "cut off at 16 tokens" in done.stdout
        assert not project.manifest.exists() and (project.run / "audit/audit.txt").is_file()
        assert not (project.run / "eval").exists()
    assert project.modules("grpo") == ["eval.audit", "stages.grpo"]
    assert project.modules("grpo", "AUDIT=off") == ["stages.grpo"]
    assert project.modules("eval", "AUDIT=off") == ["stages.grpo", "eval.run"]


def test_a_passing_audit_is_kept_until_a_yaml_changes_and_trains_nothing_again(project):
    project.pretend("sft", "difficulty")
    done = project.make("audit")
    assert done.returncode == 0 and "audit: " in done.stdout
    first = json.loads(project.manifest.read_text())
    assert first["stage"] == "audit" and first["counts"]["held_out"] == NUM_ROWS["test"]

    assert project.modules("grpo") == ["stages.grpo"]
    project.pretend("grpo")
    assert project.modules("grpo") == []
    assert project.modules("eval") == ["eval.run"]

    project.edit("eval", temperature=0.9)
    assert project.modules("grpo") == ["eval.audit"], "audited anew, but not trained anew"
    assert project.modules("eval") == ["eval.audit", "eval.run"]
    assert project.make(str(project.manifest)).returncode == 0
    assert project.modules("grpo") == []

    project.edit("grpo")
    assert project.modules("grpo") == ["eval.audit", "stages.grpo"]


def test_completions_need_no_data_and_no_run(project, tmp_path):
    path = tmp_path / "outputs.jsonl"
    rows = [
        {"completion": "<think>a</think>\\boxed{72}", "gold": "72"},
        {"completion": "It is 72.", "gold": 72},
    ]
    write_rows(path, rows)
    done = project.make("audit", COMPLETIONS=path, RUN=tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert f"2 completions of {path}\n" in done.stdout
    assert (tmp_path / "run/audit/outputs.jsonl.parsed.jsonl").is_file()
    assert not project.manifest.exists()
    done = project.make("audit", COMPLETIONS=tmp_path / "none.jsonl")
    assert done.returncode != 0 and "none.jsonl does not exist; check the path" in done.stderr


def test_neither_completions_nor_less_than_the_recipe_open_the_gate(project):
    planned = project.make("-n", "-B", "grpo", COMPLETIONS="outputs.jsonl").stdout
    assert "-m eval.audit" in planned and "--completions" not in planned
    planned = project.make("-n", "-B", "audit", "ARGS=--limit 1").stdout
    assert "--opens_gate false --limit 1" in planned
    assert "--opens_gate" not in project.make("-n", "-B", "audit").stdout
