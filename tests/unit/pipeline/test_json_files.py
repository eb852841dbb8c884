"""Edited and damaged JSON: one line or as if it were not there, in every reader of the project."""

import contextlib
import json
import shutil
from pathlib import Path

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
from stages import sweep
from stages.doctor import progress
from stages.preflight.inputs import load_shape
from stages.run import folders
from tests.files import write_rows
from tests.refused import refused
from tests.tables import read_beside, tables_beside

table = tables_beside(__file__)
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
