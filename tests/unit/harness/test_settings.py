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
from tests.unit.stages.helpers import write_model

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
    for entry in ("..=a", ".=a", "-x=a", "manifest.json=a", "a/b=a", "=a", "a", "a="):
        with pytest.raises(UserError, match="is not name=path"):
            split_checkpoints([entry])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("checkpoints", ["sft=a", "sft=b"], "checkpoints: the name 'sft' occurs twice"),
        ("checkpoints", [], r"checkpoints: \[\] is empty"),
        ("tasks", ["gsm8k", "gsm8k"], "tasks: 'gsm8k' occurs twice; remove one"),
        ("tasks", [], r"tasks: \[\] is empty, and so is official; list at least one task"),
        ("official", ["gsm8k", "gsm8k"], "official: 'gsm8k' occurs twice"),
        ("test_file", None, "test_file: missing; the task held_out reads it"),
        ("tasks", ["transfer"], "transfer_file: missing; the task transfer reads it"),
    ],
)
def test_settings_are_checked(key, value, message):
    with pytest.raises(UserError, match=message):
        arguments(**{key: value})


@pytest.fixture
def inputs(tmp_path):
    """Values that pass: a test file, a checkpoint, a folder with gsm8k."""
    (tmp_path / "test.jsonl").write_text(ROW + "\n")
    write_model(tmp_path / "sft")
    (tmp_path / "data" / "gsm8k").mkdir(parents=True)
    for split in ("train", "test"):
        row = {"question": f"{split}: 2+2?", "answer": "#### 4"}
        (tmp_path / "data" / "gsm8k" / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
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
        ("test.jsonl", ROW.replace('"2+2?"', "4", 2), r"test\.jsonl:1: question: must be a text"),
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
    with pytest.raises(UserError, match=r"data_root: .* is not a folder; set it to the"):
        check_inputs(arguments(**inputs | {"data_root": f"{tmp_path}/none"}))


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


def test_the_data_of_each_task(tmp_path):
    for name in ("gsm8k/train.jsonl", "gsm8k/test.jsonl", "math/math500_test.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    own = {"id": "a", "prompt": [{"role": "user", "content": "?"}], "answers": ["1"]}
    (tmp_path / "test.jsonl").write_text(json.dumps(own | {"answer_form": "box"}) + "\n")
    settings = {"tasks": ["held_out", "gsm8k", "math500"], "official": ["gsm8k"]}
    settings |= {"test_file": f"{tmp_path}/test.jsonl"}
    local = results.hash_data(arguments(**settings, data_root=str(tmp_path)))
    files = ["test.jsonl", "gsm8k/test.jsonl", "math/math500_test.jsonl", "gsm8k/train.jsonl"]
    assert local == {f"{tmp_path}/{file}": manifest.sha256(tmp_path / file) for file in files}
    hub = results.hash_data(arguments(**settings))
    hub.pop(f"{tmp_path}/test.jsonl")
    assert hub == {"openai/gsm8k": "hub", "HuggingFaceH4/MATH-500": "hub"}


def test_every_setting_decides_but_places_titles_and_how_much_is_done_at_once():
    assert {field.name for field in fields(EvalArguments)} >= results.NOT_DECIDING
    assert not results.NOT_DECIDING & results.deciding_settings(arguments()).keys()
    assert len(results.deciding_settings(arguments())) == 14


def test_the_context_counts_where_it_may_cut_a_prompt():
    """Few-shot prompts of official tasks are cut; a rendered one must fit."""
    cut, whole = {"official": ["gsm8k"]}, {}
    for more, counts in ((cut, True), (whole, False), (cut | {"backend": "hf"}, False)):
        found = [
            results.deciding_settings(
                arguments(**{"backend": "vllm", "vllm_max_model_length": length} | more)
            )
            for length in (1024, 8192)
        ]
        assert (found[0] != found[1]) == counts


def test_the_tasks_by_name():
    names = "aime24 aime25 amc23 arc_challenge brumo25 cmimc25 gpqa_diamond gsm8k held_out hmmt25"
    names += " math500 minerva olympiadbench transfer"
    assert names.split() == suite.THINK_TASKS
    assert suite.OFFICIAL_TASKS == ["arc_challenge", "gpqa_diamond", "gsm8k", "math500"]
    for name in suite.THINK_TASKS:
        assert f"metadata: {{benchmark: {name}}}" in (suite.FOLDER / f"{name}.yaml").read_text()
