"""The harness's parsers in a child process: what they return, and what stopping one costs."""

import importlib.util
import os
from types import SimpleNamespace

import pytest

from eval.harness import suite
from eval.harness.suite import MAX_CHARS, protect

pytestmark = pytest.mark.integration

SOURCE = """
import os, time
def own(doc, results): return {"exact_match": doc["gold"] == results[0], "pid": os.getpid()}
def falls(doc, results): raise RecursionError(results[0])
def dies(doc, results): os._exit(3)
def hangs(doc, results): time.sleep(60)
def eats(doc, results): return {"exact_match": len(bytearray(1 << 40))}
"""


@pytest.fixture
def task_of(tmp_path):
    """A task of the harness whose parser is a function of a file, or none."""
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

    return call


@pytest.fixture
def short_patience(monkeypatch):
    suite._pool.cache_clear()
    monkeypatch.setattr(suite, "TIMEOUT_SECONDS", 1.0)
    yield
    suite._pool().close()
    suite._pool.cache_clear()


def test_a_parser_runs_elsewhere_and_says_the_same(task_of):
    task = task_of("own")
    stopped = protect({"own": task})
    found = task.process_results({"gold": "72 \ud800"}, ["72 \ud800"])
    assert found["exact_match"] is True and found["pid"] != os.getpid() and stopped == []


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("name", ["falls", "dies", "hangs", "eats"])
def test_a_parser_that_comes_to_nothing_scores_nothing(task_of, name):
    task, other = task_of(name), task_of("own")
    stopped = protect({name: task, "own": other})
    doc = {"gold": "72"}
    assert task.process_results(doc, ["72"]) == {"exact_match": 0, "math_verify": 0}
    assert stopped == [doc]
    assert other.process_results(doc, ["72"])["exact_match"] is True


def test_tasks_without_a_parser_of_their_own_stay_here(task_of):
    task = task_of(None)
    stopped = protect({"task": task})
    for results in (["72"], [(-1.5, True), (-2.0, False)], ["x" * MAX_CHARS]):
        assert task.process_results({}, results) == {"here": True}
    assert task.process_results({"id": 1}, ["x" * (MAX_CHARS + 1)]) == {
        "exact_match": 0, "math_verify": 0,
    }  # fmt: skip
    assert stopped == [{"id": 1}]
