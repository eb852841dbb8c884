"""Processes of the grader: killable workers, and the command that grades a file.

The workers run `eval`, so that each case says in its own text what the untrusted code does.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml

from grading import worker
from grading.worker import Workers
from tests.files import write_rows

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
CASES = yaml.safe_load(Path(__file__).with_name("calls.yaml").read_text(encoding="utf-8"))
EVAL = "builtins:eval"
OS = "__import__('os')"
C_BOMB = "3 ** 10 ** 8"  # minutes within a single bytecode, where Python runs no signal handler
LOOP_BOMB = "all(True for _ in iter(int, 1))"
GONE = 30  # seconds: generous, as it proves "not left behind" and not how fast
GIB = 2**30


def make(num_workers=1, seconds=30.0, memory_bytes=2 * GIB, function=EVAL):
    return Workers(function, num_workers, seconds, memory_bytes)


@pytest.fixture(scope="module")
def workers():
    """Two workers whose limit no innocent call meets, however busy the machine."""
    return make(2)


def ask(workers, text):
    (outcome,) = workers.map([(text,)])
    return outcome


def wait_until(condition):
    deadline = time.monotonic() + GONE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


LONG = ("'" + "x" * 10**6 + "'", "x" * 10**6, None)  # more than a socket holds, both ways


@pytest.mark.parametrize(("text", "value", "error"), [*CASES["calls"], LONG])
def test_what_a_call_returns_or_raises_is_its_outcome(workers, text, value, error):
    outcome = ask(workers, text)
    status = "error" if error else "ok"
    assert (outcome.value, outcome.status, outcome.error) == (value, status, error)


def test_calls_over_a_limit_are_stopped_and_the_others_are_answered_in_order():
    texts = [f"{at} + 1" for at in range(60)]
    bombs = {5: C_BOMB, 17: LOOP_BOMB, 31: "bytearray(64 << 30)"}
    outcomes = make(2, seconds=2.0).map([(bombs.get(at, text),) for at, text in enumerate(texts)])
    stopped = [at for at, one in enumerate(outcomes) if one.status == "timeout"]
    assert stopped == sorted(bombs)
    assert all(one.value == at + 1 for at, one in enumerate(outcomes) if at not in bombs)


def test_any_thread_may_call_and_several_at_once(workers):
    results = {}

    def call(name):
        calls = [(f"'{name}', {number}",) for number in range(20)]
        results[name] = [one.value for one in workers.map(calls)]

    threads = [threading.Thread(target=call, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {name: [[name, number] for number in range(20)] for name in "abc"}


def test_a_killed_worker_is_replaced_and_the_call_made_again():
    workers = make()
    process = ask(workers, f"{OS}.getpid()").value
    os.kill(process, signal.SIGKILL)
    assert ask(workers, "6 * 7").value == 42
    assert ask(workers, f"{OS}.getpid()").value != process


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("math:no_such_function", "AttributeError: module 'math' has no attribute"),
    ],
)
def test_a_worker_that_cannot_start_says_why(function, error):
    workers = make(2, function=function)
    for _ in range(2):  # the second time with a fresh process
        with pytest.raises(RuntimeError, match=f"cannot start a worker.*{error}"):
            workers.map([(1,), (2,), (3,)])


def test_a_forked_process_leaves_its_parents_workers_alone():
    workers = make()
    process = ask(workers, f"{OS}.getpid()").value
    child = os.fork()
    if child == 0:
        del workers
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask(workers, f"{OS}.getpid()").value == process


@pytest.mark.parametrize(
    ("num_cpus", "num_ranks", "num_workers"),
    [(2, None, 2), (64, None, 4), (64, "8", 4), (16, "8", 2), (4, "8", 1)],
)
def test_ranks_share_the_cpus(monkeypatch, num_cpus, num_ranks, num_workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(num_cpus)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if num_ranks:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", num_ranks)
    assert worker.share_of_cpus() == num_workers


HEADER = f"""
import os, signal, sys, threading, time
from grading.worker import Workers
workers = Workers("{EVAL}", 1, 3.0, {2 * GIB})
print(workers.map([("__import__('os').getpid()",)])[0].value, flush=True)
busy = [("__import__('time').sleep(60)",)]
"""


def start(script):
    """A Python process that begins with HEADER, in a group of its own as in a terminal."""
    return subprocess.Popen(
        [sys.executable, "-c", HEADER + script],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def is_gone(process):
    return not psutil.pid_exists(process) or (
        psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    )


@pytest.mark.parametrize("script", CASES["ends"])
def test_every_end_of_the_parent_leaves_nothing(script):
    process = start(script)
    worker_process = int(process.stdout.readline())
    process.communicate(timeout=60)
    wait_until(lambda: is_gone(worker_process))


def test_an_interrupt_ends_a_call_that_hangs_and_the_next_is_answered():
    process = start(
        "try:\n    workers.map(busy)\nexcept KeyboardInterrupt:\n"
        "    print(workers.map([('6 * 7',)])[0].value, flush=True)\n"
    )
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "42\n"


def start_command(*arguments):
    """The command, in a process group of its own as in a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "grading", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def write(path, num_rows):
    """The first row is incorrect."""
    answers = (f"<think>so</think> \\boxed{{{number}}}" for number in range(num_rows))
    write_rows(path, [{"prediction": answer, "gold": "7"} for answer in answers])
    return path


def test_a_closed_pipe_ends_it_quietly(tmp_path):
    process = start_command(write(tmp_path / "pairs.jsonl", 50_000))
    assert json.loads(process.stdout.readline())["verdict"] == "wrong"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_an_interrupt_says_what_is_left(tmp_path):
    pairs = write(tmp_path / "pairs.jsonl", 500_000)
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    process = start_command(pairs, "--out", out)
    deadline = time.monotonic() + 60
    while not partial.is_file() or partial.read_bytes().count(b"\n") < 256:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    said = re.fullmatch(
        r"interrupted after ([\d,]+) rows; their verdicts are in (.*)", err.decode().strip()
    )
    assert said and said[2] == str(partial)
    assert (process.returncode, rest, out.exists()) == (130, b"", False)
    assert partial.read_bytes().count(b"\n") == int(said[1].replace(",", "")) < 500_000
