"""The posterior advantage: its numbers by hand, and the trainer trains on them."""

import pytest
import torch

from tests.integration.trainer.runs import read_logs

pytestmark = pytest.mark.integration


def test_advantages_by_hand():
    from benchmarks.posterior_advantage import posterior_advantages

    # A reward of 2 for right, and lengths' 0 and 1 beside it; the second group is uniform.
    rewards = torch.tensor([2.0, 1.0, 0.0, 2.0, 2.0, float("nan")])
    correctness = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    found = posterior_advantages(rewards, correctness, torch.tensor([0.25, 0.5]), 2.0)
    # 2 (1 - 1/4) + (0 - 1/2), 2 (0 - 1/4) + (1 - 0), 2 (0 - 1/4) + (0 - 1/2); 2 (1 - 1/2) twice
    assert found.tolist() == pytest.approx([1.0, 0.5, -1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("curriculum", ["off", "predictive"])
def test_it_trains(run_stage, monkeypatch, graded_by_chance, curriculum):
    from benchmarks import posterior_advantage as bench
    from stages import grpo
    from stages.trainer import trainer

    given, real = [], bench.posterior_advantages
    monkeypatch.setattr(
        bench, "posterior_advantages", lambda *a: given.append(real(*a)) or given[-1]
    )
    monkeypatch.setattr(grpo, "build_curriculum", bench.build_believing)
    monkeypatch.setattr(trainer, "MathGRPOTrainer", bench.PosteriorTrainer)
    logs = read_logs(run_stage("grpo", curriculum=curriculum))
    assert len(given) == 2 == len(logs) and all(values.abs().sum() > 0 for values in given)
    assert all(log["grad_norm"] > 0 for log in logs)
