"""What the report refuses: results that are missing, damaged, or were not scored alike."""

import json

import pytest

from pipeline.errors import UserError
from tests.unit.report.runs import both_modes, run_report, write_result


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two checkpoints' results, and a call that reports on them."""
    for name in ("sft", "grpo"):
        write_result(tmp_path / "eval" / name, both_modes(1))
    return lambda *flags: run_report(tmp_path, monkeypatch, ["sft", "grpo"], *flags)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("eval/grpo/scores.json", None, "is missing"),
        ("eval/grpo/completions.parquet", None, "is missing"),
        ("eval/manifest.json", None, "missing; run `make eval`"),
        ("eval/manifest.json", '{"stage": ', "is damaged"),
        ("eval/sft/completions.parquet", "PAR1", "has changed .*`make eval`"),
        ("eval/sft/scores.json", '{"scores": {}}', "has changed"),
        ("sft/trainer_state.json", '{"log_history": [', "is damaged"),
    ],
)
def test_a_missing_or_damaged_file_is_named(run, tmp_path, name, text, message):
    (tmp_path / "sft").mkdir()
    path = tmp_path / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        run()
    assert name in str(error.value) and "\n" not in str(error.value)


def test_what_was_evaluated_is_reported_not_what_the_recipe_says(run):
    made = run("--title", "{base}, trained", "--temperature", "0.6")
    report = json.loads((made / "report.json").read_text())
    assert (report["title"], [*report["checkpoints"]]) == ("sft, trained", ["sft", "grpo"])
    assert report["settings"]["temperature"] == 1.0


def test_converted_weights_are_a_note(run, tmp_path):
    (tmp_path / "sft").mkdir()
    blocks = {"file": "a.gguf", "source": "here", "sha256": "0", "quantization": "Q4_1 (4-bit)"}
    whole = blocks | {"file": "b.gguf", "quantization": ""}
    made = {"stage": "sft", "origins": {"/cache/a": blocks, str(tmp_path / "sft"): whole}}
    (tmp_path / "sft/manifest.json").write_text(json.dumps(made))
    folder = run()
    report = json.loads((folder / "report.json").read_text())
    assert report["origins"] == made["origins"]
    page = (folder / "report.html").read_text()
    assert "/cache/a was converted from a.gguf, here: its weights were rounded to Q4_1" in page
    assert "sft was converted from b.gguf, here." in page


def test_a_checkpoint_that_was_scored_by_other_code(run, tmp_path, monkeypatch):
    write_result(tmp_path / "eval/new", both_modes(1), code="newer")
    with pytest.raises(UserError, match="code: new was evaluated with another code than sft"):
        run_report(tmp_path, monkeypatch, ["sft", "new"])
    assert not (tmp_path / "report").exists()
