"""Real make on the tiny recipe; a stub in the place of Python says what was started, and how."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests import demo

pytestmark = pytest.mark.integration
PYTHON = f"#!{sys.executable}"
# Notes its stage, words and FORCE, and leaves the stage's manifest; ownership is the real one.
STUB = """ -S
import json, os, pathlib, sys, time
if sys.argv[2] == "data_prep.ownership":
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
stage = {"build": "data", "tiny_model": "base", "run": "eval"}.get(
    name := sys.argv[2].rpartition(".")[2], name)
here = pathlib.Path(sys.argv[0]).parent
with (here / "log").open("a") as log:
    log.write(json.dumps([stage, sys.argv[3:], os.environ.get("FORCE", "")]) + "\\n")
for flag in ("--run_dir", "--run"):
    if flag in sys.argv:
        folder = pathlib.Path(sys.argv[sys.argv.index(flag) + 1], stage)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text("{}")
while (here / "wait").exists():
    time.sleep(0.01)
"""


class Project:
    """A recipe and its run in a folder; `started` are the stages since the last look."""

    def __init__(self, folder):
        self.folder, self.run, self.stub = folder, folder / "run", folder / "python"
        demo.write_recipe(folder, {}, {})
        self.stub.write_text(PYTHON + STUB)
        self.stub.chmod(0o755)

    def make(self, *goals, **variables):
        return demo.make(self.folder, *goals, **{"PY": str(self.stub)} | variables)

    def started(self):
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def stages(started):
    return [stage for stage, _, _ in started]


def test_what_is_asked_for_with_other_settings_starts_and_nothing_else(project):
    chain = ["data", "base", "sft", "difficulty", "audit", "grpo"]
    assert project.make("grpo").returncode == 0 and stages(project.started()) == chain
    done = project.make("data", "grpo")
    assert project.started() == [] and "nothing to do" in done.stdout and not done.stderr
    assert done.stdout.count("\n") == 1
    for goals, variables, expected in (
        (["grpo"], {"FORCE": "1"}, ["grpo"]),
        (["sft", "difficulty"], {"FORCE": "1"}, ["sft", "difficulty"]),
        (["grpo"], {"FORCE": "0"}, []),
        (["grpo"], {"ARGS": "--beta 0.1"}, ["grpo"]),
        (["sft"], {"ACCELERATE": "ddp", "NUM_PROCESSES": "2"}, ["launch"]),
        (["data"], {"DATA_ROOT": "/some where"}, ["data"]),
    ):
        project.make("--touch", "grpo")  # after FORCE its followers are older
        assert project.make(*goals, **variables).returncode == 0
        found = project.started()
        assert stages(found) == expected, variables
        assert {force for *_, force in found} <= {"1" if variables.get("FORCE") == "1" else ""}
        assert ("/some where" in found[0][1]) is ("DATA_ROOT" in variables) if found else True
    os.utime(project.folder / "tiny-cpu/sft.yaml")
    project.make("grpo", FORCE="1")
    forced = {stage: force for stage, _, force in project.started()}
    assert forced["sft"] == "" and forced["grpo"] == "1"


HOSTILE = "$(shell touch {0}) `touch {0}` ;touch {0} | touch {0} 'a b' \"$$(touch {0})\""


@pytest.mark.parametrize(
    "name",
    ["RECIPE", "RUN", "SEED", "LORA", "NUM_PROCESSES", "PY", "VENV", "CONFIG", "EXTRAS", "PYTHON",
     "OUT", "SHAPE", "JOBS", "GPUS", "FORCE", "YES", "ACCELERATE", "ARGS", "SWEEP", "DATA_ROOT",
     "TOKENIZER", "COMPLETIONS", "SIZES", "SEEDS", "MODES"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["command line", "environment"])
def test_no_value_reaches_a_shell(project, name, place, monkeypatch):
    if place == "environment" and name in ("RUN", "PY", "VENV", "CONFIG"):
        pytest.skip("make takes these from its command line only")
    pwned = project.folder / "pwned"
    given = {name: HOSTILE.format(pwned)}
    if place == "environment":
        monkeypatch.setenv(name, given.pop(name))
        monkeypatch.setattr(demo, "OUTER", ())
    goals = {"SWEEP": "sweep", "SHAPE": "bench", "OUT": "bench", "SIZES": "bench", "SEEDS": "bench",
             "MODES": "bench", "JOBS": "test", "GPUS": "preflight", "TOKENIZER": "preflight",
             "COMPLETIONS": "audit", "EXTRAS": "lint"}  # fmt: skip
    done = project.make(goals.get(name, "data"), **given)
    assert not pwned.exists() and done.stderr.count("***") <= 1
    if name in ("ARGS", "SWEEP", "DATA_ROOT", "TOKENIZER", "COMPLETIONS", "SIZES"):
        assert done.returncode == 0, done.stderr
        words = project.started()[-1][1]
        assert any("a b" in word for word in words) and any("$(shell" in w for w in words)


@pytest.mark.parametrize(
    ("variable", "refused"),
    [
        ("RECIPE=a b", True), ("RECIPE=../tiny-cpu", True), ("RUN=runs/../..", True),
        ("RUN=a b", True), ("RUN=", True), ("SEED=../3", True), ("ARGS=it's", True),
        ("DATA_ROOT=/a\ntouch b", True),
        ("recipe=x", "RECIPE"), ("ARG=--beta 1", "ARGS"), ("RECPIE=x", "RECIPE"),
        ("Py=x", "PY"), ("OTU=x", "OUT"), ("CUDA_VISIBLE_DEVICES=0", False), ("HOME=/x", False),
        ("OMP_NUM_THREADS=1", False), ("CFLAGS=-O2", False), ("CC=gcc", False), ("V=1", False),
        ("SHELL=/bin/bash", False), ("RUN=runs/lr=1e-4", False),
    ],
)  # fmt: skip
def test_a_value_or_a_name_is_refused_in_one_line_or_passes(project, variable, refused):
    name, _, value = variable.partition("=")
    done = project.make("-n", "preflight", **{name: value})
    assert done.returncode == (2 if refused else 0), done.stderr
    assert done.stderr.count("\n") == bool(refused)
    assert not isinstance(refused, str) or f" {refused}=" in done.stderr


def test_words_of_a_value_arrive_as_a_shell_would_part_them(project):
    values = {"ARGS": "--a 'two  words' \"it's\" --b=$x ~/y", "DATA_ROOT": "/it's here"}
    assert project.make("data", **values).returncode == 0
    words = project.started()[0][1]
    expected = ["--a", "two  words", "it's", "--b=$x", os.path.expanduser("~/y")]
    assert words[words.index("--a") :] == [*expected, "--data_root", "/it's here"]


def start(project, *goals):
    """Start make in a group of its own, its first stage waiting while the file `wait` is there."""
    (project.folder / "wait").touch()
    command = ["make", *goals, f"CONFIG={project.folder}/tiny-cpu", f"RUN={project.run}"]
    process = subprocess.Popen(
        [*command, f"VENV={project.folder}/venv", f"PY={project.stub}"],
        cwd=demo.ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, env={k: v for k, v in os.environ.items() if k not in demo.OUTER},
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not (project.folder / "log").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    return process


def test_a_second_start_in_a_run_is_one_line_and_the_first_goes_on(project):
    first = start(project, "demo")
    lock = json.loads((project.folder / "run.lock").read_text())
    for goal in ("demo", "clean"):
        second = project.make(goal, YES="1")
        assert second.returncode == 2 and project.run.name in second.stderr
        assert str(lock["pid"]) in second.stderr and lock["host"] in second.stderr
        assert second.stderr.count("error: ") == 1 and "Traceback" not in second.stderr
    assert project.make("-n", "demo").returncode == 0  # a plan needs no lock
    (project.folder / "wait").unlink()
    assert first.wait(60) == 0
    assert len(project.started()) == 8 and not (project.folder / "run.lock").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_lock_and_no_process(project, number):
    process = start(project, "demo")
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    assert process.wait(30) != 0
    assert not (project.folder / "run.lock").exists()
    assert [path.name for path in project.run.glob("*/*")] == ["manifest.json"]  # it was whole
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_clean_says_what_it_removes_and_keeps_other_seeds(project):
    kept = [project.run / "seed-3/sft/manifest.json", project.run / "notes.txt"]
    gone = [project.run / name for name in ("data/manifest.json", "sft/model", "sft.1/model")]
    for path in (*kept, *gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 5000)
    done = project.make("clean")
    assert done.returncode == 0 and all(path.exists() for path in (*kept, *gone))
    assert all(str(path.parent) in done.stdout for path in gone) and "YES=1" in done.stdout
    assert "seed-3" not in done.stdout
    assert project.make("clean", YES="1").returncode == 0
    assert all(path.exists() for path in kept) and not any(path.parent.exists() for path in gone)
    assert project.make("clean", YES="1").returncode == 0  # nothing left


@pytest.mark.parametrize(
    ("owner", "code"), [(f"{demo.ROOT}", 0), (f"{demo.ROOT}-2", 2), ("/another/clone", 2)]
)
def test_the_environment_of_another_clone_is_refused(project, owner, code):
    (version,) = re.findall(r'^version = "(.*)"', (demo.ROOT / "pyproject.toml").read_text(), re.M)
    folder = project.folder / "venv/lib/python3.11/site-packages"
    folder /= f"sft_grpo_math-{version}.dist-info"
    folder.mkdir(parents=True)
    url = {"dir_info": {"editable": True}, "url": f"file://{owner}"}
    (folder / "direct_url.json").write_text(json.dumps(url))
    done = project.make("data")
    assert done.returncode == code and done.stderr.count("\n") == bool(code)
    assert code == 0 or (owner in done.stderr and project.started() == [])
    assert project.make("help").returncode == 0
