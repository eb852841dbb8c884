"""Real make on the tiny recipe; a stub in the place of Python says what was started, and how."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml

from pipeline import make_variables
from tests import demo

pytestmark = pytest.mark.integration
# Notes its stage, words and FORCE, and leaves the stage's manifest; ownership is the real one, and
# the look ahead at later stages' keys where `ahead` is there.
STUB = """ -S
import json, os, pathlib, sys, time
here, name = pathlib.Path(sys.argv[0]).parent, sys.argv[2].rpartition(".")[2]
if name == "ownership" or (name == "ahead" and (here / "ahead").exists()):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
if name == "ahead":
    sys.exit()
stage = {"build": "data", "tiny_model": "base", "run": "eval"}.get(name, name)
with (here / "log").open("a") as log:
    log.write(json.dumps([stage, sys.argv[3:], os.environ.get("FORCE", "")]) + "\\n")
for flag in {"--run_dir", "--run"} & {*sys.argv}:
    folder = pathlib.Path(sys.argv[sys.argv.index(flag) + 1], stage)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text("{}")
while (here / "wait").exists():
    time.sleep(0.01)
"""


@pytest.fixture
def make(tmp_path):
    """Run make on a recipe and a run in `tmp_path`, with a stub for Python."""
    demo.write_recipe(tmp_path, {}, {})
    (tmp_path / "python").write_text(f"#!{sys.executable}{STUB}")
    (tmp_path / "python").chmod(0o755)
    return lambda *goals, **given: demo.make(
        tmp_path, *goals, **{"PY": f"{tmp_path}/python"} | given
    )


def started(folder):
    """The stages that were started since the last call, with their words and FORCE."""
    lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    (folder / "log").unlink(missing_ok=True)
    return [json.loads(line) for line in lines]


def test_what_is_asked_for_starts_and_nothing_else(make, tmp_path):
    assert make("demo").returncode == 0
    chain = ["data", "base", "sft", "difficulty", "audit", "grpo", "eval", "report"]
    assert [stage for stage, *_ in started(tmp_path)] == chain
    done = make("demo")
    assert done.stdout.count("\n") == 1 and not done.stderr and started(tmp_path) == []
    for goals, given, expected in (
        (["grpo"], {"FORCE": "1"}, [["grpo", "1"]]),
        (["sft", "difficulty"], {"FORCE": "1"}, [["sft", "1"], ["difficulty", "1"]]),
        (["grpo"], {"FORCE": "0"}, [["grpo", ""]]),
        (["grpo"], {"ARGS": "--beta 0.1"}, [["grpo", ""]]),
        (["sft"], {"ACCELERATE": "ddp", "NUM_PROCESSES": "2"}, [["launch", ""]]),
        (["data"], {"DATA_ROOT": "/some where"}, [["data", ""]]),
    ):
        make("--touch", "grpo")  # those that follow on what was forced are older
        assert make(*goals, **given).returncode == 0
        assert [[stage, force] for stage, _, force in started(tmp_path)] == expected, given
    os.utime(tmp_path / "tiny-cpu/sft.yaml")
    make("grpo", FORCE="1")
    forced = {stage: force for stage, _, force in started(tmp_path)}
    assert forced["sft"] == "" and forced["grpo"] == "1"


def test_a_user_s_model_goes_to_every_stage_that_reads_one(make, tmp_path):
    assert make("demo", MODEL="/a b").returncode == 0
    words = {stage: words for stage, words, _ in started(tmp_path)}
    assert words["checkpoints"] == ["/a b"] and "base" not in words
    told = {stage for stage, found in words.items() if "--model /a b" in " ".join(found)}
    assert told == {"sft", "difficulty", "audit", "grpo", "eval", "report"}
    assert make("base", MODEL="/a b").returncode == 2
    made = {"config": {"model_name_or_path": "/a b"}}
    (tmp_path / "run/sft/manifest.json").write_text(json.dumps(made))
    for model, code in (("/a b", 0), ("/a b/", 0), ("/c", 2)):
        done = make("-n", "grpo", MODEL=model)
        assert done.returncode == code and done.stderr.count("\n") == bool(code)


def test_a_run_is_named_after_its_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for parent in ("one", "other"):
        (tmp_path / parent / "my weights").mkdir(parents=True)
    spellings = ("one/my weights", "one/my weights/", f"{tmp_path}/other/../one/my weights")
    found = {make_variables.name(path) for path in spellings}
    assert len(found) == 1 and found.pop().startswith("my.weights-")
    names = {make_variables.name(p) for p in ("one/my weights", "other/my weights", "a/my weights")}
    assert len(names) == 3
    assert re.fullmatch(r"[\w.-]+", make_variables.name("/$(x)/a'b ;`é..?"))


@pytest.mark.parametrize("sweep", ["beta", "beta=", "beta=0.1,", "seed=0,1 beta=", "seed=0,1 beta"])
def test_a_sweep_without_a_value_is_refused_before_any_stage(make, tmp_path, sweep):
    done = make("sweep", SWEEP=sweep)
    assert done.returncode == 2 and "has a key without a value" in done.stderr
    assert started(tmp_path) == []


@pytest.mark.parametrize(
    ("goal", "given"),
    [
        ("grpo", {"ARGS": "--learning_rat 1e-4"}),
        ("sweep", {"SWEEP": "seed=0,1 learning_rat=1e-4,1e-5"}),
        ("control", {"SEEDS": "0 learning_rate"}),
        ("report", {}),
    ],
)
def test_a_mistake_in_a_later_stages_keys_is_told_before_any_stage(make, tmp_path, goal, given):
    (tmp_path / "ahead").touch()
    if not given:
        path = tmp_path / "tiny-cpu/eval.yaml"
        path.write_text(path.read_text() + "\nlearning_rat: 1\n")
    done = make(goal, **given)
    assert done.returncode == 2 and "'learning_rat" in done.stderr
    assert started(tmp_path) == []
    assert make("sft").returncode == 0  # which does not come to it


def test_traces_of_a_teacher_come_before_the_sft_that_reads_them(make, tmp_path):
    for stage, key, value in (
        ("sft", "train_file", "{run}/distill/traces.jsonl"),
        ("distill", "model_name_or_path", "teacher"),
    ):
        path = tmp_path / f"tiny-cpu/{stage}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {key: value}))
    assert make("grpo", AUDIT="off").returncode == 0
    chain = ["data", "base", "distill", "sft", "difficulty", "grpo"]
    assert [stage for stage, *_ in started(tmp_path)] == chain


@pytest.mark.parametrize("is_environment", [False, True])
def test_no_value_reaches_a_shell(make, tmp_path, monkeypatch, is_environment):
    monkeypatch.setattr(demo, "OUTER", ())
    hostile = "$(shell touch {0}) `touch {0}` ;touch {0} | touch {0} 'a b' \"$$(touch {0})\""
    taken = {"ARGS": "data", "DATA_ROOT": "data", "SWEEP": "sweep", "COMPLETIONS": "audit",
             "TOKENIZER": "preflight", "MODEL": "preflight", "SIZES": "bench",
             "MODES": "bench"}  # fmt: skip
    refused = "RECIPE SEED LORA NUM_PROCESSES EXTRAS PYTHON OUT SHAPE JOBS GPUS PRICE FORCE"
    refused += " ACCELERATE"
    refused += "" if is_environment else " RUN PY VENV CONFIG"  # of the command line only
    for name in (*taken, *refused.split()):
        given = {name: hostile.format(tmp_path / "pwned")}
        with monkeypatch.context() as changed:
            if is_environment:
                changed.setenv(name, given.pop(name))
            done = make(taken.get(name, "data"), **given)
        assert not (tmp_path / "pwned").exists(), name
        assert done.returncode == (0 if name in taken else 2), (name, done.stderr)
        text = " ".join(started(tmp_path)[-1][1]) if name in taken else done.stderr
        assert "$(shell" in text and (name not in taken or "a b" in text), name


def test_words_of_a_value_arrive_as_a_shell_would_part_them(make, tmp_path):
    make("data", ARGS="--a 'two  words' \"it's\" --b=$x ~/y", DATA_ROOT="/it's here")
    words = ["--a", "two  words", "it's", "--b=$x", os.path.expanduser("~/y")]
    assert started(tmp_path)[0][1][-7:] == [*words, "--data_root", "/it's here"]


def test_a_value_or_a_name_is_refused_in_one_line_or_passes(make):
    bad = ["RECIPE=a b", "RECIPE=../tiny-cpu", "RUN=a/../..", "RUN=", "SEED=../3", "ARGS=it's",
           "DATA_ROOT=/a\nb"]  # fmt: skip
    meant = {"recipe": "RECIPE", "ARG": "ARGS", "RECPIE": "RECIPE", "Py": "PY", "OTU": "OUT"}
    other = ["CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "HOME", "CFLAGS", "CC", "V", "SHELL"]
    cases = [(text, "=") for text in bad] + [(f"{a}=x", f" {b}=") for a, b in meant.items()]
    for text, told in [*cases, *((f"{name}=/bin/sh", "") for name in other)]:
        name, _, value = text.partition("=")
        done = make("-n", "preflight", **{name: value})
        assert done.returncode == (2 if told else 0), (text, done.stderr)
        assert told in done.stderr.replace(":", "=") and done.stderr.count("\n") == bool(told)


def start_demo(folder):
    """Start `make demo` in a group of its own; its stages wait while the file `wait` is there."""
    (folder / "wait").touch()
    given = {"CONFIG": "tiny-cpu", "RUN": "run", "VENV": "venv", "PY": "python"}
    process = subprocess.Popen(
        ["make", "demo", *(f"{key}={folder}/{value}" for key, value in given.items())],
        cwd=demo.ROOT, start_new_session=True,
        env={key: value for key, value in os.environ.items() if key not in demo.OUTER},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (folder / "run/data/manifest.json").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    return process


def test_a_second_start_in_a_run_is_one_line_and_the_first_goes_on(make, tmp_path):
    first = start_demo(tmp_path)
    lock = json.loads((tmp_path / "run.lock").read_text())
    for goal in ("demo", "clean"):
        second = make(goal, YES="1")
        assert second.returncode == 2 and second.stderr.count("error: ") == 1
        assert str(lock["pid"]) in second.stderr and lock["host"] in second.stderr
    assert make("-n", "demo").returncode == 0  # a plan needs no lock
    (tmp_path / "wait").unlink()
    assert first.wait(60) == 0 and not (tmp_path / "run.lock").exists()
    assert len(started(tmp_path)) == 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_lock_and_no_process(tmp_path, make, number):
    process = start_demo(tmp_path)
    # A terminal sends its Ctrl-C to the whole group, others their signal to make alone.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    assert process.wait(30) != 0 and not (tmp_path / "run.lock").exists()
    assert (tmp_path / "run/data/manifest.json").exists()  # it was whole
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_clean_says_what_it_removes_and_keeps_other_seeds(make, tmp_path):
    run = tmp_path / "run"
    kept = [run / "seed-3/sft/manifest.json", run / "notes.txt"]
    gone = [run / name for name in ("data/manifest.json", "sft/model", "sft.1/model")]
    for path in (*kept, *gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    said = make("clean").stdout
    assert all(str(path.parent) in said for path in gone) and "seed-3" not in said
    assert all(path.exists() for path in (*kept, *gone))
    assert make("clean", YES="1").returncode == 0
    assert all(path.exists() for path in kept) and not any(path.parent.exists() for path in gone)


def test_the_environment_of_another_clone_is_refused(make, tmp_path):
    folder = tmp_path / "venv/lib/python3.11/site-packages/sft_grpo_math-0.1.0.dist-info"
    folder.mkdir(parents=True)
    for owner, code in ((demo.ROOT, 0), (f"{demo.ROOT}-2", 2), ("/another/clone", 2)):
        (folder / "direct_url.json").write_text(json.dumps({"url": f"file://{owner}"}))
        done = make("data")
        assert done.returncode == code and done.stderr.count("\n") == bool(code)
        assert code == 0 or f"{owner}" in done.stderr
        assert make("help").returncode == 0
