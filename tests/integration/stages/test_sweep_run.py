"""A sweep with the tiny model: in this process, and killed and started again."""

import importlib
import json
import shutil
import signal
import subprocess
import sys

import pytest

from stages import sweep
from tests.integration.stages.stage_processes import finish, start, stop_when
from tests.integration.trainer.runs import whole_checkpoints

pytestmark = pytest.mark.integration


def test_a_published_score_is_beside_each_of_ours(write_recipe, tmp_path, monkeypatch):
    """The runs start in this process, which takes a second instead of ten."""

    def run_here(_, command, *__, **___):
        sys.argv[:] = command[2:]
        importlib.import_module(command[2]).main()
        return 0

    monkeypatch.setattr(sweep.Runner, "run", run_here)
    folder = tmp_path / "perplexity-gsm8k"
    folder.mkdir()
    validation = {"eval_strategy": "steps", "eval_steps": 1, "eval_problems": 2}
    validation |= {"num_generations_eval": 2, "per_device_eval_batch_size": 4}
    shutil.move(write_recipe("grpo", max_steps=1, **validation), folder / "grpo.yaml")
    flags = ["--grpo_config", f"{folder}/grpo.yaml", "--run", f"{tmp_path}/run"]
    monkeypatch.setattr(sys, "argv", ["sweep", *flags, "--sweep", "temperature=0.7,1"])
    sweep.main()
    page = (tmp_path / "run/sweep/table.md").read_text()
    header, _, *lines = [line.strip("| ").split(" | ") for line in page.splitlines() if "|" in line]
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    assert all(0 <= float(row["avg@k"]) <= 1 and row["ended"] == "finished 1" for row in rows)
    scores = {row["runs"]: row["published"] for row in rows}
    assert scores == {"temperature=0.7": "0.502", "temperature=1": "0.452"}


@pytest.mark.slow
def test_side_by_side_is_the_same_as_one_after_the_other(write_recipe, tmp_path):
    """Two SFT runs and four of GRPO; killed while two run, and started again."""
    write_recipe("sft", max_steps=2)
    config = write_recipe("grpo", max_steps=8, save_steps=1)
    varied = ["--sweep", "sft.learning_rate=1e-3,1e-4", "beta=0.1,0"]

    def command(run, parallel):
        keys = ["--grpo_config", config, "--run", tmp_path / run, "--parallel", parallel]
        return ["-m", "stages.sweep", *keys, *varied]

    finish(start(*command("one", 1)), timeout=600)
    root = tmp_path / "two/sweep"
    process = start(*command("two", 2))

    def has_two():
        return sum(bool(whole_checkpoints(folder)) for folder in root.glob("*beta*/grpo")) >= 2

    assert stop_when(process, has_two, signal.SIGTERM)[0] == 143
    assert subprocess.run(["pgrep", "-f", root]).returncode == 1  # all have ended with the sweep
    out = finish(start(*command("two", 2)), timeout=600)
    assert "started, its output goes to" in out
    one, two = (
        json.loads((tmp_path / run / "sweep/table.json").read_text()) for run in ("one", "two")
    )
    assert len(one) == 4 and one == two
    for row in one:
        name = f"sweep/{row['run']}/grpo/model.safetensors"
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
