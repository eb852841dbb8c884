"""What the report refuses: results that are missing, damaged, or were not scored alike."""

import json

import pytest

from data_prep.config import UserError
from data_prep.sampling.hashes import hash_checkpoint
from eval.report.numbers import read_result
from tests.unit.report.runs import both_modes, run_report, write_result


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two checkpoints' results, and a call that reports on them."""
    for name in ("sft", "grpo"):
        write_result(tmp_path / "eval" / name, both_modes(1))
    return lambda *flags: run_report(tmp_path, monkeypatch, ["sft", "grpo"], *flags)


def write(text):
    return lambda path: path.write_text(text)


def cut(keep):
    return lambda path: path.write_bytes(path.read_bytes()[:keep])


def rot(path):
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 200 + data[204:])


def remove(path):
    path.unlink()


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("eval/grpo/scores.json", remove, "is missing"),
        ("eval/grpo/completions.parquet", remove, "is missing"),
        ("eval/manifest.json", remove, "is missing; run `make eval`"),
        ("eval/manifest.json", write('{"stage": '), "is damaged"),
        ("eval/sft/completions.parquet", cut(0), "is damaged .*`make eval`"),
        ("eval/sft/completions.parquet", cut(-50), "is damaged .*`make eval`"),
        ("eval/sft/completions.parquet", rot, "completions"),
        ("eval/sft/scores.json", write('{"tasks": '), "is damaged"),
        ("eval/sft/scores.json", write('{"scores": {}}'), "is damaged"),
        ("sft/trainer_state.json", write('{"log_history": ['), "is damaged"),
    ],
)
def test_a_missing_or_damaged_file_is_named(run, tmp_path, name, harm, message):
    (tmp_path / "sft").mkdir()
    harm(tmp_path / name)
    with pytest.raises(UserError, match=message) as error:
        run()
    assert name in str(error.value) and "\n" not in str(error.value)


def test_results_of_other_settings(run, tmp_path):
    with pytest.raises(UserError, match=r"temperature: 0.6 .* 1.0 .*run `make eval`"):
        run("--temperature", "0.6")
    assert not (tmp_path / "report").exists()


def test_a_checkpoint_that_has_changed(run, tmp_path):
    (tmp_path / "grpo").mkdir()
    (tmp_path / "grpo" / "config.json").write_text("{}")
    path = tmp_path / "eval" / "grpo" / "scores.json"
    scores = json.loads(path.read_text())
    scores["fingerprint"]["checkpoint"] = hash_checkpoint(str(tmp_path / "grpo"), "checkpoints")
    path.write_text(json.dumps(scores))
    run()
    (tmp_path / "grpo" / "model.safetensors").write_bytes(b"trained further")
    with pytest.raises(UserError, match="grpo has changed since it was"):
        run()


def test_scores_and_completions_of_different_runs(tmp_path):
    write_result(tmp_path / "a", both_modes(1))
    write_result(tmp_path / "b", both_modes(3))
    (tmp_path / "b" / "scores.json").replace(tmp_path / "a" / "scores.json")
    with pytest.raises(UserError, match=r"has accuracy 0\.75.* give 0\.25"):
        read_result(tmp_path / "a")


OTHERS = [
    (both_modes(1), {"temperature": 0.7}, "temperature: 1.0 for sft but 0.7 for grpo"),
    (both_modes(1)[:-2], {}, "completions of held_out, sampled: 8 for sft but 6 for grpo"),
    (both_modes(1)[:4], {}, "completions of held_out, sampled: 8 for sft but None for grpo"),
    (
        [row | {"gold": ["5"]} for row in both_modes(1)],
        {},
        r"gold of .*: \['4'\] for sft but \['5'",
    ),
    ([row | {"source": "other"} for row in both_modes(1)], {}, "gold of .*None for"),
]


@pytest.mark.parametrize(("rows", "changes", "message"), OTHERS)
def test_checkpoints_that_were_not_scored_alike(tmp_path, monkeypatch, rows, changes, message):
    write_result(tmp_path / "eval" / "sft", both_modes(1))
    write_result(tmp_path / "eval" / "grpo", rows, **changes)
    with pytest.raises(UserError, match=f"{message}.*`make eval`"):
        run_report(tmp_path, monkeypatch, ["sft", "grpo"])
    assert not (tmp_path / "report").exists()
