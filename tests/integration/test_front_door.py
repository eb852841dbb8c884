"""The command from the words that are typed to the stages that start, in this process.

A stub in the place of each stage leaves its manifest. What make and the processes add is in
test_make.py; which word goes to which stage in tests/unit/pipeline/test_words.py.
"""

import hashlib
import json
import os
import re
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import yaml

from pipeline import __main__ as front
from pipeline import freshness, manifest, request
from pipeline.errors import UserError
from pipeline.stages import ROOT, STAGES, load
from stages.preflight import rehearsal
from tests import demo

pytestmark = pytest.mark.integration
HERE = Path(__file__).parent
NAMES = {row.module: name for name, row in STAGES.items()}
CHAIN = ["data", "base", "audit", "sft", "difficulty", "grpo", "eval", "report"]


class Done(NamedTuple):
    """How a command ended: exit code, what it printed, its error line."""

    code: int
    out: str
    error: str


def write_manifest(folder, stage, module, words):
    """What a stage leaves, as far as the command reads it."""
    made = {"stage": stage, "inputs": {}, "config": {}}
    if stage in STAGES:
        given = freshness.settings_of(stage, [module, *words])
        made["request"] = manifest.as_request(given, given.typed)
        made["config"] = dict(given)
        made["code"] = manifest.hash_code(*(ROOT / place for place in STAGES[stage].code))
    if stage == "audit":
        made["config"] = asdict(load(freshness.AUDIT)(**given))
        made["inputs"] = manifest.hash_inputs([*Path(given["recipe"]).glob("*.yaml")])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / manifest.NAME).write_text(json.dumps(made))


class Project:
    """A recipe in a folder, its run, and what the command starts; `on` has a stage do more."""

    def __init__(self, folder, capsys):
        self.folder, self.run, self.capsys = folder, folder / "run", capsys
        self.log, self.on, self.looks_ahead = [], {}, False
        demo.write_recipe(folder, {}, {})

    def start(self, words, env):
        """In the place of `pipeline.__main__.run`."""
        module, *rest = words[words.index("-m") + 1 :]
        name = NAMES.get(module, module.rpartition(".")[2])
        if name == "rehearsal":
            if self.looks_ahead:
                with mock.patch.object(sys, "argv", [module, *rest]):
                    rehearsal.main()
            return
        self.log.append((name, rest, env["FORCE"]))
        more = self.on.get(name, lambda folder: True)
        for flag in {"--run_dir", "--run"} & {*rest}:
            folder = Path(rest[rest.index(flag) + 1], name)
            if more(folder):
                write_manifest(folder, name, module, rest)

    def call(self, *typed, **variables):
        """Run a command; `variables` come behind those of recipe and run."""
        values = {"RECIPE": f"{self.folder}/tiny-cpu", "RUN": f"{self.run}"} | variables
        return self.type(*typed, *(f"{key}={value}" for key, value in values.items()))

    def type(self, *words):
        """Run a command of just these words."""
        self.log, code, error = [], 0, ""
        env = {key: value for key, value in os.environ.items() if key not in demo.OUTER}
        with (
            mock.patch.dict(os.environ, env, clear=True),
            mock.patch.object(sys, "argv", ["pipeline", *words]),
            mock.patch.object(front, "run", self.start),
        ):
            try:
                front.main()
            except UserError as found:
                code, error = found.exit_code, str(found)
            except SystemExit as end:
                code = end.code
        return Done(code, self.capsys.readouterr().out, error)

    @property
    def started(self):
        """The names of what the last command has started."""
        return [name for name, *_ in self.log]

    @property
    def forced(self):
        return [name for name, _, force in self.log if force == "1"]

    def edit(self, stage, **values):
        """Change keys of a recipe's YAML."""
        path = self.folder / f"tiny-cpu/{stage}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))

    def made(self, stage, **values):
        """Change keys of a manifest."""
        path = self.run / stage / manifest.NAME
        path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture
def project(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    return Project(tmp_path, capsys)


def test_what_is_asked_for_starts_and_nothing_else(project):
    assert project.call("demo").code == 0 and project.started == CHAIN
    done = project.call("demo")
    assert "nothing to do" in done.out and done.out.count("\n") == 1 and project.started == []
    for goals, given, expected, forced in (
        (["grpo"], {"FORCE": "1"}, ["grpo"], ["grpo"]),
        (["sft", "difficulty"], {"FORCE": "1"}, ["sft", "difficulty"], ["sft", "difficulty"]),
        (["grpo"], {"FORCE": "0"}, ["grpo"], []),
        (["grpo", "beta=0.1"], {}, ["audit", "grpo"], []),
        (["grpo"], {}, ["audit", "grpo"], []),
        (["sft"], {"ACCELERATE": "ddp", "NUM_PROCESSES": "2"}, ["launch"], []),
        (["data"], {"DATA_ROOT": "/some where"}, ["data"], []),
        (["sweep"], {"SWEEP": "beta=0,1", "FORCE": "1"}, ["sweep"], ["sweep"]),
        (["demo"], {"FORCE": "1"}, CHAIN, CHAIN),
    ):
        assert project.call(*goals, **given).code == 0
        assert (project.started, project.forced) == (expected, forced), given


def test_what_a_recipe_says_and_not_its_times_decide(project):
    project.call("demo")
    path = project.folder / "tiny-cpu/sft.yaml"
    path.write_text(f"# a comment\n{path.read_text()}")
    os.utime(project.folder / "tiny-cpu/grpo.yaml")
    project.call("demo")
    assert project.started == ["audit"]  # which reads the file
    project.edit("sft", weight_decay=0.125)
    project.call("demo")
    assert project.started == ["audit", "sft"]  # what depends on SFT's weights would see new ones
    (project.run / "base/manifest.json").unlink()  # a stage that was killed has none
    project.call("difficulty")
    assert project.started == ["base", "difficulty"]


def test_a_stage_that_needs_what_is_made_again_is_looked_at_in_its_turn(project):
    """GRPO is not trained on the SFT of data that are no more."""
    project.call("demo")
    rows = project.run / "data/rows"
    project.made("sft", inputs={str(rows): hashlib.sha256(b"old").hexdigest()})
    rows.write_text("old")  # not yet known to be other rows
    (project.run / "data/manifest.json").unlink()
    project.on["data"] = lambda folder: rows.write_text("new")
    project.call("grpo")
    assert project.started == ["data", "sft", "grpo"]


@pytest.mark.parametrize("place", ["sft", "sft-0a1b2c"])
def test_exit_code_0_without_a_manifest_is_no_success(project, place):
    """Whether the stage was never finished, or has another run that was."""
    if place != "sft":
        project.call("sft")

    def end_early(folder):
        folder.with_name(place).mkdir(parents=True, exist_ok=True)
        started = {"started": time.time()}
        (folder.with_name(place) / "run.json").write_text(json.dumps(started))

    project.on["sft"] = end_early
    done = project.call("grpo", "sft")
    assert done.code == 2 and f"/{place}: no manifest.json" in done.error
    assert project.started[-1] == "sft"  # nothing comes after it


def test_a_failing_audit_ends_the_chain_and_off_goes_past_it(project):
    def refuse(folder):
        raise SystemExit(2)

    project.call("grpo")
    project.edit("eval", temperature=0.9)
    project.edit("grpo", adam_beta1=0.95)
    project.on["audit"] = refuse
    for goal in ("grpo", "eval"):
        assert project.call(goal).code == 2 and project.started == ["audit"]
    assert project.call("grpo", "--list").out.split()[1:] == ["audit", "grpo"]
    assert project.call("grpo", "--list", AUDIT="off").out.split()[1:] == ["grpo"]
    assert project.call("eval", AUDIT="off").code == 0 and project.started == ["grpo", "eval"]
    project.on.clear()
    assert project.call("audit").code == 0
    assert project.call("grpo", "--list").out.split()[1:] == []  # audited, but not trained again
    done = project.call("audit", "--dry-run", COMPLETIONS="outputs.jsonl", RUN="none")
    assert done.out.count("\n") == 1 and "--completions outputs.jsonl" in done.out


@pytest.mark.parametrize("name", ["grpo", "eval"])
def test_a_recipe_without_a_stage_is_refused_before_any_other(project, name):
    (project.folder / f"tiny-cpu/{name}.yaml").unlink()
    done = project.call("demo")
    assert done.code == 2 and f"{name}.yaml" in done.error and project.started == []


def test_traces_of_a_teacher_come_before_the_sft_that_reads_them(project):
    path = project.folder / "tiny-cpu/sft.yaml"
    text = path.read_text()
    path.write_text(text + "# train_file: '{run}/distill/traces.jsonl'\n")  # names no folder
    assert "distill" not in project.call("sft", "--list").out.split()
    project.edit("sft", train_file="{run}/distill/traces.jsonl")
    project.edit("distill", model_name_or_path="teacher")
    assert project.call("grpo", AUDIT="off").code == 0
    assert project.started == ["data", "base", "distill", "sft", "difficulty", "grpo"]


def test_another_seed_in_a_run_is_refused(project):
    project.call("sft")
    project.made("sft", config={"seed": 1})
    assert project.call("grpo", SEED="2").code == 2
    assert project.call("grpo", SEED="1").code == 0


def test_a_dry_run_and_a_list_run_nothing(project):
    lines = project.call("demo", "--dry-run").out.splitlines()
    assert len(lines) == 8 and all(line.startswith("python -m ") for line in lines)
    assert project.started == [] and not project.run.exists()
    assert project.call("grpo", "--list").out.splitlines() == [f"{project.run}", *CHAIN[:6]]
    assert project.call("grpo").code == 0
    assert project.call("grpo", "--list").out.splitlines() == [f"{project.run}"]


def test_one_stage_alone(project):
    """Its words may be those of a whole job."""
    assert project.call("grpo", "--only", "beta=0.1", "sft.max_steps=1").code == 0
    ((stage, words, _),) = project.log
    assert stage == "grpo" and words[-2:] == ["--beta", "0.1"]


def test_a_user_s_model_goes_to_every_stage_that_reads_one(project):
    assert project.call("demo", MODEL="/a b").code == 0
    words = {stage: words for stage, words, _ in project.log}
    assert words["checkpoints"] == ["/a b"] and "base" not in words
    given = {stage for stage, found in words.items() if "--model /a b" in " ".join(found)}
    assert given == {"sft", "difficulty", "audit", "grpo", "eval", "report"}
    assert project.call("base", MODEL="/a b").code == 2
    project.made("sft", config={"model_name_or_path": "/a b"})
    for model, code in (("/a b", 0), ("/a b/", 0), ("/c", 2)):
        assert project.call("grpo", MODEL=model).code == code


def test_evaluating_a_model_of_the_user_s_says_what_it_trains(project):
    (line,) = re.findall(".*TASKS=.*", project.call("eval", MODEL="/x").out)
    assert "sft and grpo" in line and "MODEL=/x" in line
    assert "TASKS=" not in project.call("eval", MODEL="/x").out  # all is trained
    assert "TASKS=" not in project.call("grpo", MODEL="/x").out


def test_a_model_is_scored_as_it_is_on_tasks_that_are_named(project):
    given = {"MODEL": "/x", "TASKS": "math500,aime24", "SAMPLES": "32", "DATA_ROOT": "/data"}
    for _ in range(2):  # what is up to date is for the evaluation to say
        done = project.call("eval", "limit=3", **given)
        assert done.code == 0 and f"{project.run}" in done.out
        assert project.started == ["checkpoints", "eval", "report"]
        words = " ".join(project.log[1][1])
        assert "--checkpoints x=/x" in words and "--tasks math500 aime24" in words
        assert "--num_samples 32" in words and words.endswith("--limit 3 --data_root /data")
    assert {path.name for path in project.run.iterdir()} == {"eval", "report"}


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


@pytest.mark.parametrize(
    ("goal", "given"),
    [
        ("sweep", {"SWEEP": "seed=0,1 learning_rat=1e-4,1e-5"}),
        ("control", {"SEEDS": "0 learning_rate"}),
        ("report", {}),
    ],
)
def test_a_mistake_in_a_later_stages_keys_is_told_before_any_stage(project, goal, given):
    project.looks_ahead = True
    if not given:
        project.edit("eval", learning_rat=1)
    done = project.call(goal, **given)
    assert done.code == 2 and "'learning_rat" in done.error and project.started == []
    assert project.call("sft").code == 0  # which does not come to it


@pytest.mark.parametrize("line", (HERE / "mistakes.tsv").read_text().splitlines())
def test_a_mistake_is_one_line_with_the_nearest_name(project, line):
    """Of the table: what is typed, and what the error names."""
    words, named = line.split("\t")
    goal, *given = shlex.split(words)
    done = project.call(goal, **dict(word.split("=", 1) for word in given))
    assert done.code == 2 and done.out == "" and project.started == []
    assert named.lower() in done.error.lower() and "\n" not in done.error


def test_clean_says_what_it_removes_and_keeps_other_seeds(project):
    run = project.run
    kept = [run / "seed-3/sft/manifest.json", run / "notes.txt", run / "sft.csv"]
    kept += [run / "eval/a_users_own.py", run / "sft.old/manifest.json"]
    names = ("data/manifest.json", "sft/checkpoint-3", "sft-0a1b2c-2/run.json")
    gone = [run / name for name in names]
    for path in (*kept, *gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    said = project.call("clean").out
    assert all(str(path.parent) in said for path in gone) and "seed-3" not in said
    assert all(path.exists() for path in (*kept, *gone))
    assert project.call("clean", YES="1").code == 0
    assert all(path.exists() for path in kept) and not any(path.parent.exists() for path in gone)


def test_commands_are_those_of_the_table(project):
    """Samples of recipe, goal and setting beside the commands that they have always been."""
    for case in yaml.safe_load((HERE / "commands.yaml").read_text(encoding="utf-8")):
        done = project.type(*case["words"].split(), *case.get("given", []), "--dry-run")
        assert done.code == 0, done.error
        found = done.out.replace(sys.executable, "python").splitlines()
        assert found == case["commands"], case["words"]
