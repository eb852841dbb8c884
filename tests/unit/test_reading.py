"""Reading rows: every container, and every way in which one is damaged."""

import gzip
import json

import pytest

from data_prep.config import UserError
from data_prep.reading import load_hub, read_rows

ROWS = [{"a": 1, "b": "x\u2028y"}, {"a": 2, "b": "z"}]
LINES = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()


@pytest.mark.parametrize(
    ("name", "content", "places"),
    [
        ("a.jsonl", LINES, [":1", ":2"]),  # no final newline, U+2028 inside
        ("a.jsonl", LINES.replace(b"\n", b"\r\n\r\n") + b"\r\n", [":1", ":3"]),
        ("a.jsonl.gz", gzip.compress(LINES + b"\n"), [":1", ":2"]),
        ("a.json", json.dumps(ROWS).encode(), [": row 1", ": row 2"]),
        ("a.json.gz", gzip.compress(json.dumps(ROWS).encode()), [": row 1", ": row 2"]),
    ],
)
def test_reads_rows_with_their_places(tmp_path, name, content, places):
    path = tmp_path / name
    path.write_bytes(content)
    assert list(read_rows(path)) == [
        (f"{path}{place}", row) for place, row in zip(places, ROWS, strict=True)
    ]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"a,b\n1,2\n", [(2, {"a": "1", "b": "2"})]),
        (b"\xef\xbb\xbfa,b\r\n1,\r\n\r\n3,4",
         [(2, {"a": "1", "b": ""}), (4, {"a": "3", "b": "4"})]),
        (b'a,b\n"x\ny, ""z""",2\n5,\xe2\x80\xa8\n',
         [(2, {"a": 'x\ny, "z"', "b": "2"}), (4, {"a": "5", "b": "\u2028"})]),
        (b"a,b\n", []),
        (b"", []),
    ],
)  # fmt: skip
def test_reads_csv(tmp_path, content, rows):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert list(read_rows(path)) == [(f"{path}:{line}", row) for line, row in rows]


def test_reads_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    assert list(read_rows(path)) == [(f"{path}: row {n}", row) for n, row in enumerate(ROWS, 1)]


@pytest.mark.parametrize(
    ("name", "content", "place", "words"),
    [
        ("a.jsonl", LINES + b'\n{"a": \n', ":3", "malformed JSON"),
        ("a.jsonl", LINES + b"\n[1, 2]\n", ":3", "must be an object, found list"),
        ("a.jsonl", LINES + b'\n{"a": "\xff"}\n', ":3", "not UTF-8"),
        ("a.jsonl.gz", gzip.compress(LINES)[:-12], ":", "truncated"),
        ("a.jsonl.gz", LINES, ":1", "damaged gzip"),
        ("a.json", b'[{"a": 1},\n {"a"', ":2", "malformed JSON"),
        ("a.json", b'{"a": 1}', "", "one list"),
        ("a.json", b"[1]", ": row 1", "must be an object"),
        ("a.parquet", b"PAR1 not parquet", "", "not a readable parquet"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", ":3", "3 values for 2 columns"),
        ("a.csv", b'a,b\n"1\n2",2\n5\n', ":4", "1 values for 2 columns"),
        ("a.csv", b'a,b\n1,2\n"1,2\n3,4\n', ":3", "malformed CSV (unexpected end of data)"),
        ("a.csv", b'a,b\n"1"2,3\n', ":2", "malformed CSV"),
        ("a.csv", b"a,b\n1,\xff\n", ":2", "not UTF-8"),
        ("a.csv", b"a,a\n1,2\n", ":1", "two columns are named 'a'"),
        ("a.csv", b"a,b\r1,2\r", ":1", "malformed CSV"),
        ("a.txt", b"a,b", "", "unknown format"),
    ],
)
def test_damage_is_reported_by_file_and_line(tmp_path, name, content, place, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        list(read_rows(path))
    message = str(error.value)
    assert message.startswith(f"{path}{place}") and words in message and "\n" not in message


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"none\.jsonl: no such file"):
        list(read_rows(tmp_path / "none.jsonl"))


def test_jsonl_is_streamed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES + b"\nbroken\n")
    rows = read_rows(path)
    assert [next(rows)[1], next(rows)[1]] == ROWS  # the broken line is not reached yet


def test_hub_failure_is_a_user_error(monkeypatch):
    import datasets

    def fail(*args, **kwargs):
        raise ConnectionError("Couldn't reach 'some/set' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(UserError, match=r"some/set.*data_root"):
        list(load_hub("some/set", "train"))


def test_hub_rows(monkeypatch):
    import datasets

    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: calls.append((a, k)) or ROWS)
    assert [row for _, row in load_hub("some/set", "test", "main")] == ROWS
    assert calls == [(("some/set", "main"), {"split": "test"})]


@pytest.mark.parametrize(
    ("file", "num_rows"),
    [
        ("gsm8k/train.jsonl", 7473),
        ("math/train.jsonl", 7500),  # CRLF
        ("aime/aime24_qwen.jsonl", 30),
        ("aime/aime2024_orz.json", 30),
        ("aime/aime-2024_dapo.parquet", 960),
        ("numinamath_cot/numina_cot_2k.upstream_schema.jsonl.gz", 2000),
    ],
)
def test_real_files(shared_data, file, num_rows):
    assert sum(1 for _ in read_rows(shared_data / file)) == num_rows


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_an_integer_that_python_does_not_read(tmp_path, name):
    row = '{"a": ' + "9" * 5000 + "}"
    (tmp_path / name).write_text(row if name.endswith("l") else f"[{row}]")
    with pytest.raises(UserError, match=rf"{name}.*digits.*write it as a string"):
        list(read_rows(tmp_path / name))
