"""The posterior advantage trains: an own trainer and an own curriculum around ours."""

import json
import sys

import pytest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("curriculum", ["off", "predictive"])
def test_it_trains(write_recipe, monkeypatch, graded_by_chance, tmp_path, curriculum):
    from benchmarks import posterior_advantage
    from stages import grpo
    from stages.trainer import trainer

    # Both are replaced by the benchmark: put back behind it.
    monkeypatch.setattr(grpo, "build_curriculum", grpo.build_curriculum)
    monkeypatch.setattr(trainer, "MathGRPOTrainer", trainer.MathGRPOTrainer)
    recipe = write_recipe("grpo", curriculum=curriculum, log_completions=True)
    monkeypatch.setattr(sys, "argv", ["posterior_advantage", "--config", str(recipe)])
    real, given = posterior_advantage.posterior_advantages, []
    monkeypatch.setattr(
        posterior_advantage, "posterior_advantages", lambda *a: given.append(real(*a)) or given[-1]
    )
    posterior_advantage.main()
    assert len(given) == 2 and all(values.abs().sum() > 0 for values in given)
    history = json.loads((tmp_path / "grpo/trainer_state.json").read_text())["log_history"]
    assert [log["step"] for log in history if "loss" in log] == [1, 2]
    assert any(log.get("grad_norm", 0) > 0 for log in history)
