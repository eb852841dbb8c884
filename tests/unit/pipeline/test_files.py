"""Files that are read: rows in every container, JSON of any writer, and each way to damage them."""

import contextlib
import gzip
import json
import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sampling.problems import load_pass_counts
from data_prep.sampling.store import Completion, Request, SampleStore, Settings
from data_prep.schema import read_problems
from data_prep.sources.base import get_golds, is_sentinel
from eval.report.__main__ import read_curves
from eval.report.numbers import read_result
from pipeline import freshness, json_files, manifest, venv
from pipeline.commands import stage_words
from pipeline.errors import UserError
from pipeline.models import card, checkpoints
from pipeline.request import read
from pipeline.rows import (
    BadRow,
    fetch_hub_file,
    list_files,
    load_hub,
    read_rows,
    read_rows_and_faults,
)
from stages import sweep
from stages.doctor import progress
from stages.preflight.inputs import load_shape
from stages.run import folders
from tests.files import write_rows
from tests.refused import refused
from tests.tables import read_beside, tables_beside

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


# Edited and damaged JSON: one line or as if it were not there, in every reader of the project.

FILES = read_beside(__file__)["files"]
RECORDED = Path(__file__).parents[2] / "integration/stages/recorded_run"
REMEDY = "remove it"


@table
def test_what_has_not_the_shape_is_one_line(tmp_path, text, words):
    shape = {"name": str, "count?": int, "rates?": {str: float}, "rows?": [(str, int)]}
    path = tmp_path / "a.json"
    path.write_bytes(text)
    message = refused(words, json_files.read, path, shape, REMEDY)
    assert message.startswith(f"{path}: is damaged (") and message.endswith(REMEDY)
    assert len(message) < 500


def test_what_has_the_shape_is_read_whoever_wrote_it(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": -3, "b": {"c": NaN, "d": null}, "more": []}')
    found = json_files.read(path, {"a": float, "b": {str: object}, "c?": str}, REMEDY)
    assert found["a"] == -3 and found["more"] == []
    path.write_text('{"a": 1, "a": 2}')  # of a model's folder: libraries take the last
    assert json_files.read(path, {"a": int}, REMEDY, is_own=False) == {"a": 2}
    with pytest.raises(FileNotFoundError):
        json_files.read(tmp_path / "none", object, REMEDY)


def command(run, stage):
    """What `looks_current` is asked of a stage."""
    request = read(["grpo", f"RUN={run}"], {})
    return request, stage, stage_words(request, stage)


# Each reader of a file of the table; the file has a content there if the recorded run has none.
READERS = {
    "manifest": lambda run: manifest.is_current(run / "run/grpo", {}),
    "is made": lambda run: manifest.check_made(run / "run/data/grpo_train.jsonl"),
    "command": lambda run: freshness.looks_current(*command(run / "run", "sft")),
    "start model": lambda run: freshness.trained_with(run / "run/sft"),
    "card": lambda run: card.write(run / "run/grpo"),
    "card of data": lambda run: card.write(run / "run/sft"),
    "doctor": lambda run: progress(str(run / "run")),
    "guards": lambda run: card.count_guards(run / "run/grpo/events.jsonl"),
    "run": lambda run: resume(run / "unfinished/grpo"),
    "seal": lambda run: resume(run / "unfinished/grpo"),
    "state": lambda run: resume(run / "unfinished/grpo"),
    "sweep": lambda run: sweep.read_row(run / "unfinished/grpo", "a", "finished"),
    "curves": lambda run: read_curves({"a": str(run / "run/grpo")}),
    "scores": lambda run: read_result(run / "run/eval/sft"),
    "model": lambda run: load_shape(str(run / "unfinished/grpo/best")),
    "checkpoint": lambda run: checkpoints.check_checkpoint(f"{run}/unfinished/grpo/best", "key"),
    "index": lambda run: checkpoints.check_weights(run / "unfinished/grpo/best", "key"),
    "adapter": lambda run: checkpoints.base_and_adapter(str(run / "run/adapter")),
    "samples": lambda run: load_samples(run / "run/samples"),
    "pass rates": lambda run: load_pass_counts(str(run / "run/pass_rates.jsonl")),
    "problems": lambda run: list(read_problems(str(run / "run/own.jsonl"))),
    "installed": lambda run: venv.fault(str(run / "venv")),
}


def resume(folder):
    """What a start reads of an unfinished run."""
    run = json.loads((RECORDED / "unfinished/grpo/run.json").read_text())
    folders.difference(folders.read_run(folder), run)
    if checkpoint := folders.last_checkpoint(folder):
        folders.check_resume(checkpoint, run)
        folders.check_resume(checkpoint, run | {"num_processes": 2})


def load_samples(folder):
    store = SampleStore(folder, "model")
    store.load()
    for key in store._places:
        store.key = lambda wanted, key=key: key
        store.get(Request("a prompt", Settings(8)))


VALUES = ("null", "[[1]]", '{"a": [1]}', '"x"', "-1", "1e999", "9" * 5000, "true")


def damaged(text):
    """A JSON text in other shapes: as a whole, or with another value at one of its places."""
    document = json.loads(text)
    whole = [b"", b"null", b"[]", b"5", text[: len(text) // 2], b"\xff" + text, b"[" * 100_000]
    whole += [b"[" * 300 + b"]" * 300, text.replace(b"{", b'{"stage": [], "stage": 5, ', 1)]
    places = [*places_of(document)]
    shallow = st.sampled_from([place for place in places if len(place) < 3])
    place = shallow | st.sampled_from(places)
    values = st.sampled_from(VALUES)
    return st.sampled_from(whole) | st.builds(replaced, st.just(document), place, values)


def places_of(value, place=()):
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*place, key)
            yield from places_of(value[key], (*place, key))


def replaced(document, place, value):
    changed = part = json.loads(json.dumps(document))
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = "@@"
    return json.dumps(changed).replace('"@@"', value).encode()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copytree(RECORDED, folder, dirs_exist_ok=True)
    for file in FILES.values():
        if "content" in file:
            path = folder / file["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_rows(path, [file["content"]])
    return folder


@pytest.mark.parametrize("reader", FILES)
@settings(max_examples=40, derandomize=True, deadline=None, database=None)
@given(data=st.data())
def test_a_damaged_file_never_ends_in_a_traceback(recorded, reader, data):
    file = recorded / FILES[reader]["path"]
    text = file.read_bytes()
    file.write_bytes(data.draw(damaged(text)))
    try:
        with contextlib.chdir(recorded):
            READERS[reader](recorded)
    except (UserError, FileNotFoundError) as error:
        assert "\n" not in str(error)
    finally:
        file.write_bytes(text)


def test_a_damaged_sample_is_generated_again_and_one_of_another_kind_refused(tmp_path):
    wanted, store = Request("a prompt", Settings(8)), SampleStore(tmp_path, "model")
    store.add(wanted, Completion("text", 3, cut_off=False))
    store.close()
    line = json.loads(store._path.read_text())
    for fields, is_missing in ((["text", "3", False], True), ([0.5, True], False)):
        store._path.write_text(json.dumps([line[0], *fields]) + "\n5\n{}\n")
        store.load()
        assert bool(store.missing([wanted])) is is_missing
    refused("samples-0", store.get, wanted)


@table
def test_numbers_as_golds(number, golds):
    found = get_golds({"answer": json.loads(number)}, ("answer",), "f:1")
    assert found == golds
    assert is_sentinel(found[0]) is ("inf" in found[0])  # the build drops those by name
