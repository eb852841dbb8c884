"""A grader of the user's own: what it is given, what counts as its verdict, and how it fails."""

import sys
from pathlib import Path

import pytest
import yaml

from data_prep.schema import read_problems
from grading import own_grader
from grading.grade import grade_rollouts
from grading.own_grader import judge
from pipeline import manifest
from pipeline.errors import UserError
from tests.files import write_rows

THOUGHT = "<think>\na\n</think>"
GRADERS = yaml.safe_load(Path(__file__).with_name("graders.yaml").read_text(encoding="utf-8"))
FAULTS = [name for name, grader in GRADERS.items() if "fault" in grader]
SOURCE = "import os, sys, time\nimport numpy as np\n"
for found in GRADERS.values():
    SOURCE += f"{found['first']}\n    {found['body']}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working folder with the module `graders`, whose functions may be called."""
    folder = tmp_path_factory.mktemp("graders")
    (folder / "graders.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        own_grader._workers.cache_clear()
        yield folder
    own_grader._workers.cache_clear()
    sys.modules.pop("graders", None)


@pytest.fixture
def call(folder):
    def call(name, text="a", answers=("a",)):
        own_grader.take(f"graders:{name}")
        ((is_correct, _),) = judge([(f"graders:{name}", text, list(answers))])
        return is_correct

    return call


def test_its_verdicts_are_the_grades(folder):
    own_grader.take("graders:echo")
    texts = [f"{THOUGHT}#", "<think>#", "4", f"{THOUGHT}\\boxed{{4}}", f"{THOUGHT}\\boxed{{5}}"]
    golds = [["#"], ["#"], ["5", "4"], ["4"], ["4"]]
    graders = ["graders:echo"] * 3 + [None] * 2
    grades = grade_rollouts(texts, golds, ["box"] * 5, None, graders, think_prefilled=False)
    assert [one.verdict for one in grades] == ["right", "unclosed_think", "wrong", "right", "wrong"]
    assert [one.prediction for one in grades] == ["#", None, "4", "4", "5"]


def test_a_bool_of_numpy_is_a_verdict(call):
    assert call("by_numpy", "4") is True and call("by_numpy", "5") is False


def test_dotted_names_are_trls(folder):
    own_grader.take("graders.echo")
    assert judge([("graders.echo", "é\ud800", ["é\ud800"])])[0][0] is True


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_with_function_file_and_line(call, folder, name):
    first, what = GRADERS[name]["first"], GRADERS[name]["fault"]
    line = 1 + SOURCE.splitlines().index(first)
    if name in ("raises", "exits"):
        line += 1  # where it does
    with pytest.raises(UserError) as found:
        call(name)
    message = str(found.value)
    assert message.startswith(f"grader: graders:{name} ({folder}/graders.py, line {line}) ")
    assert what in message and "\n" not in message and found.value.exit_code == 2
    assert call("echo")  # the next one is not hurt


@pytest.mark.parametrize("name", ["hangs", "spins"])
def test_one_that_hangs_is_stopped(call, monkeypatch, capfd, name):
    monkeypatch.setattr(own_grader, "SECONDS", 0.5)
    own_grader._workers.cache_clear()
    with pytest.raises(UserError, match=rf"graders:{name} .*graders\.py, line .*over 0\.5 s"):
        call(name)
    own_grader._workers.cache_clear()
    assert capfd.readouterr().err == ""


def test_only_what_was_taken_up_is_called(folder):
    with pytest.raises(UserError, match="own_grader: os:system"):
        grade_rollouts(["true"], [[]], ["box"], None, ["os:system"], think_prefilled=False)


@pytest.mark.parametrize("name", ["echo", "graders:none", "no_such.echo", "graders:os"])
def test_what_is_no_function_is_refused(folder, name):
    with pytest.raises(UserError, match=r"^grader: "):
        own_grader.take(name)


# Rows that name it


@pytest.fixture
def problems(folder, tmp_path, monkeypatch):
    """A file of a build with one problem; returns its path."""
    row = {"id": "p", "prompt": [{"role": "user", "content": "?"}], "answers": ["{not: maths"]}
    row |= {"answer_form": "tags", "own_grader": "graders:echo"}
    path = tmp_path / "grpo_train.jsonl"
    write_rows(path, [row])
    inputs = manifest.hash_inputs([folder / "graders.py"])
    manifest.write(tmp_path, "data", {}, inputs, {}, 0.0, [path.name])
    monkeypatch.setenv("ALLOW_CODE", "1")
    monkeypatch.delenv("FORCE", raising=False)
    return path


def test_rows_name_the_grader_and_their_golds_are_not_parsed(problems):
    assert [row["own_grader"] for row in read_problems(str(problems))] == ["graders:echo"]


def test_rows_are_a_file_too(problems, monkeypatch):
    monkeypatch.delenv("ALLOW_CODE")
    with pytest.raises(UserError, match=r"own_grader: graders:echo is code .*ALLOW_CODE=1"):
        list(read_problems(str(problems)))


def test_another_version_than_that_of_the_data_is_refused(problems, folder, monkeypatch):
    (folder / "graders.py").write_text(SOURCE + "# changed\n")
    try:
        with pytest.raises(UserError, match=r"graders\.py\) has changed .*`make data`.*FORCE"):
            list(read_problems(str(problems)))
        monkeypatch.setenv("FORCE", "1")
        assert len(list(read_problems(str(problems)))) == 1
    finally:
        (folder / "graders.py").write_text(SOURCE)
