"""Sampling is tried before training; rollouts do not take the start model's own defaults."""

import json
import shutil

import pytest

from pipeline.errors import UserError
from tests.integration.conftest import change_json
from tests.integration.trainer.runs import read_logs

pytestmark = pytest.mark.integration


@pytest.fixture
def copy_model(tiny_model_dir, tmp_path):
    """A copy of the tiny model with another `generation_config.json`."""

    def copy(**values):
        folder = tmp_path / "base"
        shutil.copytree(tiny_model_dir, folder)
        change_json(folder / "generation_config.json", **values)
        return folder

    return copy


@pytest.mark.parametrize(
    ("stage", "values", "kept", "lost"),
    [
        ("sft", {"temperature": 0.6, "top_p": 0.95}, {"temperature": 0.6, "do_sample": True}, []),
        ("grpo", {"num_return_sequences": 4, "early_stopping": True, "max_new_tokens": -1}, {},
         ["early_stopping", "max_new_tokens"]),
    ],
)  # fmt: skip
def test_contradicting_defaults_are_repaired_with_one_line(
    run_stage, copy_model, capsys, stage, values, kept, lost
):
    base = copy_model(**values)
    folder = run_stage(stage, model_name_or_path=str(base), save_strategy="no", max_steps=1)
    saved = json.loads((folder / "generation_config.json").read_text())
    assert saved.items() >= kept.items() and not saved.keys() & set(lost)
    lines = [line for line in capsys.readouterr().out.splitlines() if "is repaired" in line]
    assert len(lines) == 1 and str(base) in lines[0] and all(key in lines[0] for key in lost)
    assert not list(folder.glob("*.partial"))


def test_rollouts_follow_the_recipe_alone(run_stage, copy_model, capsys, monkeypatch):
    """Under these defaults every completion would be one long repetition without an end."""
    from transformers import GenerationMixin

    seen = []
    prepare = GenerationMixin._prepare_generation_config

    def record(self, *args, **kwargs):
        found = prepare(self, *args, **kwargs)
        seen.append(found[0])
        return found

    monkeypatch.setattr(GenerationMixin, "_prepare_generation_config", record)
    leaks = {
        "min_new_tokens": 11, "suppress_tokens": [5, 6], "no_repeat_ngram_size": 2,
        "bad_words_ids": [[7]], "forced_eos_token_id": 9, "min_length": 30, "do_sample": True,
        "temperature": 0.1, "exponential_decay_length_penalty": [3, 2.0],
    }  # fmt: skip
    base = copy_model(**leaks)
    folder = run_stage("grpo", model_name_or_path=str(base), max_steps=1)
    assert seen
    for config in seen:
        taken = [name for name in leaks if getattr(config, name) == leaks[name]]
        assert taken == ["do_sample"]
        assert config.eos_token_id
    ignored = [line for line in capsys.readouterr().out.splitlines() if "min_new_tokens" in line]
    assert len(ignored) == 1 and "suppress_tokens" in ignored[0]
    saved = json.loads((folder / "generation_config.json").read_text())
    assert saved["min_new_tokens"] == 11  # the model's own users keep its defaults


@pytest.mark.parametrize(
    "given",
    [
        {"bad_words_ids": [[99_999]]},  # tokens that the model does not have
        {"prompt_lookup_num_tokens": 3},  # for one prompt alone
    ],
)
def test_sampling_that_would_fail_is_refused_before_training(run_stage, tmp_path, given):
    (name,) = given
    with pytest.raises(UserError, match=f"generation_kwargs: .*{name}.*no rollout"):
        run_stage("grpo", generation_kwargs=given)
    assert not list(tmp_path.rglob("*.partial"))


def test_rollouts_end_at_each_token_that_ends_the_model_s_text(run_stage, copy_model):
    """The model's own `stop_strings` are no setting of the recipe; this is what their line says."""
    base = copy_model(eos_token_id=[*range(100, 300)], stop_strings=["x"])
    given = {"no_repeat_ngram_size": 3}
    keys = {"model_name_or_path": str(base), "max_steps": 1}
    folder = run_stage("grpo", **keys, generation_kwargs=given)
    (log,) = read_logs(folder)
    assert log["completions/clipped_ratio"] < 0.5 and log["completions/mean_length"] < 8


def test_trying_a_setting_changes_no_rollout(run_stage, tmp_path):
    folders = [
        run_stage("grpo", output_dir=str(tmp_path / name), max_steps=2, generation_kwargs=given)
        for name, given in (("with", {"renormalize_logits": True}), ("without", None))
    ]
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second
