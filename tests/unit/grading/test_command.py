"""Grading a file: every kind of line gives one line, and the command keeps its word."""

import gzip
import json
import re

import pytest

from grading import __main__ as grade_file
from grading.grade import grade_all
from pipeline.errors import UserError, run_cli
from pipeline.rows import read_rows_and_faults
from tests.files import read_rows

THOUGHT = "<think>so</think> "


def completion(answer):
    return rf"{THOUGHT}\boxed{{{answer}}}"


def row(prediction=None, gold="4", **columns):
    prediction = completion("4") if prediction is None else prediction
    return json.dumps({"prediction": prediction, "gold": gold} | columns).encode()


def grade_line(line, tmp_path):
    """The output row of a file of one line."""
    path = tmp_path / "f.jsonl"
    path.write_bytes(line)
    ((where, row),) = read_rows_and_faults(path)
    return grade_file.grade_row(where, row, grade_all)


LONG = row("<think>" + "so " * 1_000_000 + "</think>" + completion("4")[len(THOUGHT) :])
SURD = completion(r"\sqrt{16}")
READ = [
    # line, verdict, extracted
    (row(), "right", "4"), (row(completion("1/4"), gold=0.25), "right", "1/4"),
    (row(gold=["5", 4]), "right", "4"), (row(gold=["5", "6"]), "wrong", "4"),
    (row(""), "no_think", None), (row(4), "no_think", None), (LONG, "right", "4"),
    (row(THOUGHT + "four"), "no_answer", None), (row("\0" + completion("4")), "right", "4"),
    (row(completion("4") + "\ud800"), "right", "4"), (row(question=None), "right", "4"),
    (row(SURD), "right", r"\sqrt{16}"),
    (row(SURD, question=r"What is $\sqrt{16}$?"), "wrong", r"\sqrt{16}"),
    (b"\xef\xbb\xbf" + row() + b" \r\n", "right", "4"),
]  # fmt: skip
UNREAD = [
    # line, verdict, words of the error
    (b'{"prediction": "a", "gold', "unparseable", "truncated"),
    (b"7", "unparseable", "found int"),
    (b'{"gold": "4"}', "unparseable", "`prediction` .* no such column"),
    (b'{"prediction": "4"}', "unparseable", "`gold` .* no such column"),
    (b'{"prediction": ["4"], "gold": "4"}', "unparseable", "found list"),
    (b'{"prediction": true, "gold": "4"}', "unparseable", "found bool"),
    (b'{"prediction": null, "gold": "4"}', "no_answer", "`prediction` .* found NoneType"),
    (row(gold=None), "unparseable", "found NoneType"),
    (row(gold=[]), "unparseable", "`gold` is an empty list"),
    (row(gold=["4", None]), "unparseable", "found NoneType"),
    (row(gold=""), "unparseable", "the gold cannot be read: ''"),
    (row("4", gold=""), "no_think", "the gold cannot be read"),
    (b'{"prediction": "a", "gold": ' + b"9" * 5_000 + b"}", "unparseable", "4300 digits"),
]


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


@pytest.mark.parametrize(
    ("flag", "prediction"),
    [
        ("--think_prefilled", "so</think> \\boxed{4}"),
        ("--form=tags", THOUGHT + "<answer>4</answer>"),
        ("--form=hashes", "#### 4"),
        ("--final_number", THOUGHT + "The answer is 4."),
    ],
)
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "required: FILE"), ("missing.jsonl", "missing.jsonl: no such file"),
        (".", "no such file"), ("{0} --frob", "unrecognized arguments: --frob"),
        ("{0} --form essay", "--form: invalid choice: 'essay'"), ("{0} --ou x", "--ou"),
        ("{0} --form answer --final_number", "--form completion"),
        ("{0} --out {0}", "is the input"),
        ("{0} --out /dev/null", "input file or a folder"),
        ("{0} --out missing/o.jsonl", "choose another"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line(arguments, words, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        grade_file.main(arguments.format(pairs).split())
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
