"""Processes that share an evaluation: they meet, ask the first one, and take their shares."""

import threading

import pytest
from data_prep.sampling.store import Processes
from torch.distributed import HashStore


def run_all(world_size, work):
    """`work(processes)` in as many threads; returns what each returned, in the order of ranks."""
    store, found, failed = HashStore(), {}, []

    def call(rank):
        try:
            found[rank] = work(Processes(rank, world_size, rank, store))
        except BaseException as error:
            failed.append(error)
            raise

    threads = [
        threading.Thread(target=call, args=(rank,), daemon=True) for rank in range(world_size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failed and len(found) == world_size
    return [found[rank] for rank in range(world_size)]


def test_one_process_needs_nobody(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    alone = Processes.from_environment()
    alone.meet()
    assert (alone.rank, alone.world_size, alone.is_main) == (0, 1, True)
    assert alone.ask_main(lambda: {"a": 1}) == {"a": 1}
    assert alone.share([1, 2, 3]) == [1, 2, 3]


@pytest.mark.parametrize("world_size", [2, 3])
def test_nobody_goes_on_before_all_have_come(world_size):
    come, lock = [0] * 5, threading.Lock()

    def work(processes):
        seen = []
        for meeting in range(5):
            with lock:
                come[meeting] += 1
            processes.meet()
            seen.append(come[meeting])
        return seen

    assert run_all(world_size, work) == [[world_size] * 5] * world_size


def test_the_main_process_answers_for_all():
    def work(processes):
        first = processes.ask_main(lambda: {"rank": processes.rank, "none": None})
        processes.meet()
        return [first, processes.ask_main(lambda: [processes.rank, "second"])]

    assert run_all(3, work) == [[{"rank": 0, "none": None}, [0, "second"]]] * 3


@pytest.mark.parametrize("count", [0, 1, 2, 7, 9])
def test_shares_are_even_and_leave_nothing(count):
    shares = [Processes(rank, 3).share(list(range(count))) for rank in range(3)]
    assert sorted(item for share in shares for item in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
