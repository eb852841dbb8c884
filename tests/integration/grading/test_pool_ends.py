"""However a process that has a grading pool ends, none of the pool's processes outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from grading.pool import PATIENCE

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
LIMIT = 2.0
GONE = LIMIT * PATIENCE + 20  # generous: it proves "not left behind", not how fast
HEADER = f"""
import os, signal, sys, threading, time
from grading import pool as grading_pool
from grading.pool import GradingPool
SLEEP = [(f"__import__('time').sleep(60) or {{i}}",) for i in range(100)]
def make_pool():
    pool = GradingPool("builtins:eval", num_workers=2, timeout={LIMIT})
    assert [o.value for o in pool.map([("1",), ("2",)])] == [1, 2]
    return pool
def say(*words):
    print(*words, flush=True)
"""


def start(script, **options):
    """Start Python on a script that begins with HEADER, in a group of its own as in a terminal."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", HEADER + script],
        env={k: v for k, v in env.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )


def workers_of(parent):
    """The living worker processes that a process started: their last argument is its id."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
        except psutil.Error:  # ended meanwhile
            continue
        if "grading.pool_worker" in command and command[-1] == str(parent):
            found.append(process)
    return found


def wait_for_workers(parent, number):
    """A process that has just been started shows no command line for an instant."""
    deadline = time.monotonic() + GONE
    while len(found := workers_of(parent)) < number:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def assert_nothing_left(parent):
    deadline = time.monotonic() + GONE
    while left := workers_of(parent):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def finish(process):
    """(stdout, stderr) of a process that must end by itself."""
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"hung: {process.communicate()}")


@pytest.mark.parametrize(("num_calls", "forked"), [(0, False), (2, False), (1, True)])
def test_kill_9_leaves_nothing(num_calls, forked):
    """Idle and busy workers; alone, or with a forked process that keeps the sockets open."""
    process = start(f"""
pool = make_pool()
forked = os.fork() if {forked} else 0
if {forked} and not forked:
    time.sleep(600)
thread = threading.Thread(target=pool.map, args=(SLEEP[:{num_calls}],))
thread.start()
time.sleep(0.2)
say(forked)
time.sleep(600)
""")
    forked_pid = int(process.stdout.readline())
    wait_for_workers(process.pid, 4)  # two supervisors, two servers
    process.kill()
    process.wait()
    try:
        assert_nothing_left(process.pid)
        if forked:  # it was there to hold the sockets all the while
            assert psutil.Process(forked_pid).status() == psutil.STATUS_SLEEPING
    finally:
        if forked:
            os.kill(forked_pid, signal.SIGKILL)
        process.communicate()


def test_kill_9_during_start_up_leaves_nothing(tmp_path):
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(2)\n")
    process = start(f"""
os.environ["PYTHONPATH"] = {str(tmp_path)!r}
pool = GradingPool("slow_to_import:f", num_workers=2, timeout=1.0)
say("started")
time.sleep(600)
""")
    assert process.stdout.readline() == "started\n"
    wait_for_workers(process.pid, 2)
    process.kill()
    process.communicate()
    assert_nothing_left(process.pid)


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("pool = make_pool()", 0, ""),
        ("pool = make_pool(); raise ValueError('of the trainer')", 1, "of the trainer"),
        ("pool = make_pool(); sys.exit(3)", 3, ""),
        ("pool = make_pool(); os._exit(4)", 4, ""),
        ("pool = make_pool(); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("pool = make_pool(); pool.self = pool", 0, ""),  # only the garbage collector could end it
        ("GradingPool('builtins:eval', 2, 1.0)", 0, ""),  # never used
        # A thread has the pool at work when the main thread dies.
        ("pool = make_pool()\n"
         "threading.Thread(target=pool.map, args=(SLEEP[:2],)).start()\n"
         "time.sleep(0.2); raise ValueError('of the trainer')", 1, "of the trainer"),
        # A forked process ends in the orderly way, and the parent's pool goes on.
        ("pool = make_pool()\n"
         "if os.fork() == 0: sys.exit(0)\n"
         "os.wait(); assert pool.call('6 * 7').value == 42", 0, ""),
        ("import multiprocessing\n"
         "grading_pool.FUNCTION = 'builtins:eval'\n"
         "def grade(text):\n"
         "    return os.getpid(), grading_pool.shared_pool().call(text).value\n"
         "grade('1 + 1')\n"
         "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
         "    pids, values = zip(*pool.map(grade, ['2', '3', '4', '5']))\n"
         "assert values == (2, 3, 4, 5) and grade('1 + 2') == (os.getpid(), 3)\n"
         "say(*pids)", 0, ""),
    ],
)  # fmt: skip
def test_every_end_of_the_parent_leaves_nothing(script, code, words):
    process = start(script)
    stdout, stderr = finish(process)
    assert process.returncode == code, stderr
    assert words in stderr if words else not stderr
    for pid in [process.pid, *stdout.split()]:
        assert_nothing_left(pid)


@pytest.mark.parametrize("is_handled", [False, True])
def test_ctrl_c_ends_a_batch_and_the_pool_outlives_it_where_the_program_does(is_handled):
    process = start(f"""
pool = make_pool()
say('ready')
try:
    pool.map(SLEEP)
except KeyboardInterrupt:
    if not {is_handled}:
        raise
    say([o.value for o in pool.map([("3",), ("4",)])])
""")
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to the whole group
    stdout, stderr = finish(process)
    assert (process.returncode, stdout) == ((0, "[3, 4]\n") if is_handled else (-signal.SIGINT, ""))
    assert is_handled or "KeyboardInterrupt" in stderr
    assert_nothing_left(process.pid)


def test_any_folder_closed_streams_blocked_and_ignored_signals_do_not_matter(tmp_path):
    (tmp_path / "json.py").write_text("raise ImportError('not the json you want')")
    (tmp_path / "grading").mkdir()
    (tmp_path / "grading" / "__init__.py").write_text("")
    process = start(
        f"""
os.chdir({str(tmp_path)!r})
for descriptor in (0, 1, 2):
    os.close(descriptor)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGALRM}})
pool = make_pool()
ok = [o.status for o in pool.map([("__import__('time').sleep(60)",), ("1 / 0",), ("5",)])]
pool.close()
os._exit(7 if ok == ["timeout", "error", "ok"] else 1)
"""
    )
    finish(process)
    assert process.returncode == 7
    assert_nothing_left(process.pid)
