"""Grading a file: every kind of line gives one line, and the command keeps its word."""

import gzip
import json
import re
from pathlib import Path

import pytest
import yaml

from grading import __main__ as grade_file
from grading.grade import grade_all
from pipeline.errors import UserError, run_cli
from pipeline.rows import read_rows_and_faults
from tests.files import read_rows

THOUGHT = "<think>so</think> "
CASES = yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text(encoding="utf-8"))


def completion(answer):
    return rf"{THOUGHT}\boxed{{{answer}}}"


def row(prediction=None, gold="4", **columns):
    prediction = completion("4") if prediction is None else prediction
    return json.dumps({"prediction": prediction, "gold": gold} | columns).encode()


def grade_line(line, tmp_path):
    """The output row of a file of one line, or of the columns of one."""
    path = tmp_path / "f.jsonl"
    if isinstance(line, dict):
        line = json.dumps({"prediction": completion("4"), "gold": "4"} | line)
    path.write_bytes(line if isinstance(line, bytes) else line.encode())
    ((where, row),) = read_rows_and_faults(path)
    return grade_file.grade_row(where, row, grade_all)


LONG = row("<think>" + "so " * 1_000_000 + "</think>" + completion("4")[len(THOUGHT) :])
MARKED = b"\xef\xbb\xbf" + row() + b" \r\n"
READ = [*CASES["read"], (LONG, "right", "4"), (MARKED, "right", "4")]
DIGITS = f'{{"prediction": "a", "gold": {"9" * 5_000}}}'
UNREAD = [*CASES["unread"], (DIGITS, "unparseable", "4300 digits")]


@pytest.mark.parametrize(("line", "verdict", "extracted"), READ)
def test_a_line_that_can_be_read(line, verdict, extracted, tmp_path):
    output = grade_line(line, tmp_path)
    assert (output["verdict"], output["extracted"]) == (verdict, extracted)
    assert "error" not in output


@pytest.mark.parametrize(("line", "verdict", "words"), UNREAD)
def test_a_line_that_cannot_be_read(line, verdict, words, tmp_path):
    output = grade_line(line, tmp_path)
    assert output["verdict"] == verdict
    assert re.search(rf"f\.jsonl:1: .*{words}", output["error"])
    assert output["error"].count("f.jsonl") == 1


def test_columns_pass_through_and_an_old_verdict_is_replaced(tmp_path):
    line = row(id="a", verdict="wrong", seconds=99, error="theirs", nested={"b": [1.5, None]})
    output = grade_line(line, tmp_path)
    assert output.pop("seconds") < 9
    kept = {"id": "a", "nested": {"b": [1.5, None]}, "verdict": "right", "extracted": "4"}
    assert output == json.loads(row(**kept))


# The command


@pytest.fixture
def pairs(tmp_path):
    """Two rows right, one wrong, one malformed, one without its newline."""
    path = tmp_path / "pairs.jsonl"
    lines = [row(), row(completion("5")), b"{", row("7", gold="7"), row()]
    path.write_bytes(b"\n".join(lines))
    return path


def test_a_file_is_graded_line_by_line(pairs, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    grade_file.main([str(pairs), "--out", str(out)])
    outputs = read_rows(out)
    assert [r["verdict"] for r in outputs] == ["right", "wrong", "unparseable", "no_think", "right"]
    assert outputs[2]["error"].startswith(f"{pairs}:3: malformed JSON")
    captured = capsys.readouterr()
    assert captured.out == ""
    for words in (
        f"{pairs}: 5 rows, 40.0 % right", "right                    2   40.0 %",
        "rows with an error: 1", f"the first: {pairs}:3: malformed", " rows/s",
    ):  # fmt: skip
        assert words in captured.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "pairs.jsonl"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_plain_and_packed_files_go_to_standard_output(pairs, capfdbinary, pack):
    path = pairs.with_name("packed.jsonl.gz" if pack is gzip.compress else "plain.jsonl")
    path.write_bytes(pack(pairs.read_bytes()))
    grade_file.main([str(path), "--form", "answer"])
    verdicts = [json.loads(line)["verdict"] for line in capfdbinary.readouterr().out.splitlines()]
    assert verdicts == ["right", "wrong", "unparseable", "right", "right"]


@pytest.mark.parametrize(("flag", "prediction"), CASES["flags"])
def test_the_flags_reach_the_grader(tmp_path, flag, prediction):
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "out.jsonl.gz"
    pairs.write_bytes(row(prediction))
    for flags, verdict in (([], {"no_think", "no_answer"}), ([flag], {"right"})):
        grade_file.main([str(pairs), "--out", str(out), *flags])
        assert json.loads(gzip.decompress(out.read_bytes()))["verdict"] in verdict


def test_an_empty_file_has_no_rows(tmp_path, capsys):
    (tmp_path / "pairs.jsonl").write_bytes(b"")
    grade_file.main([str(tmp_path / "pairs.jsonl")])
    assert "0 rows, 0.0 % right" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "words"), CASES["refused"])
def test_a_wrong_command_line_is_one_line(arguments, words, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        grade_file.main(arguments.replace("FILE", str(pairs)).split())
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_damaged_archive_is_refused(pairs, tmp_path, capsys):
    packed = gzip.compress(pairs.read_bytes() * 200, mtime=0)
    path, out = pairs.with_name("cut.jsonl.gz"), tmp_path / "out.jsonl"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(SystemExit) as caught:
        run_cli(lambda: grade_file.main([str(path), "--form", "answer", "--out", str(out)]))
    err = capsys.readouterr().err
    assert caught.value.code == 2 and not out.exists()
    assert re.fullmatch(rf"error: {path}: .*gzip.*fetch the file again\n", err)
