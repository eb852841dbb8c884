"""Pass rates from stored samples, without a model: what is counted, and which keys are refused."""

import json

import pytest

from data_prep.sampling import ProblemSetArguments
from data_prep.sampling.problems import SampledSet, load_pass_counts, load_problems
from data_prep.sampling.store import Completion, SampleStore
from pipeline.errors import UserError
from pipeline.key_types import own_keys
from pipeline.prompts import build_prompt
from pipeline.settings import convert
from stages.difficulty import write_rates
from tests.files import read_rows, write_rows

PATHS = {"model_name_or_path": "m", "problems_file": "p", "output_dir": "o"}


def right(answer):
    return Completion(f"<think>so</think> \\boxed{{{answer}}}", 9, False)


CUT = Completion("<think>so, so, s", 12, True)
# Problem a has several golds; b was cut off once, and once after its answer; c is never right.
SAMPLES = {
    "a": [right("14"), right("014"), right("7")],
    "b": [right("3"), Completion("<think>so</think> \\boxed{3} so", 12, True), CUT],
    "c": [Completion("\\boxed{5}", 4, False), right("\\text{x}"), Completion("", 1, False)],
}
GOLDS = {"a": ["7", "14"], "b": ["3"], "c": ["5"]}


@pytest.fixture
def sampled(tmp_path):
    rows = [
        {"id": name, "prompt": build_prompt(name), "answers": golds, "answer_form": "box"}
        for name, golds in GOLDS.items()
    ]
    problems = SampledSet(rows, list(GOLDS), False, ProblemSetArguments(**PATHS, num_samples=3))
    store = SampleStore(tmp_path / "samples", "model")
    for number, name in enumerate(GOLDS):
        for request, completion in zip(problems.requests(number), SAMPLES[name], strict=True):
            store.add(request, completion)
    return problems, store


def test_a_request_knows_its_row(sampled):
    problems, _ = sampled
    places = {one.place for one in problems.requests(1)}
    assert places == {f"{problems.args.problems_file}: b: "}


@pytest.mark.parametrize("at_once", [1, 4, 1024])
def test_rates(sampled, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("data_prep.sampling.problems.GRADED_AT_ONCE", at_once)
    counts = write_rates(tmp_path / "pass_rates.jsonl", *sampled, "0123456789ab")
    rows = read_rows(tmp_path / "pass_rates.jsonl")
    common = {"num_samples": 3, "checkpoint": "0123456789ab"}
    assert rows == [
        {"id": "a", "num_right": 3, "num_cut_off": 0, "verdicts": {"right": 3}} | common,
        {"id": "b", "num_right": 2, "num_cut_off": 2, "verdicts": {"right": 2, "unclosed_think": 1}}
        | common,
        {"id": "c", "num_right": 0, "num_cut_off": 0, "verdicts": {"no_think": 2, "wrong": 1}}
        | common,
    ]
    assert counts == {
        "problems": 3,
        "num_right_histogram": {"0": 1, "1": 0, "2": 1, "3": 1},
        "verdicts": {"right": 5, "no_think": 2, "unclosed_think": 1, "wrong": 1},
        "cut_off_share": round(2 / 9, 4),
        "tokens": 27 + 33 + 14,
    }
    assert load_pass_counts(str(tmp_path / "pass_rates.jsonl")) == {
        "a": (3, 3), "b": (2, 3), "c": (0, 3)
    }  # fmt: skip


def test_reading_problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    row = {"id": "a", "prompt": build_prompt("2+2?"), "answers": ["4"], "answer_form": "box"}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"answers": ["x ="]}) + "\n")
    assert load_problems(str(path), 1) == [row]
    with pytest.raises(UserError, match=r"problems\.jsonl:2: answers: 'x =' cannot be parsed"):
        load_problems(str(path), None)
    for rows, words in (([row] * 2, "id 'a'"), ([row | {"id": 7}], "id 7"), ([], "no rows")):
        write_rows(path, rows)
        with pytest.raises(UserError, match=f"problems_file: .*{words}"):
            load_problems(str(path), None)


@pytest.mark.parametrize(
    "line",
    [
        '{"num_right": 1, "num_samples": 4}',
        '{"id": "a", "num_right": 5, "num_samples": 4}',
        '{"id": "a", "num_right": true, "num_samples": 4}',
        '{"id": "b", "num_',
    ],
)
def test_a_damaged_row_of_pass_rates_is_named_by_line(tmp_path, line):
    path = tmp_path / "pass_rates.jsonl"
    path.write_text('{"id": "z", "num_right": 1, "num_samples": 4}\n' + line)
    with pytest.raises(UserError, match=r"pass_rates\.jsonl:2: "):
        load_pass_counts(str(path))


def test_a_problem_set_needs_samples():
    """An evaluation may do with its greedy completions."""
    with pytest.raises(UserError, match=r"^x: num_samples: must be at least 1"):
        convert("num_samples", 0, own_keys(ProblemSetArguments)["num_samples"], "x")
