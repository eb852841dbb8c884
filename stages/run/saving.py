"""The saves of both trainers: whole checkpoints, that other programs read as they are.

The Trainer's own saves are called; what is added comes after them, and the hashes come last. So a
checkpoint with `files.json` is complete, with the files that TRL writes late, too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import SFTTrainer

from pipeline.launched import note_for_launcher
from pipeline.models import dropout
from pipeline.models.dropout import Value
from pipeline.models.weights import keep_own_head
from stages.run import folders


class SavedRun(Trainer):
    """The first base of a trainer, as in `class OurTrainer(SavedRun, GRPOTrainer)`.

    Attributes:
        base_values: what saved configurations have in place of the values of training.
        keep: how many checkpoints stay, None for all. `save_total_limit` would remove an older one
            before the new one has its hashes.
    """

    base_values: Sequence[Value] = ()
    keep: int | None = None

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save a model with the base's configuration, and with its own head where it has one."""
        of_training = [one._replace(value=getattr(one.owner, one.name)) for one in self.base_values]
        dropout.put(self.base_values)
        super().save_model(output_dir, _internal_call)
        dropout.put(of_training)
        if self.args.should_save:
            keep_own_head(Path(output_dir or self.args.output_dir))

    def save_more(self, checkpoint: Path) -> None:
        """Write what a resume needs and the Trainer does not keep; every process calls it."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        checkpoint = Path(self.args.output_dir, name)
        if self.args.should_save:  # that of an earlier start has the hashes of other files
            folders.unseal(checkpoint)
        super()._save_checkpoint(model, trial)
        if not self.args.save_only_model:
            self.save_more(checkpoint)
        self.accelerator.wait_for_everyone()  # all have written their part
        if self.args.should_save:
            folders.seal(checkpoint)
            folders.rotate(checkpoint.parent, self.keep)
        note_for_launcher(checkpoint=str(checkpoint))


class SavedSFTTrainer(SavedRun, SFTTrainer):
    """TRL's, with these saves."""
