"""Reading rows: every container, and every way in which one is damaged."""

import gzip
import json

import pytest

from data_prep.config import UserError
from data_prep.reading.rows import BadRow, load_hub, read_rows, read_rows_and_faults

ROWS = [{"a": 1, "b": "x\u2028y"}, {"a": 2, "b": "z"}]


def pack(data):
    return gzip.compress(data, mtime=0)  # names of tests must not depend on the second


LINES = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()


TURNS = [{"from": "human", "value": "q"}, {"from": "assistant", "ground_truth": {"value": "5"}}]
TALK = {"conversations": TURNS}
LISTED = json.dumps(ROWS).encode()
CUT = "truncated"


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
        ("a.json", b"\n".join([json.dumps(TURNS).encode()] * 2), [":1", ":2"], [TALK] * 2),
        ("a.csv", b"\xef\xbb\xbfa,b\r\n1,\r\n\r\n3,4", [":2", ":4"],
         [{"a": "1", "b": ""}, {"a": "3", "b": "4"}]),
        ("a.csv", b'a,b\n"x\ny, ""z""",2\n5,\xe2\x80\xa8\n', [":2", ":4"],
         [{"a": 'x\ny, "z"', "b": "2"}, {"a": "5", "b": "\u2028"}]),
        ("a.csv", b"a\n" + b"x" * 300_000 + b"\n", [":2"], [{"a": "x" * 300_000}]),
        ("a.csv", b"a,b\n", [], []),
        ("a.csv", b"", [], []),
        ("a.jsonl", b"", [], []),
        ("a.jsonl.gz", pack(b""), [], []),
        ("a.json", b"", [], []),
        ("a.json", b"[]", [], []),
        # One row with a list is a row.
        *[("a.jsonl", json.dumps(row).encode(), [":1"], [row]) for row in (
            {"q": "x", "prompt": [{"role": "user", "content": "x"}]}, TALK,
            {"q": "x", "golds": ["1", "2"]}, {"q": "x", "marks": []})],
        ("a.jsonl", b'{"m": [{"a": 1}]}\n{"m": []}', [":1", ":2"], [{"m": [{"a": 1}]}, {"m": []}]),
    ],
)  # fmt: skip
def test_reads_rows_with_their_places(tmp_path, name, content, places, rows):
    path = tmp_path / name
    path.write_bytes(content)
    expected = [(f"{path}{place}", row) for place, row in zip(places, rows, strict=True)]
    assert list(read_rows(path)) == expected


def test_reads_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, ROWS)
    assert list(read_rows(path)) == [(f"{path}: row {n}", row) for n, row in enumerate(ROWS, 1)]
    path.write_bytes(path.read_bytes()[:-20])  # cut short: it has no rows
    with pytest.raises(UserError, match=r"not a readable parquet file .*; fetch it again"):
        list(read_rows_and_faults(path))


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
         [(":3", "malformed JSON (Expecting value, column")]),
        ("a.jsonl", b'{"a": 1} {"a": 2}\n{}\n', [":2"], [(":1", "Extra data")]),
        ("a.jsonl", LINES + b"\n[1, 2]\n", [":1", ":2"],
         [(":3", "must be an object, found list")]),
        ("a.jsonl", b'{}\n"text"\n{}\n', [":1", ":3"], [(":2", "found str")]),
        ("a.jsonl", b'{"a": "\xff"}\n{}\n', [":2"], [(":1", "not UTF-8 (byte 0xff)")]),
        ("a.jsonl", b'{}\n\xe9\xe8\n', [":1"], [(":2", "not UTF-8")]),
        ("a.jsonl", LINES + b'\n{"a": "x', [":1", ":2"], [(":3", CUT)]),
        ("a.jsonl", LINES + b'\n{"a": tru', [":1", ":2"], [(":3", CUT)]),
        ("a.jsonl", LINES + b'\n{"a": "\xe2\x80', [":1", ":2"], [(":3", CUT)]),
        ("a.jsonl", LINES + b"\n{}}", [":1", ":2"], [(":3", "Extra data")]),
        ("a.jsonl", b"{}\n" + b"\0" * 9 + b"\n{}\n", [":1", ":3"], [(":2", "zero bytes")]),
        ("a.jsonl", b'{"a": {"b": ["\\ud83d"]}}\n{"a": "\\ud83d\\ude00"}', [":2"],
         [(":1", "lone surrogate (\\ud83d)")]),
        ("a.jsonl", b'{"\\udc00": 1}\n', [], [(":1", "lone surrogate (\\udc00)")]),
        ("a.jsonl", b'{"a": NaN}\n{"a": -Infinity}\n{"a": 1e999}\n{"a": 1e9}\n', [":4"],
         [(":1", "NaN"), (":2", "-Infinity"), (":3", "1e999")]),
        ("a.jsonl", b'{"a": 1, "b": {"c": 1, "c": 2}}\n{}', [":2"],
         [(":1", "the name 'c' stands twice")]),
        ("a.jsonl", b'{"a": ' + b"[" * 200_000 + b"}\n{}\n", [":2"], [(":1", "deep")]),
        ("a.jsonl", b'{"a": ' + b"[" * 99 + b"]" * 99 + b"}\n{}\n", [":2"],
         [(":1", "over 64 levels")]),
        ("a.jsonl", b'{"a": ' + b"9" * 5000 + b"}\n{}\n", [":2"], [(":1", "digits")]),
        ("a.jsonl.gz", LINES, [], [(":1", "damaged gzip")]),
        ("a.json", b'[{"a": 1}, {"a": "\xff"}, {"a": "\\ud800"}, {"a": 4}]', [": row 1", ": row 4"],
         [(": row 2", "not UTF-8 (byte 0xff)"), (": row 3", "surrogate")]),
        ("a.json", b'[1, {"a": 2}]', [": row 2"], [(": row 1", "must be an object")]),
        ("a.csv", b"a,b\n1,2\n1,2,3\n4,5\n", [":2", ":4"], [(":3", "3 values for 2")]),
        ("a.csv", b'a,b\n"1\n2",2\n5\n', [":2"], [(":4", "1 values for 2 columns")]),
        ("a.csv", b'a,b\n1,2\n"1,2\n3,4\n', [":2"],
         [(":3", "malformed CSV (unexpected end of data)")]),
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
    ("content", "num_rows", "words"),
    [
        (b'[{"a": 1},\n {"a"', 1, CUT),
        (b'[{"a": 1}, {"a": 2},', 2, CUT),
        (b'[{"a": 1}, {"a": 2}', 2, CUT),
        (b"[", 0, CUT),
        (b'[{"a": 1}, {"a": tr', 1, CUT),
        (b'[{"a": 1},\n {"a": \\, "b": 0}, {"a": 3}]', 1, "Expecting value, line 2, column 8"),
        (b'[{"a": 1} {"a": 2}, {"a": 3}]', 1, "no comma before it"),
        (b'[{"a": 1}, {"a": ]', 1, "malformed JSON"),
        (b'[{"a": 1},]', 1, "no row behind it"),
        (b'[{"a": 1}] [{"a": 2}]', 1, "text behind the list"),
        (b'[{"a": 1}, {"a": NaN}, {"a": 3}]', 1, "NaN"),
        (b'[{"a": 1}, {"a": 1, "a": 2}]', 1, "the name 'a' stands twice"),
        (b'[{"a": ' + b"[" * 200_000 + b'}, {"a": 2}]', 0, "deep"),
        (b'[{"a": ' + b"9" * 5000 + b'}, {"a": 2}]', 0, "digits"),
        (b"[{" + b'"a": [{"b": 1},{' * 20_000, 0, CUT),
    ],
)
def test_a_damaged_list_stops_with_file_and_row(tmp_path, content, num_rows, words):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    rows = read_rows_and_faults(path)
    for _ in range(num_rows):
        assert isinstance(next(rows)[1], dict)
    with pytest.raises(UserError) as error:
        next(rows)
    message = str(error.value)
    assert message.startswith(f"{path}: row {num_rows + 1}: ") and "\n" not in message
    assert words in message and message.endswith("; no row behind it can be read")


@pytest.mark.parametrize(
    ("name", "content", "place", "words"),
    [
        ("a.json", b'{\n "rows": [{"a": 1}]\n}', "", "an object that spans lines"),
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "", "git lfs"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "", "git lfs"),
        ("a.jsonl.gz", b"<!DOCTYPE html><html>", "", "a web page"),
        ("a.json", b"\n<html><head>", "", "a web page"),
        ("a.csv", b'<?xml version="1.0"?><Error>', "", "a web page"),
        ("a.jsonl", '{"a": 1}\n'.encode("utf-16"), "", "UTF-16 text"),
        ("a.jsonl", '{"a": 1, "b": 2}\n'.encode("utf-16-le"), "", "UTF-16 text"),
        ("a.csv", "a,b\n".encode("utf-32"), "", "UTF-32 text"),
        ("a.parquet", b"PAR1 not parquet", "", "not a readable parquet"),
        ("a.parquet", b"", "", "not a readable parquet"),
        ("a.csv", b"a,a\n1,2\n", ":1", "two columns are named 'a'"),
        ("a.csv", b"a,\xff\n1,2\n", ":1", "not UTF-8"),
        ("a.csv", b"a,b\r1,2\r", ":1", "malformed CSV"),
        ("a.txt", b"a,b", "", "unknown format"),
        ("a.jsonl", pack(LINES), "", "packed by gzip; name it a.jsonl.gz"),
        ("a.csv", pack(b"a,b"), "", "packed by gzip; name it a.csv.gz"),
        ("a.json", b"PAR1\x15\x04", "", "a parquet file; name it .parquet"),
        ("a.jsonl.gz", b"PK\x03\x04\x14", "", "a zip archive; unpack it"),
        ("a.jsonl", b"\x28\xb5\x2f\xfd\x04", "", "packed by zstd"),
        ("a.json", b'{"data": [{"a": 1}, {"a": 2}]}\n\n', "", "list of rows in 'data'; write that"),
        ("a.jsonl", b'{"n": 2, "rows": [{"a": 1}]}', "", "list of rows in 'rows'"),
        (
            "a.json.gz",
            pack(b'{"data": [{"a": 1}]}'),
            "",
            "list of rows in 'data'",
        ),
    ],
)
def test_what_is_no_data_is_refused_at_once(tmp_path, name, content, place, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        next(read_rows_and_faults(path))
    message = str(error.value)
    assert message.startswith(f"{path}{place}: ") and words in message and "\n" not in message


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.gz"])
@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_gzip_file_that_ends_early_keeps_the_rows_before(tmp_path, name, kept):
    rows = [{"a": n, "b": f"{n * 7919 % 1009} {n}"} for n in range(5000)]
    plain = json.dumps(rows) if "json." in name else "\n".join(map(json.dumps, rows))
    packed = pack(plain.encode())
    (tmp_path / name).write_bytes(packed[: int(len(packed) * kept)])
    good = []
    with pytest.raises(UserError, match="truncated or damaged gzip") as error:
        for _, row in read_rows(tmp_path / name):
            good.append(row)
    assert good == rows[: len(good)] and len(good) > 5000 * kept * 0.5
    place = f": row {len(good) + 1}: " if "json." in name else f":{len(good) + 1}: "
    assert str(error.value).startswith(f"{tmp_path / name}{place}")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.gz"])
def test_a_gzip_file_with_a_wrong_checksum(tmp_path, name):
    content = bytearray(gzip.compress(json.dumps(ROWS).encode() if "json." in name else LINES))
    content[-6] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="CRC"):
        list(read_rows(tmp_path / name))


def write_parquet(path, rows, **options):
    import pyarrow
    import pyarrow.parquet

    table = rows if isinstance(rows, pyarrow.Table) else pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, path, **options)


@pytest.mark.parametrize(
    ("damaged", "num_before", "num_lost"),
    # Batches of 256 rows: what the damaged group held before them is kept.
    [(450, 400, 200), (250, 200, 200), (50, 0, 200)],
)
def test_a_damaged_row_group_keeps_the_others(tmp_path, damaged, num_before, num_lost):
    path = tmp_path / "a.parquet"
    rows = [{"a": f"{n:06} " * 50} for n in range(600)]
    options = {"row_group_size": 200, "write_page_checksum": True, "compression": "none"}
    write_parquet(path, rows, **options)
    content = bytearray(path.read_bytes())
    at = content.index(b"%06d " % damaged)
    content[at : at + 400] = b"\xff" * 400
    path.write_bytes(content)
    found = list(read_rows_and_faults(path))
    where, fault = found.pop(num_before)
    assert [row for _, row in found] == rows[:num_before] + rows[num_before + num_lost :]
    places = [*range(1, num_before + 1), *range(num_before + num_lost + 1, 601)]
    assert [where for where, _ in found] == [f"{path}: row {n}" for n in places]
    assert where == f"{path}: row {num_before + 1}" and "damaged parquet page" in fault.message
    assert f"; {num_lost} of the file's 600 rows cannot be read; " in fault.message
    assert fault.num_rows == num_lost


def test_a_parquet_row_that_is_not_utf8(tmp_path):
    import pyarrow

    path = tmp_path / "a.parquet"
    values = [b"one", b"\xff\xfe", b"three"]
    array = pyarrow.array(values, pyarrow.binary()).view(pyarrow.string())
    write_parquet(path, pyarrow.table({"a": array}))
    (_, first), (where, fault), (_, last) = read_rows_and_faults(path)
    assert (first, last) == ({"a": "one"}, {"a": "three"})
    assert where == f"{path}: row 2" and "not UTF-8" in fault.message


def test_a_fault_says_that_all_behind_it_is_lost(tmp_path):
    for name, content in (
        ("a.jsonl.gz", gzip.compress(LINES * 999)[:-9]), ("a.csv", b'a,b\n1,2\n"1,2\n3,4\n'),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        *_, (_, fault) = read_rows_and_faults(tmp_path / name)
        assert fault.message.endswith("; everything behind it is lost") and fault.num_rows == 1


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
