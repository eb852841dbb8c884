"""GRPO with the real trainer on a random-init model: names, filter, counts, errors."""

import functools
import json
import math
import shutil

import pytest

from pipeline import manifest
from pipeline.errors import UserError
from stages import rewards
from tests.files import read_rows, write_rows
from tests.integration.trainer.runs import read_logs, weights_of

pytestmark = pytest.mark.integration


@pytest.fixture
def pass_rates(tmp_path, data_dir):
    """Pass rates 0/4, 1/4, 2/4, 3/4 in turn for eleven of the twelve problems."""
    problems = enumerate(read_rows(data_dir / "grpo_train.jsonl")[:11])
    rows = [{"id": row["id"], "num_right": n % 4, "num_samples": 4} for n, row in problems]
    path = tmp_path / "pass_rates.jsonl"
    write_rows(path, rows)
    return path


@pytest.mark.usefixtures("graded_by_chance")
def test_two_steps(run_stage, read_events, pass_rates, data_dir, tiny_model_dir, capsys):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    band = {"min_pass_rate": 0.25, "max_pass_rate": 0.5}
    settings = {"curriculum": "offline", "pass_rates": str(pass_rates), "report_to": "tensorboard"}
    folder = run_stage("grpo", **settings, **band)
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("grpo: 6 of 12 problems of ")
    assert out[0].endswith(", 6 outside_pass_rate_band; curriculum: offline")
    assert out[-1].startswith("grpo: 2 steps, ")

    written = manifest.read(folder)
    assert (written["rows_in"], written["rows_out"]) == (12, 6)
    assert written["dropped"] == {"outside_pass_rate_band": 6}
    assert written["counts"] == {"problems": 6, "steps": 2, "completions": 16}
    inputs = [data_dir / "grpo_train.jsonl", tiny_model_dir, pass_rates]
    assert written["inputs"] == {str(path): manifest.sha256(path) for path in inputs}

    events = read_events(folder)
    logs = read_logs(folder)
    assert len(logs) == 2
    for tag in (
        "rollout/rewards", "rollout/response_length", "rollout/cut_off_rate",
        "rollout/correctness", "rollout/uniform_groups", "train/entropy_loss",
    ):  # fmt: skip
        assert events[tag] == pytest.approx([log[tag] for log in logs]), tag
        assert f"train/{tag}" not in events
    assert all(0 < n <= 12 for n in events["rollout/response_length"])
    assert all(0 < share < 1 for share in events["rollout/correctness"])
    assert all(share in (0, 0.5) for share in events["rollout/uniform_groups"])
    # Weights 1, 0.5, 1 on what each function gave.
    for log in logs:
        names = ["correctness_reward", "think_format_reward", "soft_length_penalty"]
        means = [log[f"rewards/{name}/mean"] for name in names]
        expected = means[0] + 0.5 * means[1] + means[2]
        assert log["rollout/rewards"] == pytest.approx(expected) and means[2] < 0

    assert weights_of(folder) != weights_of(tiny_model_dir)
    AutoModelForCausalLM.from_pretrained(folder)
    template = AutoTokenizer.from_pretrained(tiny_model_dir).chat_template
    assert AutoTokenizer.from_pretrained(folder).chat_template == template


def test_a_batch_is_graded_once_as_the_recipe_says(run_stage, monkeypatch):
    forms, grade_rollouts = [], rewards.grade_rollouts

    def spy(*batch, **form):
        forms.append(form)
        return grade_rollouts(*batch, **form)

    monkeypatch.setattr(rewards, "grade_rollouts", spy)
    funcs = {"reward_funcs": ["correctness_reward", "rlinf_reward"], "reward_weights": [1.0, 1.0]}
    run_stage("grpo", final_number=True, **funcs)
    assert forms == [{"think_prefilled": False, "final_number": True, "own_graders": None}] * 2


def test_too_few_problems_are_refused_before_anything_is_touched(run_stage, pass_rates, tmp_path):
    earlier = tmp_path / "grpo" / "manifest.json"
    earlier.parent.mkdir()
    earlier.write_text("{}")
    band = {"pass_rates": str(pass_rates), "min_pass_rate": 0.9, "max_pass_rate": 1.0}
    with pytest.raises(UserError, match=r"0 of 12 problems are left \(.*\), one generation .* 2;"):
        run_stage("grpo", curriculum="offline", **band)
    with pytest.raises(UserError, match=r"0 of 12 problems are left"):
        run_stage("grpo", max_prompt_length=3)
    assert earlier.read_text() == "{}"


@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize("is_fast", [True, False])
def test_each_prompt_is_read_once_for_its_rollouts(run_stage, is_fast, monkeypatch):
    from transformers import Qwen2ForCausalLM

    rows, forward = [], Qwen2ForCausalLM.forward

    @functools.wraps(forward)
    def watch(self, *args, **kwargs):
        if kwargs.get("use_cache"):  # else it is the update
            rows.append(kwargs["input_ids"].shape)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Qwen2ForCausalLM, "forward", watch)
    folder = run_stage("grpo", fast_generation=is_fast, max_steps=1)
    num_rollouts = json.loads((folder / "run.json").read_text())["config"]["num_generations"]
    prompts = [shape for shape in rows if shape[1] > 1]
    num_rows = max(count for count, width in rows if width == 1)
    assert prompts[-1][0] == (num_rows // num_rollouts if is_fast else num_rows)


def test_without_a_limit_completions_may_fill_the_context(run_stage, data_dir):
    """transformers alone would end each after 20 tokens; this loss divides by the limit."""
    folder = run_stage("grpo", max_completion_length=None, loss_type="dr_grpo", max_steps=1)
    (log,) = read_logs(folder)
    assert log["completions/max_length"] > 100 and math.isfinite(log["loss"])


@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize("is_asked", [False, True])
def test_the_dropout_of_the_model_spoils_neither_ratio_nor_kl(
    run_stage, tiny_model_dir, tmp_path, capsys, is_asked
):
    """Unless the recipe asks for it; the saved model has it in either case."""
    model = shutil.copytree(tiny_model_dir, tmp_path / "model")
    config = json.loads((model / "config.json").read_text()) | {"attention_dropout": 0.3}
    (model / "config.json").write_text(json.dumps(config))
    keys = {"steps_per_generation": 2, "per_device_train_batch_size": 4, "save_steps": 2}
    keys |= {"beta": 0.1, "max_mean_ratio": 9.0} | ({"disable_dropout": False} if is_asked else {})
    folder = run_stage("grpo", model_name_or_path=str(model), **keys)
    first = read_logs(folder)[0]  # before any update
    if is_asked:
        assert first["kl"] > 1e-4 and abs(first["train/mean_ratio"] - 1) > 1e-4
    else:
        assert first["kl"] == pytest.approx(0, abs=1e-6)
        assert first["train/mean_ratio"] == pytest.approx(1, abs=1e-5)
    assert ("attention_dropout 0.3" in capsys.readouterr().out) is not is_asked
    for place in (folder, folder / "checkpoint-2"):
        assert json.loads((place / "config.json").read_text())["attention_dropout"] == 0.3
