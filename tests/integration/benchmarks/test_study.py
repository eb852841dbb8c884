"""The study with a tiny model: two seeds of two steps, killed on the way, and gone on with."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from benchmarks.study_page import ARMS
from data_prep.schema import grpo_row
from data_prep.sources import synthetic
from tests.integration.stages.stage_processes import finish, start, stop_when

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def write_rows(path, **options):
    rows = [grpo_row(problem, "none") for problem in synthetic.load("test", 6, 0, **options)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def command(write_recipe, tmp_path, tiny_model_dir):
    """The words of a study of two seeds and two steps."""
    run, page = tmp_path / "run", tmp_path / "study.md"
    (run / "data").mkdir(parents=True)
    shutil.copytree(tiny_model_dir, run / "sft")
    write_rows(run / "data/test.jsonl", max_level=2)
    write_rows(run / "data/transfer.jsonl", levels=[3])
    write_recipe("sft", save_steps=1)
    recipe = write_recipe("grpo", save_steps=1)
    keys = {
        "checkpoints": ["sft={run}/sft"], "tasks": ["held_out"], "output_dir": "{run}/eval",
        "report_dir": "{run}/report", "test_file": "{run}/data/test.jsonl", "max_new_tokens": 8,
        "transfer_file": "{run}/data/transfer.jsonl",
    }  # fmt: skip
    (tmp_path / "eval.yaml").write_text(json.dumps(keys))
    command = ["-m", "benchmarks.study", "--grpo_config", recipe, "--recipe_run", run]
    command += ["--out", page, "--seeds", 0, 1, "--max_steps", 2, "--num_samples", 2]
    return [*command, "--limit", 10]


def test_a_killed_study_goes_on_and_fills_its_table(command, tmp_path):
    run, page = tmp_path / "run", tmp_path / "study.md"
    first = run / "study/own-0/grpo/manifest.json"
    assert stop_when(start(*command), first.exists, signal.SIGTERM)[0] == 143
    inode = first.stat().st_ino
    finish(start(*command), timeout=600)
    assert first.stat().st_ino == inode
    for arm in ARMS:
        for seed in (0, 1):
            assert (run / f"study/{arm}-{seed}/eval/model/scores.json").is_file()
    rows = json.loads(page.with_suffix(".json").read_text())["figures"]
    assert {*ARMS.values(), "SFT"} < rows.keys()
    for arm in ARMS.values():
        assert all(len(rows[arm][name]) == 2 for name in ("test", "transfer"))
        assert "seconds" in rows[arm]  # of those that were not killed after their last step
    assert os.path.getsize(page.with_suffix(".png")) and "SFT, best of 2" in page.read_text()


def test_each_seed_may_have_its_own_start_and_one_alone_its_controls(command, tmp_path):
    run, page = tmp_path / "run", tmp_path / "study.md"
    keys = ["--own_starts", "true", "--control_seeds", 1]
    finish(start(*command, *keys), timeout=600)
    weights = [(run / f"study/start-{seed}/sft/model.safetensors").read_bytes() for seed in (0, 1)]
    assert weights[0] != weights[1] and not (run / "study/random-0").exists()
    for seed in (0, 1):
        made = json.loads((run / f"study/own-{seed}/grpo/manifest.json").read_text())
        own = Path(made["config"]["model_name_or_path"])
        assert own == (run / f"study/start-{seed}/sft").resolve()
    found = json.loads(page.with_suffix(".json").read_text())
    assert len(found["figures"]["SFT"]["test"]) == 2 == len(found["figures"]["GRPO"]["test"])
    assert len(found["figures"]["SFT continued"]["test"]) == 1
    figures, left = found["figures"], sorted(path.name for path in (run / "study").iterdir())
    assert {f"{arm}-1.json" for arm in ("start", *ARMS)} < {*left}
    for path in (run / "study").glob("*-*/*/"):  # as on another machine: the records alone
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path)
    finish(start(*command, *keys), timeout=60)
    assert json.loads(page.with_suffix(".json").read_text())["figures"] == figures
