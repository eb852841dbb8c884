"""Reading rows: every container, and every way in which one is damaged."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.rows import (
    BadRow,
    fetch_hub_file,
    list_files,
    load_hub,
    read_rows,
    read_rows_and_faults,
)

ROWS = [{"a": 1, "b": "x\u2028y"}, {"a": 2, "b": "z"}]
LINES = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()
LISTED = json.dumps(ROWS).encode()
TURNS = [{"from": "human", "value": "q"}, {"from": "assistant", "ground_truth": {"value": "5"}}]
TALK = {"conversations": TURNS}


def pack(data):
    return gzip.compress(data, mtime=0)  # names of tests must not depend on the second


@pytest.mark.parametrize(
    ("name", "content", "places", "rows"),
    [
        ("a.jsonl", LINES, [":1", ":2"], ROWS),  # no final newline, U+2028 inside
        ("a.jsonl", LINES.replace(b"\n", b"\r\n\r\n") + b"\r\n", [":1", ":3"], ROWS),
        ("a.jsonl", b"\xef\xbb\xbf" + LINES, [":1", ":2"], ROWS),
        ("a.jsonl.gz", pack(LINES[:20]) + pack(LINES[20:]), [":1", ":2"], ROWS),
        ("a.json", LINES, [":1", ":2"], ROWS),  # the hub often calls JSON lines so
        ("a.json", b"\xef\xbb\xbf \n" + LISTED + b"\n\n", [": row 1", ": row 2"], ROWS),
        ("a.jsonl", json.dumps(ROWS, indent=1).encode(), [": row 1", ": row 2"], ROWS),
        ("a.json.gz", pack(LISTED), [": row 1", ": row 2"], ROWS),
        ("a.json", json.dumps([TURNS, TURNS]).encode(), [": row 1", ": row 2"], [TALK] * 2),
        ("a.csv", b"\xef\xbb\xbfa,b\r\n1,\r\n\r\n3,4", [":2", ":4"],
         [{"a": "1", "b": ""}, {"a": "3", "b": "4"}]),
        ("a.csv", b'a,b\n"x\ny, ""z""",2\n5,\xe2\x80\xa8\n', [":3", ":4"],
         [{"a": 'x\ny, "z"', "b": "2"}, {"a": "5", "b": "\u2028"}]),
        ("a.csv", b"a\n" + b"x" * 300_000 + b"\n", [":2"], [{"a": "x" * 300_000}]),
        ("a.tsv", b'a\tb\n1,0\t"x\ty"\n', [":2"], [{"a": "1,0", "b": "x\ty"}]),
        ("a.tsv.gz", pack(b"a\tb\n1\t2\n"), [":2"], [{"a": "1", "b": "2"}]),
        ("a.csv", b'"a,1";b\n2;"x;\ny"\n', [":3"], [{"a,1": "2", "b": "x;\ny"}]),
        ("a.tsv", b"a,b\n1,2\n", [":2"], [{"a": "1", "b": "2"}]),
        ("a.csv", b"a;b,c\n1,2\n", [":2"], [{"a;b": "1", "c": "2"}]),
        *[("a.jsonl", b'{"a": ' + number + b"}", [":1"], [{"a": value}])
          for number, value in ((b"9007199254740993.0", 2**53 + 1), (b"1e23", 10**23),
                                (b"-1.5e300", -15 * 10**299), (b"2.5", 2.5))],
        ("a.json", b'[{"a": 1e23}]', [": row 1"], [{"a": 10**23}]),
        *[(name, b"", [], []) for name in ("a.csv", "a.jsonl", "a.json")],
        ("a.csv", b"a,b\n", [], []),
        ("a.jsonl.gz", pack(b""), [], []),
        ("a.json", b"[]", [], []),
    ],
)  # fmt: skip
def test_reads_rows_with_their_places(tmp_path, name, content, places, rows):
    path = tmp_path / name
    path.write_bytes(content)
    expected = [(f"{path}{place}", row) for place, row in zip(places, rows, strict=True)]
    assert list(read_rows(path)) == expected


@pytest.mark.parametrize(
    ("place", "split", "found"),
    [
        ("shards", "train", "shards/b.jsonl shards/c/a.jsonl.gz"),
        ("shards/*.jsonl", "train", "shards/b.jsonl"),
        ("hub", "train", "hub/data/train-0.parquet hub/data/train-1.parquet"),
        ("hub", "test", "hub/data/test-0.parquet"),
        ("saved", "validation", "saved/validation/data-0.arrow"),
        ("saved/train/*", "train", "saved/train/data-0.arrow"),
        ("shards/b.jsonl", "test", "shards/b.jsonl"),
    ],
)
def test_the_data_files_of_a_folder_or_glob(tmp_path, place, split, found):
    for name in (
        "shards/c/a.jsonl.gz", "shards/b.jsonl", "shards/README.md", "shards/.old/a.jsonl",
        "hub/data/train-1.parquet", "hub/data/train-0.parquet", "hub/data/test-0.parquet",
        "saved/dataset_dict.json", "saved/train/state.json", "saved/train/data-0.arrow",
        "saved/train/cache-1.arrow", "saved/validation/data-0.arrow",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list_files(tmp_path / place, split) == [tmp_path / name for name in found.split()]
    for fault, words in (
        ("none", "does not exist"), ("*/none", "does not exist"), ("shards/c/d", "is a folder"),
        ("hub", "no file of the split 'dev'"), ("*/*/*", "several formats"),
    ):  # fmt: skip
        (tmp_path / "shards/c/d").mkdir(exist_ok=True)
        with pytest.raises(UserError, match=words):
            list_files(tmp_path / fault, "dev" if fault == "hub" else "rl")


def test_what_save_to_disk_wrote_is_read_and_damage_named(tmp_path):
    table = pyarrow.Table.from_pylist([{"a": n, "b": ["x", str(n)]} for n in range(600)])
    path = tmp_path / "data-00000-of-00001.arrow"
    with pyarrow.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    rows = list(read_rows(path))
    assert [row for _, row in rows] == table.to_pylist() and rows[1][0] == f"{path}: row 2"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError, match=r"arrow: row \d+: not readable as arrow"):
        list(read_rows(path))


def read_all(path):
    """(places of the good rows, [(place, fault)])"""
    good, faults = [], []
    for where, row in read_rows_and_faults(path):
        place = where.removeprefix(str(path))
        if isinstance(row, BadRow):
            assert row.message.startswith(f"{where}: ") and "\n" not in row.message
            faults.append((place, row))
        else:
            good.append(place)
    return good, faults


# What follows is written as (name, content, places of the good rows, [(place, words)]).
@pytest.mark.parametrize(
    ("name", "content", "good", "bad"),
    [
        ("a.jsonl", LINES + b'\n{"a": \n{}\n', [":1", ":2", ":4"],
         [(":3", "malformed JSON (Expecting value: column")]),
        ("a.jsonl", b'{"a": 1} {"a": 2}\n{}\n', [":2"], [(":1", "Extra data")]),
        ("a.jsonl", LINES + b"\n[1, 2]\n", [":1", ":2"],
         [(":3", "must be an object, found list")]),
        ("a.jsonl", b'{"a": "\xff"}\n{}\n', [":2"], [(":1", "not UTF-8 (byte 0xff)")]),
        *[("a.jsonl", LINES + line, [":1", ":2"], [(":3", "truncated")])
          for line in (b'\n{"a": "x', b'\n{"a": "\xe2\x80')],
        ("a.json", b'{\n "1": {}\n}\n', [],
         [(":1", "an object over several lines"), (":2", "malformed"), (":3", "malformed")]),
        ("a.jsonl", b'{"a": {"b": ["\\ud83d"]}}\n{"a": "\\ud83d\\ude00"}', [":2"],
         [(":1", "lone surrogate (\\ud83d)")]),
        ("a.jsonl", b'{"\\udc00": 1}\n', [], [(":1", "lone surrogate (\\udc00)")]),
        ("a.jsonl", b'{"a": NaN}\n{"a": -Infinity}\n{"a": 1e9}\n', [":3"],
         [(":1", "NaN"), (":2", "-Infinity")]),
        ("a.jsonl", b'{"a": ' + b"[" * 200_000 + b"}\n{}\n", [":2"], [(":1", "recursion")]),
        ("a.jsonl", b'{"a": ' + b"9" * 5000 + b"}\n{}\n", [":2"], [(":1", "digits")]),
        ("a.json", b'[{"a": 1}, {"a": "\xff"}, {"a": "\\ud800"}, {"a": 4}]', [": row 1", ": row 4"],
         [(": row 2", "not UTF-8 (byte 0xff)"), (": row 3", "surrogate")]),
        ("a.csv", b"a,b\n1,2\n1,2,3\n4,5\n", [":2", ":4"], [(":3", "not 2 values")]),
        ("a.csv", b'a,b\n"1\n2",2\n5\n', [":3"], [(":4", "not 2 values")]),
        ("a.csv", b'a,b\n"1"2,3\n4,5\n', [":3"], [(":2", "malformed CSV")]),
        ("a.csv", b"a,b\n1,\xff\n4,5\n", [":3"], [(":2", "not UTF-8")]),
    ],
)  # fmt: skip
def test_faults_are_told_by_their_row_and_the_rest_is_read(tmp_path, name, content, good, bad):
    path = tmp_path / name
    path.write_bytes(content)
    places, faults = read_all(path)
    assert places == good and [place for place, _ in faults] == [place for place, _ in bad]
    for (_, fault), (_, words) in zip(faults, bad, strict=True):
        assert words in fault.message
    stopping = [fault for _, fault in faults if fault.row is None]
    if not stopping:  # a model's text may hold lone surrogates
        assert len(list(read_rows(path))) == len(places) + len(faults)
        return
    with pytest.raises(UserError) as error:
        list(read_rows(path))
    assert str(error.value) == stopping[0].message


@pytest.mark.parametrize(
    ("name", "content", "num_rows", "place", "words"),
    [
        # Damage behind which nothing can be read.
        *[("a.json", content, 0, "", words) for content, words in (
            (b'[{"a": 1},\n {"a"', "truncated"),
            (b'[{"a": 1},\n {"a": \\, "b": 0}, {"a": 3}]', "Expecting value: line 2 column 8"),
            (b'[{"a": 1}] [{"a": 2}]', "Extra data"),
            (b'[{"a": 1}, {"a": NaN}, {"a": 3}]', "NaN"),
        )],
        ("a.csv", b'a,b\n1,2\n"1,2\n3,4\n', 1, ":4", "its quote is never closed"),
        ("a.parquet", b"PAR1 not parquet", 0, ": row 1", "not readable as parquet"),
        # Something else than data.
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", 0, "", "lfs"),
        ("a.jsonl.gz", b"<!DOCTYPE html><html>", 0, "", "a web page"),
        ("a.csv", b'<?xml version="1.0"?><Error>', 0, "", "a web page"),
        ("a.csv", b"a,a\n1,2\n", 0, ":1", "two columns have one name"),
        ("a.csv", b'"a"b,c\n1,2\n', 0, ":1", "malformed CSV"),
        ("a.txt", b"a,b", 0, "", "unknown format"),
        ("a.jsonl", pack(LINES), 0, "", "packed by gzip"),
        ("a.json", b"PAR1\x15\x04", 0, "", "a parquet file; name it .parquet"),
        ("a.jsonl.gz", b"PK\x03\x04\x14", 0, "", "a zip archive; unpack it"),
        ("none.jsonl", None, 0, "", "no such file"),
    ],
)  # fmt: skip
def test_what_stops_the_reader(tmp_path, name, content, num_rows, place, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    rows = read_rows_and_faults(path)
    for _ in range(num_rows):
        assert isinstance(next(rows)[1], dict)
    with pytest.raises(UserError) as error:
        next(rows)
    message = str(error.value)
    assert message.startswith(f"{path}{place}: ") and words in message and "\n" not in message


def test_a_damaged_gzip_file_stops_the_reader(tmp_path):
    plain = "\n".join(json.dumps({"a": n, "b": f"{n * 7919 % 1009}"}) for n in range(5000)).encode()
    packed = pack(plain)
    wrong = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]  # its checksum
    for content in (packed[: len(packed) // 2], packed[:-9], wrong, plain):
        (tmp_path / "a.jsonl.gz").write_bytes(content)
        with pytest.raises(UserError, match=r"a.jsonl.gz: truncated or damaged gzip"):
            list(read_rows_and_faults(tmp_path / "a.jsonl.gz"))


def test_short_floats_of_parquet_keep_their_digits(tmp_path):
    path = tmp_path / "a.parquet"
    numbers = pyarrow.array([0.1, None, 2.5, 1e-8], pyarrow.float32())
    pyarrow.parquet.write_table(pyarrow.table({"a": numbers}), path)
    assert [row["a"] for _, row in read_rows(path)] == [0.1, None, 2.5, 1e-8]


def test_parquet_is_read_up_to_its_damage(tmp_path):
    path = tmp_path / "a.parquet"
    rows = [{"a": f"{n:06} " * 50} for n in range(600)]
    options = {"row_group_size": 200, "write_page_checksum": True, "compression": "none"}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    assert list(read_rows(path)) == [(f"{path}: row {n}", row) for n, row in enumerate(rows, 1)]
    content = bytearray(path.read_bytes())
    at = content.index(b"000450 ")
    content[at : at + 400] = b"\xff" * 400
    path.write_bytes(content)
    found = read_rows_and_faults(path)
    assert [next(found)[1] for _ in range(200)] == rows[:200]
    with pytest.raises(UserError, match=r"a\.parquet: row \d+: not readable .*; fetch the file"):
        list(found)


def test_the_hub(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("datasets.load_dataset", lambda *a, **k: calls.append((a, k)) or ROWS)
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download", lambda *a, **k: calls.append((a, k)) or tmp_path
    )
    assert [row for _, row in load_hub("some/set", "test", "main")] == ROWS
    assert fetch_hub_file("some/set", "a.json") == tmp_path
    assert calls == [
        (("some/set", "main"), {"split": "test"}),
        (("some/set", "a.json"), {"repo_type": "dataset"}),
    ]

    def fail(*args, **kwargs):
        raise OSError("no route to host\nand more")

    monkeypatch.setattr("datasets.load_dataset", fail)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    for ask in (load_hub, fetch_hub_file):
        with pytest.raises(UserError, match=r"^hub: some/set.* no route to host; .*DATA_ROOT") as e:
            list(ask("some/set", "train"))
        assert "\n" not in str(e.value)


def test_what_a_stage_wrote_is_read_only_as_it_left_it(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"a": 1}\n')
    manifest.write(tmp_path, "data", {}, {}, {}, 0.0, [path.name])
    assert [row for _, row in read_rows(path)] == [{"a": 1}]
    path.write_text('{"a": \x01\n')
    with pytest.raises(UserError, match="has changed since the stage data wrote it; `make data`"):
        list(read_rows(path))
