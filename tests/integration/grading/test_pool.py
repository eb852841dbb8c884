"""The pool of killable workers: what each kind of call becomes, order, cache, threads and forks.

The workers run `eval`, so that each case says in its own text what the untrusted code does.
"""

import gc
import json
import logging
import os
import signal
import threading
import time
from contextlib import closing
from unittest.mock import patch

import psutil
import pytest

from grading import pool as pool_module
from grading.pool import GradingPool, Worker
from grading.pool_worker import REQUESTS_PER_SERVER

pytestmark = pytest.mark.integration

EVAL = "builtins:eval"
OS = "__import__('os')"
SLEEP = "__import__('time').sleep"
LIMIT = 0.25  # of the pool that gets bombs
C_BOMB = "3 ** 10 ** 8"  # minutes within a single bytecode, where Python runs no signal handler
LOOP_BOMB = "all(True for _ in iter(int, 1))"


@pytest.fixture(scope="module")
def pool():
    """Two workers whose limit no innocent call meets, however busy the machine."""
    with closing(GradingPool(EVAL, num_workers=2, timeout=30.0)) as pool:
        yield pool


@pytest.fixture
def single():
    """A pool of one worker, of its own for each test."""
    with closing(GradingPool(EVAL, num_workers=1, timeout=30.0, cache_size=2)) as pool:
        yield pool


@pytest.fixture(scope="module")
def strict():
    """One worker for calls over the limit; each test uses texts of its own, for the cache."""
    with closing(GradingPool(EVAL, num_workers=1, timeout=LIMIT)) as pool:
        yield pool


def supervisor_of(pool):
    """The process id of a supervisor of the pool; a new text each time, for the cache."""
    return pool.call(f"{OS}.getppid() + 0 * {time.monotonic_ns()}").value


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_outcomes_come_in_order_and_equal_calls_are_made_once():
    with closing(GradingPool(EVAL, num_workers=2, timeout=30.0)) as pool:
        first = pool.map([(f"{i} % 50",) for i in range(100)] * 2)
        assert [outcome.value for outcome in first] == [i % 50 for i in range(100)] * 2
        assert all(a is b for a, b in zip(first[:100], first[100:], strict=True))
        assert pool.map([("7 % 50",), ("'new'",)])[0] is first[7]
        assert pool.map([]) == []


def test_ten_bombs_leave_a_batch_unchanged():
    calls = [(f"{i} + 1",) for i in range(200)]
    bombs = list(range(5, 200, 20))
    for i in bombs:
        calls[i] = (f"{C_BOMB} + {i}",)
    with closing(GradingPool(EVAL, num_workers=4, timeout=0.25)) as pool:
        outcomes = pool.map(calls)
    assert [i for i, outcome in enumerate(outcomes) if outcome.status == "timeout"] == bombs
    assert all(outcomes[i].value == i + 1 for i in range(200) if i not in bombs)


def test_any_thread_may_call_and_several_at_once(pool):
    results = {}

    def call(name):
        results[name] = [one.value for one in pool.map([(f"'{name}', {i}",) for i in range(50)])]

    threads = [threading.Thread(target=call, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {name: [[name, i] for i in range(50)] for name in "abc"}


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
def test_an_interrupted_batch_does_not_answer_the_next_call(single):
    interrupt = f"{OS}.kill({os.getpid()}, {signal.SIGINT:d}) or {SLEEP}(0.5)"
    spy = patch.object(Worker, "ask", autospec=True, side_effect=Worker.ask)
    with spy as ask, pytest.raises(KeyboardInterrupt):
        single.map([(f"{interrupt} or 'late'",), *((str(i),) for i in range(500))])
    assert single.call("'next'").value == "next"
    assert ask.call_count < 100  # the call at work was waited for, the others were not made


def test_closing_ends_calls_on_the_way_and_every_process(single):
    errors = []

    def call():
        try:
            single.map([(f"{SLEEP}(20) or {i}",) for i in range(9)])
        except RuntimeError as error:
            errors.append(str(error))

    supervisor = supervisor_of(single)
    server = psutil.Process(supervisor).children()[0]
    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.1)
    single.close()
    single.close()
    thread.join(timeout=30)
    assert errors == ["the grading pool is closed; make a new one"]
    assert not psutil.pid_exists(supervisor)
    wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
    with pytest.raises(RuntimeError, match="the grading pool is closed"):
        single.call("1")


def test_a_forked_process_makes_its_own_pool(monkeypatch):
    monkeypatch.setattr(pool_module, "FUNCTION", EVAL)
    pool_module.shared_pool.cache_clear()
    pool = pool_module.shared_pool()
    assert pool is pool_module.shared_pool()
    supervisor = supervisor_of(pool)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(RuntimeError, match="another process"):
                pool.call("1")
            own = pool_module.shared_pool()
            assert own is not pool and own.call("5 + 5").value == 10
            own.close()
            pool.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert psutil.Process(supervisor).status() != psutil.STATUS_ZOMBIE
    assert pool.call("5 + 6").value == 11
    pool_module.shared_pool.cache_clear()


@pytest.mark.parametrize(
    ("num_cpus", "num_ranks", "num_workers"),
    [(2, None, 2), (64, None, 4), (64, "8", 4), (16, "8", 2), (4, "8", 1), (1, None, 1)],
)
def test_ranks_share_the_cpus(monkeypatch, num_cpus, num_ranks, num_workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(num_cpus)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if num_ranks:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", num_ranks)
    assert pool_module.share_of_cpus() == num_workers


# One worker


@pytest.mark.parametrize(
    ("text", "value", "error"),
    [
        ("1 / 0", None, "ZeroDivisionError: division by zero"),
        (r"int('a\nb')", None, r"ValueError: invalid literal for int() with base 10: 'a\nb'"),
        ("(lambda f: f(f))(lambda f: f(f))", None,
         "RecursionError: maximum recursion depth exceeded"),
        ("{1}", None, "TypeError: Object of type set is not JSON serializable"),
        ("input()", None, "EOFError: EOF when reading a line"),
        ("exit(3)", None, "SystemExit: 3"),
        (f"{OS}._exit(3)", None, "exited with 3"),
        (f"{OS}.abort()", None, "died of signal 6"),
        ("print('not a reply')", None, None),
        ("[1.5, 'x', None, {'a': True}]", [1.5, "x", None, {"a": True}], None),
        (r"'\ud800 \n π'", "\ud800 \n π", None),
        ("'" + "x" * 10**6 + "'", "x" * 10**6, None),  # more than a socket holds, both ways
    ],
)  # fmt: skip
def test_what_a_call_returns_or_raises_is_its_outcome(pool, text, value, error):
    outcome = pool.call(text)
    status = "error" if error else "ok"
    assert (outcome.value, outcome.status, outcome.error) == (value, status, error)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (C_BOMB, "over 0.25 s"),
        (f"{LOOP_BOMB} or '{'x' * 10_000}'", "over 0.25 s"),
        ("bytearray(64 << 30)", "over 2 GiB of memory"),
        (f"{OS}.kill({OS}.getpid(), 9)", "killed, as by a machine that is out of memory"),
    ],
)
def test_a_call_over_its_limit_is_stopped_logged_and_remembered(strict, caplog, text, error):
    with caplog.at_level(logging.WARNING, pool_module.__name__):
        outcome = strict.call(text)
    assert (outcome.value, outcome.status, outcome.error) == (None, "timeout", error)
    shown = json.dumps([text])[:200]  # a logged call is cut short
    assert caplog.messages[0].startswith(f"stopped {EVAL}{shown}") and len(caplog.messages[0]) < 300
    assert strict.call(text) is outcome
    assert supervisor_of(strict)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("math:no_such_function", "AttributeError: module 'math' has no attribute"),
        ("no_colon", "ModuleNotFoundError"),
    ],
)
def test_a_worker_that_cannot_start_says_why(function, error):
    with closing(GradingPool(function, num_workers=2, timeout=1.0)) as pool:
        for _ in range(2):  # the second time with a fresh process
            with pytest.raises(RuntimeError, match=f"cannot start a grading worker.*{error}"):
                pool.map([(1,), (2,), (3,)])


@pytest.mark.parametrize("num_kills", [0, 1, 2])
def test_a_slow_start_is_not_charged_and_a_killed_one_is_made_once_more(
    tmp_path, monkeypatch, num_kills
):
    """The module kills the process that imports it, the first times."""
    (tmp_path / "module.py").write_text(
        "import os, pathlib, time\n"
        f"kills = pathlib.Path({str(tmp_path)!r}, 'kills')\n"
        "kills.open('a').write('x')\n"
        f"if len(kills.read_text()) <= {num_kills}: os.kill(os.getpid(), 9)\n"
        "time.sleep(0.6)\n"
        "double = lambda x: 2 * x"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with closing(GradingPool("module:double", num_workers=1, timeout=LIMIT)) as pool:
        if num_kills == 2:
            with pytest.raises(RuntimeError, match="it ended before it was ready"):
                pool.call(4)
        assert pool.call(4).value == 8


def test_a_server_is_forked_again_before_its_caches_grow(single):
    texts = [(f"{OS}.getpid() + 0 * {i}",) for i in range(REQUESTS_PER_SERVER + 1)]
    servers = [outcome.value for outcome in single.map(texts)]
    assert len(set(servers[:-1])) == 1
    assert servers[-1] != servers[0]


def test_a_killed_worker_is_replaced_and_the_call_made_again(strict):
    supervisor = supervisor_of(strict)
    os.kill(supervisor, signal.SIGKILL)
    outcomes = strict.map([(f"'after', {i}",) for i in range(5)])
    assert [outcome.value for outcome in outcomes] == [["after", i] for i in range(5)]
    wait_until(lambda: supervisor_of(strict) != supervisor)


def test_a_bomb_is_stopped_although_its_supervisor_is_gone(strict):
    outcome = strict.call(f"{OS}.kill({OS}.getppid(), 9) or {LOOP_BOMB}")
    assert (outcome.status, outcome.error) == ("timeout", "over 0.25 s")
    assert supervisor_of(strict)


def test_a_call_that_takes_its_worker_down_twice_is_an_error_and_not_remembered(strict):
    outcomes = [strict.call(f"{OS}.killpg(0, 9)") for _ in range(2)]
    for outcome in outcomes:
        assert (outcome.status, outcome.error) == ("error", "the worker was killed, twice")
    assert outcomes[0] is not outcomes[1]


@pytest.mark.parametrize("stop", [os.kill, os.killpg])
def test_a_stopped_worker_cannot_hold_up_a_call(strict, stop):
    supervisor = supervisor_of(strict)
    stop(supervisor, signal.SIGSTOP)  # the supervisor, or its server too
    outcome = strict.call(f"{LOOP_BOMB} or '{stop.__name__}'")
    assert (outcome.status, outcome.error) == ("timeout", "over 0.25 s")
    assert supervisor_of(strict) != supervisor
    assert not psutil.pid_exists(supervisor)
