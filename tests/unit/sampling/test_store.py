"""The store: keys that know everything, lines that survive a kill, nothing asked for twice."""

import pickle
import threading
from contextlib import closing
from dataclasses import fields, replace

import pytest
from torch.distributed import HashStore

from data_prep.sampling.store import (
    Completion,
    Continuation,
    Processes,
    Request,
    SampleStore,
    Settings,
    fill,
)
from pipeline.errors import UserError

SETTINGS = Settings(8, temperature=0.7, top_p=0.9, until=("a",), rendered=True, seed=3)
REQUEST = Request("Mia has", SETTINGS, 1)
PAIR = Continuation("Mia has", " 14")
WANTED = [Request(prompt, Settings(8), sample) for prompt in "abc" for sample in range(4)]


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


def test_a_completion_survives_a_copy():
    found = pickle.loads(pickle.dumps(Completion("abc", 7, True)))
    assert (found, found.num_tokens, found.cut_off) == ("abc", 7, True)


CHANGES = {
    "max_new_tokens": 9, "temperature": 0.8, "top_p": 1.0, "until": (), "rendered": False,
    "seed": 4,
}  # fmt: skip


def test_everything_that_decides_is_part_of_the_key(store, tmp_path):
    assert set(CHANGES) == {field.name for field in fields(Settings)}
    assert {field.name for field in fields(Request)} == {"prompt", "settings", "sample", "place"}
    for one in (REQUEST, PAIR):  # where a row stands decides nothing
        moved = replace(one, place="held_out: p3: ")
        assert moved == one and store.key(moved) == store.key(one)
    wanted = [replace(REQUEST, settings=replace(SETTINGS, **{k: v})) for k, v in CHANGES.items()]
    wanted += [REQUEST, replace(REQUEST, prompt="Mia has "), replace(REQUEST, sample=0)]
    wanted += [PAIR, Continuation("Mia has 14", ""), Continuation(" 14", "Mia has")]
    keys = [store.key(one) for one in wanted]
    keys += [SampleStore(tmp_path, model).key(REQUEST) for model in ("a hf", "b hf", "a vllm")]
    assert len(set(keys)) == len(keys)
    elsewhere = SampleStore(tmp_path / "elsewhere", "a hf", rank=5)
    assert elsewhere.key(replace(REQUEST)) == keys[-3]


def test_the_context_is_part_of_the_key_where_it_may_cut_the_prompt(tmp_path):
    stores = [SampleStore(tmp_path, "model", context=length) for length in (1024, 8192)]
    official = replace(REQUEST, settings=replace(SETTINGS, rendered=False))
    for wanted, is_same in ((REQUEST, True), (official, False), (PAIR, False)):
        one, other = (store.key(wanted) for store in stores)
        assert (one == other) == is_same


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
    assert store.missing([REQUEST, PAIR, REQUEST]) == [REQUEST, PAIR]
    text = "\ud800 half, \u2028 line, \0, é, 😀\n"
    store.add(REQUEST, Completion(text, 5, True))
    store.add(PAIR, (float("-inf"), True))
    for found in (store, reopen(store, tmp_path)):
        completion = found.get(REQUEST)
        assert (completion, completion.num_tokens, completion.cut_off) == (text, 5, True)
        assert found.get(PAIR) == (float("-inf"), True)
        assert found.missing([REQUEST, PAIR]) == []
    assert (tmp_path / "samples-0.jsonl").read_bytes().count(b"\n") == 2


def test_the_samples_of_all_processes_are_read(store, tmp_path):
    second = SampleStore(tmp_path, "model", rank=1)
    store.add(REQUEST, Completion("a", 1, False))
    second.add(PAIR, (-2.0, True))
    second.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["samples-0.jsonl", "samples-1.jsonl"]
    alone = reopen(store, tmp_path, rank=7)
    assert alone.missing([REQUEST, PAIR]) == []
    assert len(list(tmp_path.iterdir())) == 2, "who makes nothing leaves no file"
    with pytest.raises(UserError, match="put output_dir on a file system that all hosts sha"):
        alone.get(replace(REQUEST, sample=9))


@pytest.mark.parametrize("cut", [1, 2, 10, 40])
def test_a_torn_line_costs_one_sample(store, tmp_path, cut):
    wanted = [replace(REQUEST, sample=number) for number in range(3)]
    for one in wanted[:2]:
        store.add(one, name(one))
    path = tmp_path / "samples-0.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    found = reopen(store, tmp_path)
    # Without its line end alone the last line is complete.
    assert found.missing(wanted) == wanted[2 if cut == 1 else 1 :]
    for one in found.missing(wanted):
        found.add(one, name(one))
    found = reopen(found, tmp_path)
    assert [found.get(one) for one in wanted] == list(map(name, wanted))


class Reciting:
    """An engine that writes the request's name, last request first, and fails at `fails_at`."""

    def __init__(self, fails_at=None):
        self.asked, self.is_closed, self._fails_at = [], False, fails_at

    def open(self):
        return closing(self)

    def complete(self, requests):
        self.asked.extend(requests)
        for index, request in reversed(list(enumerate(requests))):
            if request == self._fails_at:
                raise RuntimeError("the engine broke")
            yield index, name(request)

    def close(self):
        self.is_closed = True


def name(request):
    return Completion(f"{request.prompt}{request.sample}", 2, False)


def test_what_is_missing_is_generated_once(store, capsys):
    engine = Reciting()
    for request in WANTED[:5]:
        store.add(request, Completion("early", 1, False))
    fill(store, WANTED + WANTED[-2:], engine.open, Processes(), "test")
    assert engine.asked == WANTED[5:] and engine.is_closed
    assert [store.get(one) for one in WANTED] == ["early"] * 5 + [name(one) for one in WANTED[5:]]
    fill(store, WANTED, pytest.fail, Processes(), "test")
    assert capsys.readouterr() == (
        "test: 5 samples are already stored\ntest: 12 samples are already stored\n", ""
    )  # fmt: skip


def test_what_is_finished_outlives_an_error(tmp_path):
    engine = Reciting(fails_at=WANTED[7])
    with pytest.raises(RuntimeError, match="broke"):
        fill(SampleStore(tmp_path, "model"), WANTED, engine.open, Processes(), "test")
    assert engine.is_closed
    second = Reciting()
    fill(SampleStore(tmp_path, "model"), WANTED, second.open, Processes(), "test")
    assert second.asked == WANTED[:8]


def in_threads(work):
    """`work(rank, key-value store)` for two ranks at once; what each returned."""
    meeting, found = HashStore(), {}

    def call(rank):
        found[rank] = work(rank, meeting)

    threads = [threading.Thread(target=call, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return [found[rank] for rank in range(2)]


@pytest.mark.parametrize("num_stored", [0, 11])
def test_processes_share(tmp_path, num_stored):
    before = SampleStore(tmp_path, "model", rank=5)
    for request in WANTED[:num_stored]:
        before.add(request, name(request))
    before.close()
    engines = [Reciting(), Reciting()]

    def work(rank, meeting):
        store = SampleStore(tmp_path, "model", rank)
        fill(store, WANTED, engines[rank].open, Processes(rank, 2, rank, meeting), "test")
        return rank or [store.get(one) for one in WANTED]

    assert in_threads(work) == [list(map(name, WANTED)), 1]
    todo = WANTED[num_stored:]
    assert [engine.asked for engine in engines] == [todo[0::2], todo[1::2]]
    assert [engine.is_closed for engine in engines] == [True, num_stored == 0]
