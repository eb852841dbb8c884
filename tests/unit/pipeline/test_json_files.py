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
from pipeline import freshness, json_files, manifest, rows, venv
from pipeline.commands import stage_words
from pipeline.errors import UserError
from pipeline.models import card, checkpoints
from pipeline.request import read
from stages import sweep
from stages.doctor import progress
from stages.preflight.inputs import load_shape
from stages.run import folders

RECORDED = Path(__file__).parents[2] / "integration/stages/recorded_run"
REMEDY = "remove it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "line 1"),
        (b"[]", "must be a mapping"),
        (b'{"name": 5}', "name: must be a text"),
        (b'{"other": "a"}', "name is missing"),
        (b'{"name": "a", "name": "b"}', "'name' is there twice"),
        (b'{"name": "a", "count": true}', "count: must be a whole number"),
        (b'{"name": "a", "count": 1.5}', "count: must be a whole number"),
        (b'{"name": "a", "count": 9223372036854775808}', "too many digits"),
        (b'{"name": "a", "count": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"name": "a", "rates": {"b": NaN}}', r"rates.b: must be a finite number"),
        (b'{"name": "a", "rows": {}}', "rows: must be a list"),
        (b'{"name": "a", "rows": [1, "b", {}]}', r"rows\[2\]: must be a text"),
        (b'{"name": "\xff"}', "utf-8"),
        (b'{"name": ' + b"[" * 100_000, "deep"),
    ],
)
def test_what_has_not_the_shape_is_one_line(tmp_path, text, words):
    shape = {"name": str, "count?": int, "rates?": {str: float}, "rows?": [(str, int)]}
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(UserError, match=words) as error:
        json_files.read(path, shape, REMEDY)
    message = str(error.value)
    assert message.startswith(f"{path}: is damaged (") and message.endswith(REMEDY)
    assert "\n" not in message and len(message) < 500


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


# Every reader: a file, a JSON text for it where the recorded run has none, and what reads it.
READERS = {
    "manifest": ("run/grpo/manifest.json", None,
                 lambda run: manifest.is_current(run / "run/grpo", {})),
    "is made": ("run/data/manifest.json", None,
                lambda run: manifest.check_made(run / "run/data/grpo_train.jsonl")),
    "command": ("run/sft/manifest.json", None,
                lambda run: freshness.looks_current(*command(run / "run", "sft"))),
    "start model": ("run/sft/manifest.json", None,
                    lambda run: freshness.trained_with(run / "run/sft")),
    "card": ("run/sft/manifest.json", None, lambda run: card.write(run / "run/grpo")),
    "card of data": ("run/data/manifest.json", None, lambda run: card.write(run / "run/sft")),
    "doctor": ("run/grpo/manifest.json", None, lambda run: progress(str(run / "run"))),
    "guards": ("run/grpo/events.jsonl", {"guard": "kl", "step": 1},
               lambda run: card.count_guards(run / "run/grpo/events.jsonl")),
    "run": ("unfinished/grpo/run.json", None, lambda run: resume(run / "unfinished/grpo")),
    "seal": ("unfinished/grpo/checkpoint-1/files.json", None,
             lambda run: resume(run / "unfinished/grpo")),
    "state": ("unfinished/grpo/checkpoint-1/trainer_state.json", None,
              lambda run: resume(run / "unfinished/grpo")),
    "sweep": ("unfinished/grpo/checkpoint-1/trainer_state.json", None,
              lambda run: sweep.read_row(run / "unfinished/grpo", "a", "finished")),
    "curves": ("run/grpo/trainer_state.json",
               {"log_history": [{"step": 1, "loss": 1.0, "eval_loss": 2.0}]},
               lambda run: read_curves({"a": str(run / "run/grpo")})),
    "scores": (
        "run/eval/sft/scores.json",
        {"fingerprint": {"checkpoint": "a", "engine": "b", "data": {"c": "d"}, "code": "e"},
         "settings": {}, "num_problems": 1, "num_completions": 1,
         "tasks": {"a": {"greedy": {"main": "x", "num_problems": 1, "metrics": {"x": {}}}}}},
        lambda run: read_result(run / "run/eval/sft"),
    ),
    "model": ("unfinished/grpo/best/config.json", None,
              lambda run: load_shape(str(run / "unfinished/grpo/best"))),
    "checkpoint": ("unfinished/grpo/best/config.json", None,
                   lambda run: checkpoints.check_checkpoint(f"{run}/unfinished/grpo/best", "key")),
    "index": ("unfinished/grpo/best/model.safetensors.index.json",
              {"weight_map": {"a": "model.safetensors"}, "metadata": {}},
              lambda run: checkpoints.check_weights(run / "unfinished/grpo/best", "key")),
    "adapter": ("run/adapter/adapter_config.json",
                {"base_model_name_or_path": "owner/model", "r": 8},
                lambda run: checkpoints.base_and_adapter(str(run / "run/adapter"))),
    "samples": ("run/samples/samples-0.jsonl", ["a key", "a text", 3, True],
                lambda run: load_samples(run / "run/samples")),
    "pass rates": ("run/pass_rates.jsonl", {"id": "a", "num_right": 1, "num_samples": 2},
                   lambda run: load_pass_counts(str(run / "run/pass_rates.jsonl"))),
    "problems": (
        "run/own.jsonl",
        {"id": "a", "prompt": [{"role": "user", "content": "1+1?"}], "answers": ["2"],
         "answer_form": "box", "level": 1, "source": "own", "question": "1+1?"},
        lambda run: list(read_problems(str(run / "run/own.jsonl"))),
    ),
    "installed": ("venv/lib/python3.1/site-packages/sft_grpo_math-1.dist-info/direct_url.json",
                  {"url": "file:///elsewhere", "dir_info": {"editable": True}},
                  lambda run: venv.fault(str(run / "venv"))),
}  # fmt: skip


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
    for name, content, _ in READERS.values():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps(content) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40, derandomize=True, deadline=None, database=None)
@given(data=st.data())
def test_a_damaged_file_never_ends_in_a_traceback(recorded, reader, data):
    name, _, read = READERS[reader]
    file = recorded / name
    text = file.read_bytes()
    file.write_bytes(data.draw(damaged(text)))
    try:
        with contextlib.chdir(recorded):
            read(recorded)
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
    with pytest.raises(UserError, match="samples-0"):
        store.get(wanted)


def test_a_damaged_run_is_known_by_its_newest_checkpoint(recorded):
    folder = recorded / "unfinished/grpo"
    known = folders.read_run(folder)
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text("[]")
    assert folders.read_run(folder) == folders.read_seal(folder / "checkpoint-1")["run"]
    (folder / "run.json").write_text(text)
    assert not folders.difference(folders.read_run(folder), known)


def test_a_row_with_a_key_twice_cannot_be_read(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"answer": "1", "answer": "2"}\n{"answer": "3"}\n')
    (_, bad), (_, good) = rows.read_rows_and_faults(file)
    assert isinstance(bad, rows.BadRow) and "twice" in bad.message and good == {"answer": "3"}


@pytest.mark.parametrize(
    ("number", "golds"),
    [
        ("1e999", ["inf"]),
        ("1e23", ["1" + "0" * 23]),
        ("-0.0", ["0"]),
        ("1e-7", ["1e-07"]),
        ("9007199254740993", ["9007199254740993"]),
    ],
)
def test_numbers_as_golds(number, golds):
    found = get_golds({"answer": json.loads(number)}, ("answer",), "f:1")
    assert found == golds
    assert is_sentinel(found[0]) is ("inf" in found[0])  # the build drops those by name
