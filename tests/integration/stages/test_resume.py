"""SFT interrupted at the terminal: no manifest, and the same command goes on where it stopped."""

import json
import signal

import pytest

from pipeline import manifest
from tests.integration.stages.stage_processes import finish, start, steps_on_disk, stop_when

pytestmark = pytest.mark.integration


def read_losses(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {log["step"]: log["loss"] for log in history if "loss" in log}


def test_sft_interrupted_then_finished(write_recipe, run_stage, tmp_path):
    settings = {"max_steps": 40, "save_steps": 4, "save_total_limit": 2}
    command = ["-m", "stages.sft", "--config", write_recipe("sft", **settings)]
    folder = tmp_path / "sft"
    code, _, err = stop_when(start(*command), lambda: steps_on_disk(folder), signal.SIGINT)
    assert code == 130 and "interrupted" in err and "Traceback" not in err
    assert manifest.read(folder) is None
    reached = steps_on_disk(folder)[-1]
    assert reached < 40

    out = finish(start(*command))
    assert f"resuming from {folder}/checkpoint-{reached}\n" in out
    made = manifest.read(folder)
    assert made["counts"]["steps"] == 40 and made["resumed"]
    assert not folder.with_name("sft.previous").exists()
    straight = run_stage("sft", **settings, output_dir=str(tmp_path / "straight"))
    assert not manifest.read(straight)["resumed"]
    losses, expected = read_losses(folder), read_losses(straight)
    assert sorted(losses) == list(range(1, 41))
    assert losses == pytest.approx(expected, rel=1e-3)
    assert expected[40] < expected[1]
