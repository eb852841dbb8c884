"""Benchmarks are loaded whole, in order, or not at all."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from data_prep.decontamination import benchmarks
from data_prep.decontamination.benchmarks import BENCHMARKS, find_benchmark_file, load_benchmark
from grading.compare import is_same_value
from grading.grade import grade_rollouts
from pipeline.errors import UserError
from tests.files import write_rows

CASES = yaml.safe_load(Path(__file__).with_name("benchmarks.yaml").read_text(encoding="utf-8"))


def place(source, files):
    return {"source": source, "hub": "some/hub", "split": "test", "files": files}


def load(tmp_path, rows, name="aime"):
    write_rows(tmp_path / "a.jsonl", rows)
    return load_benchmark(place(name, ["a.jsonl"]), str(tmp_path))


def load_task(tmp_path, task, rows, ending="jsonl"):
    """The problems of a task whose local file has these rows."""
    file = next(name for name in BENCHMARKS[task]["files"] if name.endswith(ending))
    (tmp_path / file).parent.mkdir()
    if ending == "jsonl":
        write_rows(tmp_path / file, rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / file)
    return load_benchmark(BENCHMARKS[task], str(tmp_path))


def rows_of(*golds):
    return [{"problem": f"Find $x_{n}$.", "answer": gold} for n, gold in enumerate(golds)]


def test_exact_repeats_are_kept_once(tmp_path):
    rows = rows_of(3, "001", 2)
    problems = load(tmp_path, [*rows[:2], *rows, rows[1] | {"answer": "1"}])
    assert [(p.id, p.answers[0]) for p in problems] == [
        ("aime-test-0", "3"), ("aime-test-1", "1"), ("aime-test-4", "2"),
    ]  # fmt: skip
    near = [rows[0], rows[0] | {"problem": "find $x_0$"}]  # cleaning would call these one
    assert len(load(tmp_path, near)) == 2
    spelt = [{"problem": "x", "answer": gold} for gold in (r"\frac{1}{2}", r"\frac12")]
    assert len(load(tmp_path, spelt, "math")) == 1


@pytest.mark.parametrize(("name", "rows", "words"), CASES["refused"])
def test_what_cannot_be_scored_is_an_error(tmp_path, name, rows, words):
    with pytest.raises(UserError, match=words) as error:
        load(tmp_path, rows, name)
    assert "\n" not in str(error.value)


def test_first_file_that_exists(tmp_path):
    files = ["x/none.jsonl", "b.jsonl", "a.jsonl"]
    assert find_benchmark_file(files, str(tmp_path)) is None
    with pytest.raises(UserError, match=r"has none of x/none\.jsonl, .*to download some/hub"):
        load_benchmark(place("aime", files), str(tmp_path))
    write_rows(tmp_path / "a.jsonl", rows_of(1))
    assert find_benchmark_file(files, str(tmp_path)) == tmp_path / "a.jsonl"
    write_rows(tmp_path / "b.jsonl", rows_of(2))
    assert load_benchmark(place("aime", files), str(tmp_path))[0].answers == ("2",)


@pytest.mark.parametrize(
    ("task", "ending"), [("hmmt25", "jsonl"), ("brumo25", "parquet"), ("cmimc25", "parquet")]
)
def test_contests_in_the_published_schema(tmp_path, task, ending):
    """Made-up rows with golds of the kinds that the sets have, each gradable."""
    golds = ["20\\pi", "2024^{4046}", r"\frac{1+\sqrt{2}}{3}, 1"]
    rows = [
        row | {"problem_idx": n, "problem_type": ["Algebra"]}
        for n, row in enumerate(rows_of(*golds), 1)
    ]
    problems = load_task(tmp_path, task, rows, ending)
    assert [(p.id, *p.answers) for p in problems] == [
        (f"math-train-{n}", gold) for n, gold in enumerate(golds, 1)
    ]
    assert is_same_value(r"1, \frac{\sqrt2+1}{3}", problems[2].answers[0])


@pytest.mark.parametrize(("task", "row", "name", "gold", "right", "wrong"), CASES["repaired"])
def test_sets_whose_golds_are_repaired(tmp_path, task, row, name, gold, right, wrong):
    (problem,) = load_task(tmp_path, task, [row])
    assert (problem.id, *problem.answers) == (name, gold)
    assert problem.question.startswith(row.get("context") or row.get("question") or row["problem"])
    for completion, verdict in ((right, "right"), (wrong, "wrong")):
        text = f"<think>Yes.</think> \\boxed{{{completion}}}"
        (grade,) = grade_rollouts([text], [[gold]], ["box"], [problem.question])
        assert grade.verdict == verdict


def test_a_set_on_no_hub_needs_a_local_file(tmp_path, monkeypatch):
    own = {"source": "aime", "split": "test", "files": ["mine/mine.jsonl"]}
    monkeypatch.setitem(BENCHMARKS, "mine", own)
    with pytest.raises(UserError, match="is on no hub; set DATA_ROOT to a folder with mine/mine"):
        load_benchmark(own, None)
    with pytest.raises(UserError, match=r"has none of mine/mine\.jsonl; put one of them there$"):
        load_benchmark(own, str(tmp_path))
    assert benchmarks.find_benchmark("mine", None) is None


def test_hub_rows(monkeypatch):
    def load_hub(*args):
        assert args == ("some/hub", "test", "main")
        return iter([("some/set/test: row 1", rows_of("073")[0])])

    monkeypatch.setattr(benchmarks, "load_hub", load_hub)
    (problem,) = load_benchmark(place("aime", ["a.jsonl"]) | {"config": "main"}, None)
    assert (problem.id, problem.answers[0]) == ("aime-test-0", "73")
