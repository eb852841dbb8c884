"""A run of an earlier version (see recorded_run/README.md) is read and resumed."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from pipeline import manifest
from tests.integration.trainer.runs import whole_checkpoints

pytestmark = pytest.mark.integration
RECORDED = Path(__file__).with_name("recorded_run")


@pytest.fixture
def folder(tmp_path):
    """A copy of the recorded run, with a tokenizer in each folder of a model."""
    copy = shutil.copytree(RECORDED, tmp_path / "recorded")
    for path in copy.rglob("tokenizer_config.json"):
        if path.parent.name != "base":
            shutil.copy(copy / "run/base/tokenizer.json", path.parent)
    return copy


@pytest.fixture
def run_recorded(folder, fork_server):
    """Run a stage of the recorded recipe with some keys changed; returns its lines."""

    def call(stage, **changes):
        text = (folder / f"tiny-cpu/{stage}.yaml").read_text().replace("{run}", "run")
        recipe = folder / f"{stage}.yaml"
        recipe.write_text(yaml.safe_dump(yaml.safe_load(text) | changes))
        module = {"model": "tiny_model"}.get(stage, stage)
        (lines,) = fork_server.finish(recipe, stage=module, setup=(os.chdir, str(folder)))
        return lines

    return call


def digests(folder):
    """The hash of each file below a folder, by its name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(("stage", "name"), [("model", "base"), ("sft", "sft"), ("grpo", "grpo")])
def test_a_finished_stage_is_up_to_date(folder, run_recorded, stage, name):
    made = manifest.read(folder / "run" / name)
    before = digests(folder / "run" / name)
    lines = run_recorded(stage)
    assert [line for line in lines if f"{name}: up to date in run/{name} " in line] == lines
    after = digests(folder / "run" / name)
    if stage == "model":
        now = manifest.read(folder / "run" / name)  # it notes what is written, and no more
        assert now.pop("request") and now == made
        after[manifest.NAME] = before[manifest.NAME]
    assert after == before


@pytest.mark.parametrize(("stage", "step", "last"), [("sft", 2, 4), ("grpo", 1, 3)])
def test_an_unfinished_stage_resumes(folder, run_recorded, stage, step, last):
    place = folder / "unfinished" / stage
    work = place.rename(place.with_name(f"{stage}-0a1b2c"))  # as this version names it
    assert whole_checkpoints(work) == [step]
    state = json.loads((work / f"checkpoint-{step}/trainer_state.json").read_text())
    lines = run_recorded(stage, output_dir=f"unfinished/{stage}")
    assert f"resuming from unfinished/{work.name}/checkpoint-{step}" in lines
    assert manifest.read(place)["counts"]["steps"] == last
    resumed = json.loads((work / "trainer_state.json").read_text())
    assert resumed["log_history"][: len(state["log_history"])] == state["log_history"]
