"""`make audit COMPLETIONS=file`: any file of completions, and what each parser makes of them."""

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from eval.audit import __main__ as audit
from eval.audit.parsers import PARSERS, parse_rows, read_completions
from eval.harness import suite
from eval.harness.suite import MAX_CHARS, protect
from pipeline.errors import UserError
from tests.files import read_rows, write_rows

pytestmark = pytest.mark.integration

RIGHT = "<think>\nso\n</think>\n\n\\boxed{72}"
ROW = {"completion": RIGHT, "gold": "72"}
CASES = yaml.safe_load(Path(__file__).with_name("completions.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def write(tmp_path):
    """Write rows of JSON; returns the path. `pipeline.rows` has the tests of other formats."""

    def call(*rows, name="outputs.jsonl"):
        write_rows(tmp_path / name, rows)
        return str(tmp_path / name)

    return call


@pytest.mark.parametrize(("gold", "golds"), CASES["golds"])
def test_golds_of_every_kind(write, gold, golds):
    (row,) = read_completions(write(ROW | {"gold": gold}))
    assert row["golds"] == golds


@pytest.mark.parametrize(("row", "message"), CASES["bad rows"])
def test_a_bad_row_is_named_by_its_line(write, row, message):
    with pytest.raises(UserError, match=f":1: {message}"):
        list(read_completions(write(row)))


def test_a_prompt_that_opened_the_thought(write):
    rest = RIGHT.removeprefix("<think>")
    prompts = ("Q<think>\n", "Q", [{"role": "user"}])
    rows = [{"completion": rest, "gold": "72", "prompt": prompt} for prompt in prompts]
    found = parse_rows(list(read_completions(write(*rows))))
    assert [one["verdict"] for one in found] == ["right", "no_think", "no_think"]
    assert [one["lenient"] for one in found] == ["right"] * 3


FORMS = CASES["forms"]
HOSTILE = [*CASES["hostile"], "\\boxed{" * 3000, "{" * 5000, "$" * 9999, "\\text{" * 500 + "72"]
HOSTILE.append("1" * 10**6)
UNFIT = ["{", "\ud800", "x" * 20_000, "\\text{"]


@pytest.fixture
def parse(monkeypatch, tmp_path, capsys):
    """Run the audit on a file; returns the rows that it writes, and what it says."""

    def call(path):
        argv = ["eval.audit", "--recipe", "configs/grpo7b", "--completions", path]
        monkeypatch.setattr(sys, "argv", [*argv, "--run", f"{tmp_path}/run"])
        monkeypatch.setenv("COLUMNS", "80")
        audit.main()
        assert not (tmp_path / "run/audit/manifest.json").exists()
        (file,) = (tmp_path / "run/audit").iterdir()
        return read_rows(file), capsys.readouterr().out

    return call


def test_each_parser_reads_its_own_form(write, parse):
    path = write(*({"completion": text, "gold": "72"} for text, _ in FORMS), name="[bold]a.jsonl")
    found, out = parse(path)
    assert f"7 completions of {path}\n" in out and "…" not in out
    lines = [line.split() for line in out.splitlines()]
    assert ["ours,", "in", "a", "box", "1", "14.2", "16.6"] in lines
    assert ["ours,", "lenient", "6", "85.7", "100.0"] in lines
    for one, (_, readers) in zip(found, FORMS, strict=True):
        scores = {name: one[name] for name in PARSERS.values()}
        scores["verdict"] = one["verdict"] == "right"
        assert {name for name, is_right in scores.items() if is_right} == {*readers}
        assert not one["stopped"]
    assert [one["lenient"] for one in found] == ["right"] * 6 + ["wrong"]


def test_no_text_and_no_gold_makes_the_parsers_fall(write, parse):
    rows = [{"completion": text, "gold": "72"} for text in HOSTILE]
    rows += [ROW | {"gold": gold} for gold in ("}", "\\boxed 5", "[1,2]", "?", *UNFIT)]
    found, out = parse(write(*rows))
    assert "\x1b" not in out and "rows are too much for a parser of the harness" in out
    assert len(found) == len(rows)
    others = found[len(HOSTILE) :]
    assert "right" not in {row["verdict"] for row in others}
    assert {row["gold"][0] for row in others if row["stopped"]} == {*UNFIT}
    assert found[len(HOSTILE) - 1]["stopped"]


@pytest.mark.parametrize("rows", [[], [{"completion": None, "gold": "72"}]])
def test_an_empty_file(write, parse, rows):
    with pytest.raises(UserError, match="has no completions"):
        parse(write(*rows))


# The harness's parsers in a child process: what they return, and what stopping one costs.

SOURCE = """
import os, time
def own(doc, results): return {"exact_match": doc["gold"] == results[0], "pid": os.getpid()}
def falls(doc, results): raise RecursionError(results[0])
def dies(doc, results): os._exit(3)
def hangs(doc, results): time.sleep(60)
def eats(doc, results): return {"exact_match": len(bytearray(1 << 40))}
"""


@pytest.fixture
def task_of(tmp_path, monkeypatch):
    """A task of the harness whose parser is a function of a file, or none; it has one second."""
    suite._worker.cache_clear()
    monkeypatch.setattr(suite, "TIMEOUT_SECONDS", 1.0)
    path = tmp_path / "utils.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(name):
        config = SimpleNamespace(
            process_results=getattr(module, name) if name else None,
            metric_list=[{"metric": "exact_match"}, {"metric": "math_verify"}],
        )
        return SimpleNamespace(config=config, process_results=lambda doc, results: {"here": True})

    yield call
    suite._worker.cache_clear()


def test_a_parser_runs_elsewhere_and_says_the_same(task_of):
    task = task_of("own")
    stopped = protect({"own": task})
    found = task.process_results({"gold": "72 \ud800"}, ["72 \ud800"])
    assert found["exact_match"] is True and found["pid"] != os.getpid() and stopped == []


@pytest.mark.parametrize("name", ["falls", "dies", "hangs", "eats"])
def test_a_parser_that_comes_to_nothing_scores_nothing(task_of, name):
    task, other = task_of(name), task_of("own")
    stopped = protect({name: task, "own": other})
    doc = {"gold": "72"}
    assert task.process_results(doc, ["72"]) == {"exact_match": 0, "math_verify": 0}
    assert stopped == [doc]
    assert other.process_results(doc, ["72"])["exact_match"] is True


def test_tasks_without_a_parser_of_their_own_stay_here(task_of):
    task, nothing = task_of(None), {"exact_match": 0, "math_verify": 0}
    stopped = protect({"task": task})
    for results in ([(-1.5, True), (-2.0, False)], ["x" * MAX_CHARS]):
        assert task.process_results({}, results) == {"here": True}
    assert task.process_results({"id": 1}, ["x" * (MAX_CHARS + 1)]) == nothing
    assert stopped == [{"id": 1}]
