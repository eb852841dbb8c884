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
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)

ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@table
def test_reads_rows_with_their_places(tmp_path, name, content, places, rows):
    path = tmp_path / name
    path.write_bytes(content)
    expected = [(f"{path}{place}", row) for place, row in zip(places, rows, strict=True)]
    assert list(read_rows(path)) == expected


@table
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
        refused(words, list_files, tmp_path / fault, "dev" if fault == "hub" else "rl")


def test_what_save_to_disk_wrote_is_read_and_damage_named(tmp_path):
    table = pyarrow.Table.from_pylist([{"a": n, "b": ["x", str(n)]} for n in range(600)])
    path = tmp_path / "data-00000-of-00001.arrow"
    with pyarrow.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    rows = list(read_rows(path))
    assert [row for _, row in rows] == table.to_pylist() and rows[1][0] == f"{path}: row 2"
    path.write_bytes(path.read_bytes()[:-2000])
    refused(r"arrow: row \d+: not readable as arrow", list, read_rows(path))


@table
def test_faults_are_told_by_their_row_and_the_rest_is_read(tmp_path, name, content, good, bad):
    path = tmp_path / name
    path.write_bytes(content)
    found = [(where.removeprefix(str(path)), row) for where, row in read_rows_and_faults(path)]
    faults = {place: row for place, row in found if isinstance(row, BadRow)}
    assert [place for place, _ in found if place not in faults] == good
    assert [*faults] == [*bad]
    for place, fault in faults.items():
        assert fault.message.startswith(f"{path}{place}: ") and "\n" not in fault.message
        assert bad[place] in fault.message
    stopping = [fault for fault in faults.values() if fault.row is None]
    if not stopping:  # a model's text may hold lone surrogates
        assert len(list(read_rows(path))) == len(found)
        return
    with pytest.raises(UserError) as error:
        list(read_rows(path))
    assert str(error.value) == stopping[0].message


@table
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
    packed = gzip.compress(plain, mtime=0)
    wrong = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]  # its checksum
    for content in (packed[: len(packed) // 2], packed[:-9], wrong, plain):
        (tmp_path / "a.jsonl.gz").write_bytes(content)
        told = r"a.jsonl.gz: truncated or damaged gzip"
        refused(told, list, read_rows_and_faults(tmp_path / "a.jsonl.gz"))


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
    refused(r"a\.parquet: row \d+: not readable .*; fetch the file", list, found)


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
    refused("has changed since the stage data wrote it; `make data`", list, read_rows(path))
