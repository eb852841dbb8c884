"""The evaluation's settings: what is refused, with which words, and before torch is imported."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.config import UserError
from eval.harness.settings import EvalArguments, check_inputs, split_checkpoints

ROOT = Path(__file__).parents[3]
ROW = json.dumps(
    {"question": "2+2?", "id": "a", "source": "s", "level": 1, "answers": ["4"]}
    | {"answer_form": "box", "prompt": [{"role": "user", "content": "2 + 2?"}]}
)


@pytest.fixture(autouse=True)
def keep_environment(monkeypatch):
    """So that the variable is restored which a passing check sets."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")


def arguments(**changes):
    values = {"checkpoints": ["a=b"], "output_dir": "out", "report_dir": "report"}
    return EvalArguments(**values | {"test_file": "test.jsonl"} | changes)


def test_checkpoints_by_name():
    found = split_checkpoints(["sft=runs/x/sft", "base=a/b", "a=b=c"])
    assert list(found.items()) == [("sft", "runs/x/sft"), ("base", "a/b"), ("a", "b=c")]
    for name in ("..", ".", "-x", "manifest.json", "a/b", ""):
        with pytest.raises(UserError, match="is not name=path"):
            split_checkpoints([f"{name}=runs/x/sft"])


REFUSED = [
    ("checkpoints", ["runs/x/sft"], "checkpoints: 'runs/x/sft' is not name=path"),
    ("checkpoints", ["sft="], "checkpoints: 'sft=' is not name=path"),
    ("checkpoints", ["sft=a", "sft=b"], "checkpoints: the name 'sft' occurs twice"),
    ("checkpoints", [], r"checkpoints: \[\] is empty"),
    ("temperature", math.nan, "temperature: nan must be above 0"),
    ("top_p", math.nan, "top_p: nan"),
    ("vllm_gpu_memory_utilization", math.nan, "vllm_gpu_memory_utilization: nan"),
    ("num_samples", 0, "num_samples: 0 must be above 0"),
    ("max_new_tokens", -1, "max_new_tokens: -1 must be above 0"),
    ("batch_size", 0, "batch_size: 0 must be above 0"),
    ("temperature", 0.0, "temperature: 0.0 must be above 0"),
    ("temperature", 3.0, "temperature: 3.0 must be at most 2"),
    ("top_p", 1.5, "top_p: 1.5 must be above 0 and at most 1"),
    ("top_p", 0.0, "top_p: 0.0 must be above 0"),
    ("vllm_gpu_memory_utilization", 2.0, "vllm_gpu_memory_utilization: 2.0 must be above 0"),
    ("limit", 0, "limit: 0 must be at least 1; leave it out for all problems"),
    ("dtype", "fp32", "dtype: must be one of float32, bfloat16, float16 .got 'fp32'"),
    ("backend", "sglang", "backend: must be one of hf, vllm .got 'sglang'"),
    ("system_prompt", "thinking", "system_prompt: must be one of none, think, boxed"),
    ("answer_form", "boxed", r"answer_form: must be one of box, tags \(got 'boxed'\)"),
    ("tasks", ["gsm9k"], "tasks: must be of aime24, .*got 'gsm9k'"),
    ("tasks", ["gsm8k", "gsm8k"], "tasks: 'gsm8k' occurs twice; remove one"),
    ("tasks", [], r"tasks: \[\] is empty, and so is official; list at least one task"),
    ("official", ["aime24"], "official: must be of arc_challenge, .*got 'aime24'"),
    ("official", ["gsm8k", "gsm8k"], "official: 'gsm8k' occurs twice"),
    ("official_chat_template", True, "official_chat_template: there is no official task"),
    ("test_file", None, "test_file: missing; the task held_out reads it"),
]


@pytest.mark.parametrize(("key", "value", "message"), REFUSED)
def test_settings_are_checked(key, value, message):
    with pytest.raises(UserError, match=message) as error:
        arguments(**{key: value})
    assert "\n" not in str(error.value)


def test_what_is_not_read_may_be_missing():
    arguments(tasks=["gsm8k"], test_file=None)
    arguments(tasks=[], official=["gsm8k"], test_file=None)


@pytest.fixture
def inputs(tmp_path):
    """Values that pass: a test file, a checkpoint, a folder with gsm8k."""
    (tmp_path / "test.jsonl").write_text(ROW + "\n")
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "config.json").touch()
    (tmp_path / "data" / "gsm8k").mkdir(parents=True)
    for split in ("train", "test"):
        row = {"question": f"{split}: 2+2?", "answer": "#### 4"}
        (tmp_path / "data" / "gsm8k" / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    values = {"checkpoints": [f"sft={tmp_path}/sft"], "data_root": f"{tmp_path}/data"}
    values |= {"tasks": ["held_out", "gsm8k"], "official": ["gsm8k"]}
    return values | {"test_file": f"{tmp_path}/test.jsonl"}


def test_inputs_that_are_there(inputs):
    check_inputs(inputs)
    check_inputs(inputs | {"tasks": "gsm8k", "official": "gsm8k"})  # one value on a command line


def damage(path, text=None):
    """Remove a file, or put this in its place."""
    path.unlink()
    if text is not None:
        path.write_text(text)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("test.jsonl", None, r"test_file: .*test\.jsonl does not exist; `make data` builds it"),
        ("test.jsonl", "{", r"test\.jsonl:1: malformed"),
        ("test.jsonl", '{"id": "a"}', r"test\.jsonl:1"),
        ("test.jsonl", ROW.replace("answer_form", "form"), r"test\.jsonl:1: answer_form: missing"),
        ("test.jsonl", "\n", r"test_file: .*test\.jsonl has no rows; `make data` builds it"),
        ("test.jsonl", f"{ROW}\n{ROW}\n", "the id 'a' occurs twice, and results are kept by id"),
        ("test.jsonl", ROW.replace('"a"', "5"), "id 5: id: 5 is not text; fix it"),
        ("test.jsonl", ROW.replace('"2+2?"', "4", 2), "id 'a': question: 4 is not text"),
        ("test.jsonl", ROW.replace("1", '"Level 1"'), "level: 'Level 1' is not a number"),
        ("sft/config.json", None, r"checkpoints: sft: .*/sft holds no model; run `make sft` first"),
        ("data/gsm8k/test.jsonl", None, r"gsm8k: data_root: .*/data has none of gsm8k/test\.jsonl"),
        ("data/gsm8k/test.jsonl", '{"question": "a"}', r"gsm8k/test\.jsonl:1: .*answer"),
        ("data/gsm8k/train.jsonl", None, r"no gsm8k/train\.jsonl for the split train of openai/"),
    ],
)
def test_what_is_missing_or_damaged_is_named(inputs, tmp_path, file, text, message):
    damage(tmp_path / file, text)
    with pytest.raises(UserError, match=message) as error:
        check_inputs(inputs)
    assert "\n" not in str(error.value)


def test_a_data_root_that_is_no_folder(inputs, tmp_path):
    for root in (f"{tmp_path}/nowhere", f"{tmp_path}/test.jsonl"):
        with pytest.raises(UserError, match=r"data_root: .* is not a folder; set it to the"):
            check_inputs(inputs | {"data_root": root})


@pytest.mark.parametrize(
    ("changes", "offline"),
    [
        ({}, "1"),
        ({"checkpoints": ["base=Qwen/Qwen2.5-7B-Instruct"]}, "0"),
        ({"data_root": None}, "0"),
        ({"data_root": None, "tasks": [], "official": ["gsm8k"]}, "0"),
        ({"data_root": None, "tasks": ["held_out"], "official": []}, "1"),
    ],
)
def test_offline_only_where_nothing_of_the_hub_is_asked_for(inputs, changes, offline):
    check_inputs(inputs | changes)
    assert os.environ["HF_HUB_OFFLINE"] == offline


# All command lines in one process: each must end with code 2 and one line, without torch.
SCRIPT = """
import io, json, sys
from unittest import mock
from data_prep.config import run_cli
from eval import run

for argv in json.loads(sys.argv[1]):
    with mock.patch.object(sys, "argv", ["eval.run", *argv]), \\
            mock.patch("sys.stderr", io.StringIO()) as err:
        try:
            run_cli(run.main)
            code = 0
        except SystemExit as end:
            code = end.code
    heavy = sorted({"torch", "transformers", "lm_eval", "datasets"} & set(sys.modules))
    print(json.dumps([code, err.getvalue(), heavy]))
"""


def test_every_mistake_costs_one_line_and_no_time(inputs, tmp_path):
    values = inputs | {"output_dir": f"{tmp_path}/eval", "report_dir": f"{tmp_path}/report"}
    changes = [{key: value} for key, value, _ in REFUSED if value is not None and value != []]
    changes += [
        {"checkpoints": [f"sft={tmp_path}/nowhere"]}, {"temperature": "hot"}, {"limit": "1.5"},
        {"test_file": f"{tmp_path}/nowhere.jsonl"}, {"data_root": "/nowhere"}, {"backends": "hf"},
        {"config": f"{tmp_path}/nowhere.yaml"},
    ]  # fmt: skip
    lines = []
    for change in changes:
        merged = values | change
        if "official_chat_template" in change:
            del merged["official"]
        lines.append(
            [
                part
                for key, value in merged.items()
                for part in (f"--{key}", *map(str, value if isinstance(value, list) else [value]))
            ]
        )
    command = [sys.executable, "-c", SCRIPT, json.dumps(lines)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(changes)
    for change, (code, error, heavy) in zip(changes, found, strict=True):
        assert code == 2, change
        assert error.startswith("error: ") and error.count("\n") == 1, (change, error)
        assert next(iter(change)).removesuffix("s") in error, (change, error)
        assert heavy == [], change
    assert not (tmp_path / "eval").exists()
