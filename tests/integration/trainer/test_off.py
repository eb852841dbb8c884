"""With every part switched off the stage trains as TRL's own trainer does, bit for bit.

With guards that only warn, too, however often they do.
"""

import inspect

import pytest
import torch

from stages.trainer.guards import GUARDS
from tests.integration.trainer.runs import read_events, read_logs, weights_of

pytestmark = pytest.mark.integration

OFF = {f"guard_{name}": "off" for name in GUARDS} | {"fast_generation": False}
WARN = {
    "fast_generation": False,
    "guard_patience": 1, "guard_baseline_steps": 1, "guard_min_entropy": 100.0,
    "guard_repetition_ngram": 1, "guard_max_repetition": 0.0, "guard_max_repetitive_share": 0.0,
    "guard_min_moved_share": 1.0,
}  # fmt: skip
WARNED = {"repetition", "entropy", "weights", "no_signal"}
OURS = {
    "rollout/rewards", "rollout/response_length", "rollout/cut_off_rate", "rollout/correctness",
    "rollout/uniform_groups", "train/entropy_loss",
}  # fmt: skip
# 12 problems, 2 a batch: 6 batches an epoch.
SHAPES = {
    "a batch a step": {"max_steps": 13},
    "a batch for two steps": {"max_steps": 8, "steps_per_generation": 2},
}


def record(base, steps):
    """A trainer that writes down what every step is given, with its loss."""

    class Recorder(base):
        def _prepare_inputs(self, generation_batch):
            inputs = super()._prepare_inputs(generation_batch)
            steps.append({"problems": [row["id"] for row in generation_batch], **inputs})
            return inputs

        def training_step(self, *args, **kwargs):
            loss = super().training_step(*args, **kwargs)
            steps[-1]["step loss"] = loss
            return loss

    return Recorder


@pytest.fixture
def train(run_stage, graded_by_chance, monkeypatch, tmp_path):
    """Run the stage with a trainer; returns its steps, its log and the final weights."""
    from stages.trainer import grpo_trainer as module

    def call(name, build, **settings):
        steps = []
        with monkeypatch.context() as patch:
            patch.setattr(module, "MathGRPOTrainer", lambda **kwargs: build(steps, kwargs))
            folder = run_stage("grpo", output_dir=str(tmp_path / name), **settings)
        return steps, read_logs(folder), weights_of(folder), folder

    return call


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_off_leaves_no_trace(train, shape):
    from trl import GRPOTrainer

    from stages.trainer.grpo_trainer import MathGRPOTrainer

    known = inspect.signature(GRPOTrainer).parameters

    def stock(steps, kwargs):
        assert {*kwargs} > {*known} & {*kwargs} > {"model", "args", "train_dataset"}
        trainer = record(GRPOTrainer, steps)(**{k: v for k, v in kwargs.items() if k in known})
        trainer.num_completions = None  # for the manifest
        return trainer

    def ours(steps, kwargs):
        return record(MathGRPOTrainer, steps)(**kwargs)

    expected, expected_logs, weights, _ = train("stock", stock, **SHAPES[shape])
    problems = [str(step["problems"]) for step in expected]
    assert len(problems) == SHAPES[shape]["max_steps"] and problems[:2] != problems[6:8]
    for name, settings in (("off", OFF), ("warned", WARN)):
        found, logs, found_weights, folder = train(name, ours, **SHAPES[shape], **settings)
        for one, other in zip(found, expected, strict=True):
            assert one.keys() == other.keys()
            for key, value in one.items():
                is_equal = torch.equal if isinstance(value, torch.Tensor) else list.__eq__
                assert is_equal(value, other[key]), (name, key)
        assert found_weights == weights
        added = set()
        for log, theirs in zip(logs, expected_logs, strict=True):
            same = theirs.keys() - {"step_time"}
            assert {key: log[key] for key in same} == {key: theirs[key] for key in same}
            added |= log.keys() - theirs.keys()
        assert added >= OURS
        assert {key.partition("/")[0] for key in added - OURS} <= {"train", "guard"}
        warned = {event["guard"] for event in read_events(folder)}
        assert warned == (WARNED if name == "warned" else set())
        assert {f"guard/{guard}" for guard in warned} <= added
    assert any(step["step loss"] for step in expected) and any(log["grad_norm"] for log in logs)
