"""SFT interrupted at the terminal: no manifest, and the same command goes on where it stopped."""

import json
import signal

import pytest

from pipeline import manifest
from pipeline.errors import UserError
from tests.integration.stages.stage_processes import finish, start, steps_on_disk, stop_when

pytestmark = pytest.mark.integration
# `stages.sft` that waits after its checkpoint of step 8: no slow machine lets it end before it
# is interrupted.
WAITING = """
import signal
import stages.sft
from transformers import Trainer

save = Trainer._save_checkpoint

def save_and_wait(trainer, *args, **options):
    save(trainer, *args, **options)
    if trainer.state.global_step == 8:
        signal.pause()

Trainer._save_checkpoint = save_and_wait
stages.sft.run_cli(stages.sft.in_launch(stages.sft.main))
"""


def read_losses(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {log["step"]: log["loss"] for log in history if "loss" in log}


def test_sft_interrupted_then_finished(write_recipe, run_stage, tmp_path):
    settings = {"max_steps": 40, "save_steps": 4, "save_total_limit": 2}
    config = ["--config", write_recipe("sft", **settings)]
    folder = tmp_path / "sft"
    process = start("-c", WAITING, *config)
    code, _, err = stop_when(process, lambda: steps_on_disk(folder), signal.SIGINT)
    assert code == 130 and "interrupted" in err and "Traceback" not in err
    assert manifest.read(folder) is None
    reached = steps_on_disk(folder)[-1]
    assert reached < 40

    out = finish(start("-m", "stages.sft", *config))
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


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_max_hours_end_a_run_with_a_checkpoint(run_stage, tmp_path, monkeypatch, stage):
    settings = {"max_steps": 3, "save_steps": 100, "output_dir": str(tmp_path / "run")}
    monkeypatch.setenv("STOP_AT", "1")  # in 1970
    with pytest.raises(UserError, match=r"MAX_HOURS: over at step 1 of 3, which is saved in .*run"):
        run_stage(stage, **settings)
    assert steps_on_disk(tmp_path / "run") == [1] and manifest.read(tmp_path / "run") is None
    monkeypatch.delenv("STOP_AT")
    folder = run_stage(stage, **settings)
    made = manifest.read(folder)
    assert made["counts"]["steps"] == 3 and made["resumed"]
    straight = run_stage(stage, **settings | {"output_dir": str(tmp_path / "straight")})
    assert (folder / "model.safetensors").read_bytes() == (
        straight / "model.safetensors"
    ).read_bytes()
