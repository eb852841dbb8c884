"""Which results an evaluation takes the place of, and that they are kept once."""

import json

import pytest

from eval.harness.superseded import check_model, difference, keep
from pipeline.errors import UserError

SETTINGS = {"tasks": ["gsm8k"], "official": [], "prompt": "none", "num_samples": 4, "limit": 50}
OLD = {"settings": SETTINGS, "data": {"a/test.jsonl": "1", "owner/set": "hub"}, "checkpoint": "w"}
OLD |= {"code": "old", "engine": "hf float32 old"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"tasks": ["gsm8k", "math500"], "official": ["gsm8k"]}, ""),
        ({"tasks": ["math500"]}, "tasks: ['gsm8k'], not ['math500']"),
        ({"num_samples": 8}, ""),
        ({"num_samples": 2}, "num_samples: 4, not 2"),
        ({"limit": None}, ""),
        ({"limit": 60}, ""),
        ({"limit": 40}, "limit: 50, not 40"),
        ({"prompt": "think"}, "prompt: none, not think"),
        ({"a key of a later version": 1}, ""),
    ],
)
def test_what_only_adds_takes_nobodys_place(changes, expected):
    assert difference(OLD, OLD | {"settings": SETTINGS | changes}) == expected


def test_other_problems_and_weights_count_and_other_code_does_not():
    assert difference(OLD, OLD | {"code": "new", "engine": "hf float32 new"}) == ""
    data = {"b/test.jsonl": "1", "owner/set": "hub"}
    assert difference(OLD, OLD | {"data": data | {"more": "2"}}) == ""
    assert difference(OLD, OLD | {"data": data | {"b/test.jsonl": "2"}}) == "other problems"
    assert difference(OLD, OLD | {"checkpoint": "v"}) == "other weights"


def test_a_limit_that_is_new_takes_the_place_of_all_problems():
    old = OLD | {"settings": SETTINGS | {"limit": None}}
    assert difference(old, OLD) == "limit: None, not 50"


def test_another_model_under_a_known_name_is_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    old = {"checkpoint": str(tmp_path / "a"), "fingerprint": {"checkpoint": "w"}}
    new = OLD | {"checkpoint": "v"}
    check_model("ckpt", str(tmp_path / "a"), old, new)  # trained on
    check_model("ckpt", str(tmp_path / "b"), old, OLD)  # a copy
    with pytest.raises(UserError, match=r"^checkpoints: ckpt=.*/b: the results under .* of .*/a;"):
        check_model("ckpt", str(tmp_path / "b"), old, new)
    (tmp_path / "a").rmdir()
    check_model("ckpt", str(tmp_path / "b"), old, new)  # the run was moved
    hub = {"checkpoint": "owner/model", "fingerprint": {"checkpoint": "hub:owner/model@1"}}
    with pytest.raises(UserError, match="are of owner/model"):
        check_model("ckpt", str(tmp_path / "b"), hub, new)


def write(folder, **texts):
    """Results of checkpoints, and a manifest."""
    for name, text in texts.items():
        (folder / name / "samples").mkdir(parents=True, exist_ok=True)
        for file in ("scores.json", "completions.parquet", "samples/samples-0.jsonl"):
            (folder / name / file).write_text(f"{file} {text}")
    (folder / "manifest.json").write_text(json.dumps({"stage": "eval", "made": texts}))


def files(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_all_results_are_kept_together_and_once(tmp_path, capsys):
    folder = tmp_path / "eval"
    write(folder, base="one", sft="one")
    before = {k: v for k, v in files(folder).items() if "samples" not in k}
    keep(str(folder), {})
    assert not (tmp_path / "eval.1").exists()
    keep(str(folder), {"sft": "prompt: none, not think"})
    assert files(tmp_path / "eval.1") == before and len(before) == 5
    assert "kept in " in capsys.readouterr().out
    write(folder, base="two")  # and a kill; then it goes on
    (folder / "manifest.json").unlink()
    keep(str(folder), {"sft": "prompt: none, not think"})
    assert not (tmp_path / "eval.2").exists() and capsys.readouterr().out == ""
    write(folder, sft="two")
    keep(str(folder), {"base": "other weights", "sft": "other weights"})
    assert files(tmp_path / "eval.2")["base/scores.json"] == "scores.json two"
    assert files(tmp_path / "eval.1") == before
    assert not list(tmp_path.glob("*.partial"))
