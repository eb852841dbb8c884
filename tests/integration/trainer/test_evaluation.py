"""Evaluation during GRPO: the metric, the training beside it, the best model, the held-out rows."""

import json
from statistics import mean, stdev

import pytest

from pipeline import manifest
from stages.trainer import evaluation
from tests.integration.trainer.runs import (
    checksum,
    read_history,
    read_logs,
    weights_of,
    without,
)

pytestmark = pytest.mark.integration
EVERY_STEP = {
    "eval_strategy": "steps", "eval_steps": 1, "num_generations_eval": 2,
    "per_device_eval_batch_size": 4,
}  # fmt: skip
OF_ITS_OWN = {"eval_temperature": 0.5, "eval_top_p": 0.9, "eval_top_k": 20}
TIMES = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "step_time")


@pytest.fixture
def batches(monkeypatch):
    """What TRL is given to reward, batch by batch: mode, rows, texts, completion ids, sampling."""
    from trl import GRPOTrainer

    seen, calculate = [], GRPOTrainer._calculate_rewards

    def spy(self, inputs, prompts, completions, ids):
        texts = [completion[-1]["content"] for completion in completions]
        sampling = {key[5:]: getattr(self.generation_config, key[5:]) for key in OF_ITS_OWN}
        seen.append(("train" if self.model.training else "eval", inputs, texts, ids, sampling))
        return calculate(self, inputs, prompts, completions, ids)

    monkeypatch.setattr(GRPOTrainer, "_calculate_rewards", spy)
    return seen


def read_evaluations(folder):
    return [log for log in read_history(folder) if "eval_runtime" in log]


@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize("reward", ["correctness_reward", "think_format_reward"])
def test_each_problem_counts_once_whatever_the_rewards(
    reward, run_stage, eval_file, batches, read_events, capsys
):
    rewards = {"reward_funcs": [reward], "reward_weights": [1.0], "report_to": "tensorboard"}
    folder = run_stage(
        "grpo", **EVERY_STEP, eval_file=eval_file, max_steps=1, eval_on_start=True, **rewards
    )
    before, after = read_evaluations(folder)
    assert (before["step"], after["step"]) == (0, 1)
    found = [batch for batch in batches if batch[0] == "eval"]
    # Batches of 2, 2 and 1 problems: the mean of their means would be another number.
    assert [len(rows) for _, rows, *_ in found] == [4, 4, 2] * 2
    for log, part in ((before, found[:3]), (after, found[3:])):
        shares, lengths = {}, []
        for _, rows, texts, ids, _ in part:
            lengths += map(len, ids)
            for row, text in zip(rows, texts, strict=True):
                shares.setdefault(row["id"], []).append(checksum(text) % 2)
        values = [mean(verdicts) for verdicts in shares.values()]
        assert len(values) == 5 and all(len(verdicts) == 2 for verdicts in shares.values())
        assert log["eval_avg@2"] == pytest.approx(mean(values))
        assert log["eval_avg@2_stderr"] == pytest.approx(stdev(values) / 5**0.5)
        assert log["eval_response_length"] == mean(lengths)
        assert 0 <= log["eval_cut_off_rate"] <= 1 and f"eval_rewards/{reward}/mean" in log
        assert "eval_loss" not in log and "eval_rollout/correctness" not in log
    assert read_events(folder)["eval/avg@2"] == pytest.approx(
        [before["eval_avg@2"], after["eval_avg@2"]]
    )
    lines = capsys.readouterr().out.splitlines()
    assert f"grpo: avg@2 every 1 steps on 5 validation problems of {eval_file}" in lines
    (line,) = (line for line in lines if line.startswith("grpo: step 0: "))
    value, error = before["eval_avg@2"], before["eval_avg@2_stderr"]
    shown = f"{value:.3f} ± {error:.3f}"
    assert line.startswith(f"grpo: step 0: avg@2 {shown} on 5 validation problems")
    assert line.endswith("; the best so far")
    assert manifest.read(folder)["best"] == json.loads((folder / "best/best.json").read_text())


@pytest.mark.usefixtures("graded_by_chance")
def test_the_training_is_the_same_beside_it(run_stage, eval_file, batches, tmp_path):
    """Prompts, completions, rewards by chance, metrics, weights, and the tables of completions."""
    from pandas import read_parquet

    settings = {
        # An evaluation falls into a generation batch, and between two.
        "steps_per_generation": 2, "max_steps": 4, "per_device_train_batch_size": 4,
        "reward_funcs": ["correctness_reward", "random_reward"], "reward_weights": [1.0, 1.0],
        "curriculum": "predictive+refill", "rest_batches": 0, "log_completions": True,
        "num_completions_to_print": 0,
    }  # fmt: skip
    runs = []
    for name, more in (
        ("without", {}),
        ("with", EVERY_STEP | OF_ITS_OWN | {"eval_file": eval_file, "eval_on_start": True}),
    ):
        batches.clear()
        folder = run_stage("grpo", output_dir=str(tmp_path / name), **settings, **more)
        trained = [batch[2:] for batch in batches if batch[0] == "train"]
        sampling = [batch[-1] for batch in batches if batch[0] == "eval"]
        assert sampling == [{key[5:]: OF_ITS_OWN[key] for key in OF_ITS_OWN}] * len(sampling)
        assert bool(more) == bool(sampling)
        tables = [read_parquet(path) for path in sorted(folder.glob("completions/*.parquet"))]
        logs = [without(log, *TIMES) for log in read_logs(folder)]
        runs.append((trained, logs, weights_of(folder), [table.to_json() for table in tables]))
    assert len(runs[0][1]) == 4 and len(runs[0][3]) == 4
    for alone, beside in zip(*runs, strict=True):
        assert alone == beside
    assert any(log["loss"] for log in runs[0][1])


@pytest.mark.usefixtures("graded_by_chance")
def test_the_best_model_is_kept_and_the_last_saved(run_stage, eval_file, monkeypatch):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    values = iter([0.1, 0.5, 0.5, 0.4])
    monkeypatch.setattr(evaluation, "average_at_k", lambda num_right, k: (next(values), 0.1))
    folder = run_stage("grpo", **EVERY_STEP, eval_file=eval_file, max_steps=4, save_steps=1)
    record = {"metric": "avg@2", "value": 0.5, "stderr": 0.1, "step": 2}
    assert json.loads((folder / "best/best.json").read_text()) == record
    weights = {
        name: weights_of(folder / name)
        for name in ("best", "checkpoint-2", "checkpoint-3", "checkpoint-4", ".")
    }
    assert weights["best"] == weights["checkpoint-2"] != weights["checkpoint-3"]
    assert weights["."] == weights["checkpoint-4"] != weights["best"]
    AutoModelForCausalLM.from_pretrained(folder / "best")
    assert AutoTokenizer.from_pretrained(folder / "best").chat_template
    assert not [*folder.glob("best.*")]


@pytest.mark.usefixtures("graded_by_chance")
def test_validation_measures_and_keeps_no_model(run_stage, eval_file):
    keys = EVERY_STEP | {"eval_file": eval_file, "max_steps": 1, "validate_only": True}
    folder = run_stage("grpo", **keys)
    assert [log["step"] for log in read_evaluations(folder)] == [1]
    assert "best" not in manifest.read(folder) and not [*folder.glob("best*")]
