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
SCENARIOS = yaml.safe_load((HERE / "front_door.yaml").read_text(encoding="utf-8"))


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

    def start(self, words, env, beside=()):
        """In the place of `pipeline.__main__.run`."""
        if beside:
            self.start(beside, env)
            self.beside.append(self.log[-1][0])
        module, *rest = words[words.index("-m") + 1 :]
        name = NAMES.get(module, module.rpartition(".")[2])
        if name == "rehearsal":
            if self.looks_ahead:
                with mock.patch.object(sys, "argv", [module, *rest]):
                    rehearsal.main()
            return
        self.log.append((name, rest, env["FORCE"]))
        if "--only_checkpoints" in rest:
            return
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
        self.log, self.beside, code, error = [], [], 0, ""
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


def change(project, edit=(), made=(), comment=(), remove=(), audit="passes", ahead=False):
    """Take a step of a scenario that types nothing."""
    for stage, values in dict(edit).items():
        project.edit(stage, **values)
    for stage, values in dict(made).items():
        project.made(stage, **values)
    for stage, text in dict(comment).items():
        with (project.folder / f"tiny-cpu/{stage}.yaml").open("a") as file:
            file.write(f"# {text}\n")
    for place in remove:
        (project.folder / place).unlink()
    project.on["audit"] = fail if audit == "fails" else lambda folder: True
    project.looks_ahead = ahead


def fail(folder):
    raise SystemExit(2)


def check(project, type, code=0, error="", out="", words=(), **expected):
    """Type the words of a step, and hold what came of them against the rest of it."""
    typed = shlex.split(type)
    given = dict(word.split("=", 1) for word in typed if "=" in word)
    done = project.call(*(word for word in typed if "=" not in word), **given)
    assert done.code == code and error in done.error and out in done.out, done
    found = {"started": project.started, "forced": project.forced, "beside": project.beside}
    found["lines"] = done.out.count("\n")
    if "listed" in expected:
        run, *found["listed"] = done.out.splitlines()
        assert run == str(project.run)
    for key, value in expected.items():
        assert found[key] == value, key
    got = {stage: " ".join(behind) for stage, behind, _ in project.log}
    for stage, end in dict(words).items():
        assert got[stage].endswith(end), stage


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_command_starts(project, name):
    for step in SCENARIOS[name]:
        if "type" in step:
            check(project, **step)
        else:
            change(project, **step)


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
