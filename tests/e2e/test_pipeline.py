"""The demo recipe, shortened, through make: all of it, then nothing, then only what changed."""

import json
import os
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from tensorboard.backend.event_processing.io_wrapper import GetLogdirSubdirectories

from pipeline.manifest import sha256
from tests import demo
from tests.files import read_rows

pytestmark = pytest.mark.e2e
STAGES = ["data", "base", "sft", "difficulty", "grpo", "eval", "report"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    demo.write_recipe(folder, demo.NUM_ROWS, demo.SHORT)
    return folder


def make(project, *goals):
    """Run make; returns what it printed."""
    done = demo.make(project, *goals)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def first_output(project):
    """What the first `make demo` printed; every test looks at the run it left."""
    return make(project, "demo")


@pytest.fixture(scope="module")
def run(project, first_output):
    return project / "run"


def read_manifests(run):
    return {stage: json.loads((run / stage / "manifest.json").read_text()) for stage in STAGES}


def state_of(folder):
    """Size, time and inode of every file below a folder."""
    files = {str(path): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns, stat.st_ino) for path, stat in files.items()}


def test_cards_have_commands_and_the_scores_of_the_report(run):
    report = json.loads((run / "report/report.json").read_text())
    for name in ("sft", "grpo"):
        card = ModelCard.load(run / name / "README.md")
        modes = report["scores"][name].values()
        scores = [one for task in modes for one in task.values()]
        shown = [round(100 * one["metrics"][one["main"]]["value"], 2) for one in scores]
        assert [one.metric_value for one in card.data.eval_results] == shown
        assert f"python -m stages.{name} --config" in card.text
    assert not (run / "base/README.md").exists()


def test_every_stage_leaves_a_manifest_and_the_counts_add_up(run, first_output):
    found = read_manifests(run)
    assert [found[stage]["stage"] for stage in STAGES] == STAGES
    data = found["data"]
    rows = {name: output["rows_out"] for name, output in data["outputs"].items()}
    for one in (data, *data["outputs"].values(), found["sft"], found["grpo"]):
        assert one["rows_in"] == one["rows_out"] + sum(one["dropped"].values())
    assert data["rows_in"] == sum(demo.NUM_ROWS.values())
    assert rows == {name: len(read_rows(run / "data" / name)) for name in rows}
    for stage, steps in (("sft", 20), ("grpo", 2)):
        assert found[stage]["rows_in"] == rows[f"{stage}_train.jsonl"] > 0
        assert found[stage]["counts"]["steps"] == steps
    assert found["grpo"]["counts"]["completions"] == 2 * 16
    measured = found["difficulty"]["counts"]
    assert measured["problems"] == rows["grpo_train.jsonl"]
    assert sum(measured["num_right_histogram"].values()) == measured["problems"]
    tests = rows["test.jsonl"] + rows["transfer.jsonl"]
    counted = {key: found["eval"]["counts"][key] for key in ("problems", "completions")}
    assert counted == {"problems": tests, "completions": tests * (1 + 2)}
    audit = json.loads((run / "audit/audit.json").read_text())
    sets = {"sft_train", "grpo_train", "grpo_eval", "held_out", "transfer"}
    assert audit["passes"] and set(audit["sets"]) == sets
    assert all(f"\n{stage}: " in "\n" + first_output for stage in STAGES[:-1])
    assert first_output.index("audit: ") < first_output.index("\ngrpo: ")


def test_each_stage_read_what_the_one_before_wrote(run):
    for stage, value in read_manifests(run).items():
        for path, digest in value["inputs"].items():
            if stage != "eval" or path.endswith(".jsonl"):  # a checkpoint's own fingerprint there
                assert Path(path).is_relative_to(run) and sha256(path) == digest, (stage, path)


def test_tensorboard_shows_each_run_once(run):
    """Where no recipe names a tracker."""
    found = [*GetLogdirSubdirectories(str(run))]
    assert sorted(Path(one).name.partition("-")[0] for one in found) == ["grpo", "sft"]


def test_again_does_nothing(project, run):
    before = state_of(run)
    recipe = project / "tiny-cpu/grpo.yaml"
    os.utime(recipe)
    out = make(project, "demo")
    assert out.count("\n") == 1 and "nothing to do" in out
    assert state_of(run) == before


@pytest.mark.slow
def test_again_does_only_what_a_change_calls_for(project, run):
    """The front door's scenarios have the same rule, without the stages."""
    before, recipe = state_of(run), project / "tiny-cpu/grpo.yaml"
    recipe.write_text(f"{recipe.read_text()}\nadam_beta1: 0.9\n")  # as it is without
    planned = demo.pipeline(project, "demo", "--dry-run").stdout
    modules = ["eval.audit", "stages.grpo", "eval.run", "eval.report"]  # two are looked at again
    assert [line.split()[2] for line in planned.splitlines()] == modules
    assert state_of(run) == before

    out = make(project, "demo")
    assert "grpo: up to date in " in out
    after = state_of(run)
    changed = {path for path in after if before.get(path) != after[path]}
    # An audit for every change of the recipe; the manifest notes the recipe's hashes of now.
    grpo = (run / "grpo").resolve()
    assert {path for path in changed if "/audit/" not in path} == {f"{grpo}/manifest.json"}
    assert "nothing to do" in make(project, "demo")


@pytest.mark.slow
def test_six_faults_lose_nothing():
    """`make chaos`, with a seed whose faults hit four stages that are half done.

    They are SIGKILL, a second start, another configuration, a deleted and a truncated file, and an
    error of the system. A kill may come too late for a stage that ends early.
    """
    command = [sys.executable, "-m", "tests.chaos", "--seed", "5191", "--faults", "6"]
    done = demo.run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" (half") >= 2, done.stdout
