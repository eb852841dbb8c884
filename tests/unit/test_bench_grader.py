"""The benchmark's statistics by hand, its completions, and its page from made-up figures."""

import random

import pytest

from benchmarks import bench_completions, bench_grader, bench_report
from benchmarks.bench_report import BASELINE, SINGLE, Limit, Measured
from data_prep.config import UserError
from data_prep.grading.answers import extract, is_parseable, is_well_formed


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([3, 1, 2], 0.5, 2),
        ([1, 2, 3, 4], 0.5, 2),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 51)), 0.99, 50),
        ([5], 0.99, 5),
        ([1, 2], 0.0, 1),
    ],
)
def test_percentile_is_the_nearest_rank(values, share, expected):
    assert bench_report.percentile(values, share) == expected


def test_the_ratio_is_of_sums_and_its_interval_covers_the_rounds():
    assert bench_report.ratio_interval([6, 9, 3], [2, 3, 1]) == (3, 3, 3)  # the same each round
    mean, low, high = bench_report.ratio_interval([2, 4], [1, 1])
    # Two rounds drawn from two: 2 and 4 with chance 1/4 each.
    assert (mean, low, high) == (3, 2, 4)
    mean, low, high = bench_report.ratio_interval([10] * 5, [1, 1, 1, 1, 96])
    assert mean == pytest.approx(0.5) and low < mean < high <= 10


def single(*seconds, found=True):
    return Measured(
        True, sum(seconds), list(seconds), [found] * len(seconds), [True] * len(seconds)
    )


def test_speed_is_compared_on_the_completions_that_both_had():
    ours, theirs = single(1.0, 1.0, 100.0), single(4.0, 6.0)
    assert bench_report.speed_ratio([ours, ours], [theirs, theirs]) == (5, 5, 5)
    batch = Measured(False, 3.0, [1.0, 1.0, 2.5], [True] * 3, [True] * 3)  # two at a time
    assert bench_report.speed_ratio([batch, batch], [theirs, theirs]) == (5, 5, 5)


def test_half_and_half_weighs_both_sets_alike():
    (mixed,) = bench_report.half_and_half([single(1.0, 3.0)], [single(10.0)])
    assert bench_report.cost(mixed, 2) == 6.0


def made_up(baseline_seconds):
    sets = ("integers", "expressions", "hostile", "mix")
    found = {
        SINGLE: [single(0.001, 0.002)] * 2,
        BASELINE: [single(baseline_seconds, found=None)] * 2,
    }
    return dict.fromkeys(sets, found)


def test_targets_are_met_or_not():
    met = bench_report.targets(made_up(0.01), [Limit("a", "timeout", 2.1)])
    assert all(is_met for *_, is_met in met) and len(met) == 8
    missed = bench_report.targets(made_up(0.001), [Limit("a", "timeout", 2.5)])
    assert [is_met for *_, is_met in missed] == [False] * 3 + [True] * 4 + [False]
    # A call that ended by itself does not show what the limit does.
    assert not bench_report.targets(made_up(0.01), [Limit("a", "ok", 0.1)])[-1][-1]


def test_the_page_holds_every_set_grader_and_target():
    page = bench_report.render_page(
        made_up(0.01), [Limit("grade: x", "timeout", 2.1)], "python -m x", "a list", 12.3
    )
    assert page.count(f"| {SINGLE} | 4 | 667 | 1 | 2 | 2 | 100.0 | 0 | 10 (10 to 10) |") == 4
    assert page.count(f"| {BASELINE} | 2 | 100 | 10 | 10 | 10 | 0.0 | 2 | 1 |") == 4
    assert "| 10 times as fast as math-verify: integers | 10 (10 to 10) | met |" in page
    assert "| `grade: x` | timeout | 2.100 |" in page
    assert "`python -m x`" in page and "gold of\n  a list" in page


def test_completions_are_new_in_every_round_and_say_what_they_are_to_say():
    rounds = [bench_completions.make_round(at, 3, bench_completions.PAIRS, 40) for at in range(3)]
    cases = [case for sets in rounds for cases in sets.values() for case in cases]
    assert len({case.completion for case in cases}) == len(cases)
    assert all(is_well_formed(case.completion) and is_parseable(case.gold) for case in cases)
    for sets in rounds:
        assert len(sets["integers"]) == 160 and len(sets["expressions"]) <= 40
        assert len(sets["hostile"]) == len(bench_completions.HOSTILE)
        assert len(sets["mix"]) % bench_completions.MIX_BLOCK == 0
        assert {case.is_right for case in sets["expressions"]} == {True, False}
    golds = [{case.gold for case in sets["expressions"]} for sets in rounds]
    assert not golds[0] & golds[1] and not golds[1] & golds[2] and not golds[0] & golds[2]


def test_over_five_rounds_a_baseline_meets_every_hostile_kind(monkeypatch):
    kinds = range(len(bench_completions.HOSTILE))
    monkeypatch.setattr(
        bench_completions, "HOSTILE", [lambda k, at=at: f"kind {at}." for at in kinds]
    )
    met = []
    for at in range(5):
        sets = bench_completions.make_round(at, 5, bench_completions.PAIRS, 240)
        for name, num in bench_grader.NUM_FOR_BASELINES.items():
            met += [case.completion for case in sets[name][:num] if "kind " in case.completion]
    assert sorted(int(text.split("kind ")[1].split(".")[0]) for text in met) == list(kinds)


@pytest.mark.parametrize(
    "gold", ["7", "17", r"\frac{14}{3}", r"2\sqrt{3}", "(6,31,-1)", r"\text{(C)}", r"\text{Evelyn}"]
)
def test_wrong_answers_differ_from_the_gold(gold):
    for seed in range(50):
        assert bench_completions.make_wrong(gold, random.Random(seed)) != gold


def test_a_completion_boxes_its_answer_once():
    for seed in range(20):
        completion = bench_completions.write_completion("x+1", random.Random(seed))
        assert extract(completion).prediction == "x+1"
        assert 500 < len(completion) < 5_000


@pytest.mark.parametrize(
    "arguments", [["--rounds", "1"], ["--rows", "3"], ["--frob"], ["--rounds", "many"]]
)
def test_a_wrong_command_line(arguments):
    with pytest.raises(UserError, match="command line"):
        bench_grader.main(arguments)
