"""`make grpo` and `make eval` start after a passing audit only; real make, a copied recipe."""

import json

import pytest
import yaml

from pipeline import manifest
from pipeline.freshness import settings_of
from pipeline.stages import STAGES
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

    def pending(self, goal, **variables):
        """The stages up to a goal that are not up to date, and those after the first of them."""
        done = demo.pipeline(self.folder, goal, "--list", **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[1:]

    def planned(self, *words, **variables):
        """The command lines of a run that has nothing yet."""
        return demo.pipeline(self.folder, *words, "--dry-run", RUN="none", **variables).stdout

    def edit(self, stage, **values):
        """Change keys of a recipe's YAML."""
        path = self.folder / "tiny-cpu" / f"{stage}.yaml"
        config = yaml.safe_load(path.read_text(encoding="utf-8")) | values
        path.write_text(yaml.safe_dump(config), encoding="utf-8")

    def pretend(self, *stages):
        """Write the manifests of stages that would take long, in order."""
        for stage in stages:
            config = f"{self.folder}/tiny-cpu/{stage}.yaml"
            made = {"stage": stage, "inputs": {}}
            if stage != "audit":
                words = [STAGES[stage].module, "--config", config, "--run_dir", str(self.run)]
                settings = settings_of(stage, words)
                made["request"] = manifest.as_request(settings, settings.typed)
            (self.run / stage).mkdir(exist_ok=True)
            (self.run / stage / "manifest.json").write_text(json.dumps(made))

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
    project.edit("grpo", adam_beta1=0.95)
    for goal in ("grpo", "eval"):
        done = project.make(goal)
        assert done.returncode != 0 and "held_out: task passes 0.0 %" in done.stderr
        assert "AUDIT=off" in done.stderr and "Traceback" not in done.stderr
        assert "failed: held_out, row " in done.stdout and "cut off at 16 tokens" in done.stdout
        assert not project.manifest.exists() and (project.run / "audit/audit.txt").is_file()
        assert not (project.run / "eval").exists()
    assert project.pending("grpo") == ["audit", "grpo"]
    assert project.pending("grpo", AUDIT="off") == ["grpo"]
    assert project.pending("eval", AUDIT="off") == ["grpo", "eval"]


def test_a_passing_audit_is_kept_until_a_yaml_changes_and_trains_nothing_again(project):
    project.pretend("sft", "difficulty")
    done = project.make("audit")
    assert done.returncode == 0 and "audit: " in done.stdout
    first = json.loads(project.manifest.read_text())
    assert first["stage"] == "audit" and first["counts"]["held_out"] == NUM_ROWS["test"]

    assert project.pending("grpo") == ["grpo"]
    project.pretend("grpo")
    assert project.pending("grpo") == []
    assert project.pending("eval") == ["eval"]

    project.edit("eval", temperature=0.9)
    assert project.pending("eval") == ["audit", "grpo", "eval"]
    assert project.make("audit").returncode == 0
    assert project.pending("grpo") == [], "audited again, but not trained again"

    project.edit("grpo", adam_beta1=0.96)
    assert project.pending("grpo") == ["audit", "grpo"]


def test_completions_need_no_data_and_open_no_gate(project, tmp_path, monkeypatch):
    path = tmp_path / "outputs.jsonl"
    write_rows(path, [{"completion": "<think>a</think>\\boxed{72}", "gold": "72"}])
    done = project.make("audit", COMPLETIONS=path, RUN=tmp_path / "run")
    assert done.returncode == 0 and f"1 completions of {path}\n" in done.stdout
    assert (tmp_path / "run/audit/outputs.jsonl.parsed.jsonl").is_file()
    assert not project.manifest.exists()
    monkeypatch.setattr(demo, "OUTER", ())
    monkeypatch.setenv("COMPLETIONS", str(path))
    planned = project.planned("grpo")
    assert "-m eval.audit" in planned and "--completions" not in planned
