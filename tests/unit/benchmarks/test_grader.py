"""The grader's benchmark: its figures by hand, and what its completions are."""

from benchmarks import grader, grader_cases
from benchmarks.grader import BASELINE, SINGLE, Measured
from grading.compare import is_parseable
from grading.extract import is_well_formed


def single(*seconds, found=True):
    num = len(seconds)
    return Measured(True, sum(seconds), list(seconds), [found] * num, [True] * num)


def test_speed_is_compared_on_the_completions_that_both_had():
    ours, theirs = single(1.0, 1.0, 100.0), single(4.0, 6.0)
    assert grader.speed_ratio([ours, ours], [theirs, theirs]) == (5, 5, 5)
    batch = Measured(False, 3.0, [1.0, 1.0, 2.5], [True] * 3, [True] * 3)  # two at a time
    assert grader.speed_ratio([batch, batch], [theirs, theirs]) == (5, 5, 5)


def made_up(baseline_seconds):
    found = {
        SINGLE: [single(0.001, 0.002)] * 2,
        BASELINE: [single(baseline_seconds, found=None)] * 2,
    }
    return dict.fromkeys(("integers", "expressions", "hostile"), found)


def test_the_table_has_a_row_for_every_set_and_grader():
    rows = [[*row.values()] for row in grader.render(made_up(0.01))]
    assert len(rows) == 6
    assert rows[0] == [
        "integers", SINGLE, "4", "667", "1", "2", "100.0", "10 [10, 10]",
    ]  # fmt: skip
    assert rows[1] == [
        "integers", BASELINE, "2", "100", "10", "10", "0.0", "1 [1, 1]",
    ]  # fmt: skip


def test_completions_are_new_in_every_round_and_say_what_they_are_to_say():
    rounds = [grader_cases.make_round(at, 3, 40) for at in range(3)]
    cases = [case for sets in rounds for cases in sets.values() for case in cases]
    assert len({case.completion for case in cases}) == len(cases)
    assert all(is_well_formed(case.completion) and is_parseable(case.gold) for case in cases)
    for sets in rounds:
        assert len(sets["integers"]) == 160 and len(sets["expressions"]) <= 40
        assert len(sets["hostile"]) == len(grader_cases.HOSTILE)
        assert {case.is_right for case in sets["expressions"]} == {True, False}
    golds = [{case.gold for case in sets["expressions"]} for sets in rounds]
    assert not golds[0] & golds[1] and not golds[1] & golds[2] and not golds[0] & golds[2]
