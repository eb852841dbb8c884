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
