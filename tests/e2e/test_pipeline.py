"""The demo recipe, shortened, through make: all of it, then nothing, then only what changed."""

import json
import os
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from tensorboard.backend.event_processing.io_wrapper import GetLogdirSubdirectories

from data_prep.decontamination.text import normalise_question
from pipeline.manifest import sha256
from tests import demo
from tests.files import read_rows

pytestmark = pytest.mark.e2e
STAGES = ["data", "base", "sft", "difficulty", "grpo", "eval", "report"]
NUM_ROWS = {"sft": 400, "grpo": 40, "validation": 20, "test": 20, "transfer": 20}
# What makes the recipe short; None leaves out what would fight with the shortened numbers.
SHORT = {
    "model": {"hidden_size": 64, "num_layers": 2, "intermediate_size": 128},
    "sft": {"max_steps": 20, "save_steps": 10, "logging_steps": 5, "num_train_epochs": None},
    "difficulty": {"num_samples": 2, "max_new_tokens": 40},
    "grpo": {
        "min_pass_rate": 0.0, "max_pass_rate": 1.0, "num_generations": 4, "max_steps": 2,
        "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1,
        "max_completion_length": 40, "save_steps": 1, "eval_problems": 8,
        "steps_per_generation": None, "generation_batch_size": None,
    },
    "eval": {"num_samples": 2, "max_new_tokens": 40},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    demo.write_recipe(folder, NUM_ROWS, SHORT)
    return folder


@pytest.fixture(scope="module")
def make(folder):
    """Run make with the recipe and run folder of this test; returns what it printed."""

    def call(*goals, **variables):
        done = demo.make(folder, *goals, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    return call


@pytest.fixture(scope="module")
def first_output(make):
    """What the first `make demo` printed; every test looks at the run it left."""
    return make("demo")


@pytest.fixture(scope="module")
def run(folder, first_output):
    return folder / "run"


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
    for totals in (data, *data["outputs"].values()):
        assert totals["rows_in"] == totals["rows_out"] + sum(totals["dropped"].values())
    for name, output in data["outputs"].items():
        assert len(read_rows(run / "data" / name)) == output["rows_out"] > 0
    assert data["rows_in"] == sum(NUM_ROWS.values())

    rows = {name: output["rows_out"] for name, output in data["outputs"].items()}
    assert found["sft"]["rows_in"] == rows["sft_train.jsonl"]
    assert found["grpo"]["rows_in"] == rows["grpo_train.jsonl"]
    for stage in ("sft", "grpo"):
        lost = sum(found[stage]["dropped"].values())
        assert found[stage]["rows_in"] == found[stage]["rows_out"] + lost
    assert found["sft"]["counts"]["steps"] == 20 and found["grpo"]["counts"]["steps"] == 2
    assert found["grpo"]["counts"]["completions"] == 2 * 16
    measured = found["difficulty"]["counts"]
    assert measured["problems"] == rows["grpo_train.jsonl"]
    assert sum(measured["num_right_histogram"].values()) == measured["problems"]
    tests = rows["test.jsonl"] + rows["transfer.jsonl"]
    assert found["eval"]["counts"]["problems"] == tests
    assert found["eval"]["counts"]["completions"] == tests * (1 + 2)
    assert all(f"\n{stage}: " in "\n" + first_output for stage in STAGES[:-1])


def test_each_stage_read_what_the_one_before_wrote(run):
    for stage, value in read_manifests(run).items():
        for path, digest in value["inputs"].items():
            if stage != "eval" or path.endswith(".jsonl"):  # a checkpoint's own fingerprint there
                assert Path(path).is_relative_to(run) and sha256(path) == digest, (stage, path)


def test_the_recipe_was_audited_before_grpo(run, first_output):
    audit = json.loads((run / "audit/audit.json").read_text())
    assert audit["passes"] and set(audit["sets"]) == {
        "sft_train", "grpo_train", "grpo_eval", "held_out", "transfer",
    }  # fmt: skip
    assert first_output.index("audit: ") < first_output.index("\ngrpo: ")


def test_tensorboard_is_on_by_default(run):
    for stage in ("sft", "grpo"):
        recipe = (demo.ROOT / f"configs/tiny-cpu/{stage}.yaml").read_text()
        assert "report_to" not in yaml.safe_load(recipe)
    found = [*GetLogdirSubdirectories(str(run))]  # as it shows them: each run once
    assert sorted(Path(one).name.partition("-")[0] for one in found) == ["grpo", "sft"]


def test_no_evaluation_question_was_trained_on(run):
    def questions(name):
        return {normalise_question(row["question"]) for row in read_rows(run / "data" / name)}

    tests = ("test", "validation", "transfer")
    held_out = set().union(*(questions(f"{name}.jsonl") for name in tests))
    assert len(held_out) == sum(NUM_ROWS[name] for name in tests)
    assert not held_out & (questions("sft_train.jsonl") | questions("grpo_train.jsonl"))
    for row in read_rows(run / "data/sft_train.jsonl"):  # nor hidden in what the model saw
        assert normalise_question(row["prompt"][-1]["content"]) not in held_out


def test_again_does_nothing_then_only_what_a_change_calls_for(make, folder, run):
    before = state_of(run)
    recipe = folder / "tiny-cpu/grpo.yaml"
    os.utime(recipe)
    out = make("demo")
    assert out.count("\n") == 1 and "nothing to do" in out
    assert state_of(run) == before

    recipe.write_text(f"{recipe.read_text()}\nadam_beta1: 0.9\n")  # as it is without
    planned = demo.pipeline(folder, "demo", "--dry-run").stdout
    modules = ["eval.audit", "stages.grpo", "eval.run", "eval.report"]  # two are looked at again
    assert [line.split()[2] for line in planned.splitlines()] == modules
    assert state_of(run) == before

    out = make("demo")
    assert "grpo: up to date in " in out
    after = state_of(run)
    changed = {path for path in after if before.get(path) != after[path]}
    # An audit for every change of the recipe; the manifest notes the recipe's hashes of now.
    grpo = (run / "grpo").resolve()
    assert {path for path in changed if "/audit/" not in path} == {f"{grpo}/manifest.json"}
    assert "nothing to do" in make("demo")


def test_help_lists_every_target(make):
    out = make("help")
    assert all(f"make {target} " in out for target in ["demo", *STAGES[:-1], "audit", "preflight"])


def test_a_key_goes_to_the_stage_that_is_named_and_to_no_other(make, folder):
    words = ["grpo", "learning_rate=1e-4", "--dry-run"]
    planned = demo.pipeline(folder, *words, RUN=f"{folder}/none").stdout.splitlines()
    stages = [line for line in planned if "--config" in line]
    assert len(stages) == 5  # data, base, sft, difficulty, grpo
    assert [" --learning_rate 1e-4" in line for line in stages] == [False] * 4 + [True]
    with pytest.raises(AssertionError, match="with demo a key needs its stage"):
        make("demo", "learning_rate=1e-4")
