"""The store of samples: keys that know everything, lines that survive whatever becomes of them."""

import json
import pickle
from copy import deepcopy
from dataclasses import fields, replace

import pytest

from data_prep.config import UserError
from data_prep.sampling.store import Completion, Continuation, Request, SampleStore, Settings

SETTINGS = Settings(8, temperature=0.7, top_p=0.9, until=("a",), rendered=True, seed=3)
REQUEST = Request("Mia has", SETTINGS, 1)
PAIR = Continuation("Mia has", " 14")


@pytest.fixture
def store(tmp_path):
    store = SampleStore(tmp_path, "model")
    yield store
    store.close()


def reopen(store, tmp_path, rank=0):
    store.close()
    found = SampleStore(tmp_path, "model", rank)
    found.load()
    return found


def test_a_completion_is_text_and_survives_copies():
    for copy in (lambda one: pickle.loads(pickle.dumps(one)), deepcopy):
        found = copy(Completion("abc", 7, True))
        assert (found, found.num_tokens, found.cut_off) == ("abc", 7, True)
        assert type(found) is Completion and type(str(found)) is str


CHANGES = {
    "max_new_tokens": 9, "temperature": 0.8, "top_p": 1.0, "until": (), "rendered": False,
    "seed": 4,
}  # fmt: skip


def test_the_changes_below_are_all_there_are():
    assert set(CHANGES) == {field.name for field in fields(Settings)}
    assert {field.name for field in fields(Request)} == {"prompt", "settings", "sample"}


@pytest.mark.parametrize(
    "other",
    [
        *(replace(REQUEST, settings=replace(SETTINGS, **{k: v})) for k, v in CHANGES.items()),
        replace(REQUEST, prompt="Mia has "),
        replace(REQUEST, sample=0),
        PAIR,
    ],
)
def test_every_field_is_part_of_the_key(store, other):
    assert store.key(other) != store.key(REQUEST)
    assert store.key(deepcopy(other)) == store.key(other)


def test_the_model_is_part_of_the_key(tmp_path):
    keys = [SampleStore(tmp_path, model).key(REQUEST) for model in ("a hf", "b hf", "a vllm")]
    assert len(set(keys)) == 3
    assert SampleStore(tmp_path / "elsewhere", "a hf", rank=5).key(REQUEST) == keys[0]


def test_a_sample_s_seed():
    """Its own numbers decide it; what else is asked, and the limits of its length, do not."""
    assert REQUEST.seed == Request("Mia has", Settings(9, seed=3), 1).seed
    others = [replace(REQUEST, sample=2), replace(REQUEST, prompt="Mia")]
    others.append(replace(REQUEST, settings=replace(SETTINGS, seed=4)))
    assert len({one.seed for one in [REQUEST, *others]}) == 4
    assert all(0 <= Request("p", SETTINGS, k).seed < 2**63 for k in range(100))
    # For good: a sample that was stored long ago belongs with those of today.
    assert Request("", Settings(1), 0).seed == 8375615582978303630


def test_round_trip(store, tmp_path):
    store.load()
    assert store.missing([REQUEST, PAIR, REQUEST]) == [REQUEST, PAIR]
    text = "\ud800 half, \u2028 line, \0, é, 😀\n"
    store.add(REQUEST, Completion(text, 5, True))
    store.add(PAIR, (-1, True))
    for found in (store, reopen(store, tmp_path)):
        completion = found.get(REQUEST)
        assert (completion, completion.num_tokens, completion.cut_off) == (text, 5, True)
        assert found.get(PAIR) == (-1.0, True)
        assert found.missing([REQUEST, PAIR]) == []
    assert (tmp_path / "samples-0.jsonl").read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("value", [float("-inf"), 0.0, -1e-30])
def test_extreme_log_likelihoods(store, tmp_path, value):
    store.add(PAIR, (value, False))
    assert reopen(store, tmp_path).get(PAIR) == (value, False)


def test_the_samples_of_all_processes_are_read(store, tmp_path):
    second = SampleStore(tmp_path, "model", rank=1)
    store.add(REQUEST, Completion("a", 1, False))
    second.add(PAIR, (-2.0, True))
    second.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "samples-0.jsonl", "samples-1.jsonl"
    ]  # fmt: skip
    alone = reopen(store, tmp_path, rank=7)
    assert alone.missing([REQUEST, PAIR]) == []
    assert len(list(tmp_path.iterdir())) == 2, "who makes nothing leaves no file"


def test_what_is_missing_is_asked_for_with_a_remedy(store, tmp_path):
    store.load()
    with pytest.raises(UserError, match="output_dir must lie on a file system that all hosts sha"):
        store.get(REQUEST)


@pytest.mark.parametrize("cut", [1, 2, 10, 40])
def test_a_torn_line_costs_one_sample(store, tmp_path, cut):
    second = replace(REQUEST, sample=2)
    for number, one in enumerate((REQUEST, second)):
        store.add(one, Completion(f"number {number}", 1, False))
    path = tmp_path / "samples-0.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    found = reopen(store, tmp_path)
    # Without its line end alone the last line is whole.
    lost = [] if cut == 1 else [second]
    assert found.missing([REQUEST, second]) == lost
    found.add(replace(REQUEST, sample=3), Completion("third", 1, False))
    for one in lost:
        found.add(one, Completion("again", 1, False))
    found = reopen(found, tmp_path)
    assert found.missing([REQUEST, second, replace(REQUEST, sample=3)]) == []
    assert found.get(REQUEST) == "number 0"
    assert found.get(second) == ("again" if lost else "number 1")


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"{", b"null", b"7", b'"text"', b"[]", b"{}", b'{"a": 1}', b'["{key}"]',
        b'["{key}", "text"]', b'["{key}", "text", 1]', b'["{key}", "text", 1, false, 2]',
        b'["{key}", 1, "text", false]', b'[["{key}"], "text", 1, false]', b'[{}, "text", 1, false]',
        b"\x00" * 50, b"\xff\xfe garbage", b'["{key}", "te', b'["{key}", null, null, null]',
    ],
)  # fmt: skip
def test_garbage_is_left_out(store, tmp_path, line):
    path = tmp_path / "samples-3.jsonl"
    pair = json.dumps([store.key(PAIR), -1.0, False]).encode()
    key = store.key(REQUEST).encode()
    path.write_bytes(line.replace(b"{key}", key) + b"\n" + pair + b"\n")
    store.load()
    assert store.missing([REQUEST, PAIR]) == [REQUEST]


def test_an_empty_folder_and_an_empty_file(store, tmp_path):
    SampleStore(tmp_path / "not there", "model").load()
    (tmp_path / "samples-0.jsonl").touch()
    store.load()
    store.add(REQUEST, Completion("a", 1, False))
    assert reopen(store, tmp_path).get(REQUEST) == "a"


def test_of_two_lines_with_one_key_the_last_counts(store, tmp_path):
    for text in ("first", "second"):
        store.add(REQUEST, Completion(text, 1, False))
    assert reopen(store, tmp_path).get(REQUEST) == "second"
