"""The study's figures from answers written by hand."""

import math

from benchmarks.study_page import ARMS, Answers, compute, explain, gain, gains


def answers(sampled, majority=None):
    """Answers whose greedy completion is correct where over half of the samples are."""
    greedy = {key: float(share > 0.5) for key, share in sampled.items()}
    return Answers(greedy, sampled, majority or greedy, {1: [*sampled.values()]}, 10.0)


def test_never_best_and_majority_are_those_of_the_sft_model():
    def one(*shares, **more):
        return {"test": answers(dict(zip("abcd", shares, strict=True)), **more)} | {
            "chain_sum": answers({"x": 0.0})
        }

    start = one(0.0, 0.0, 0.5, 0.75, majority={"a": 0.0, "b": 0.0, "c": 0.5, "d": 1.0})
    starts = {0: start, 1: start}
    runs = {"own": {0: one(1.0, 0.5, 1.0, 1.0), 1: one(0.5, 0.5, 1.0, 1.0)}}
    runs |= {arm: {1: start} for arm in ("random", "format", "sft")}
    figures = compute(starts, runs)
    assert figures["SFT"]["test"] == [31.25] and figures["SFT"]["test, greedy"] == [25.0]
    assert figures["SFT"]["never"] == [0.0]
    assert figures["SFT, best of n"]["test"] == [50.0]
    assert figures["SFT, majority of n"]["test"] == [37.5]
    assert figures[ARMS["own"]]["test"] == [87.5, 75.0]
    assert figures[ARMS["own"]]["never"] == [75.0, 50.0]  # of a and b
    found = gains(starts, runs)
    values = {label: row["test"][0] for label, row in found.items()}
    assert values["GRPO - SFT, seed 0"] == 56.25 and values["GRPO - SFT, seed 1"] == 43.75
    assert values["GRPO - SFT, all seeds"] == 50.0
    assert values["SFT continued - SFT"] == 0.0 and values["GRPO - SFT continued"] == 43.75
    text = explain(figures, found, runs)
    assert "Seeds 0 1: " in text and "from 31.2 to 81.2" in text and "gain of 50.0 [" in text
    assert "Seeds 1: " in text and "SFT continued 43.8 [" in text


def test_each_seed_has_its_own_start():
    one, other = ({"test": answers({"a": share, "b": 0.0})} for share in (0.0, 1.0))
    figures = compute({0: one, 1: other}, {"own": {0: other, 1: other}})
    assert figures["SFT"]["test"] == [0.0, 50.0]
    assert figures["GRPO"]["never"] == [50.0, 0.0]  # of a and b, then of b alone


def test_a_gain_is_of_the_problems_that_both_have_and_holds_over_them():
    before = {str(i): float(i % 2) for i in range(100)}
    after = before | {str(i): 1.0 for i in range(50)} | {"new": 1.0}
    value, low, high = gain([(before, after)])
    assert value == 25.0 and 15 < low < 20 and 30 < high < 35
    value, low, high = gain([(before, after), (after, before)])
    assert value == 0.0 and -5 < low <= 0 <= high < 5  # the mean of both is 0 for each problem


def test_a_start_that_solves_everything_has_no_never():
    whole = {"test": answers({"a": 1.0}), "chain_sum": answers({"x": 1.0})}
    figures = compute({0: whole}, {arm: {0: whole} for arm in ARMS})
    assert math.isnan(figures["SFT"]["never"][0])
