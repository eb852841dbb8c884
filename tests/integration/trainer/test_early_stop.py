"""Minibatch early-stop in real runs: what is dropped, what is left out, what stays as it was."""

import copy
import math
from itertools import pairwise

import pytest
import torch

from tests.integration.trainer.recorders import tell, weights_checksum

pytestmark = pytest.mark.integration

INF, NAN = math.inf, math.nan
# Four minibatches share a generation; an optimizer step takes two of them.
SETTINGS = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4,
    "max_steps": 3, "max_completion_length": 6, "weight_decay": 0.1,
}  # fmt: skip


@pytest.fixture
def train(run_stage, monkeypatch):
    """Train with a threshold; returns what each step logged and weights and optimizer after it.

    Minibatches are counted over the run. `log_shifts` multiplies the ratio of some by e^shift,
    `no_advantage` takes away the advantages of some, `broken` makes the activations of some NaN.
    """
    from transformers import TrainerCallback

    from stages.trainer import trainer as module

    base = module.MathGRPOTrainer

    class Snapshots(TrainerCallback):
        def __init__(self):
            self.found = []

        def on_step_end(self, args, state, control, model=None, optimizer=None, **_):
            moments = optimizer.state_dict()["state"]
            tensors = {f"{n}.{key}": x for n in moments for key, x in moments[n].items()}
            self.found.append(copy.deepcopy(model.state_dict() | tensors))

    def call(
        limit, log_shifts=(), no_advantage=(), broken=(), advantages=(1.0, -1.0) * 2, **settings
    ):
        shifts, snapshots, trainers = dict(log_shifts), Snapshots(), []

        class Trainer(base):
            def train(self, *args, **kwargs):
                trainers.append(self)
                self.max_mean_ratio = limit
                self.add_callback(snapshots)
                self.model.model.norm.register_forward_hook(self.break_activations)
                return super().train(*args, **kwargs)

            def break_activations(self, module, args, output):
                return output * NAN if torch.is_grad_enabled() and self._step in broken else output

            def _prepare_inputs(self, generation_batch):
                inputs = dict(super()._prepare_inputs(generation_batch))
                inputs["advantages"] = torch.tensor(advantages)
                if self._step in shifts:
                    old_logps = inputs["old_per_token_logps"]
                    inputs["old_per_token_logps"] = old_logps - shifts[self._step]
                if self._step in no_advantage:
                    inputs["advantages"] = torch.zeros(4)
                return inputs

        monkeypatch.setattr(module, "MathGRPOTrainer", Trainer)
        run_stage("grpo", **SETTINGS | settings)
        (trainer,) = trainers
        logs = [log for log in trainer.state.log_history if "loss" in log]
        assert len(logs) == len(snapshots.found) == trainer.args.max_steps
        return logs, snapshots.found

    return call


def equal(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[key], other[key]) for key in one)


def column(logs, key):
    return [log[key] for log in logs]


@pytest.mark.parametrize("limit", [2.9, 3.1])
def test_the_mean_ratio_is_that_of_the_tokens(train, limit):
    logs, _ = train(limit, {0: math.log(3), 1: math.log(3)}, max_steps=1)
    assert logs[0]["train/mean_ratio"] == pytest.approx(3, rel=1e-4)
    assert logs[0]["train/dropped_minibatches"] == (limit < 3)


def test_a_window_with_one_dropped_minibatch_is_the_gradient_of_the_other(train):
    """First or last, ratio too high or not a number; what counts is divided by what it was."""
    logs, states = train(5.0, {1: 5.0, 2: NAN, 5: INF})
    reference_logs, reference = train(None, no_advantage=(1, 2, 5))
    assert column(logs, "train/dropped_minibatches") == [0.5] * 3
    assert column(logs, "train/skipped_steps") == [0] * 3
    for key in ("loss", "grad_norm"):
        assert column(logs, key) == column(reference_logs, key)
    assert all(equal(*pair) for pair in zip(states, reference, strict=True))
    _, undisturbed = train(None)
    assert not any(equal(*pair) for pair in zip(states, undisturbed, strict=True))


@pytest.mark.parametrize(
    ("disturbance", "dropped", "max_grad_norm"),
    [
        ({"log_shifts": {2: 5.0, 3: NAN}}, 1.0, 1.0),
        ({"log_shifts": {2: 5.0, 3: NAN}}, 1.0, 0.0),
        # NaN gradients of a dropped minibatch, on top of or under those of a good one.
        ({"broken": (2,)}, 0.5, 1.0),
        ({"broken": (3,)}, 0.5, 0.0),
    ],
)
def test_a_wasted_window_changes_nothing(train, disturbance, dropped, max_grad_norm):
    """No momentum, no weight decay, no step count; and the next step goes on from there."""
    logs, (first, wasted, last) = train(5.0, **disturbance, max_grad_norm=max_grad_norm)
    assert equal(first, wasted) and not equal(wasted, last) and "0.exp_avg" in wasted
    assert first["0.step"] == wasted["0.step"] == 1 and last["0.step"] == 2
    assert all(tensor.isfinite().all() for tensor in last.values())
    assert column(logs, "train/skipped_steps") == [0, 1, 0]
    assert column(logs, "train/dropped_minibatches") == [0, dropped, 0]
    assert all(math.isfinite(log["loss"]) for log in logs)
    assert [norm > 0 for norm in column(logs, "grad_norm")] == [True, False, True]
    assert column(logs, "grad_norm")[1] == 0


def shift_ratios_on_rank_0():
    """Rank 1 alone would keep these minibatches; only its ratio of 1 is in the mean."""
    from stages.trainer import trainer

    class Trainer(trainer.MathGRPOTrainer):
        def train(self, *args, **kwargs):
            self.max_mean_ratio = 5.0
            tell("report", weights_checksum(self.model))
            return super().train(*args, **kwargs)

        def _prepare_inputs(self, generation_batch):
            inputs = dict(super()._prepare_inputs(generation_batch))
            inputs["advantages"] = torch.tensor([1.0, -1.0, 1.0, -1.0])
            shift = {1: 5.0, 2: 5.0, 3: NAN, 4: 5.0}.get(self._step)
            if shift and self.accelerator.process_index == 0:
                inputs["old_per_token_logps"] = inputs["old_per_token_logps"] - shift
            return inputs

        def log(self, logs, *args):
            super().log(logs, *args)
            if "loss" in logs:
                keys = ("train/dropped_minibatches", "train/skipped_steps", "grad_norm")
                tell("report", weights_checksum(self.model), *[float(logs[key]) for key in keys])

    trainer.MathGRPOTrainer = Trainer


def test_both_of_two_processes_drop_what_only_one_sees(write_recipe, fork_server):
    """Last in the window (where gradients are exchanged), the whole window, first in the window."""
    recipe = write_recipe("grpo", **SETTINGS | {"max_steps": 4})
    reports = [
        [line.split()[1:] for line in lines if line.startswith("report ")]
        for lines in fork_server.finish(recipe, 2, setup=shift_ratios_on_rank_0)
    ]
    assert reports[0] == reports[1] and len(reports[0]) == 5
    weights = [int(report[0]) for report in reports[0]]
    logs = [[float(value) for value in report[1:]] for report in reports[0][1:]]
    assert [log[:2] for log in logs] == [[0.5, 0], [1, 1], [0.5, 0], [0, 0]]
    assert [log[2] == 0 for log in logs] == [False, True, False, False]
    assert [a == b for a, b in pairwise(weights)] == [False, True, False, False]
