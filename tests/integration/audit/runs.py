"""A small recipe for the tests of the audit, whole until a test breaks one thing in it."""

import json
import shutil
import sys

import pytest

from data_prep.schema import grpo_row, sft_row
from data_prep.sources import synthetic
from eval.audit import __main__ as audit
from grading.grade import grade_all
from pipeline.errors import run_cli
from tests.files import write_rows

NUM_ROWS = 6
CPU = {"use_cpu": True, "bf16": False}


def own_reward(completions, answers, answer_form, **_):
    """A user's own reward that looks at correctness."""
    texts = [completion[-1]["content"] for completion in completions]
    return [
        float(grade_all([text], [golds], answer_form=form)[0].verdict == "right")
        for text, golds, form in zip(texts, answers, answer_form, strict=True)
    ]


def reward_of_length(completions, **_):
    """A user's own reward that does not."""
    return [float(len(completion[-1]["content"])) for completion in completions]


class Recipe:
    """Configs in `folder/recipe`, data in `folder/run`, `model` without its weights in `base`."""

    def __init__(self, folder, model):
        self.configs, self.run = folder / "recipe", folder / "run"
        self.base, self.data = self.run / "base", self.run / "data"
        for path in (self.configs, self.data):
            path.mkdir(parents=True)
        shutil.copytree(model, self.base, ignore=shutil.ignore_patterns("*.safetensors"))
        self.write_data("none")
        common = CPU | {"model_name_or_path": "{run}/base"}
        train = {"train_file": "{run}/data/sft_train.jsonl", "output_dir": "{run}/sft"}
        self.write("sft", **common, **train)
        train = {"train_file": "{run}/data/grpo_train.jsonl", "output_dir": "{run}/grpo"}
        self.write(
            "grpo", **CPU, **train, model_name_or_path="{run}/sft", max_completion_length=256
        )
        self.write(
            "eval", checkpoints=["sft={run}/sft"], test_file="{run}/data/test.jsonl",
            output_dir="{run}/eval", report_dir="{run}/report", max_new_tokens=256,
        )  # fmt: skip

    def write_data(self, prompt_name, answers=None):
        """The three files of data; `answers` stand for the golds of test and GRPO rows."""
        for name, split, make in (
            ("sft_train", "train", sft_row),
            ("grpo_train", "rl", grpo_row),
            ("test", "test", grpo_row),
        ):
            problems = synthetic.load(split, NUM_ROWS, 0, max_level=2)
            rows = [make(problem, prompt_name) for problem in problems]
            if answers and name != "sft_train":
                rows = [row | {"answers": answers} for row in rows]
            write_rows(self.data / f"{name}.jsonl", rows)

    def write(self, stage, **values):
        """Write `<stage>.yaml`, or change some of its keys."""
        path = self.configs / f"{stage}.yaml"
        before = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(before | values))  # JSON is YAML

    def change_tokenizer(self, **values):
        """Change keys of the tokenizer's config."""
        path = self.base / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def set_template(self, template):
        (self.base / "chat_template.jinja").write_text(template)

    def audit(self, *given):
        """Run the audit; returns its exit code."""
        argv = ["eval.audit", "--recipe", str(self.configs), "--run", str(self.run)]
        argv += ["--num_tricked", "3", "--num_parsed", "1", *given]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", argv)
            patch.setenv("HF_HUB_OFFLINE", "1")
            patch.setenv("COLUMNS", "100")
            patch.setenv("ALLOW_CODE", "1")
            try:
                run_cli(audit.main)
            except SystemExit as error:
                return error.code
        return 0

    @property
    def manifest(self):
        return self.run / "audit/manifest.json"

    def report(self):
        return json.loads((self.run / "audit/audit.json").read_text())
