"""Benchmarks are loaded whole, in order, or not at all."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.decontamination import benchmarks
from data_prep.decontamination.benchmarks import find_benchmark_file, load_benchmark
from grading.compare import is_same_value
from grading.grade import grade_rollouts
from pipeline.errors import UserError


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def place(source, files):
    return {"source": source, "hub": "some/hub", "split": "test", "files": files}


def load(tmp_path, rows, name="aime"):
    write(tmp_path / "a.jsonl", rows)
    return load_benchmark(place(name, ["a.jsonl"]), str(tmp_path))


def rows_of(*golds):
    return [{"problem": f"Find $x_{n}$.", "answer": gold} for n, gold in enumerate(golds)]


def test_exact_repeats_are_kept_once(tmp_path):
    rows = rows_of(3, "001", 2)
    repeated = [*rows[:2], *rows, rows[1] | {"answer": "1"}]
    problems = load(tmp_path, repeated)
    assert [(p.id, p.answers[0]) for p in problems] == [
        ("aime-test-0", "3"), ("aime-test-1", "1"), ("aime-test-4", "2"),
    ]  # fmt: skip
    near = [rows[0], rows[0] | {"problem": "find $x_0$"}]  # cleaning would call these one
    assert len(load(tmp_path, near)) == 2
    spelt = [{"problem": "x", "answer": gold} for gold in (r"\frac{1}{2}", r"\frac12")]
    assert len(load(tmp_path, spelt, "math")) == 1


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("aime", [], "aime: .*a.jsonl has no rows"),
        ("aime", rows_of(1, 1000), "a.jsonl:2: answer: the gold '1000' is not an integer"),
        ("aime", rows_of(1) * 2 + [rows_of(1)[0] | {"answer": 2}],
         r"a.jsonl:3: the question of .*a.jsonl:1 with another gold, '2' instead of '1'"),
        ("aime", [{"id": 5} | row for row in rows_of(1, 2)],
         r"a.jsonl:2: the id 'aime-test-5' is also that of .*a.jsonl:1"),
        ("aime", [{"problem": " ", "answer": 1}], "a.jsonl:1: unusable .the question is empty"),
        ("math", [{"problem": "x", "answer": ""}], r"a.jsonl:1: unusable \(no_answer\)"),
        ("math", [{"problem": "x", "answer": r"\frac{1}{"}], "unusable .the gold .* cannot be"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_an_error(tmp_path, name, rows, words):
    with pytest.raises(UserError, match=words) as error:
        load(tmp_path, rows, name)
    assert "\n" not in str(error.value)


def test_first_file_that_exists(tmp_path):
    files = ["x/none.jsonl", "b.jsonl", "a.jsonl"]
    assert find_benchmark_file(files, str(tmp_path)) is None
    with pytest.raises(UserError, match=r"has none of x/none\.jsonl, .*to download some/hub"):
        load_benchmark(place("aime", files), str(tmp_path))
    write(tmp_path / "a.jsonl", rows_of(1))
    assert find_benchmark_file(files, str(tmp_path)) == tmp_path / "a.jsonl"
    write(tmp_path / "b.jsonl", rows_of(2))
    problems = load_benchmark(place("aime", files), str(tmp_path))
    assert [p.answers[0] for p in problems] == ["2"]


CONTEST_GOLDS = ["20\\pi", r"\sqrt{5}-2 \sqrt{3}", "2024^{4046}", r"\frac{1+\sqrt{2}}{3}, 1"]


@pytest.mark.parametrize("task", ["hmmt25", "brumo25", "cmimc25"])
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_contests_in_the_published_schema(tmp_path, task, ending):
    """Made-up rows with golds of the kinds that the sets have, each gradable and right."""
    place = benchmarks.BENCHMARKS[task]
    (file,) = (tmp_path / name for name in place["files"] if name.endswith(ending))
    file.parent.mkdir()
    rows = [
        {
            "problem_idx": n,
            "problem": f"Find $x_{n}$.\n",
            "answer": gold,
            "problem_type": ["Algebra"],
        }
        for n, gold in enumerate(CONTEST_GOLDS, 1)
    ]
    if ending == "jsonl":
        write(file, rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    problems = load_benchmark(place, str(tmp_path))
    assert [(p.id, *p.answers) for p in problems] == [
        (f"math-train-{n}", gold) for n, gold in enumerate(CONTEST_GOLDS, 1)
    ]
    assert is_same_value(r"1, \frac{\sqrt2+1}{3}", problems[3].answers[0])
    assert not is_same_value("2024^{4045}", problems[2].answers[0])


OLYMPIAD = {
    "id": 7, "context": None, "question": "Find all $n$.", "solution": ["Try $69$.", "Try $84$."],
    "final_answer": ["$69$,$84$"], "image_1": None, "is_multiple_answer": True,
}  # fmt: skip
# Task, row, id, gold, and an answer that is right and one that is wrong.
REPAIRED = [
    ("amc23", {"id": 0, "problem": "How many?", "answer": 27.0, "url": "", "question": "How many?"},
     "math-test-0", "27", "27", "45"),
    ("amc23", {"id": 0, "question": "How many?", "answer": "27", "url": ""},
     "math-test-0", "27", "27.0", "-27"),
    ("minerva", {"problem": "Find it.", "type": "8.282J", "idx": 5,
                 "solution": r"It is $\boxed{np.arcsin(10/13)}$."},
     "minerva-test-5", r"\arcsin(10/13)", r"\arcsin\left(\frac{10}{13}\right)", r"\frac{10}{13}"),
    ("minerva", {"question": "Find it.", "answer": "4.5e33"},
     "minerva-test-0", "4.5e33", r"4.5 \times 10^{33} \text{ erg/s}", r"4.5 \times 10^{32}"),
    ("minerva", {"question": "Find it.", "answer": r"\hbar \omega(v+1 / 2)"},
     "minerva-test-0", r"\hbar \omega(v+1 / 2)",
     r"\left(v+\frac12\right)\hbar\omega", r"\hbar\omega v"),
    ("minerva", {"question": "Find it.", "answer": r"x_{0} \cos (\omega t)+ \dot{x}_{0} t"},
     "minerva-test-0", r"x_{0} \cos (\omega t)+ \dot{x}_{0} t",
     r"t\dot{x}_0 + x_0\cos(\omega t)", r"x_{0} \cos (\omega t)+ x_{0} t"),
    ("olympiadbench", OLYMPIAD, "olympiadbench-test-7", "69,84", "84, 69", "69"),
    ("olympiadbench", OLYMPIAD | {"final_answer": ["$t(0,4]$"], "context": "Let $t > 0$."},
     "olympiadbench-test-7", r"t \in (0,4]", "(0, 4]", "(0, 4)"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "row", "name", "gold", "right", "wrong"), REPAIRED)
def test_sets_whose_golds_are_repaired(tmp_path, task, row, name, gold, right, wrong):
    place = benchmarks.BENCHMARKS[task]
    file = tmp_path / place["files"][0]
    file.parent.mkdir()
    write(file, [row])
    (problem,) = load_benchmark(place, str(tmp_path))
    assert (problem.id, *problem.answers) == (name, gold)
    assert is_same_value(right, gold) and not is_same_value(wrong, gold)
    assert problem.question.startswith(row.get("context") or row.get("question") or row["problem"])
    for completion, verdict in ((right, "right"), (wrong, "wrong")):
        text = f"<think>Yes.</think> \\boxed{{{completion}}}"
        (grade,) = grade_rollouts([text], [[gold]], ["box"], [problem.question])
        assert grade.verdict == verdict


def test_a_problem_with_an_image_is_refused(tmp_path):
    for row in ({"image_1": "x.png"}, {"question": "In <img_3408>, find $n$."}):
        write(tmp_path / "a.jsonl", [OLYMPIAD | row])
        with pytest.raises(UserError, match=r"a\.jsonl:1: image_1: the question needs an image"):
            load_benchmark(place("olympiadbench", ["a.jsonl"]), str(tmp_path))


def test_a_set_on_no_hub_needs_a_local_file(tmp_path, monkeypatch):
    place = {"source": "aime", "split": "test", "files": ["mine/mine.jsonl"]}
    monkeypatch.setitem(benchmarks.BENCHMARKS, "mine", place)
    with pytest.raises(UserError, match="is on no hub; set DATA_ROOT to a folder with mine/mine"):
        load_benchmark(place, None)
    with pytest.raises(UserError, match=r"has none of mine/mine\.jsonl; put one of them there$"):
        load_benchmark(place, str(tmp_path))
    assert benchmarks.find_benchmark("mine", None) is None


def test_hub_rows(monkeypatch):
    def load_hub(*args):
        assert args == ("some/hub", "test", "main")
        return iter([("some/set/test: row 1", rows_of("073")[0])])

    monkeypatch.setattr(benchmarks, "load_hub", load_hub)
    (problem,) = load_benchmark(place("aime", ["a.jsonl"]) | {"config": "main"}, None)
    assert (problem.id, problem.answers[0]) == ("aime-test-0", "73")
