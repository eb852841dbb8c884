"""Filling a store: only what is missing, by all processes, with nothing lost on the way."""

import threading
from contextlib import closing

import pytest
from torch.distributed import HashStore

from data_prep.sampling import store as filling
from data_prep.sampling.processes import Processes
from data_prep.sampling.store import Completion, Request, SampleStore, Settings, fill

WANTED = [Request(prompt, Settings(8), sample) for prompt in "abc" for sample in range(4)]


class Reciting:
    """An engine that writes the request's name, last request first, and fails at `fails_at`."""

    def __init__(self, fails_at=None):
        self.windows, self.is_closed, self._fails_at = [], False, fails_at

    def load(self):
        return closing(self)

    def complete(self, requests):
        self.windows.append(list(requests))
        for index, request in reversed(list(enumerate(requests))):
            if request == self._fails_at:
                raise RuntimeError("the engine broke")
            yield index, name(request)

    def close(self):
        self.is_closed = True

    @property
    def asked(self):
        return [request for window in self.windows for request in window]


def name(request):
    return Completion(f"{request.prompt}{request.sample}", 2, False)


def refuse():
    raise AssertionError("there is nothing to load an engine for")


def test_what_is_missing_is_generated_once(tmp_path, capsys):
    store, engine = SampleStore(tmp_path, "model"), Reciting()
    for request in WANTED[:5]:
        store.add(request, Completion("early", 1, False))
    fill(store, WANTED + WANTED[-2:], engine.load, Processes(), "test")
    assert engine.asked == WANTED[5:] and engine.is_closed
    assert [store.get(one) for one in WANTED] == ["early"] * 5 + [name(one) for one in WANTED[5:]]
    fill(store, WANTED, refuse, Processes(), "test")
    out, err = capsys.readouterr()
    assert out == (
        "test: 5 samples are there already\ntest: 12 samples are there already\n"
    ) and not err  # fmt: skip


def test_an_engine_gets_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(filling, "WINDOW", 5)
    store, engine = SampleStore(tmp_path, "model"), Reciting()
    fill(store, WANTED, engine.load, Processes(), "test")
    assert [len(window) for window in engine.windows] == [5, 5, 2]
    assert [store.get(one) for one in WANTED] == list(map(name, WANTED))


def test_what_is_finished_outlives_an_error(tmp_path):
    engine = Reciting(fails_at=WANTED[7])
    with pytest.raises(RuntimeError, match="broke"):
        fill(SampleStore(tmp_path, "model"), WANTED, engine.load, Processes(), "test")
    assert engine.is_closed
    second = Reciting()
    fill(SampleStore(tmp_path, "model"), WANTED, second.load, Processes(), "test")
    assert second.asked == WANTED[:8]


@pytest.mark.parametrize("num_stored", [0, 11])
def test_processes_share(tmp_path, num_stored):
    before = SampleStore(tmp_path, "model", rank=5)
    for request in WANTED[:num_stored]:
        before.add(request, name(request))
    before.close()
    meeting, engines, failed = HashStore(), [Reciting(), Reciting()], []

    def work(rank):
        try:
            store = SampleStore(tmp_path, "model", rank)
            fill(store, WANTED, engines[rank].load, Processes(rank, 2, rank, meeting), "test")
            if rank == 0:
                assert [store.get(one) for one in WANTED] == list(map(name, WANTED))
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failed and not any(thread.is_alive() for thread in threads)
    todo = WANTED[num_stored:]
    assert [engine.asked for engine in engines] == [todo[0::2], todo[1::2]]
    assert [engine.is_closed for engine in engines] == [True, num_stored == 0]
