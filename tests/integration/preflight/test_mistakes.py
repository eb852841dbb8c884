"""Mistakes planted in recipe, launch, tokenizer and data, each found with what to change.

Those of keys, templates and files alone are in mistakes.yaml.
"""

import shutil
from pathlib import Path

import pytest
import yaml

from pipeline import manifest
from stages.preflight.__main__ import inspect
from stages.preflight.inputs import PreflightArguments
from tests.integration.conftest import change_json

pytestmark = pytest.mark.integration
CONFIGS = Path(__file__).parents[3] / "configs"
TEXT = Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8")
RECIPE, KEYS, UNREADABLE = yaml.safe_load_all(TEXT)


class Planted:
    """A recipe folder and a run folder with the tiny model as `sft`, and its data."""

    def __init__(self, folder, model, data):
        self.run = folder / "run"
        shutil.copytree(model, self.run / "sft")
        shutil.copytree(data, self.run / "data")
        self.recipe, self.model = folder / "recipe", self.run / "sft"
        self.recipe.mkdir()
        self.args = {"run": str(self.run)}
        for stage, values in RECIPE.items():
            self.set(stage, **values)

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
def planted(tmp_path, tiny_model_dir, data_dir):
    return Planted(tmp_path, tiny_model_dir, data_dir)


def plant(planted, recipe=None, model=None, template=None, launch=(), write=(), gone=(), **files):
    """Plant a mistake of mistakes.yaml."""
    home = planted.recipe.parent
    if recipe:
        planted.copy(recipe)
    if model:
        shutil.copytree(planted.model, home / model)
        planted.set("sft", model_name_or_path=str(home / model))
    if template:
        planted.change_template(*template)
    for place, text in dict(write).items():
        (home / place).write_text(text)
    for place in gone:
        shutil.rmtree(home / place) if (home / place).is_dir() else (home / place).unlink()
    planted.args.update(launch)
    for name, values in files.items():
        if name.endswith(".json"):
            change_json(planted.model / name, **values)
        else:
            planted.set(name, **values)


def base_tokenizer(planted):
    # Like Qwen2.5's base models: the EOS is another than the template's.
    tokens = {"eos_token": "<|endoftext|>", "pad_token": "<|im_start|>"}
    change_json(planted.model / "tokenizer_config.json", **tokens)
    ends = {"eos_token_id": planted.tokenizer().eos_token_id}
    change_json(planted.model / "generation_config.json", **ends)


def missing_bos(planted):
    from tokenizers.processors import TemplateProcessing

    tokenizer = planted.tokenizer()
    tokenizer.bos_token = bos = "<|endoftext|>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    tokenizer.save_pretrained(planted.model)


def drop_think(planted, folder=None):
    from transformers import AutoTokenizer

    folder = folder or planted.model
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    tokenizer.save_pretrained(folder)


def another_model_than_sft_had(planted):
    plant(planted, model="mine", sft={"output_dir": "{run}/sft"})
    drop_think(planted, planted.recipe.parent / "mine")


# "level topic: what is said" -> how to plant it, where it takes more than keys and texts.
MISTAKES = {
    "warning template: SFT teaches '<|endoftext|>'": base_tokenizer,
    "error tokenizer: drops <think>": drop_think,
    "error tokenizer: drops <think> or </think>": another_model_than_sft_had,
    "warning template: prompts lack '<|endoftext|>'": missing_bos,
}
NO_REMEDY = "error grpo.yaml: 12 is all of"


@pytest.mark.parametrize("name", [*MISTAKES, *KEYS])
def test_a_planted_mistake_is_found(planted, name):
    changes = dict(KEYS.get(name, {}))
    says = changes.pop("says", "")
    MISTAKES.get(name, plant)(planted, **changes)
    shown = [(f"{one.level} {one.topic}: {one.text}", one.remedy) for one in planted.findings()]
    head, _, said = name.partition(": ")
    match = [remedy for text, remedy in shown if text.startswith(f"{head}: ") and said in text]
    assert match, shown
    assert says in match[0]
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


@pytest.mark.parametrize("changes", UNREADABLE)
def test_what_no_check_can_read_is_a_finding_and_no_traceback(planted, changes):
    plant(planted, **changes)
    assert any(one.level in ("error", "not checked") for one in planted.findings())


@pytest.mark.parametrize("was", ["someone/some-model", "someone/another"])
def test_a_result_of_another_hub_model_says_nothing_of_this_one(planted, was):
    """SFT's result stands in for a model that is not on this machine, if it was made from it."""
    planted.set("sft", model_name_or_path="someone/some-model", output_dir="{run}/sft")
    manifest.write(planted.model, "sft", {"model_name_or_path": was}, {}, {}, 0.0, [])
    found = [one for one in planted.findings("not checked") if one.topic == "tokenizer"]
    assert bool(found) is (was == "someone/another")


def test_without_sft_no_remedy_speaks_of_it(planted):
    plant(planted, gone=["run/sft/chat_template.jinja", "recipe/sft.yaml"])
    assert [one for one in planted.findings("error") if one.topic == "tokenizer"]
    assert not [one for one in planted.findings("error") if "sft.yaml" in one.remedy]
