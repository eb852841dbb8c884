"""The evaluation's settings: what is refused, before torch is imported; what results depend on."""

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

from data_prep.decontamination import benchmarks
from eval import run
from eval.harness import results, score, suite
from eval.harness.settings import EvalArguments, check_inputs, split_checkpoints
from grading import extract
from pipeline import lock, manifest, prompts, rows
from pipeline.errors import UserError
from tests.files import write_rows
from tests.unit.stages.helpers import write_model

ROW = json.dumps(
    {"question": "2+2?", "id": "a", "source": "s", "level": 1, "answers": ["4"]}
    | {"answer_form": "box", "prompt": [{"role": "user", "content": "2 + 2?"}]}
)


def arguments(**changes):
    values = {"checkpoints": ["a=b"], "output_dir": "out", "report_dir": "report"}
    return EvalArguments(**values | {"test_file": "test.jsonl"} | changes)


def test_checkpoints_by_name():
    found = split_checkpoints(["sft=runs/x/sft", "base=a/b", "a=b=c"])
    assert list(found.items()) == [("sft", "runs/x/sft"), ("base", "a/b"), ("a", "b=c")]
    for entry in ("..=a", ".=a", "-x=a", "manifest.json=a", "a/b=a", "=a", "a", "a="):
        with pytest.raises(UserError, match="is not name=path"):
            split_checkpoints([entry])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("checkpoints", ["sft=a", "sft=b"], "checkpoints: the name 'sft' occurs twice"),
        ("checkpoints", [], r"checkpoints: \[\] is empty"),
        ("tasks", [], r"tasks: \[\] is empty, and so is official; list at least one task"),
        ("official", ["gsm8k", "gsm8k"], "official: 'gsm8k' occurs twice; remove one"),
        ("test_file", None, "test_file: missing; the task held_out reads it"),
        ("tasks", ["transfer"], "transfer_file: missing; the task transfer reads it"),
    ],
)
def test_settings_are_checked(key, value, message):
    with pytest.raises(UserError, match=message):
        arguments(**{key: value})


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Values that pass: a test file, a checkpoint, a folder with gsm8k."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # a check that passes sets it
    (tmp_path / "test.jsonl").write_text(ROW + "\n")
    write_model(tmp_path / "sft")
    (tmp_path / "data/gsm8k").mkdir(parents=True)
    for split in ("train", "test"):
        row = {"question": f"{split}: 2+2?", "answer": "#### 4"}
        write_rows(tmp_path / f"data/gsm8k/{split}.jsonl", [row])
    values = {"checkpoints": [f"sft={tmp_path}/sft"], "data_root": f"{tmp_path}/data"}
    values |= {"tasks": ["held_out", "gsm8k"], "official": ["gsm8k"]}
    return values | {"test_file": f"{tmp_path}/test.jsonl"}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("test.jsonl", None, r"test_file: .*test\.jsonl does not exist; `make data` builds it"),
        ("test.jsonl", "{", r"test\.jsonl:1: malformed"),
        ("test.jsonl", "\n", r"test_file: .*test\.jsonl has no rows; `make data` builds it"),
        ("test.jsonl", f"{ROW}\n{ROW}\n", "the id 'a' occurs twice, and results are kept by id"),
        ("test.jsonl", ROW.replace('"a"', "5"), "id 5: id: is not text; fix it"),
        ("test.jsonl", ROW.replace("1", '"Level 1"'), r"level: must be .* number, found 'Level 1'"),
        ("sft/config.json", None, r"checkpoints: sft: .*/sft holds no model; run `make sft` first"),
        ("data/gsm8k/test.jsonl", None, r"gsm8k: data_root: .*/data has none of gsm8k/test\.jsonl"),
        ("data/gsm8k/test.jsonl", '{"question": "a"}', r"gsm8k/test\.jsonl:1: .*answer"),
        ("data/gsm8k/train.jsonl", None, r"no gsm8k/train\.jsonl for the split train of openai/"),
    ],
)
def test_what_is_missing_or_damaged_is_named(inputs, tmp_path, file, text, message):
    (tmp_path / file).unlink()
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(UserError, match=message) as error:
        check_inputs(arguments(**inputs))
    assert "\n" not in str(error.value)


def test_a_folder_of_data_that_is_none(inputs):
    with pytest.raises(UserError, match=r"data_root: /none is not a folder; set it to the"):
        check_inputs(arguments(**inputs | {"data_root": "/none"}))


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
    check_inputs(arguments(**inputs | changes))
    assert os.environ["HF_HUB_OFFLINE"] == offline


def test_scores_depend_on_what_scores_and_on_nothing_else():
    files = {file for place in results.SCORING_CODE for file in (place, *place.rglob("*"))}
    scoring = {Path(module.__file__) for module in (benchmarks, extract, prompts, run, score)}
    assert scoring <= files and suite.FOLDER / "think_common.yaml" in files
    assert not files & {Path(module.__file__) for module in (lock, manifest, rows)}


def test_the_data_of_each_task(inputs):
    root, test_file = inputs["data_root"], inputs["test_file"]
    files = [test_file, f"{root}/gsm8k/test.jsonl", f"{root}/gsm8k/train.jsonl"]
    assert results.hash_data(arguments(**inputs)) == {file: manifest.sha256(file) for file in files}
    hub = results.hash_data(
        arguments(**inputs | {"data_root": None, "tasks": ["gsm8k", "math500"]})
    )
    assert hub == {"openai/gsm8k": "hub", "HuggingFaceH4/MATH-500": "hub"}


def test_every_setting_decides_but_places_titles_and_how_much_is_done_at_once():
    assert {field.name for field in fields(EvalArguments)} >= results.NOT_DECIDING
    assert not results.NOT_DECIDING & results.deciding_settings(arguments()).keys()
    assert len(results.deciding_settings(arguments())) == 14


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"official": ["gsm8k"]}, True),
        ({}, False),
        ({"official": ["gsm8k"], "backend": "hf"}, False),
    ],
)
def test_the_context_counts_where_it_may_cut_a_prompt(changes, counts):
    """Few-shot prompts of official tasks are cut; a rendered one must fit."""
    found = [
        arguments(**{"backend": "vllm", "vllm_max_model_length": length} | changes)
        for length in (1024, 8192)
    ]
    first, second = map(results.deciding_settings, found)
    assert (first != second) == counts


def test_the_tasks_by_name():
    names = "aime24 aime25 amc23 arc_challenge brumo25 cmimc25 gpqa_diamond gsm8k held_out hmmt25"
    names += " math500 minerva olympiadbench transfer"
    assert names.split() == suite.THINK_TASKS
    assert suite.OFFICIAL_TASKS == ["arc_challenge", "gpqa_diamond", "gsm8k", "math500"]
    for name in suite.THINK_TASKS:
        assert f"metadata: {{benchmark: {name}}}" in (suite.FOLDER / f"{name}.yaml").read_text()
