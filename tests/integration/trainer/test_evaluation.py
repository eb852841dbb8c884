"""Evaluation during GRPO: the metric, the training beside it, the best model, the held-out rows."""

import json
import zlib
from statistics import mean, stdev

import pytest
import torch

from pipeline import manifest
from tests.integration.trainer.recorders import grade_by_checksum, tell
from tests.integration.trainer.runs import read_history, read_logs, weights_of, without

pytestmark = pytest.mark.integration
EVERY_STEP = {
    "eval_strategy": "steps", "eval_steps": 1, "num_generations_eval": 2,
    "per_device_eval_batch_size": 4,
}  # fmt: skip
OF_ITS_OWN = {"eval_temperature": 0.5, "eval_top_p": 0.9, "eval_top_k": 20}
TIMES = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "step_time")


@pytest.fixture
def batches(monkeypatch):
    """What TRL is given to reward, batch by batch: mode, rows, texts, completion ids."""
    from trl import GRPOTrainer

    seen, calculate = [], GRPOTrainer._calculate_rewards

    def spy(self, inputs, prompts, completions, ids):
        texts = [completion[-1]["content"] for completion in completions]
        seen.append(("train" if self.model.training else "eval", inputs, texts, ids))
        return calculate(self, inputs, prompts, completions, ids)

    monkeypatch.setattr(GRPOTrainer, "_calculate_rewards", spy)
    return seen


def read_evaluations(folder):
    return [log for log in read_history(folder) if "eval_runtime" in log]


def is_right(text):
    return zlib.crc32(text.encode()) % 2


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
    assert [len(rows) for _, rows, _, _ in found] == [4, 4, 2] * 2
    for log, part in ((before, found[:3]), (after, found[3:])):
        shares, lengths = {}, []
        for _, rows, texts, ids in part:
            lengths += map(len, ids)
            for row, text in zip(rows, texts, strict=True):
                shares.setdefault(row["id"], []).append(is_right(text))
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
        ("with", EVERY_STEP | {"eval_file": eval_file, "eval_on_start": True}),
        ("cooler", EVERY_STEP | OF_ITS_OWN | {"eval_file": eval_file, "eval_on_start": True}),
    ):
        batches.clear()
        folder = run_stage("grpo", output_dir=str(tmp_path / name), **settings, **more)
        trained = [(texts, ids) for mode, _, texts, ids in batches if mode == "train"]
        assert bool(more) == (len(trained) < len(batches))
        tables = [read_parquet(path) for path in sorted(folder.glob("completions/*.parquet"))]
        logs = [without(log, *TIMES) for log in read_logs(folder)]
        runs.append((trained, logs, weights_of(folder), [table.to_json() for table in tables]))
    assert len(runs[0][1]) == 4 and len(runs[0][3]) == 4
    for alone, *beside in zip(*runs, strict=True):
        assert beside == [alone, alone]
    assert any(log["loss"] for log in runs[0][1])


def test_both_sample_from_the_distribution_at_their_temperature(
    run_stage, eval_file, batches, tiny_model_dir
):
    """The first tokens of training and validation, by a chi-square test each."""
    from scipy.stats import chisquare
    from transformers import AutoModelForCausalLM, AutoTokenizer

    num = 2000
    run_stage(
        "grpo", temperature=1.5, eval_temperature=0.5, eval_file=eval_file, eval_problems=2,
        eval_strategy="steps", eval_steps=1, eval_on_start=True, num_generations_eval=num,
        per_device_eval_batch_size=num, num_generations=num, per_device_train_batch_size=num,
        gradient_accumulation_steps=1, max_completion_length=1, max_steps=1,
        reward_funcs=["random_reward"], reward_weights=[1.0],
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    found = {}
    for mode, rows, _, ids in batches:  # the first of each is before the only step
        found.setdefault(mode, (rows[0]["prompt"], [one for (one,) in ids]))
    for mode, temperature in (("train", 1.5), ("eval", 0.5)):
        prompt, drawn = found[mode]
        encoded = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        with torch.no_grad():
            chances = (model(**encoded).logits[0, -1].double() / temperature).softmax(-1)
        counts = torch.bincount(torch.tensor(drawn), minlength=len(chances))
        is_likely = chances * num > 5
        expected = [*(chances[is_likely] * num), (chances[~is_likely] * num).sum()]
        observed = [*counts[is_likely], counts[~is_likely].sum()]
        assert chisquare(observed, expected).pvalue > 1e-3, mode


@pytest.fixture
def scripted(monkeypatch):
    """The evaluations find these values, one after the other."""

    def script(*values):
        left = iter(values)
        monkeypatch.setattr(
            "stages.trainer.evaluation.average_at_k", lambda num_right, k: (next(left), 0.1)
        )

    return script


@pytest.mark.usefixtures("graded_by_chance")
def test_the_best_model_is_kept_and_the_last_saved(run_stage, eval_file, scripted):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    scripted(0.1, 0.5, 0.5, 0.4)
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


def report_held_out():
    from trl import GRPOTrainer

    from stages import rewards

    rewards.grade_rollouts, calculate = grade_by_checksum, GRPOTrainer._calculate_rewards

    def spy(self, inputs, prompts, completions, ids):
        if not self.model.training:
            texts = [completion[-1]["content"] for completion in completions]
            numbers = [row["held_out"] for row in inputs]
            tell(json.dumps([*zip(numbers, texts, strict=True)]))
        return calculate(self, inputs, prompts, completions, ids)

    GRPOTrainer._calculate_rewards = spy


def test_two_processes_count_no_copy(write_recipe, fork_server, eval_file, tmp_path):
    """Five problems in batches of two for each of two processes: the last round repeats three."""
    recipe = write_recipe("grpo", **EVERY_STEP, eval_file=eval_file, max_steps=1)
    lines = fork_server.finish(recipe, 2, setup=report_held_out)
    ranks = [[json.loads(line) for line in part if line.startswith("[[")] for part in lines]
    assert [len(rows) for part in ranks for rows in part] == [4] * 4
    shares, copies = {}, 0
    for batch in zip(*ranks, strict=True):
        groups = [rows[at : at + 2] for rows in batch for at in (0, 2)]
        for (number, first), (same, second) in groups:
            assert number == same
            copies += number in shares
            shares.setdefault(number, mean([is_right(first), is_right(second)]))
    assert sorted(shares) == [0, 1, 2, 3, 4] and copies == 3
    folder = tmp_path / "grpo"
    (log,) = read_evaluations(folder)
    assert log["eval_avg@2"] == pytest.approx(mean(shares.values()))
    assert log["eval_avg@2_stderr"] == pytest.approx(stdev(shares.values()) / 5**0.5)
    assert manifest.read(folder)["best"]["step"] == 1
    assert (folder / "best/model.safetensors").is_file() and not [*folder.glob("best.*")]
    assert not any("held-out" in line for line in lines[1])
