"""One killable worker: what each kind of call becomes, and that the next one goes on.

The workers run `eval`, so that each case says in its own text what the untrusted code does.
"""

import json
import logging
import os
import select
import signal
import time

import psutil
import pytest

from data_prep.grading.pool import GradingPool
from data_prep.grading.pool_worker import REQUESTS_PER_SERVER

pytestmark = pytest.mark.integration

EVAL = "builtins:eval"
OS = "__import__('os')"
LIMIT = 0.25  # of the pool that gets bombs
C_BOMB = "3 ** 10 ** 8"  # minutes within a single bytecode, where Python runs no signal handler
LOOP_BOMB = "all(True for _ in iter(int, 1))"
MEMORY_BOMB = "bytearray(64 << 30)"


@pytest.fixture(scope="module")
def pool():
    """Two workers whose limit no innocent call meets, however busy the machine."""
    with GradingPool(EVAL, num_workers=2, timeout=30.0) as pool:
        yield pool


@pytest.fixture(scope="module")
def strict():
    """One worker for calls over the limit; each test uses texts of its own, for the cache."""
    with GradingPool(EVAL, num_workers=1, timeout=LIMIT) as pool:
        yield pool


def supervisor_of(pool):
    """The process id of a supervisor of the pool; a new text each time, for the cache."""
    return pool.call(f"{OS}.getppid() + 0 * {time.monotonic_ns()}").value


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (r"int('two\nlines')", "ValueError: invalid literal for int() with base 10: 'two\\nlines'"),
        ("(", "SyntaxError: '(' was never closed (<string>, line 1)"),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError: maximum recursion depth exceeded"),
        ("{1}", "TypeError: Object of type set is not JSON serializable"),
        ("input()", "EOFError: EOF when reading a line"),
        ("exit(3)", "SystemExit: 3"),
        (f"{OS}._exit(3)", "exited with 3"),
        (f"{OS}.abort()", "died of signal 6"),
    ],
)
def test_what_a_call_raises_is_its_outcome(pool, text, error):
    outcome = pool.call(text)
    assert (outcome.value, outcome.status, outcome.error) == (None, "error", error)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("print('not a reply')", None),
        ("__import__('sys').stdin.read()", ""),
        ("[1.5, 'x', None, {'a': True}]", [1.5, "x", None, {"a": True}]),
        (r"'\ud800 \n π'", "\ud800 \n π"),
        ("'x' * 10 ** 6", "x" * 10**6),
        ("'" + "x" * 10**6 + "'", "x" * 10**6),  # more than a socket holds
    ],
)
def test_values_come_back_whole_whatever_is_printed_or_read(pool, text, value):
    outcome = pool.call(text)
    assert (outcome.value, outcome.status, outcome.error) == (value, "ok", None)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (C_BOMB, "over 0.25 s"),
        (LOOP_BOMB, "over 0.25 s"),
        ("__import__('time').sleep(60)", "over 0.25 s"),
        (MEMORY_BOMB, "over 2 GiB of memory"),
        (f"{OS}.kill({OS}.getpid(), 9)", "killed, as by a machine that is out of memory"),
    ],
)
def test_a_call_over_its_limit_is_stopped_logged_and_remembered(strict, caplog, text, error):
    made = strict.counts["timeout"]
    with caplog.at_level(logging.WARNING):
        outcome = strict.call(text)
    assert (outcome.value, outcome.status, outcome.error) == (None, "timeout", error)
    assert caplog.messages == [f"stopped {EVAL}{json.dumps([text])}: {error}"]
    assert strict.call(text) is outcome
    assert strict.counts["timeout"] == made + 1
    assert supervisor_of(strict)


def test_a_logged_call_is_cut_short(strict, caplog):
    strict.call(f"{LOOP_BOMB} or '{'x' * 10_000}'")
    assert len(caplog.messages[0]) < 300


def test_start_up_is_not_charged_to_a_call(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text(
        "import time\ntime.sleep(0.6)\ndouble = lambda x: 2*x"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with GradingPool("slow_to_import:double", num_workers=1, timeout=LIMIT) as pool:
        assert pool.call(4).value == 8


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("math:no_such_function", "AttributeError: module 'math' has no attribute"),
        ("no_colon", "ModuleNotFoundError"),
    ],
)
def test_a_worker_that_cannot_start_says_why(function, error):
    with GradingPool(function, num_workers=2, timeout=1.0) as pool:
        for _ in range(2):  # the second time with a fresh process
            with pytest.raises(RuntimeError, match=f"cannot start a grading worker.*{error}"):
                pool.map([(1,), (2,), (3,)])


@pytest.mark.parametrize("num_kills", [1, 2])
def test_a_worker_killed_while_it_starts_is_started_once_more(tmp_path, monkeypatch, num_kills):
    """The module kills the process that imports it, the first times."""
    (tmp_path / "module.py").write_text(
        "import os, pathlib\n"
        f"kills = pathlib.Path({str(tmp_path)!r}, 'kills')\n"
        "kills.open('a').write('x')\n"
        f"if len(kills.read_text()) <= {num_kills}: os.kill(os.getpid(), 9)\n"
        "double = lambda x: 2 * x"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with GradingPool("module:double", num_workers=1, timeout=30.0) as pool:
        if num_kills == 2:
            with pytest.raises(RuntimeError, match="it ended before it was ready"):
                pool.call(4)
        assert pool.call(4).value == 8


def test_a_server_is_forked_anew_before_its_caches_grow():
    with GradingPool(EVAL, num_workers=1, timeout=30.0) as pool:
        texts = [(f"{OS}.getpid() + 0 * {i}",) for i in range(REQUESTS_PER_SERVER + 1)]
        servers = [outcome.value for outcome in pool.map(texts)]
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
    text = f"{OS}.killpg(0, 9)"
    for _ in range(2):
        made = strict.counts["error"]
        outcome = strict.call(text)
        assert (outcome.status, outcome.error) == ("error", "the worker was killed, twice")
        assert strict.counts["error"] == made + 1


@pytest.mark.parametrize("stop", [os.kill, os.killpg])
def test_a_stopped_worker_cannot_hold_up_a_call(strict, stop):
    supervisor = supervisor_of(strict)
    stop(supervisor, signal.SIGSTOP)  # the supervisor, or its server too
    outcome = strict.call(f"{LOOP_BOMB} or '{stop.__name__}'")
    assert (outcome.status, outcome.error) == ("timeout", "over 0.25 s")
    assert supervisor_of(strict) != supervisor
    assert not psutil.pid_exists(supervisor)


def test_a_late_reply_is_not_taken_for_the_next(strict):
    assert supervisor_of(strict)
    worker = strict._idle.get()
    worker._socket.sendall(f"{worker._number + 1} [\"'of an abandoned request'\"]\n".encode())
    worker._number += 1
    assert select.select([worker._socket], [], [], 30)[0]
    strict._idle.put(worker)
    assert strict.call("'own'").value == "own"
