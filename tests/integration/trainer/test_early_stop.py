"""Minibatch early-stop in a real run: what is dropped, what is left out, what stays as it was."""

import math
from itertools import pairwise

import pytest
import torch

from tests.integration.trainer.runs import tell, weights_checksum

pytestmark = pytest.mark.integration

# Four minibatches share a generation; an optimizer step takes two of them.
SETTINGS = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4,
    "max_steps": 7, "max_completion_length": 6, "weight_decay": 0.1,
}  # fmt: skip


def shift_ratios_on_rank_0():
    """Rank 1 alone would keep these minibatches; only its ratio of 1 is in the mean.

    At micro-step 8 the activations of rank 0 are no numbers, and so the gradient. The rows of
    micro-step 13 have no advantage.
    """
    from stages.trainer import grpo_trainer

    class Trainer(grpo_trainer.MathGRPOTrainer):
        def train(self, *args, **kwargs):
            self.max_mean_ratio = 5.0
            self.model.model.norm.register_forward_hook(self.break_activations)
            tell("report", weights_checksum(self.model))
            return super().train(*args, **kwargs)

        def break_activations(self, module, args, output):
            is_due = self._step == 8 and self.accelerator.process_index == 0
            return output * math.nan if is_due and torch.is_grad_enabled() else output

        def _prepare_inputs(self, generation_batch):
            inputs = dict(super()._prepare_inputs(generation_batch))
            inputs["advantages"] = torch.tensor([1.0, -1.0, 1.0, -1.0]) * (self._step != 13)
            shift = {1: 5.0, 2: 5.0, 3: math.nan, 4: 5.0, 12: 5.0}.get(self._step)
            if shift and self.accelerator.process_index == 0:
                inputs["old_per_token_logps"] = inputs["old_per_token_logps"] - shift
            return inputs

        def log(self, logs, *args):
            super().log(logs, *args)
            if "loss" in logs:
                keys = ("train/dropped_minibatches", "train/skipped_steps", "grad_norm", "loss")
                tell("report", weights_checksum(self.model), *[float(logs[key]) for key in keys])

    grpo_trainer.MathGRPOTrainer = Trainer


def test_both_of_two_processes_drop_what_only_one_sees(write_recipe, fork_server):
    """Last in the step (where gradients are exchanged), all of it, first in it, none; NaN; none.

    In the last step the micro-batch that is kept has no gradient.

    A step without anything to learn leaves the weights alone: no momentum, no weight decay.
    """
    recipe = write_recipe("grpo", **SETTINGS)
    reports = [
        [line.split()[1:] for line in lines if line.startswith("report ")]
        for lines in fork_server.finish(recipe, 2, setup=shift_ratios_on_rank_0)
    ]
    assert reports[0] == reports[1] and len(reports[0]) == 8
    weights = [int(report[0]) for report in reports[0]]
    logs = [[float(value) for value in report[1:]] for report in reports[0][1:]]
    dropped, skipped = [0.5, 1, 0.5, 0, 0.5, 0, 0.5], [0, 1, 0, 0, 1, 0, 1]
    assert [log[:2] for log in logs] == [*map(list, zip(dropped, skipped, strict=True))]
    assert [log[2] == 0 for log in logs] == skipped
    assert [a == b for a, b in pairwise(weights)] == skipped
    assert all(math.isfinite(value) for log in logs for value in log)
