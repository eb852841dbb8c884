"""Real make and `python -m pipeline` on the tiny recipe; a stub in the place of each stage."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from pipeline import names, request, stages, words
from tests import demo

pytestmark = pytest.mark.integration
# What each Python process does first. A stage notes its name, words and FORCE, and leaves its
# manifest; the command is the real one, and so is the look ahead where `ahead` is there.
STUB = """
import hashlib, json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
module = sys.orig_argv[sys.orig_argv.index("-m") + 1] if "-m" in sys.orig_argv else ""
is_ours = module.partition(".")[0] in ("stages", "eval", "data_prep", "pipeline")
is_ahead = module == "stages.preflight.rehearsal" and (here / "ahead").exists()
is_real = is_ahead or module in ("pipeline", "pipeline.names")
if is_ours and not is_real:
    words = sys.orig_argv[sys.orig_argv.index("-m") + 2:]
    stage = json.loads((here / "names").read_text()).get(module, module.rpartition(".")[2])
    if stage == "rehearsal":
        os._exit(0)
    with (here / "log").open("a") as log:
        log.write(json.dumps([stage, words, os.environ.get("FORCE", "")]) + "\\n")
    for flag in {"--run_dir", "--run"} & {*words}:
        folder = pathlib.Path(words[words.index(flag) + 1], stage)
        folder.mkdir(parents=True, exist_ok=True)
        if (here / "killed").exists():
            os.kill(os.getpid(), 9)
        if stage == "sft" and (here / "unfinished").exists():
            place = folder.with_name((here / "unfinished").read_text())
            place.mkdir(exist_ok=True)
            (place / "run.json").write_text(json.dumps({"started": time.time()}))
            os._exit(0)
        sys.path.insert(0, os.getcwd())
        from dataclasses import asdict
        from pipeline import freshness, manifest
        from pipeline.stages import ROOT, STAGES, load
        made = {"stage": stage, "inputs": {}, "config": {}}
        given = None
        if stage in STAGES:
            try:
                given = freshness.settings_of(stage, [module, *words])
            except ValueError:
                pass
        if given is not None:
            made["request"] = manifest.as_request(given, given.typed)
            made["config"] = dict(given)
            if stage == "audit":
                made["config"] = asdict(load(freshness.AUDIT)(**given))
                yamls = pathlib.Path(given["recipe"]).glob("*.yaml")
                made["inputs"] = manifest.hash_inputs([*yamls])
            made["code"] = manifest.hash_code(*(ROOT / one for one in STAGES[stage].code))
        (folder / "manifest.json").write_text(json.dumps(made))
        if stage == "data" and (here / "after-data").exists():
            (folder / "rows").write_text((here / "after-data").read_text())
    while (here / "wait").exists():
        time.sleep(0.01)
    os._exit(0)
"""
NAMES = {row.module: name for name, row in stages.STAGES.items()}


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Run make, or `python -m pipeline`, on a recipe in `tmp_path`, with stubs for the stages."""
    demo.write_recipe(tmp_path, {}, {})
    (tmp_path / "sitecustomize.py").write_text(STUB)
    (tmp_path / "names").write_text(json.dumps(NAMES))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in demo.OUTER:
        monkeypatch.delenv(name, raising=False)

    def call(how, *goals, **given):
        return getattr(demo, how)(tmp_path, *goals, **given)

    return call


def started(folder):
    """The stages that were started since the last call, with their words and FORCE."""
    lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    (folder / "log").unlink(missing_ok=True)
    return [json.loads(line) for line in lines]


HOW = pytest.mark.parametrize("how", ["make", "pipeline"])


@HOW
def test_what_is_asked_for_starts_and_nothing_else(start, tmp_path, how):
    assert start(how, "demo").returncode == 0
    chain = ["data", "base", "audit", "sft", "difficulty", "grpo", "eval", "report"]
    assert [stage for stage, *_ in started(tmp_path)] == chain
    done = start(how, "demo")
    assert done.stdout.count("\n") == 1 and not done.stderr and started(tmp_path) == []
    for goals, given, expected in (
        (["grpo"], {"FORCE": "1"}, [["grpo", "1"]]),
        (["sft", "difficulty"], {"FORCE": "1"}, [["sft", "1"], ["difficulty", "1"]]),
        (["grpo"], {"FORCE": "0"}, [["grpo", ""]]),
        (["grpo", "beta=0.1"], {}, [["audit", ""], ["grpo", ""]]),
        (["grpo"], {}, [["audit", ""], ["grpo", ""]]),
        (["sft"], {"ACCELERATE": "ddp", "NUM_PROCESSES": "2"}, [["launch", ""]]),
        (["data"], {"DATA_ROOT": "/some where"}, [["data", ""]]),
        (["sweep"], {"SWEEP": "beta=0,1", "FORCE": "1"}, [["sweep", "1"]]),
    ):
        assert start(how, *goals, **given).returncode == 0
        assert [[stage, force] for stage, _, force in started(tmp_path)] == expected, given
    assert start(how, "demo", FORCE="1").returncode == 0
    assert [[stage, force] for stage, _, force in started(tmp_path)] == [[s, "1"] for s in chain]


@pytest.mark.parametrize("place", ["sft", "sft-0a1b2c"])
def test_exit_code_0_without_a_manifest_is_no_success(start, tmp_path, place):
    """Whether the stage was never finished, or has another run that was."""
    if place != "sft":
        assert start("pipeline", "sft").returncode == 0
        started(tmp_path)
    (tmp_path / "unfinished").write_text(place)
    done = start("pipeline", "grpo", "sft")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"/{place}: no manifest.json" in done.stderr
    assert [stage for stage, *_ in started(tmp_path)][-1] == "sft"  # nothing comes after it


def test_a_stage_that_is_killed_says_so(start, tmp_path):
    (tmp_path / "killed").touch()
    done = start("pipeline", "data")
    assert done.returncode in (137, 71) and done.stderr.count("\n") == 1
    assert "data_prep.builder" in done.stderr and "SIGKILL" in done.stderr


@HOW
def test_a_recipe_that_says_something_else_starts_its_stage_and_times_do_not(start, tmp_path, how):
    start(how, "demo")
    started(tmp_path)
    path = tmp_path / "tiny-cpu/sft.yaml"
    path.write_text(f"# a comment\n{path.read_text()}")
    os.utime(tmp_path / "tiny-cpu/grpo.yaml")
    start(how, "demo")
    assert [stage for stage, *_ in started(tmp_path)] == ["audit"]  # which reads the file
    path.write_text(f"{path.read_text()}\nweight_decay: 0.125\n")
    start(how, "demo")
    # The audit looks at the whole recipe; what depends on SFT's weights would see new ones.
    assert [stage for stage, *_ in started(tmp_path)] == ["audit", "sft"]


@HOW
def test_a_killed_demo_goes_on_where_it_was(start, tmp_path, how):
    start(how, "sft")
    (tmp_path / "run/base/manifest.json").unlink()  # a stage that was killed has none
    started(tmp_path)
    start(how, "difficulty")
    assert [stage for stage, *_ in started(tmp_path)] == ["base", "difficulty"]


def test_a_stage_that_needs_what_is_made_again_is_looked_at_in_its_turn(start, tmp_path):
    """GRPO is not trained on the SFT of data that are no more."""
    start("pipeline", "demo")
    started(tmp_path)
    made = tmp_path / "run/sft/manifest.json"
    digest = hashlib.sha256(b"old").hexdigest()
    value = json.loads(made.read_text()) | {"inputs": {f"{tmp_path}/run/data/rows": digest}}
    made.write_text(json.dumps(value))
    (tmp_path / "run/data/rows").write_text("old")  # not yet known to be other rows
    (tmp_path / "run/data/manifest.json").unlink()
    (tmp_path / "after-data").write_text("new")
    start("pipeline", "grpo")
    assert [stage for stage, *_ in started(tmp_path)] == ["data", "sft", "grpo"]


@pytest.mark.parametrize("name", ["grpo", "eval"])
def test_a_recipe_without_a_stage_is_refused_before_any_other(start, tmp_path, name):
    (tmp_path / f"tiny-cpu/{name}.yaml").unlink()
    done = start("pipeline", "demo")
    assert done.returncode == 2 and f"{name}.yaml" in done.stderr and started(tmp_path) == []


def test_a_comment_names_no_folder(start, tmp_path):
    path = tmp_path / "tiny-cpu/sft.yaml"
    path.write_text(path.read_text() + "# train_file: '{run}/distill/traces.jsonl'\n")
    assert "distill" not in start("pipeline", "sft", "--list").stdout.split()


def test_another_seed_in_a_run_is_refused(start, tmp_path):
    start("pipeline", "sft")
    path = tmp_path / "run/sft/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"config": {"seed": 1}}))
    assert start("pipeline", "grpo", SEED="2").returncode == 2
    assert start("pipeline", "grpo", SEED="1").returncode == 0


def test_a_dry_run_prints_and_runs_nothing(start, tmp_path):
    done = start("pipeline", "demo", "--dry-run")
    lines = done.stdout.splitlines()
    assert len(lines) == 8 and all(line.startswith("python -m ") for line in lines)
    assert started(tmp_path) == [] and not (tmp_path / "run").exists()
    chain = ["data", "base", "audit", "sft", "difficulty", "grpo"]
    listed = start("pipeline", "grpo", "--list").stdout.splitlines()
    assert listed == [f"{tmp_path}/run", *chain]
    assert start("pipeline", "grpo").returncode == 0
    assert start("pipeline", "grpo", "--list").stdout.splitlines() == [f"{tmp_path}/run"]


def test_one_stage_alone(start, tmp_path):
    """Its words may be those of a whole job."""
    done = start("pipeline", "grpo", "--only", "beta=0.1", "sft.max_steps=1")
    assert done.returncode == 0, done.stderr
    ((stage, given, _),) = started(tmp_path)
    assert stage == "grpo" and given[-2:] == ["--beta", "0.1"]


@HOW
def test_a_user_s_model_goes_to_every_stage_that_reads_one(start, tmp_path, how):
    assert start(how, "demo", MODEL="/a b").returncode == 0
    words = {stage: words for stage, words, _ in started(tmp_path)}
    assert words["checkpoints"] == ["/a b"] and "base" not in words
    told = {stage for stage, found in words.items() if "--model /a b" in " ".join(found)}
    assert told == {"sft", "difficulty", "audit", "grpo", "eval", "report"}
    assert start(how, "base", MODEL="/a b").returncode == 2
    path = tmp_path / "run/sft/manifest.json"
    made = json.loads(path.read_text()) | {"config": {"model_name_or_path": "/a b"}}
    path.write_text(json.dumps(made))
    for model, code in (("/a b", 0), ("/a b/", 0), ("/c", 2)):
        done = start(how, "grpo", MODEL=model)
        assert done.returncode == code and done.stderr.count("error: ") == bool(code)


def test_a_run_is_named_after_its_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for parent in ("one", "other"):
        (tmp_path / parent / "my weights").mkdir(parents=True)
    name = request.name_model
    spellings = ("one/my weights", "one/my weights/", f"{tmp_path}/other/../one/my weights")
    found = {name(path) for path in spellings}
    assert len(found) == 1 and found.pop().startswith("my.weights-")
    assert len({name(path) for path in ("one/my weights", "other/my weights", "a/my weights")}) == 3
    assert re.fullmatch(r"[\w.-]+", name("/$(x)/a'b ;`é..?"))


@HOW
@pytest.mark.parametrize("sweep", ["beta", "beta=", "beta=0.1,", "seed=0,1 beta=", "seed=0,1 beta"])
def test_a_sweep_without_a_value_is_refused_before_any_stage(start, tmp_path, sweep, how):
    done = start(how, "sweep", SWEEP=sweep)
    assert done.returncode == 2 and "has a key without a value" in done.stderr
    assert started(tmp_path) == []


@HOW
@pytest.mark.parametrize(
    ("goal", "given"),
    [
        ("sweep", {"SWEEP": "seed=0,1 learning_rat=1e-4,1e-5"}),
        ("control", {"SEEDS": "0 learning_rate"}),
        ("report", {}),
    ],
)
def test_a_mistake_in_a_later_stages_keys_is_told_before_any_stage(
    start, tmp_path, goal, given, how
):
    (tmp_path / "ahead").touch()
    if not given:
        path = tmp_path / "tiny-cpu/eval.yaml"
        path.write_text(path.read_text() + "\nlearning_rat: 1\n")
    done = start(how, goal, **given)
    assert done.returncode == 2 and "'learning_rat" in done.stderr
    assert started(tmp_path) == []
    assert start(how, "sft").returncode == 0  # which does not come to it


def test_traces_of_a_teacher_come_before_the_sft_that_reads_them(start, tmp_path):
    for stage, key, value in (
        ("sft", "train_file", "{run}/distill/traces.jsonl"),
        ("distill", "model_name_or_path", "teacher"),
    ):
        path = tmp_path / f"tiny-cpu/{stage}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {key: value}))
    assert start("make", "grpo", AUDIT="off").returncode == 0
    chain = ["data", "base", "distill", "sft", "difficulty", "grpo"]
    assert [stage for stage, *_ in started(tmp_path)] == chain


@pytest.mark.parametrize("where", ["make", "environment", "pipeline"])
def test_no_value_reaches_a_shell(start, tmp_path, monkeypatch, where):
    hostile = "$(shell touch {0}) `touch {0}` ;touch {0} | touch {0} 'a b' \"$$(touch {0})\""
    hostile = hostile.format(tmp_path / "pwned")
    monkeypatch.setattr(demo, "OUTER", ())
    goals = {"SWEEP": "sweep", "SEEDS": "control", "COMPLETIONS": "audit", "GPUS": "plan",
             "PRICE": "plan", "RUNS": "compare", "OUT": "compare", "REPO": "push",
             "YES": "clean", "PARALLEL": "sweep", "TASKS": "eval", "SAMPLES": "eval"}  # fmt: skip
    names = [name.upper() for name in words.VARIABLES]
    names += ["PYTHON", "VENV"] if where == "make" else []
    for name in names:
        given, goal = {name: hostile}, goals.get(name, "sft")
        if name == "RUN":  # which is a folder that is made
            given = {name: f"{tmp_path}/{hostile}"}
        with monkeypatch.context() as changed:
            if where == "environment" and name not in ("RECIPE", "RUN"):
                changed.setenv(name, given.pop(name))
            done = start("make" if where == "environment" else where, goal, **given)
        assert not (tmp_path / "pwned").exists(), name
        if where == "make":
            assert done.returncode == 2 and done.stderr.count(": ") >= 1, (name, done.stderr)
            assert started(tmp_path) == [], name
        started(tmp_path)


@HOW
def test_the_text_of_a_value_arrives_as_it_was_typed(start, tmp_path, how):
    key = 'grader=it\'s  two "words" = {1: [2]} # 50%'
    done = start(how, "data", key, DATA_ROOT="/it's here")
    assert done.returncode == 0, done.stderr
    wanted = ["--grader", key.partition("=")[2], "--data_root", "/it's here"]
    assert started(tmp_path)[0][1][-4:] == wanted


@HOW
@pytest.mark.parametrize(
    ("goal", "given", "key"),
    [
        ("preflight", {"RECIPE": "a b"}, "recipe"),
        ("preflight", {"RECIPE": "../tiny-cpu"}, "recipe"),
        ("preflight", {"RECIPE": "grpo7c"}, "grpo7b"),
        ("preflight", {"RECIPE": "tiny-cpu-lora"}, "LORA=1"),
        ("preflight", {"RUN": ""}, "run"),
        ("preflight", {"RECIPE": ""}, "recipe"),
        ("sft", {"LORA": "2"}, "lora"),
        ("sft", {"FORCE": "perhaps"}, "force"),
        ("clean", {"YES": "2"}, "yes"),
        ("grpo", {"AUDIT": "Off"}, "audit"),
        ("clean", {"RUN": "."}, "run"),
        ("grpo", {"ACCELERATE": "ddp", "NUM_PROCESSES": "x"}, "num_processes"),
        ("preflight", {"SEED": "../3"}, "seed"),
        ("data", {"GPUS": "8"}, "gpus"),
        ("data", {"SWEEP": "beta=0"}, "sweep"),
        ("grpo", {"RUNS": "runs/a"}, "runs"),
        ("plan", {"FORCE": "1"}, "force"),
        ("grpo", {"NUM_PROCESSES": "8"}, "num_processes"),
        ("grpo", {"ACCELERATE": "fsdp3"}, "fsdp2"),
        ("compare", {}, "runs"),
        ("push", {}, "repo"),
        ("sweep", {}, "sweep"),
        ("eval", {"TASKS": "math5000", "MODEL": "/x"}, "math500"),
        ("eval", {"TASKS": "", "MODEL": "/x"}, "tasks"),  # which would train it
        ("eval", {"TASKS": ",", "MODEL": "/x"}, "tasks"),
        ("eval", {"TASKS": "math500"}, "model"),
        ("eval", {"SAMPLES": "32"}, "tasks"),
        ("eval", {"TASKS": "math500", "MODEL": "/x", "SAMPLES": "-1"}, "samples"),
        ("eval", {"TASKS": "held_out", "MODEL": "/x"}, "test_file"),
        ("eval", {"TASKS": "math500", "MODEL": "/x", "LORA": "1"}, "lora"),
        ("eval", {"TASKS": "math500", "MODEL": "/x", "AUDIT": "off"}, "audit"),
        ("grpo", {"TASKS": "math500", "MODEL": "/x"}, "tasks"),
        ("eval", {"RECIPE": "evaluate"}, "model"),
        ("grpo", {"RECIPE": "evaluate", "MODEL": "/x"}, "evaluate"),
        ("plan", {"RECIPE": "evaluate"}, "evaluate"),
        ("grpo", {"ARGS": "--beta 1"}, "each key as a word"),
        ("grpo", {"KEYS": "beta=1"}, "each key as a word"),
        ("gpro", {}, "grpo"),
        ("data_report", {}, "data-report"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_name(start, tmp_path, how, goal, given, key):
    done = start(how, goal, **given)
    assert done.returncode == 2 and done.stdout == "", done
    (line,) = [one for one in done.stderr.splitlines() if not one.startswith("make: ")]
    assert line.startswith("error: ") and key.lower() in line.lower()
    assert started(tmp_path) == []


@HOW
def test_a_model_is_scored_as_it_is_on_tasks_that_are_named(start, tmp_path, how):
    given = {"MODEL": "/x", "TASKS": "math500,aime24", "SAMPLES": "32", "DATA_ROOT": "/data"}
    for _ in range(2):  # what is up to date is for the evaluation to say
        done = start(how, "eval", "limit=3", **given)
        assert done.returncode == 0 and f"{tmp_path}/run" in done.stdout
        check, evaluation, report = started(tmp_path)
        assert check[:2] == ["checkpoints", ["/x"]]
        assert [evaluation[0], report[0]] == ["eval", "report"]
        words = " ".join(evaluation[1])
        assert "--checkpoints x=/x" in words and "--tasks math500 aime24" in words
        assert "--num_samples 32" in words and words.endswith("--limit 3 --data_root /data")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"eval", "report"}


def test_evaluating_a_model_of_the_user_s_says_what_it_trains(start, tmp_path):
    done = start("make", "eval", MODEL="/x")
    (line,) = [one for one in done.stdout.splitlines() if "TASKS=" in one]
    assert "sft and grpo" in line and "MODEL=/x" in line
    assert "TASKS=" not in start("make", "eval", MODEL="/x").stdout  # all is trained
    assert "TASKS=" not in start("make", "grpo", MODEL="/x").stdout


def test_what_libraries_read_is_handed_on(start, monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "HF_HOME"):
        assert start("make", "preflight", **{name: "/bin/sh"}).returncode == 0, name
    monkeypatch.setenv("LR", "1e-4")  # of the shell, which may have any
    assert start("make", "preflight").returncode == 0


def test_a_mistake_is_told_before_torch_is_imported():
    code = "import sys; sys.argv[1:] = ['grpo', 'RECIPE=grpo7c']\n"
    code += "from pipeline.__main__ import main\n"
    code += "try:\n    main()\nexcept ValueError:\n"
    code += "    print(*sorted({'torch', 'trl', 'datasets'} & {*sys.modules}))"
    assert demo.run([sys.executable, "-c", code]).stdout == "\n"


@pytest.fixture
def start_demo(start, tmp_path):
    """Start the demo in a group of its own; its stages wait while the file `wait` is there."""

    def call(how):
        (tmp_path / "wait").touch()
        given = [f"RECIPE={tmp_path}/tiny-cpu", f"RUN={tmp_path}/run"]
        of_make = [f"VENV={tmp_path}/venv", f"PY={sys.executable}"]
        start = ["make", *of_make] if how == "make" else [sys.executable, "-m", "pipeline"]
        command = [*start, "demo", *given]
        process = subprocess.Popen(command, cwd=demo.ROOT, start_new_session=True)
        deadline = time.monotonic() + 60
        while not (tmp_path / "run/data/manifest.json").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        return process

    return call


@HOW
def test_a_second_start_in_a_run_is_one_line_and_the_first_goes_on(
    start, start_demo, tmp_path, how
):
    first = start_demo(how)
    owner = (tmp_path / "run.lock").read_text().strip()
    for goal in ("demo", "clean"):
        second = start(how, goal, **({"YES": "1"} if goal == "clean" else {}))
        assert second.returncode == 2 and second.stderr.count("error: ") == 1
        assert owner.startswith("process ") and owner in second.stderr
    assert start("pipeline", "demo", "--dry-run").returncode == 0  # which needs no lock
    (tmp_path / "wait").unlink()
    assert first.wait(60) == 0 and not (tmp_path / "run.lock").exists()
    assert len(started(tmp_path)) == 8


@HOW
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_lock_and_no_process(start_demo, tmp_path, number, how):
    process = start_demo(how)
    # A terminal sends its Ctrl-C to the whole group, others their signal to the command alone.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    assert process.wait(30) != 0 and not (tmp_path / "run.lock").exists()
    assert (tmp_path / "run/data/manifest.json").exists()  # it was whole
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@HOW
def test_clean_says_what_it_removes_and_keeps_other_seeds(start, tmp_path, how):
    run = tmp_path / "run"
    kept = [run / "seed-3/sft/manifest.json", run / "notes.txt", run / "sft.csv"]
    kept += [run / "eval/a_users_own.py", run / "sft.old/manifest.json"]
    gone = [
        run / name for name in ("data/manifest.json", "sft/checkpoint-3", "sft-0a1b2c-2/run.json")
    ]
    for path in (*kept, *gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    said = start(how, "clean").stdout
    assert all(str(path.parent) in said for path in gone) and "seed-3" not in said
    assert all(path.exists() for path in (*kept, *gone))
    assert start(how, "clean", YES="1").returncode == 0
    assert all(path.exists() for path in kept) and not any(path.parent.exists() for path in gone)


def test_the_environment_of_another_clone_is_refused(start, tmp_path):
    folder = tmp_path / "venv/lib/python3.11/site-packages/sft_grpo_math-0.2.0.dist-info"
    folder.mkdir(parents=True)
    for owner, code in ((demo.ROOT, 0), (f"{demo.ROOT}-2", 2), ("/another/clone", 2)):
        installed = {"url": f"file://{owner}", "dir_info": {"editable": True}}
        (folder / "direct_url.json").write_text(json.dumps(installed))
        done = start("make", "data")
        assert done.returncode == code and done.stderr.count("error: ") == bool(code)
        assert code == 0 or f"{owner}" in done.stderr
    command = [sys.executable, "-IS", "pipeline/venv.py", f"{tmp_path}/venv", "install"]
    done = demo.run(command)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "VENV" in done.stderr


def test_the_makefile_is_a_menu_for_any_make():
    """Nothing newer than GNU make 3.81, and no program in it."""
    text = (demo.ROOT / "Makefile").read_text(encoding="utf-8")
    newer = r"\$\(file\b|!=|:::?=(?<!:=:)|\.ONESHELL|&:|\bundefine\b|\$\((call|foreach|eval)\b"
    assert re.findall(newer, text) == []
    for sample in ("$(file <x)", "A != ls", "A ::= 1", ".ONESHELL:", "a b &: c", "$(eval x)"):
        assert re.search(newer, sample), sample
    # The menu at its head names what there is a rule for, and no more.
    phony = " ".join(re.findall(r"\.PHONY: (.*)", text)).split()
    listed = re.findall(r"(?m)^(PIPELINE|BENCHMARKS) := ((?:.*\\\n)*.*)", text)
    known = {name: words.replace("\\", "").split() for name, words in listed}
    rules = {one for word in phony for one in known.get(word[2:-1], [word])}
    assert {*names.targets()} == rules
    assert {*known["PIPELINE"]} == {*stages.GOALS}


def test_commands_are_those_of_the_table(start, tmp_path):
    """Samples of recipe, goal and setting beside the commands that they have always been."""
    file = Path(__file__).with_name("commands.yaml")
    for case in yaml.safe_load(file.read_text(encoding="utf-8")):
        typed = [*case["words"].split(), *case.get("given", [])]
        done = demo.run([sys.executable, "-m", "pipeline", *typed, "--dry-run"])
        assert done.returncode == 0, done.stderr
        found = done.stdout.replace(sys.executable, "python").splitlines()
        assert found == case["commands"], case["words"]
