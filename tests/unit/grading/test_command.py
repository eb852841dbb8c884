"""Grading a file: every kind of line gives one line, and the command keeps its word."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from data_prep.grading.rows import encode

from data_prep.config import UserError
from data_prep.grading import __main__ as grade_file
from data_prep.grading import rows
from data_prep.grading.grade import grade_all

ROOT = Path(__file__).parents[3]
THOUGHT = "<think>so</think> "


def completion(answer):
    return rf"{THOUGHT}\boxed{{{answer}}}"


def row(prediction=None, gold="4", **columns):
    prediction = completion("4") if prediction is None else prediction
    return json.dumps({"prediction": prediction, "gold": gold} | columns).encode()


def grade_line(line, grade_texts=grade_all):
    ((output, error),) = rows.grade_lines("f.jsonl", [(7, line)], grade_texts)
    assert output.get("error") == error
    return output


LONG = row("<think>" + "so " * 1_000_000 + "</think>" + completion("4")[len(THOUGHT) :])
READ = [
    # line, verdict, extracted
    (row(), "right", "4"), (row(completion("5")), "wrong", "5"), (row(gold=4), "right", "4"),
    (row(completion("1/4"), gold=0.25), "right", "1/4"), (row(gold=["5", 4]), "right", "4"),
    (row(gold=["5", "6"]), "wrong", "4"), (row(""), "no_think", None), (row(4), "no_think", None),
    (row(THOUGHT + "four"), "no_answer", None), (row("\0" + completion("4")), "right", "4"),
    (row(completion("4") + "\ud800"), "right", "4"), (LONG, "right", "4"),
    (b"\xef\xbb\xbf" + row() + b"\r\n", "right", "4"), (b" \t" + row() + b" \n", "right", "4"),
    (row()[:-1] + b', "score": NaN}', "right", "4"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "verdict", "extracted"), READ)
def test_a_line_that_can_be_read(line, verdict, extracted):
    output = grade_line(line)
    assert (output["verdict"], output["extracted"]) == (verdict, extracted)
    assert "error" not in output


DEEP = b'{"gold": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
UNREAD = [
    # line, words of the error
    (b'{"prediction": "a", "gold', "malformed JSON .*column 21"), (b"", "blank"),
    (b" \r\n", "blank"), (b"[1, 2]", "found list"), (b"null", "found NoneType"),
    (b'{"gold": "4"}', "no column `prediction`"), (b'{"prediction": "4"}', "no column `gold`"),
    (b'{"prediction": "4", "gold": 1e999}', "`gold` is null"), (DEEP, "nested too deep"),
    (b'{"prediction": ["4"], "gold": "4"}', "found list"), (row(gold=None), "`gold` is null"),
    (b'{"prediction": {}, "gold": "4"}', "found dict"), (row(gold=[]), "`gold` is an empty list"),
    (b'{"prediction": true, "gold": "4"}', "found bool"), (row(gold=["4", None]), "`gold` is null"),
    (row(gold=[["4"]]), "`gold` .* found list"), (row(gold=""), "the gold cannot be read: ''"),
    (b'{"prediction": "a", "prediction": "b", "gold": 1}', "'prediction' occurs twice"),
    (b'{"prediction": "a\0b", "gold": 1}', "malformed JSON .*control character"),
    (b'{"prediction": "\xff", "gold": 1}', r"not UTF-8 \(byte 16\)"),
    (row().decode().encode("utf-16"), "not UTF-8"),
    (b'{"prediction": "a", "gold": ' + b"9" * 5_000 + b"}", "4300 digits"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "verdict", "words"),
    [
        *((line, "unparseable", words) for line, words in UNREAD),
        (b'{"prediction": null, "gold": "4"}', "no_answer", "`prediction` is null"),
        (b'{"prediction": NaN, "gold": "4"}', "no_answer", "`prediction` is null"),
        (row("4", gold=""), "no_think", "the gold cannot be read"),
    ],
)
def test_a_line_that_cannot_be_read(line, verdict, words):
    output = grade_line(line)
    assert output["verdict"] == verdict
    assert re.search(rf"^f\.jsonl:7: .*{words}", output["error"])


def test_columns_pass_through_and_an_old_verdict_is_replaced():
    line = row(id="a", verdict="wrong", seconds=99, error="theirs", nested={"b": [1.5, None]})
    ((output, error),) = rows.grade_lines("f", [(1, line)], grade_all)
    expected = json.loads(line) | {"verdict": "right", "extracted": "4"}
    assert (output | {"seconds": 99}, error) == (expected, None)
    assert output["seconds"] < 9


def fail_on_bombs(texts, golds):
    if any("bomb" in text for text in texts):
        raise RecursionError("too\ndeep")
    return grade_all(texts, golds)


LINES = [(1, row()), (2, row("bomb")), (3, b"{"), (4, row(completion("5")))]


def test_a_row_on_which_the_grader_fails_costs_no_other_its_verdict(monkeypatch):
    monkeypatch.setattr(rows, "shared_pool", mock.Mock())
    outputs = rows.grade_lines("f", LINES, fail_on_bombs)
    verdicts = ["right", "unparseable", "unparseable", "wrong"]
    assert [output["verdict"] for output, _ in outputs] == verdicts
    assert outputs[1][1] == "f:2: the grader failed on this row: RecursionError: too deep"
    assert (outputs[0][1], outputs[3][1]) == (None, None)


def test_workers_that_cannot_start_are_no_fault_of_the_rows(monkeypatch):
    cannot = mock.Mock(side_effect=RuntimeError("cannot start a grading worker"))
    monkeypatch.setattr(rows, "shared_pool", cannot)
    with pytest.raises(UserError, match="cannot start a grading worker"):
        rows.grade_lines("f", LINES, fail_on_bombs)


def test_encoding_is_always_utf8_json():
    assert encode({"a": "é\ud800\u2028"}) == '{"a": "é\ufffd\u2028"}\n'.encode()
    assert encode({"a": "\ud83d\ude00"}) == '{"a": "😀"}\n'.encode()
    deep = []
    for _ in range(2_000):
        deep = [deep]
    assert json.loads(encode({"x": deep, "verdict": "right"})) == {"verdict": "right"}


def test_chunks_are_bounded_by_lines_and_bytes(monkeypatch):
    monkeypatch.setattr(grade_file, "CHUNK_LINES", 3)
    monkeypatch.setattr(grade_file, "CHUNK_BYTES", 10)
    sizes = [1, 1, 1, 1, 9, 1, 50, 2]
    chunks = grade_file.in_chunks((at, b"x" * size) for at, size in enumerate(sizes))
    assert [[at for at, _ in chunk] for chunk in chunks] == [[0, 1, 2], [3, 4], [5], [6], [7]]


# The command


@pytest.fixture
def pairs(tmp_path):
    """Two rows right, one wrong, one malformed, one without its newline."""
    path = tmp_path / "pairs.jsonl"
    lines = [row(), row(completion("5")), b"{", row("7", gold="7"), row()]
    path.write_bytes(b"\n".join(lines))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_file_is_graded_line_by_line(pairs, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    grade_file.main([str(pairs), "--out", str(out)])
    outputs = read(out)
    assert [r["verdict"] for r in outputs] == ["right", "wrong", "unparseable", "no_think", "right"]
    assert outputs[2]["error"].startswith(f"{pairs}:3: malformed JSON")
    captured = capsys.readouterr()
    assert captured.out == ""
    for words in (
        f"{pairs}: 5 rows, 40.0 % right", "right                    2   40.0 %",
        "time-outs: 0; rows with an error: 1", f"the first: {pairs}:3: malformed",
        " rows/s; slowest: line ",
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
        ("--answer_tags", THOUGHT + "<answer>4</answer>"),
        ("--final_number", THOUGHT + "The answer is 4."),
    ],
)
def test_the_flags_reach_the_grader(tmp_path, flag, prediction):
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "out.jsonl.gz"
    pairs.write_bytes(row(prediction))
    for flags, verdict in (([], {"no_think", "no_answer"}), ([flag], {"right"})):
        grade_file.main([str(pairs), "--out", str(out), *flags])
        assert json.loads(gzip.decompress(out.read_bytes()))["verdict"] in verdict


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "0 rows, 0.0 % right"), (row("4"), "--form answer")]
)
def test_an_empty_file_has_no_rows_and_bare_answers_get_a_hint(tmp_path, capsys, content, words):
    (tmp_path / "pairs.jsonl").write_bytes(content)
    grade_file.main([str(tmp_path / "pairs.jsonl")])
    assert words in capsys.readouterr().err


def test_a_truncated_archive_leaves_no_output_file(pairs, tmp_path):
    path, out = tmp_path / "cut.jsonl.gz", tmp_path / "out.jsonl"
    path.write_bytes(gzip.compress(pairs.read_bytes())[:-12])
    with pytest.raises(UserError, match="truncated or damaged gzip"):
        grade_file.main([str(path), "--out", str(out)])
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "required: FILE"), ("missing.jsonl", "missing.jsonl: no such file"),
        (".", "not a file that can be read"), ("{0} --frob", "unrecognized arguments: --frob"),
        ("{0} --form essay", "--form: invalid choice: 'essay'"), ("{0} --ou x", "--ou"),
        ("{0} --form answer --answer_tags", "--form completion"), ("{0} --out {0}", "overwrite"),
        ("{0} --out /dev/null", "not a file"), ("{0} --out missing/o.jsonl", "choose another"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line(arguments, words, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        grade_file.main(arguments.format(pairs).split())
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_help_loads_neither_torch_nor_sympy():
    code = (
        "import runpy, sys; sys.argv = ['grading', '--help']\n"
        "try: runpy.run_module('data_prep.grading', run_name='__main__')\n"
        "finally: assert not {'torch', 'sympy', 'math_verify', 'trl', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "FILE" in done.stdout and not done.stderr
