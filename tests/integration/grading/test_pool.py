"""The pool of killable workers: order, cache, threads, interrupts, closing and forks.

The workers run `eval`, so that each case says in its own text what the untrusted code does.
"""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from data_prep.grading import pool as grading_pool
from data_prep.grading.pool import GradingPool

pytestmark = pytest.mark.integration

EVAL = "builtins:eval"
OS = "__import__('os')"


def supervisor_of(pool):
    """The process id of a supervisor of the pool; a new text each time, for the cache."""
    return pool.call(f"{OS}.getppid() + 0 * {time.monotonic_ns()}").value


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_outcomes_come_in_order_and_equal_calls_are_made_once():
    with GradingPool(EVAL, num_workers=2, timeout=30.0) as pool:
        first = pool.map([(f"{i} % 50",) for i in range(100)] * 2)
        assert [outcome.value for outcome in first] == [i % 50 for i in range(100)] * 2
        assert {outcome.status for outcome in first} == {"ok"}
        assert pool.map([("7 % 50",), ("'new'",)]) == [first[7], pool.call("'new'")]
        assert pool.counts == {"ok": 101, "cached": 100 + 1 + 1}
        assert pool.map([]) == []


def test_the_least_recently_used_outcome_is_forgotten():
    with GradingPool(EVAL, num_workers=1, timeout=30.0, cache_size=2) as pool:
        for text in ("1", "2", "1", "3", "1"):  # 3 pushes out 2, as 1 was used since
            pool.call(text)
        assert pool.counts == {"ok": 3, "cached": 2}
        pool.call("2")
        assert pool.counts == {"ok": 4, "cached": 2}


def test_ten_bombs_leave_a_batch_unchanged():
    calls = [(f"{i} + 1",) for i in range(200)]
    bombs = list(range(5, 200, 20))
    for i in bombs:
        calls[i] = (f"3 ** 10 ** 8 + {i}",)  # minutes each
    with GradingPool(EVAL, num_workers=4, timeout=0.25) as pool:
        outcomes = pool.map(calls)
    assert [i for i, outcome in enumerate(outcomes) if outcome.status == "timeout"] == bombs
    assert all(outcomes[i].value == i + 1 for i in range(200) if i not in bombs)


def test_any_thread_may_call_and_several_at_once():
    results = {}

    def call(name):
        results[name] = pool.map([(f"'{name}', {i}",) for i in range(50)])

    threads = [threading.Thread(target=call, args=(name,)) for name in "abc"]
    with GradingPool(EVAL, num_workers=2, timeout=30.0) as pool:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in "abc":
        assert [outcome.value for outcome in results[name]] == [[name, i] for i in range(50)]


@pytest.fixture
def interruptible():
    """A KeyboardInterrupt that comes through.

    A shell's background job ignores SIGINT; and raised within the callback that hypothesis hangs
    into the garbage collection, the exception would be dropped.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_batch_does_not_answer_the_next_call():
    interrupt = f"{OS}.kill({os.getpid()}, {signal.SIGINT:d}) or __import__('time').sleep(0.5)"
    with GradingPool(EVAL, num_workers=1, timeout=30.0) as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.map([(f"{interrupt} or 'late'",), *((str(i),) for i in range(500))])
        assert pool.call("'next'").value == "next"
        assert pool.counts["ok"] < 100  # the call at work was waited for, the others were not made


def test_a_closed_pool_has_no_process_and_says_so():
    pool = GradingPool(EVAL, num_workers=1, timeout=30.0)
    supervisor = supervisor_of(pool)
    server = psutil.Process(supervisor).children()[0]
    pool.close()
    pool.close()
    assert not psutil.pid_exists(supervisor)
    wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
    with pytest.raises(RuntimeError, match="the grading pool is closed"):
        pool.call("1")


def test_closing_ends_calls_on_the_way():
    pool = GradingPool(EVAL, num_workers=1, timeout=30.0)
    errors = []

    def call():
        try:
            pool.map([(f"__import__('time').sleep(20) or {i}",) for i in range(9)])
        except RuntimeError as error:
            errors.append(str(error))

    supervisor = supervisor_of(pool)
    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.1)
    pool.close()
    thread.join(timeout=30)
    assert errors == ["the grading pool is closed; make a new one"]
    assert not psutil.pid_exists(supervisor)


def test_a_pool_that_is_forgotten_ends_its_workers():
    pool = GradingPool(EVAL, num_workers=1, timeout=30.0)
    supervisor = supervisor_of(pool)
    del pool
    wait_until(lambda: not psutil.pid_exists(supervisor))


def test_a_forked_process_makes_its_own_pool(monkeypatch):
    monkeypatch.setattr(grading_pool, "FUNCTION", EVAL)
    monkeypatch.setattr(grading_pool, "_shared", None)
    pool = grading_pool.shared_pool()
    assert pool is grading_pool.shared_pool()
    supervisor = supervisor_of(pool)
    with grading_pool._shared_lock:  # as if another thread were just making a pool
        child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(RuntimeError, match="another process"):
                pool.call("1")
            own = grading_pool.shared_pool()
            assert own is not pool and own.call("5 + 5").value == 10
            own.close()
            pool.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert psutil.Process(supervisor).status() != psutil.STATUS_ZOMBIE
    assert pool.call("5 + 6").value == 11
    pool.close()


@pytest.mark.parametrize(
    ("num_cpus", "num_ranks", "num_workers"),
    [(2, None, 2), (64, None, 4), (64, "8", 4), (16, "8", 2), (4, "8", 1), (1, None, 1)],
)
def test_ranks_share_the_cpus(monkeypatch, num_cpus, num_ranks, num_workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(num_cpus)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if num_ranks:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", num_ranks)
    assert grading_pool._share_of_cpus() == num_workers


def test_importing_the_pool_starts_no_process_and_needs_no_torch():
    code = (
        "import sys, data_prep.grading.pool as g\n"
        "assert g._shared is None and not {'torch', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
