"""Minibatch early-stop by hand: totals of ratios, what is kept, the zero loss, the refusal."""

import math
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from trl import GRPOTrainer

from data_prep.config import UserError
from stages.trainer.early_stop import MinibatchEarlyStop, ratio_totals, zero_loss

INF, NAN = math.inf, math.nan


def test_ratio_totals():
    logps = torch.tensor([[0.0, math.log(2), NAN], [math.log(4), INF, 3.0]])
    old_logps = torch.tensor([[0.0, 0.0, 0.0], [math.log(8), 0.0, INF]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    total, number = ratio_totals(logps, old_logps, mask)
    assert (total.item(), number.item()) == (pytest.approx(1 + 2 + 0.5), 3)
    assert ratio_totals(logps, None, mask)[0] == 3  # the policy against itself
    for place, bad in (((0, 2), "isnan"), ((1, 1), "isinf")):
        mask[place] = 1
        assert getattr(ratio_totals(logps, old_logps, mask)[0], bad)()
        assert ratio_totals(logps, None, mask)[0].isnan()
        mask[place] = 0
    # A ratio too large for a float is as bad as one that is not a number.
    assert ratio_totals(torch.tensor([[90.0]]), torch.zeros(1, 1), torch.ones(1, 1))[0].isinf()


def test_mean_over_processes():
    def mean_ratio(mask, loss=0.0, other=(0.0, 0.0, 0.0), **inputs):
        """This process has ratios 1, 2, 3; `other` is ratio sum, tokens and bad losses of one."""

        def reduce(tensor, reduction):
            assert reduction == "sum"
            return tensor + torch.tensor(other)

        trainer = SimpleNamespace(accelerator=SimpleNamespace(reduce=reduce))
        inputs |= {"old_per_token_logps": torch.zeros(1, 3), "completion_mask": torch.tensor(mask)}
        logps = torch.tensor([[1.0, 2.0, 3.0]]).log()
        return MinibatchEarlyStop._global_mean_ratio(trainer, torch.tensor(loss), logps, inputs)

    assert mean_ratio([[1, 1, 0]]) == (1.5, True)
    assert mean_ratio([[1, 1, 1]], tool_mask=torch.tensor([[0, 1, 1]])) == (2.5, True)
    assert mean_ratio([[1, 1, 1]], other=(100.0, 5.0, 0.0)) == (pytest.approx(106 / 8), True)
    assert mean_ratio([[1, 1, 0]], other=(1.5, 1.0, 1.0)) == (1.5, False)
    assert mean_ratio([[1, 1, 0]], loss=NAN) == mean_ratio([[1, 1, 0]], loss=-INF) == (1.5, False)
    assert math.isnan(mean_ratio([[1, 1, 0]], other=(NAN, 1.0, 0.0))[0])
    assert mean_ratio([[0, 0, 0]]) == (1, True)  # every completion was cut off and masked


def test_zero_loss():
    logps = torch.tensor([[0.5, NAN], [INF, -INF], [-3e38, -3e38]], requires_grad=True)
    loss = zero_loss(logps)
    loss.backward()
    assert loss == 0 and torch.equal(logps.grad, torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("ratio", "is_finite", "is_kept"),
    [(5.0, True, True), (5.1, True, False), (1.0, False, False), (NAN, True, False)],
)
def test_what_is_kept(monkeypatch, ratio, is_finite, is_kept):
    """In training; evaluation is left alone."""

    def compute_loss(self, *_):
        self._per_token_logps = torch.zeros(1, 1)
        return torch.tensor(7.0)

    monkeypatch.setattr(GRPOTrainer, "compute_loss", compute_loss)
    monkeypatch.setattr(MinibatchEarlyStop, "_global_mean_ratio", lambda *_: (ratio, is_finite))
    trainer = object.__new__(MinibatchEarlyStop)
    trainer.max_mean_ratio, trainer._metrics = 5.0, {"train": defaultdict(list)}
    for is_training, loss in ((False, 7), (True, 7 if is_kept else 0)):
        trainer.model = SimpleNamespace(training=is_training)
        assert trainer.compute_loss("model", {}) == loss
        counts = (trainer._num_minibatches, trainer._num_dropped)
        assert counts == (is_training, is_training and not is_kept)
    expected = {"train/dropped_minibatches": [not is_kept]}
    expected |= {} if math.isnan(ratio) else {"train/mean_ratio": [ratio]}
    assert trainer._metrics["train"] == expected


def test_deepspeed_is_refused():
    trainer = object.__new__(MinibatchEarlyStop)
    trainer.max_mean_ratio, trainer.is_deepspeed_enabled = 5.0, True
    with pytest.raises(UserError, match=r"max_mean_ratio: 5\.0 .*DeepSpeed"):
        trainer.train()
