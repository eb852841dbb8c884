"""The grader's benchmark with its real child processes: turns, and a grader that hangs."""

import json
import random

import pytest

from benchmarks import grader, grader_solutions
from benchmarks.grader import BASELINE, SINGLE
from benchmarks.grader_cases import Case, expression_cases, integer_cases
from pipeline.errors import UserError

pytestmark = pytest.mark.integration


def test_the_graders_take_turns_on_the_same_completions(monkeypatch):
    names = (SINGLE, "ours, a batch", BASELINE)
    monkeypatch.setattr(grader, "GRADERS", {name: grader.GRADERS[name] for name in names})
    rng = random.Random(0)
    rounds = [
        {
            "integers": integer_cases(16, rng),
            "expressions": expression_cases(at, 100, rng)[:9],
        }
        for at in (0, 1)
    ]
    results = grader.measure_rounds(rounds)
    for name, num_turns in (("integers", 5), ("expressions", 5)):
        labels = [case.is_right for sets in rounds for case in sets[name]]
        for who, measured in results[name].items():
            assert len(measured) == 2 * num_turns
            assert [label for one in measured for label in one.labels] == labels
            assert {m.is_single for m in measured} == {who != "ours, a batch"}
            found = [right for one in measured for right in one.found]
            assert found == labels or name == "expressions", (name, who)


def test_a_grader_that_hangs_is_killed_and_goes_on(monkeypatch):
    monkeypatch.setattr(grader, "GUARD_SECONDS", 3.0)
    child = grader.Child(BASELINE)
    cases = [
        Case(r"<think>a</think> The answer is $\boxed{(1+\frac{1}{123})^{1230000}}$", "4", False),
        Case(r"<think>a</think> The answer is $\boxed{4}$", "4", True),
    ]
    try:
        measured = child.measure(cases)
    finally:
        child.stop()
    assert measured.found == [None, True] and measured.seconds[0] == 3.0


def test_human_solutions_are_read_and_what_is_refused_is_written(shared_data, tmp_path, capsys):
    out = tmp_path / "refused.json"
    grader_solutions.main([str(shared_data), "--limit", "12", "--out", str(out)])
    found = json.loads(out.read_text())
    shares = {(row["set"], row["form"]): float(row["recall, %"]) for row in found["table"]}
    assert len(shares) >= 20 and min(shares.values()) >= 90
    assert found["verdicts"]["right"] > 200 and found["pairs"] > 500
    assert "GSM8K test" in capsys.readouterr().out


def test_a_folder_without_the_sets_and_a_limit_below_one_are_refused(tmp_path):
    with pytest.raises(UserError, match="no folder gsm8k"):
        grader_solutions.main([str(tmp_path)])
    with pytest.raises(UserError, match="--limit 0: must be 1 or more"):
        grader_solutions.main([str(tmp_path), "--limit", "0"])
