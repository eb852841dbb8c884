"""Real make, and what the processes of a command leave: locks, signals, exit codes.

What a command starts is in test_front_door.py. Make is given a script in the place of Python, which
notes what make hands on.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from pipeline import names, stages, venv, words
from tests import demo

pytestmark = pytest.mark.integration
# In the place of Python: notes its words and what make hands on, NUL behind each.
NOTE = """#!/bin/sh
[ "$1" = -c ] || printf '%s\\0' "$*" "$MAKE_GOALS" "$MAKE_WORDS" >> "${0%/*}/log"
"""
# What each Python process does first: the data stage waits while there is a file `wait`.
WAITING = """
import os, pathlib, sys, time
here = pathlib.Path(__file__).parent
if "data_prep.builder" in sys.orig_argv:
    if (here / "killed").exists():
        os.kill(os.getpid(), 9)
    (here / "started").touch()
    while (here / "wait").exists():
        time.sleep(0.01)
    os._exit(0)
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Run make; returns its result and, of each process, words, goals and typed words."""
    demo.write_recipe(tmp_path, {}, {})
    (tmp_path / "python").write_text(NOTE)
    (tmp_path / "python").chmod(0o755)

    def call(*goals, **given):
        done = demo.make(tmp_path, *goals, **{"PY": f"{tmp_path}/python"} | given)
        log = tmp_path / "log"
        notes = log.read_text().split("\0")[:-1] if log.exists() else []
        log.unlink(missing_ok=True)
        return done, [*zip(notes[::3], notes[1::3], notes[2::3], strict=True)]

    return call


def test_each_goal_is_a_process_that_gets_all_words(make, tmp_path):
    key = 'grader=it\'s  two "words" = {1: [2]} # 50%'
    done, started = make("sft", "grpo", key, DATA_ROOT="/it's here")
    assert done.returncode == 0, done.stderr
    assert [line for line, *_ in started] == ["-m pipeline sft", "-m pipeline grpo"]
    for _, goals, typed in started:
        assert goals == "sft grpo"
        assert {key, "DATA_ROOT=/it's here"} <= {*words.of_make(typed)}


@pytest.mark.parametrize("where", ["typed", "environment"])
def test_no_value_reaches_a_shell(make, tmp_path, monkeypatch, where):
    hostile = "$(shell touch {0}) `touch {0}` ;touch {0} | touch {0} 'a b' \"$$(touch {0})\""
    hostile = hostile.format(tmp_path / "pwned")
    monkeypatch.setattr(demo, "OUTER", ())
    for name in [*map(str.upper, words.VARIABLES), "PYTHON", "VENV", "ARGS", "KEYS"]:
        with monkeypatch.context() as changed:
            if where == "environment":
                changed.setenv(name, hostile)
            done, started = make("sft", **({name: hostile} if where == "typed" else {}))
        assert not (tmp_path / "pwned").exists(), name
        if where == "typed":
            assert done.returncode == 2 and "dollar sign" in done.stderr and not started, name


def test_an_unknown_target_is_one_line_with_the_nearest(make):
    done, started = make("gpro")
    (line,) = [one for one in done.stderr.splitlines() if not one.startswith("make: ")]
    assert done.returncode == 2 and not started
    assert line == "error: target: 'gpro' is unknown; did you mean 'grpo'?"


def test_help_lists_every_target(make):
    done, _ = make("help")
    assert all(f"make {goal}" in done.stdout for goal in ("demo", *stages.STAGES, "preflight"))


def test_the_environment_of_another_clone_is_refused(make, tmp_path):
    folder = tmp_path / "venv/lib/python3.11/site-packages/sft_grpo_math-0.2.0.dist-info"
    folder.mkdir(parents=True)
    for owner in (str(demo.ROOT), f"{demo.ROOT}-2"):
        installed = {"url": f"file://{owner}", "dir_info": {"editable": True}}
        (folder / "direct_url.json").write_text(json.dumps(installed))
        assert (owner in venv.fault(f"{tmp_path}/venv")) is (owner != str(demo.ROOT))
    install = [sys.executable, "-IS", "pipeline/venv.py", f"{tmp_path}/venv", "install"]
    for done in (demo.make(tmp_path, "data"), demo.run(install)):
        assert done.returncode == 2 and done.stderr.count("error: ") == 1
        assert f"{demo.ROOT}-2" in done.stderr and "VENV" in done.stderr


def test_the_menu_names_what_there_is_a_rule_for_and_no_more(tmp_path):
    demo.write_recipe(tmp_path, {}, {})
    rules = re.search(r"(?m)^\.PHONY: (.*)", demo.make(tmp_path, "-pq", "help").stdout)[1].split()
    assert {*names.targets()} == {*rules}
    # make would start the stages that it shows.
    assert {*stages.GOALS} - {*rules} == {"show"}


def test_the_makefile_is_for_any_make():
    """Nothing newer than GNU make 3.81, and no program in it."""
    text = (demo.ROOT / "Makefile").read_text(encoding="utf-8")
    newer = r"\$\(file\b|!=|:::?=(?<!:=:)|\.ONESHELL|&:|\bundefine\b|\$\((call|foreach|eval)\b"
    assert re.findall(newer, text) == []


def test_a_mistake_is_one_line_before_torch_is_imported():
    code = "import sys; sys.argv[1:] = ['grpo', 'RECIPE=grpo7c']\n"
    code += "from pipeline.__main__ import main\n"
    code += "try:\n    main()\nexcept ValueError:\n"
    code += "    print(*sorted({'torch', 'trl', 'datasets'} & {*sys.modules}))"
    assert demo.run([sys.executable, "-c", code]).stdout == "\n"
    done = demo.run([sys.executable, "-m", "pipeline", "grpo", "RECIPE=grpo7c"])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


# Processes


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """Start `make data` or the command in a group of its own; the stage waits for a file to go."""
    demo.write_recipe(tmp_path, {}, {})
    (tmp_path / "sitecustomize.py").write_text(WAITING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def call(how):
        (tmp_path / "wait").touch()
        of_make = ["make", f"VENV={tmp_path}/venv", f"PY={sys.executable}"]
        start = of_make if how == "make" else [sys.executable, "-m", "pipeline"]
        given = [f"RECIPE={tmp_path}/tiny-cpu", f"RUN={tmp_path}/run"]
        process = subprocess.Popen([*start, "data", *given], cwd=demo.ROOT, start_new_session=True)
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        return process

    return call


def test_a_second_start_in_a_run_is_one_line_and_the_first_goes_on(waiting, tmp_path):
    first = waiting("make")
    owner = (tmp_path / "run.lock").read_text().strip()
    for goal, given in (("demo", {}), ("clean", {"YES": "1"})):
        second = demo.pipeline(tmp_path, goal, **given)
        assert second.returncode == 2 and second.stderr.count("error: ") == 1
        assert owner.startswith("process ") and owner in second.stderr
    assert demo.pipeline(tmp_path, "demo", "--dry-run").returncode == 0  # which needs no lock
    (tmp_path / "wait").unlink()
    assert first.wait(60) == 0 and not (tmp_path / "run.lock").exists()


@pytest.mark.parametrize("how", ["make", "pipeline"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_lock_and_no_process(waiting, tmp_path, number, how):
    process = waiting(how)
    # A terminal sends its Ctrl-C to the whole group, others their signal to the command alone.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    assert process.wait(30) != 0 and not (tmp_path / "run.lock").exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_stage_that_is_killed_says_so(waiting, tmp_path):
    (tmp_path / "killed").touch()
    done = demo.pipeline(tmp_path, "data")
    assert done.returncode in (137, 71) and done.stderr.count("\n") == 1
    assert "data_prep.builder" in done.stderr and "SIGKILL" in done.stderr
