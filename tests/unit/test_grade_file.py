"""Grading a file: every kind of line gives one line, and the command keeps its word."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.config import UserError
from data_prep.grading import __main__ as grade_file
from data_prep.grading import rows
from data_prep.grading.grade import grade_all
from data_prep.grading.rows import encode

ROOT = Path(__file__).parents[2]
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


READ = [
    # line, verdict, extracted
    (row(), "right", "4"),
    (row(completion("5")), "wrong", "5"),
    (row(gold=4), "right", "4"),
    (row(completion("1/4"), gold=0.25), "right", "1/4"),
    (row(gold=["5", 4]), "right", "4"),
    (row(gold=["5", "6"]), "wrong", "4"),
    (row(""), "no_think", None),
    (row(THOUGHT + "four"), "no_answer", None),
    (row(4), "no_think", None),
    (row("\0" + completion("4")), "right", "4"),
    (row(completion("4") + "\ud800"), "right", "4"),
    (b"\xef\xbb\xbf" + row() + b"\r\n", "right", "4"),
    (b" \t" + row() + b" \n", "right", "4"),
    (row()[:-1] + b', "score": NaN}', "right", "4"),
    (
        row("<think>" + "so " * 1_000_000 + "</think>" + completion("4")[len(THOUGHT) :]),
        "right",
        "4",
    ),
]


@pytest.mark.parametrize(("line", "verdict", "extracted"), READ)
def test_a_line_that_can_be_read(line, verdict, extracted):
    output = grade_line(line)
    assert (output["verdict"], output["extracted"]) == (verdict, extracted)
    assert "error" not in output
    assert output["seconds"] == round(output["seconds"], 6)


UNREAD = [
    # line, verdict, words of the error
    (b'{"prediction": "a", "gold', "unparseable", "malformed JSON .*column 21"),
    (b"", "unparseable", "blank"),
    (b" \r\n", "unparseable", "blank"),
    (b"[1, 2]", "unparseable", "a row must be an object, found list"),
    (b"null", "unparseable", "found NoneType"),
    (b'{"gold": "4"}', "unparseable", "no column `prediction`"),
    (b'{"prediction": "4"}', "unparseable", "no column `gold`"),
    (b'{"prediction": null, "gold": "4"}', "no_answer", "`prediction` is null"),
    (b'{"prediction": NaN, "gold": "4"}', "no_answer", "`prediction` is null"),
    (b'{"prediction": "4", "gold": 1e999}', "unparseable", "`gold` is null"),
    (b'{"prediction": ["4"], "gold": "4"}', "unparseable", "must be .* found list"),
    (b'{"prediction": {}, "gold": "4"}', "unparseable", "must be .* found dict"),
    (b'{"prediction": true, "gold": "4"}', "unparseable", "must be .* found bool"),
    (row(gold=None), "unparseable", "`gold` is null"),
    (row(gold=[]), "unparseable", "`gold` is an empty list"),
    (row(gold=["4", None]), "unparseable", "`gold` is null"),
    (row(gold=[["4"]]), "unparseable", "`gold` must be .* found list"),
    (row(gold=""), "unparseable", "the gold cannot be read: ''"),
    (row("4", gold=""), "no_think", "the gold cannot be read"),
    (
        b'{"prediction": "a", "prediction": "b", "gold": 1}',
        "unparseable",
        "'prediction' occurs twice",
    ),
    (b'{"prediction": "a\0b", "gold": 1}', "unparseable", "malformed JSON .*control character"),
    (b'{"prediction": "\xff", "gold": 1}', "unparseable", r"not UTF-8 \(byte 16\)"),
    (row().decode().encode("utf-16"), "unparseable", "not UTF-8"),
    (
        b'{"gold": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "unparseable",
        "nested too deep",
    ),
    (b'{"prediction": "a", "gold": ' + b"9" * 5_000 + b"}", "unparseable", "4300 digits"),
]


@pytest.mark.parametrize(("line", "verdict", "words"), UNREAD)
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


class Pool:
    """Instead of worker processes, which take seconds to start."""

    def __init__(self, problem=None):
        self.problem = problem

    def call(self, *_):
        if self.problem:
            raise RuntimeError(self.problem)


def test_a_row_on_which_the_grader_fails_costs_no_other_its_verdict(monkeypatch):
    monkeypatch.setattr(rows, "shared_pool", Pool)

    def grade_texts(texts, golds):
        if any("bomb" in text for text in texts):
            raise RecursionError("too\ndeep")
        return grade_all(texts, golds)

    lines = [(1, row()), (2, row("bomb")), (3, b"{"), (4, row(completion("5")))]
    outputs = rows.grade_lines("f", lines, grade_texts)
    assert [output["verdict"] for output, _ in outputs] == [
        "right", "unparseable", "unparseable", "wrong",
    ]  # fmt: skip
    assert outputs[1][1] == "f:2: the grader failed on this row: RecursionError: too deep"
    assert (outputs[0][1], outputs[3][1]) == (None, None)


def test_workers_that_cannot_start_are_no_fault_of_the_rows(monkeypatch):
    def grade_texts(texts, golds):
        raise RuntimeError

    monkeypatch.setattr(rows, "shared_pool", lambda: Pool("cannot start a grading worker"))
    with pytest.raises(UserError, match="cannot start a grading worker"):
        rows.grade_lines("f", [(1, row()), (2, row())], grade_texts)


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


def test_an_empty_file_has_no_rows(tmp_path, capsys):
    (tmp_path / "pairs.jsonl").touch()
    grade_file.main([str(tmp_path / "pairs.jsonl")])
    captured = capsys.readouterr()
    assert captured.out == "" and "0 rows, 0.0 % right" in captured.err


def test_most_rows_without_a_thought_get_a_hint(tmp_path, capsys):
    (tmp_path / "pairs.jsonl").write_bytes(row("4"))
    grade_file.main([str(tmp_path / "pairs.jsonl")])
    assert "--form answer" in capsys.readouterr().err


def test_a_truncated_archive_leaves_no_output_file(pairs, tmp_path):
    path, out = tmp_path / "cut.jsonl.gz", tmp_path / "out.jsonl"
    path.write_bytes(gzip.compress(pairs.read_bytes())[:-12])
    with pytest.raises(UserError, match="truncated or damaged gzip"):
        grade_file.main([str(path), "--out", str(out)])
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: FILE"),
        (["missing.jsonl"], "missing.jsonl: no such file"),
        (["."], "not a file that can be read"),
        (["{pairs}", "--form", "essay"], "--form: invalid choice: 'essay'"),
        (["{pairs}", "--frob"], "unrecognized arguments: --frob"),
        (["{pairs}", "--ou", "x"], "--ou"),
        (["{pairs}", "--form", "answer", "--answer_tags"], "--form completion"),
        (["{pairs}", "--out", "{pairs}"], "would overwrite"),
        (["{pairs}", "--out", "/dev/null"], "not a file"),
        (["{pairs}", "--out", "missing/out.jsonl"], "choose another --out"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, words, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        grade_file.main([argument.format(pairs=pairs) for argument in arguments])
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_help_loads_neither_torch_nor_sympy():
    code = (
        "import runpy, sys; sys.argv = ['grading', '--help']\n"
        "try: runpy.run_module('data_prep.grading', run_name='__main__')\n"
        "finally: assert not {'torch', 'sympy', 'math_verify', 'trl', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "FILE" in done.stdout and not done.stderr
