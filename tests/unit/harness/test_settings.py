"""The evaluation's settings: what is refused before torch is imported; what results depend on,
and which ones an evaluation may take the place of."""

import os
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from data_prep.decontamination import benchmarks
from eval import run
from eval.harness import results, score, suite
from eval.harness.settings import EvalArguments, check_inputs
from grading import extract
from pipeline import lock, manifest, prompts, rows
from pipeline.errors import UserError
from pipeline.folders import link
from pipeline.manifest import write_json
from tests.files import write_rows
from tests.unit.stages.helpers import write_model

CASES = yaml.safe_load(Path(__file__).with_name("inputs.yaml").read_text(encoding="utf-8"))


def arguments(**changes):
    values = {"checkpoints": ["a=b"], "output_dir": "out", "report_dir": "report"}
    return EvalArguments(**values | {"test_file": "test.jsonl"} | changes)


def change(changes):
    return arguments(**changes)


def context_counts(changes):
    """Whether results of two sizes of the context differ."""
    found = [
        arguments(**{"backend": "vllm", "vllm_max_model_length": length} | changes)
        for length in (1024, 8192)
    ]
    first, second = map(results.deciding_settings, found)
    return first != second


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Values that pass: a test file, a checkpoint, a folder with gsm8k."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # a check that passes sets it
    (tmp_path / "test.jsonl").write_text(CASES["row"] + "\n")
    write_model(tmp_path / "sft")
    (tmp_path / "data/gsm8k").mkdir(parents=True)
    for split in ("train", "test"):
        row = {"question": f"{split}: 2+2?", "answer": "#### 4"}
        write_rows(tmp_path / f"data/gsm8k/{split}.jsonl", [row])
    values = {"checkpoints": [f"sft={tmp_path}/sft"], "data_root": f"{tmp_path}/data"}
    values |= {"tasks": ["held_out", "gsm8k"], "official": ["gsm8k"]}
    return values | {"test_file": f"{tmp_path}/test.jsonl"}


@pytest.mark.parametrize(("file", "text", "message"), CASES["damaged"])
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


@pytest.mark.parametrize(("changes", "offline"), CASES["offline"])
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


def test_the_tasks_by_name():
    names = "aime24 aime25 amc23 arc_challenge brumo25 cmimc25 gpqa_diamond gsm8k held_out hmmt25"
    names += " math500 minerva olympiadbench transfer"
    assert names.split() == suite.THINK_TASKS
    assert suite.OFFICIAL_TASKS == ["arc_challenge", "gpqa_diamond", "gsm8k", "math500"]
    for name in suite.THINK_TASKS:
        assert f"metadata: {{benchmark: {name}}}" in (suite.FOLDER / f"{name}.yaml").read_text()


DIGEST = "abcdef0123456789"
SETTINGS = {"tasks": ["gsm8k"], "official": [], "prompt": "none", "num_samples": 4, "limit": 50}
OLD = {"settings": SETTINGS, "data": {"a/test.jsonl": "1", "owner/set": "hub"}}
OLD |= {"checkpoint": DIGEST, "code": "old", "engine": "hf float32 old"}


def other_settings(changes):
    """What stops an evaluation with these changes of the settings."""
    return results.other_settings(OLD, OLD | {"settings": SETTINGS | changes})


def is_of(changes):
    if "settings" in changes:
        changes = changes | {"settings": SETTINGS | changes["settings"]}
    assert results.is_of({}, OLD)
    return results.is_of(OLD, OLD | changes)


def test_a_limit_takes_results_away():
    new = OLD | {"settings": SETTINGS | {"limit": None}}
    assert results.other_settings(new, OLD) == "limit: 50, not None"


@pytest.fixture
def find(tmp_path, monkeypatch):
    """`results.find` of a checkpoint with a fingerprint; the folder's name comes first."""
    args = EvalArguments(
        checkpoints=["sft=b"], output_dir=f"{tmp_path}/eval", report_dir="r", test_file="t"
    )

    def call(**changes):
        monkeypatch.setattr(results, "fingerprint", lambda *_: OLD | changes)
        folder, *_, is_current = results.find("sft", "b", args)
        return folder.removeprefix(f"{tmp_path}/eval/"), is_current

    return call


def write(folder, **changes):
    folder.mkdir(parents=True)
    made = {"fingerprint": OLD | changes, "settings": SETTINGS, "tasks": {}}
    write_json(folder / "scores.json", made | {"num_problems": 1, "num_completions": 1})
    (folder / "completions.parquet").write_text("")


def test_each_weights_have_a_folder(find, tmp_path):
    assert find() == ("sft-abcdef", False)
    write(tmp_path / "eval/sft-abcdef")
    link(tmp_path / "eval/sft", tmp_path / "eval/sft-abcdef")
    assert find() == ("sft-abcdef", True)
    assert find(checkpoint="123456789") == ("sft-123456", False)
    assert find(checkpoint="hub:owner/model@fedcba98765") == ("sft-fedcba", False)
    others = {"data": {"a/test.jsonl": "2"}}
    assert find(**others) == ("sft-abcdef-2", False), "as new data are built"
    write(tmp_path / "eval/sft-abcdef-2", **others)
    assert find(**others) == ("sft-abcdef-2", True) and find() == ("sft-abcdef", True)
    assert find(checkpoint="abcdef0 on base") == ("sft-abcdef-3", False), "the same six letters"
    (tmp_path / "eval/sft-abcdef-2/completions.parquet").unlink()
    assert find(**others) == ("sft-abcdef-2", False), "what is not whole is scored again"
    (tmp_path / "eval/sft-abcdef/scores.json").write_text("{")
    assert find() == ("sft-abcdef", False), "what is damaged, too"


@pytest.mark.parametrize(("folder", "old", "words"), CASES["other results"])
def test_other_results_are_refused_and_stay(find, tmp_path, folder, old, words):
    if "settings" in old:
        old = old | {"settings": SETTINGS | old["settings"]}
    write(tmp_path / "eval" / folder, **old)
    (tmp_path / "eval-2").mkdir()
    with pytest.raises(UserError, match=f"^{words}.* such as eval.output_dir={tmp_path}/eval-3$"):
        find()


def test_a_folder_of_the_version_before_is_used_if_it_is_current(find, tmp_path):
    write(tmp_path / "eval/sft")
    assert find() == ("sft", True)
