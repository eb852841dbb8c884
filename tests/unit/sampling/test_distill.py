"""Distillation without a teacher: which samples are kept, the rows they become, refused keys."""

import json
from itertools import count

import pytest

from data_prep.config import UserError
from data_prep.grading.grade import grade_all
from data_prep.prompts import build_completion, build_prompt
from data_prep.sampling.problems import SampledSet
from data_prep.sampling.store import Completion, SampleStore
from data_prep.sources import generic
from stages.distill import (
    DistillArguments,
    check_rows,
    choose_traces,
    trace_row,
    write_traces,
)

PATHS = {"model_name_or_path": "m", "problems_file": "p", "output_dir": "o"}
SERVER = {"backend": "openai", "base_url": "http://localhost:8000/v1"}


def arguments(**changes):
    return DistillArguments(**PATHS | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keep": 0}, "keep: 0 must be above 0"),
        ({"keep": 5, "num_samples": 4}, "keep: 5 traces of 4 samples; raise num_samples"),
        ({"prefer": "best"}, "prefer: must be one of first, shortest"),
        ({"system_prompt": "nice"}, "system_prompt: must be one of none, think, boxed"),
        ({"backend": "server"}, "backend: must be one of hf, vllm, openai"),
        ({"backend": "openai"}, "base_url: None is no address; set it to .*localhost:8000/v1"),
        (SERVER | {"base_url": "localhost:8000"}, "base_url: 'localhost:8000' is no address"),
        (SERVER | {"backend": "vllm"}, "base_url: has no use but with backend: openai"),
        (SERVER | {"concurrency": 0}, "concurrency: 0 must be above 0"),
        (SERVER | {"timeout_s": 0.0}, "timeout_s: 0.0 must be above 0"),
        ({"temperature": 0}, "temperature: 0 must be above 0"),
    ],
)
def test_keys_that_are_refused(changes, words):
    with pytest.raises(UserError, match=f"^{words}"):
        arguments(**changes)


def write(thought, answer="4", cut_off=False):
    return Completion(f"<think>\n{thought}\n</think>\n\n\\boxed{{{answer}}}", 9, cut_off)


BARE = Completion("\\boxed{4}", 4, False)
OPEN = Completion("<think>and so on", 4, False)
TWO = Completion("<think>a</think> \\boxed{4} or \\boxed{5}", 4, False)
MUTE = Completion("<think>a</think> that is all", 4, False)
LONG, SHORT, SHORT_TOO = write("a long thought"), write("short"), write("brief")


@pytest.mark.parametrize(
    ("completions", "keep", "prefer", "kept", "dropped"),
    [
        ([], 1, "first", [], {}),
        ([LONG, SHORT], 1, "first", ["a long thought"], {"not_needed": 1}),
        ([LONG, SHORT], 1, "shortest", ["short"], {"not_needed": 1}),
        ([LONG, SHORT], 2, "first", ["a long thought", "short"], {}),
        ([LONG, SHORT], 2, "shortest", ["short", "a long thought"], {}),
        ([LONG, SHORT], 9, "first", ["a long thought", "short"], {}),
        # Of equal length the first.
        ([SHORT, SHORT_TOO], 1, "shortest", ["short"], {"not_needed": 1}),
        ([SHORT_TOO, SHORT], 1, "shortest", ["brief"], {"not_needed": 1}),
        ([SHORT, LONG, SHORT], 1, "first", ["short"], {"duplicate": 1, "not_needed": 1}),
        ([SHORT, SHORT, SHORT], 3, "first", ["short"], {"duplicate": 2}),
        ([write("short", "5"), SHORT], 1, "first", ["short"], {"wrong": 1}),
        ([write("short", cut_off=True), LONG], 1, "shortest", ["a long thought"], {"cut_off": 1}),
        ([write("x", "5", cut_off=True)], 1, "first", [], {"cut_off": 1}),
        (
            [BARE, OPEN, TWO, MUTE, write("x", "?!")], 1, "first", [],
            {
                "no_think": 1, "unclosed_think": 1, "several_answers": 1, "no_answer": 1,
                "unparseable": 1,
            },
        ),
        ([write("short", "\\frac{8}{2}")], 1, "first", ["short"], {}),
    ],
)  # fmt: skip
def test_which_samples_are_kept(completions, keep, prefer, kept, dropped):
    grades = grade_all([str(one) for one in completions], [["4"]] * len(completions))
    found, lost = choose_traces(completions, grades, keep, prefer)
    assert (list(found), dict(lost)) == (kept, dropped)


ROW = {"id": "a", "source": "toy", "question": "2+2?", "answers": ["4"], "level": 2.5}
ROW |= {"own_prompt": build_prompt("2+2?", "think"), "own_form": "box", "answer_form": "box"}


@pytest.mark.parametrize(
    ("golds", "prediction", "answers"),
    [
        (["4"], "4", ["4"]),
        (["4"], "\\frac{8}{2}", ["4"]),
        (["7", "4"], "4", ["4", "7"]),
        (["7", "\\frac{8}{2}", "4"], "4", ["\\frac{8}{2}", "4", "7"]),
        (["7", "4"], "what math-verify alone can read", ["7", "4"]),
    ],
)
def test_the_gold_of_the_thought_comes_first(golds, prediction, answers):
    found = trace_row(ROW | {"answers": golds, "subject": "sums"}, 1, "so", prediction)
    assert found == {
        "id": "a", "source": "toy", "question": "2+2?", "answers": answers, "solution": "so",
        "trace": 1, "level": 2.5, "subject": "sums", "prompt": ROW["own_prompt"],
        "answer_form": "box", "completion": build_completion("so", answers[0]),
    }  # fmt: skip


def test_a_trace_answers_in_the_form_that_its_problem_names():
    row = ROW | {"own_form": "tags"}
    assert trace_row(row, 0, "so", "4")["answer_form"] == "tags"
    assert trace_row(row, 0, "so", "4")["completion"].endswith("<answer>4</answer>")
    assert trace_row(ROW, 0, "so", "4")["completion"].endswith("\\boxed{4}")


@pytest.mark.parametrize("missing", ["source", "level", "subject"])
def test_columns_that_a_problem_may_lack(missing):
    row = {key: value for key, value in (ROW | {"subject": None}).items() if key != missing}
    found = trace_row(row, 0, "so", "4")
    assert found[missing] == {"source": "", "level": None, "subject": ""}[missing]
    assert found["subject"] == ""


def test_numbers_add_up(tmp_path):
    rows = [ROW | {"id": name, "prompt": build_prompt(name)} for name in "abc"]
    problems = SampledSet(rows, list("abc"), False, arguments(num_samples=3))
    store = SampleStore(tmp_path / "samples", "model")
    samples = [LONG, SHORT, BARE, *[write(f"{n}", "5") for n in range(2)], OPEN, SHORT, SHORT, TWO]
    numbers = count()
    for request in problems.all_requests():
        store.add(request, samples[next(numbers)])
    path = tmp_path / "traces.jsonl"
    found = write_traces(path, problems, store, 2, "shortest")
    assert found == {
        "counts": {
            "problems": 3, "problems_without_a_trace": 1, "traces": 3, "tokens": 9 * 6 + 4 * 3,
            "verdicts": {
                "right": 4, "wrong": 2, "no_think": 1, "unclosed_think": 1, "several_answers": 1
            },
        },
        "samples_in": 9,
        "samples_out": 3,
        "dropped": {
            "duplicate": 1, "no_think": 1, "several_answers": 1, "unclosed_think": 1, "wrong": 2
        },
    }  # fmt: skip
    assert list(found["dropped"]) == sorted(found["dropped"])
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["id"], row["trace"], row["solution"]) for row in written] == [
        ("a", 0, "short"), ("a", 1, "a long thought"), ("c", 0, "short")
    ]  # fmt: skip
    assert sorted(one.name for one in tmp_path.iterdir()) == ["samples", "traces.jsonl"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": "a"}], r"file\.jsonl: id 'a': question: missing"),
        ([{"id": "a", "question": " "}], r"file\.jsonl: id 'a': question: missing"),
        ([{"id": "a", "question": 7}], r"file\.jsonl: id 'a': question: missing"),
        ([ROW, ROW | {"id": 7}], r"file\.jsonl: id 7: id: 7 is not text; fix the row"),
        ([ROW | {"level": "hard"}], r"file\.jsonl: id 'a': level: 'hard' is not a number"),
        ([ROW | {"level": True}], r"file\.jsonl: id 'a': level: True is not a number"),
        ([ROW | {"level": [3]}], r"file\.jsonl: id 'a': level: \[3\] is not a number"),
        ([ROW | {"subject": ["x"]}], r"file\.jsonl: id 'a': subject: \['x'\] is not text"),
        ([ROW | {"source": 5}], r"file\.jsonl: id 'a': source: 5 is not text"),
    ],
)
def test_problems_that_cannot_become_traces(rows, words):
    with pytest.raises(UserError, match=f"^problems_file: {words}"):
        check_rows(rows, "file.jsonl")


@pytest.mark.parametrize("changes", [{}, {"level": None, "subject": None, "source": None}])
def test_what_passes_the_check_is_read_as_a_trace(changes):
    (row,) = check_rows([ROW | changes], "file.jsonl")
    assert generic.build_trace(trace_row(row, 0, "so", "4"), "", "f:1").solution == "so"
