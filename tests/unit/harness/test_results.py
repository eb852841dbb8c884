"""Which results an evaluation may take the place of, and the folder that it gets else."""

import pytest

from eval.harness import results
from eval.harness.settings import EvalArguments
from pipeline.errors import UserError
from pipeline.folders import link
from pipeline.manifest import write_json

DIGEST = "abcdef0123456789"
SETTINGS = {"tasks": ["gsm8k"], "official": [], "prompt": "none", "num_samples": 4, "limit": 50}
OLD = {"settings": SETTINGS, "data": {"a/test.jsonl": "1", "owner/set": "hub"}}
OLD |= {"checkpoint": DIGEST, "code": "old", "engine": "hf float32 old"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"tasks": ["gsm8k", "math500"], "official": ["gsm8k"]}, ""),
        ({"tasks": ["math500"]}, "tasks: ['math500'], not ['gsm8k']"),
        ({"num_samples": 8}, ""),
        ({"num_samples": 2}, "num_samples: 2, not 4"),
        ({"limit": None}, ""),
        ({"limit": 60}, ""),
        ({"limit": 40}, "limit: 40, not 50"),
        ({"prompt": "think"}, "prompt: think, not none"),
        ({"a key of a later version": 1}, ""),
    ],
)
def test_what_only_adds_has_all_earlier_results(changes, expected):
    assert results.other_settings(OLD, OLD | {"settings": SETTINGS | changes}) == expected
    if changes == {"limit": None}:
        new = OLD | {"settings": SETTINGS | changes}
        assert results.other_settings(new, OLD) == "limit: 50, not None"


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"code": "new", "engine": "hf float32 new"}, True),
        ({"data": {"b/test.jsonl": "1", "owner/set": "hub", "more": "2"}}, True),
        ({"data": {"a/test.jsonl": "2", "owner/set": "hub"}}, False),
        ({"checkpoint": "v"}, False),
        # A task that is left out is a setting.
        ({"settings": SETTINGS | {"tasks": ["math500"]}, "data": {"owner/set": "hub"}}, True),
    ],
)
def test_other_problems_and_weights_count_and_other_code_does_not(changes, is_same):
    assert results.is_of({}, OLD)
    assert results.is_of(OLD, OLD | changes) is is_same


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
    (tmp_path / "eval/sft-abcdef/scores.json").write_text("{")
    assert find() == ("sft-abcdef", False), "what is damaged is scored again"


@pytest.mark.parametrize(
    ("folder", "old", "words"),
    [
        ("sft-abcdef", {"settings": SETTINGS | {"num_samples": 9}}, "num_samples: 4, not 9"),
        ("sft", {"code": "older"}, "output_dir: version 0.2.0 made it: the results in .*/sft stay"),
        ("sft", {"settings": SETTINGS | {"prompt": "x"}}, "prompt: none, not x"),
    ],
)
def test_other_results_are_refused_and_stay(find, tmp_path, folder, old, words):
    write(tmp_path / "eval" / folder, **old)
    (tmp_path / "eval-2").mkdir()
    with pytest.raises(UserError, match=f"^{words}.* such as eval.output_dir={tmp_path}/eval-3$"):
        find()


def test_a_folder_of_the_version_before_is_used_if_it_is_current(find, tmp_path):
    write(tmp_path / "eval/sft")
    assert find() == ("sft", True)
