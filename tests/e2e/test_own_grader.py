"""Golds that are no mathematics, from data to report, by a grader of the user's own."""

import json
import os

import pytest
import yaml

from pipeline.manifest import sha256
from tests import demo
from tests.files import read_rows
from tests.own_graders import write_task

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SETS = {
    "sft": range(200), "grpo": range(200, 240), "validation": range(240, 256),
    "test": range(256, 270),
}  # fmt: skip
LONG = {"max_new_tokens": 120}


@pytest.mark.parametrize("kind", ["json", "code"])
def test_a_task_of_another_kind_from_data_to_report(tmp_path, monkeypatch, kind):
    name = f"{kind}_grader:is_correct"
    changes = {stage: dict(values) for stage, values in demo.SHORT.items()}
    changes["data"] = write_task(tmp_path, kind, **SETS)
    changes["data"] |= {"transfer": None, "grader": name, "answer_form": "tags"}
    changes["difficulty"] |= LONG
    changes["grpo"] |= {"max_completion_length": 120}
    changes["eval"] |= LONG | {"tasks": ["held_out"], "transfer_file": None}
    demo.write_recipe(tmp_path, {}, changes)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(demo.ROOT)]))
    monkeypatch.delenv("ALLOW_CODE", raising=False)
    refused = demo.pipeline(tmp_path, "report")
    assert refused.returncode == 2 and "ALLOW_CODE=1" in refused.stderr

    monkeypatch.setenv("ALLOW_CODE", "1")
    done = demo.pipeline(tmp_path, "report")
    assert done.returncode == 0, done.stdout + done.stderr
    run, file = tmp_path / "run", tmp_path / f"{kind}_grader.py"
    for key, numbers in SETS.items():
        file_name = f"{key}_train.jsonl" if key in ("sft", "grpo") else f"{key}.jsonl"
        rows = read_rows(run / "data" / file_name)
        assert len(rows) == len(numbers) and {row["own_grader"] for row in rows} == {name}
    for stage in ("data", "difficulty", "audit", "grpo", "eval"):
        inputs = json.loads((run / stage / "manifest.json").read_text())["inputs"]
        assert inputs[str(file)] == sha256(file), stage
    audit = json.loads((run / "audit/audit.json").read_text())
    assert audit["passes"] and set(audit["sets"]) >= {"grpo_train", "held_out"}
    assert any("do not apply" in note and "gold = gold" in note for note in audit["notes"])
    assert (run / "report/report.html").is_file()
    assert "nothing to do" in demo.pipeline(tmp_path, "demo").stdout

    # A changed grader makes all of that stale; a stage alone refuses data of the former one.
    file.write_text(file.read_text() + "# changed\n")
    planned = demo.pipeline(tmp_path, "report", "--dry-run").stdout
    modules = {line.split()[2] for line in planned.splitlines()}
    assert {"data_prep.builder", "stages.difficulty", "stages.grpo", "eval.run"} <= modules
    config = yaml.safe_load((tmp_path / "tiny-cpu/grpo.yaml").read_text())
    assert config["reward_funcs"][0] == "correctness_reward"
    for stage in ("stages.difficulty", "stages.grpo", "eval.run"):
        recipe = tmp_path / f"tiny-cpu/{stage.partition('.')[2].replace('run', 'eval')}.yaml"
        flags = ["-m", stage, "--config", str(recipe), "--run_dir", str(run)]
        done = demo.run([demo.sys.executable, *flags])
        assert done.returncode == 2 and "make data" in done.stderr, done.stderr
        assert done.stderr.strip().count("\n") == 0 and file.name in done.stderr
