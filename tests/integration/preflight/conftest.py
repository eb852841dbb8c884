"""A sound recipe of the tiny model, for tests that plant mistakes in it and ask preflight."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from stages.preflight.__main__ import inspect
from stages.preflight.inputs import PreflightArguments

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

    def serve(self, **values):
        self.set("grpo", use_vllm=True, vllm_mode="server", **values)

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
