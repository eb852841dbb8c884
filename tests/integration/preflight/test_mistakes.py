"""Mistakes planted in recipe, launch, tokenizer and data, each found with what to change.

Those of keys and templates alone are in mistakes.yaml.
"""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pipeline import manifest
from stages.preflight.__main__ import inspect
from stages.preflight.inputs import PreflightArguments

pytestmark = pytest.mark.integration
NO_ANSWER = '{"prompt": [{"role": "user", "content": "1 + 1"}]}\n'
CONFIGS = Path(__file__).parents[3] / "configs"
SYNTHETIC = [{"name": "synthetic", "sample": 10, "split": "train"}]


class Planted:
    """A recipe folder and a run folder with the tiny model as `sft`, and its data."""

    def __init__(self, folder, model, data, monkeypatch):
        self.monkeypatch = monkeypatch
        self.run = folder / "run"
        shutil.copytree(model, self.run / "sft")
        shutil.copytree(data, self.run / "data")
        self.recipe, self.model = folder / "recipe", self.run / "sft"
        self.recipe.mkdir()
        self.args = {"run": str(self.run)}
        cpu = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "seed": 0}
        self.set("sft", model_name_or_path="{run}/sft", train_file="{run}/data/sft_train.jsonl",
                 output_dir="{run}/out", max_length=256, per_device_train_batch_size=4,
                 num_train_epochs=2, save_total_limit=2, **cpu)  # fmt: skip
        self.set("grpo", model_name_or_path="{run}/sft", num_generations=8, max_prompt_length=256,
                 train_file="{run}/data/grpo_train.jsonl", output_dir="{run}/grpo", max_steps=20,
                 max_completion_length=200, save_total_limit=2, **cpu)  # fmt: skip

    def set(self, stage, **values):
        """Change keys of a file; None takes one out."""
        path = self.recipe / f"{stage}.yaml"
        old = yaml.safe_load(path.read_text()) if path.is_file() else {}
        new = {key: value for key, value in (old | values).items() if value is not None}
        path.write_text(yaml.safe_dump(new))

    def copy(self, name):
        """Put a shipped recipe in place of the tiny one."""
        shutil.rmtree(self.recipe)
        shutil.copytree(CONFIGS / name, self.recipe)

    def build_data(self, **values):
        self.set("data", **{"output_dir": "{run}/data", "sft": SYNTHETIC} | values)

    def write_data(self, text):
        (self.run / "data" / "sft_train.jsonl").write_text(text)

    def change_json(self, name, **values):
        path = self.model / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def change_template(self, old, new):
        path = self.model / "chat_template.jinja"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def tokenizer(self):
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.model)

    def findings(self, level=None):
        found = inspect(PreflightArguments(recipe=str(self.recipe), **self.args))[1]
        return [one for one in found if level in (None, one.level)]


@pytest.fixture
def planted(tmp_path, tiny_model_dir, data_dir, monkeypatch):
    return Planted(tmp_path, tiny_model_dir, data_dir, monkeypatch)


def plant(planted, recipe=None, launch=None, template=None, gone=(), says="", **files):
    """Plant a mistake of mistakes.yaml."""
    if recipe:
        planted.copy(recipe)
    if template:
        planted.change_template(*template)
    for place in gone:
        (planted.recipe.parent / place).unlink()
    planted.args.update(launch or {})
    for name, values in files.items():
        if name.endswith(".json"):
            planted.change_json(name, **values)
        elif name == "data" and not recipe:
            planted.build_data(**values)
        else:
            planted.set(name, **values)


def own_model(name, damage):
    """Start from a copy of the tiny model elsewhere, which is damaged."""

    def change(planted):
        folder = shutil.copytree(planted.model, planted.recipe.parent / name)
        damage(folder)
        planted.set("sft", model_name_or_path=str(folder))

    return change


def base_tokenizer(planted):
    # Like Qwen2.5's base models: the EOS is another than the template's.
    tokens = {"eos_token": "<|endoftext|>", "pad_token": "<|im_start|>"}
    planted.change_json("tokenizer_config.json", **tokens)
    ends = {"eos_token_id": planted.tokenizer().eos_token_id}
    planted.change_json("generation_config.json", **ends)


def missing_bos(planted):
    from tokenizers.processors import TemplateProcessing

    tokenizer = planted.tokenizer()
    tokenizer.bos_token = bos = "<|endoftext|>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    tokenizer.save_pretrained(planted.model)


def drop_think(folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    tokenizer.save_pretrained(folder)


def another_model_than_sft_had(planted):
    own_model("mine", drop_think)(planted)
    planted.set("sft", output_dir="{run}/sft")


KEYS = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))
# "level topic: what is said" -> how to plant it.
MISTAKES = {
    "error data: sft_train.jsonl":
        lambda planted: planted.write_data('{"prompt": [{"role": "user"\n'),
    "error data: completion": lambda planted: planted.write_data(NO_ANSWER * 40),
    "warning template: SFT teaches '<|endoftext|>'": base_tokenizer,
    "error tokenizer: drops <think>": lambda planted: drop_think(planted.model),
    "error tokenizer: drops <think> or </think>": another_model_than_sft_had,
    "warning template: prompts lack '<|endoftext|>'": missing_bos,
    "error sft.yaml: no stage of the recipe writes it":
        lambda planted: (shutil.rmtree(planted.run / "data"),
                         planted.build_data(output_dir="{run}/dta")),
    "error disk: needed": lambda planted: planted.monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000)),
    "error model: missing holds no model": own_model("missing", shutil.rmtree),
    "error tokenizer: its tokenizer cannot be loaded":
        own_model("mine", lambda folder: os.truncate(folder / "tokenizer.json", 1000)),
    "error model: holds no weights":
        own_model("mine", lambda folder: (folder / "model.safetensors").unlink()),
}  # fmt: skip
NO_REMEDY = "error grpo.yaml: 12 is all of"


@pytest.mark.parametrize("name", [*MISTAKES, *KEYS])
def test_a_planted_mistake_is_found(planted, name):
    if name in MISTAKES:
        MISTAKES[name](planted)
    else:
        plant(planted, **KEYS[name])
    shown = [(f"{one.level} {one.topic}: {one.text}", one.remedy) for one in planted.findings()]
    head, _, said = name.partition(": ")
    match = [remedy for text, remedy in shown if text.startswith(f"{head}: ") and said in text]
    assert match, shown
    assert KEYS.get(name, {}).get("says", "") in match[0]
    assert match[0] or name == NO_REMEDY


def test_the_recipe_without_a_mistake_has_no_finding(planted):
    assert [one for one in planted.findings() if one.level != "ok"] == []


def test_a_base_tokenizer_with_sft_is_no_error(planted):
    base_tokenizer(planted)
    assert planted.findings("error") == []


def test_a_built_template_without_default_is_not_dated(planted):
    planted.change_template("{% for", "{% set date_string = '26 Jul 2024' %}{% for")
    assert not [one for one in planted.findings() if "today's date" in one.text]


def test_a_model_through_any_output_dir_is_known(planted):
    planted.set("sft", model_name_or_path="Qwen/Qwen2.5-0.5B-Instruct", output_dir="{run}/cold")
    planted.set("grpo", model_name_or_path="{run}/cold")
    levels = [one.level for one in planted.findings() if one.topic == "grpo memory"]
    assert levels and "not checked" not in levels


def test_the_disk_is_that_of_the_output_dir(planted, tmp_path):
    planted.set("grpo", output_dir=str(tmp_path / "elsewhere" / "grpo"))
    (found,) = [one for one in planted.findings() if one.topic == "disk"]
    assert str(tmp_path / "elsewhere" / "grpo") in found.text


@pytest.mark.parametrize(
    "plant",
    [
        lambda planted: planted.set("grpo", reward_funcs=5),
        lambda planted: planted.write_data(""),
        lambda planted: (planted.model / "generation_config.json").write_text("[1]"),
        lambda planted: planted.change_json("config.json", num_attention_heads=0),
        lambda planted: planted.change_json("config.json", max_position_embeddings="x"),
    ],
)
def test_what_no_check_can_read_is_a_finding_and_no_traceback(planted, plant):
    plant(planted)
    assert any(one.level in ("error", "not checked") for one in planted.findings())


@pytest.mark.parametrize("was", ["someone/some-model", "someone/another"])
def test_a_result_of_another_hub_model_says_nothing_of_this_one(planted, was):
    """SFT's result stands in for a model that is not on this machine, if it was made from it."""
    planted.set("sft", model_name_or_path="someone/some-model", output_dir="{run}/sft")
    manifest.write(planted.model, "sft", {"model_name_or_path": was}, {}, {}, 0.0, [])
    found = [one for one in planted.findings("not checked") if one.topic == "tokenizer"]
    assert bool(found) is (was == "someone/another")


def test_without_sft_no_remedy_speaks_of_it(planted):
    gone = ["run/sft/chat_template.jinja", "recipe/sft.yaml"]
    plant(planted, gone=gone, grpo={"model_name_or_path": "{run}/sft"})
    assert [one for one in planted.findings("error") if one.topic == "tokenizer"]
    assert not [one for one in planted.findings("error") if "sft.yaml" in one.remedy]
