"""The replay reads what TRL's own trainer logs."""

import sys

import pytest

from benchmarks import replay

pytestmark = pytest.mark.integration


def test_a_log_of_trl(tiny_model_dir, tmp_path, monkeypatch, capsys):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rewards = []

    def even(completions, log_extra, **_):
        rewards.append([float(len(c[0]["content"]) % 2 == 0) for c in completions])
        log_extra("seen", ["yes"] * len(completions))
        return rewards[-1]

    asked = [[{"role": "user", "content": f"{n} + 1?"}] for n in range(6)]
    settings = {"max_steps": 10, "steps_per_generation": 2, "per_device_train_batch_size": 4}
    settings |= {"num_generations": 4, "max_completion_length": 3, "logging_steps": 1}
    settings |= {"save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False}
    settings |= {"log_completions": True, "num_completions_to_print": 0, "disable_tqdm": True}
    GRPOTrainer(
        str(tiny_model_dir),
        even,
        GRPOConfig(str(tmp_path), **settings),
        Dataset.from_dict({"prompt": asked}),
    ).train()
    files = sorted(map(str, tmp_path.glob("completions/*.parquet")))
    words = ["replay", *files, "--pool_size", "10", "--tokenizer", str(tiny_model_dir)]
    monkeypatch.setattr(sys, "argv", words)
    capsys.readouterr()
    replay.main()
    out = capsys.readouterr().out
    groups = [set(row[at : at + 4]) for row in rewards for at in (0, 4)]
    share = sum(len(found) == 1 for found in groups) / len(groups)
    assert len(files) == 10 and len(rewards) == 5
    assert (
        f"10 groups of 4 in 5 generations, 6 of 10 problems; zero-variance groups: {share:.1%}"
        in out
    )
    assert "| predictive+refill |" in out and "tokens for one informative group" in out
