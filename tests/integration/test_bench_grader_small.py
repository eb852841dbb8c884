"""The grader's benchmark on a few completions, with its real child processes."""

import pytest

from benchmarks import bench_grader, bench_report
from benchmarks.bench_completions import PAIRS, Case, expression_cases, integer_cases
from benchmarks.bench_report import BASELINE, SINGLE

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_the_graders_take_turns_on_the_same_completions():
    import random

    rng = random.Random(0)
    rounds = [
        {"integers": integer_cases(16, rng), "mix": expression_cases(PAIRS[at : at + 3], rng)}
        for at in (0, 3)
    ]
    graders = [SINGLE, "ours, 2 workers", BASELINE]
    said = []
    results = bench_grader.measure_rounds(graders, rounds, said.append)
    assert said == [f"round {at} of 2: {name}" for at in (1, 2) for name in ("integers", "mix")]
    for name, num_turns in (("integers", 5), ("mix", 1)):
        labels = [case.is_right for sets in rounds for case in sets[name]]
        for grader, measured in results[name].items():
            assert len(measured) == 2 * num_turns
            assert [label for one in measured for label in one.labels] == labels
            assert all(len(m.found) == len(m.seconds) == len(m.labels) for m in measured)
            assert {m.is_single for m in measured} == {grader != "ours, 2 workers"}
            found = [right for one in measured for right in one.found]
            assert found == labels or name == "mix", (name, grader)
    bench_report.show(
        dict.fromkeys(("integers", "expressions", "mix"), results["mix"]),
        bench_grader.measure_limits(num=1),
    )


def test_a_grader_that_hangs_is_killed_and_goes_on(monkeypatch):
    monkeypatch.setattr(bench_grader, "GUARD_SECONDS", 3.0)
    child = bench_grader.Child(BASELINE)
    cases = [
        Case(r"<think>a</think> The answer is $\boxed{(1+\frac{1}{123})^{1230000}}$", "4", False),
        Case(r"<think>a</think> The answer is $\boxed{4}$", "4", True),
    ]
    try:
        measured = child.measure(cases)
    finally:
        child.stop()
    assert measured.found == [None, True]
    assert measured.seconds[0] == 3.0
