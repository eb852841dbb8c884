"""NaN or infinity ends a run with its step, and never gets into a checkpoint."""

import importlib

import pytest
import torch

from pipeline.errors import OutOfMemoryError, UserError
from pipeline.manifest import NAME
from tests.integration.trainer.runs import whole_checkpoints

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
    assert not (tmp_path / stage / NAME).exists()


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
