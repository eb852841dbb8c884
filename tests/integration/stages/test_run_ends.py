"""How a run ends before its last step: NaN, too little memory, MAX_HOURS; and what is resumed.

What makes two runs differ, by which those that were stopped are compared with others, is here too.
"""

import importlib
import json
import shutil

import pytest
import torch

from pipeline import manifest
from pipeline.errors import OutOfMemoryError, UserError
from tests.integration.trainer.runs import whole_checkpoints
from tests.results import differences, left_in

pytestmark = pytest.mark.integration
TINY = {"gradient_accumulation_steps": 2, "max_steps": 4, "save_steps": 1}


@pytest.fixture
def at_step_3(monkeypatch):
    """Let a function change the loss of a stage's third step."""

    def call(stage, change):
        module, name = {
            "sft": ("stages.run.saving", "SavedSFTTrainer"),
            "grpo": ("stages.trainer.grpo_trainer", "MathGRPOTrainer"),
        }[stage]
        trainer = getattr(importlib.import_module(module), name)
        compute = trainer.compute_loss

        def compute_loss(self, model, *args, **kwargs):
            loss = compute(self, model, *args, **kwargs)
            return change(loss, model) if self.state.global_step == 2 else loss

        monkeypatch.setattr(trainer, "compute_loss", compute_loss)

    return call


FAULTS = {
    "loss": lambda loss, _: loss + torch.nan,  # its gradient is finite
    "gradient": lambda loss, model: loss + 0 * sum(p.sum() for p in model.parameters()) / 0,
}


@pytest.mark.parametrize(("stage", "fault"), [("sft", "gradient"), ("grpo", "loss")])
def test_a_run_ends_at_the_step_and_keeps_its_last_checkpoint(
    stage, fault, run_stage, tmp_path, at_step_3
):
    at_step_3(stage, FAULTS[fault])
    with pytest.raises(UserError, match=r": stopped at step 3: the \w+ .*checkpoint-2$"):
        run_stage(stage, **TINY)
    assert whole_checkpoints(tmp_path / stage) == [1, 2]
    assert not (tmp_path / stage / manifest.NAME).exists()


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_step_for_which_memory_is_not_enough(stage, run_stage, tmp_path, at_step_3):
    """A real error of torch: step, what to lower, checkpoint; a smaller batch resumes from it."""
    at_step_3(stage, lambda *_: torch.empty(2**50))
    with pytest.raises(OutOfMemoryError) as error:
        run_stage(stage, **TINY)
    line = str(error.value)
    assert " at step 3 (" in line and "checkpoint-2 is whole" in line
    assert "gradient_checkpointing: true" in line and "per_device_train_batch_size" in line
    assert error.value.exit_code == 71
    assert whole_checkpoints(tmp_path / stage) == [1, 2]


@pytest.mark.parametrize(("stage", "rate"), [("sft", 1e20), ("grpo", 3e38)])
def test_so_does_a_learning_rate_without_sense(stage, rate, run_stage):
    with pytest.raises(UserError, match=r": stopped at step [12]: the .* lower learning_rate"):
        run_stage(stage, **TINY, learning_rate=rate)


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_max_hours_end_a_run_with_a_checkpoint(run_stage, tmp_path, monkeypatch, stage):
    settings = {"max_steps": 3, "save_steps": 100, "output_dir": str(tmp_path / "run")}
    monkeypatch.setenv("STOP_AT", "1")  # in 1970
    with pytest.raises(UserError, match=r"MAX_HOURS: over at step 1 of 3, which is saved in .*run"):
        run_stage(stage, **settings)
    assert whole_checkpoints(tmp_path / "run") == [1] and manifest.read(tmp_path / "run") is None
    monkeypatch.delenv("STOP_AT")
    folder = run_stage(stage, **settings)
    made = manifest.read(folder)
    assert made["counts"]["steps"] == 3 and made["resumed"]
    shutil.rmtree(folder / "checkpoint-1")  # which the other run has no cause to save
    resumed = left_in(folder)
    shutil.rmtree(folder.resolve())
    folder.unlink()
    assert run_stage(stage, **settings) == folder and not manifest.read(folder)["resumed"]
    assert differences(left_in(folder), resumed) == []


def edit(path, change):
    """Change what a JSON file says."""
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def flip(path):
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


def leave_out_a_row(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


# Of a file, what is lost.
LOSSES = {
    "model.safetensors": flip,
    "checkpoint-2/optimizer.pt": flip,
    "samples-0.jsonl": leave_out_a_row,
    "config.json": lambda path: path.unlink(),
    "manifest.json": lambda path: edit(path, lambda made: made["counts"].update(steps=1)),
    "run.json": lambda path: edit(path, lambda made: made["config"].update(seed=9)),
    "trainer_state.json": lambda path: edit(path, lambda made: made["log_history"].pop(0)),
}


def test_a_loss_is_a_difference_and_how_a_run_went_is_none(run_stage, tmp_path):
    """Of `tests.results`, by which runs that were stopped are compared with those that were not."""
    folder = run_stage("sft", max_steps=2, save_steps=2, output_dir=str(tmp_path / "run"))
    (folder / "samples-0.jsonl").write_text('["1"]\n["2"]\n')
    expected = left_in(folder)
    for number, (name, lose) in enumerate(LOSSES.items()):
        other = shutil.copytree(folder, tmp_path / f"other-{number}")
        lose(other / name)
        assert differences(expected, left_in(other)) == [name]
    for name in ("manifest.json", "run.json", "checkpoint-2/files.json", "trainer_state.json"):
        edit(folder / name, lambda made: made.update(resumed=True, attempts=[1, 2], host="b"))
    edit(folder / "manifest.json", lambda made: made["config"].update(output_dir="~/run"))
    assert differences(expected, left_in(folder)) == []
