"""The study's figures from answers written by hand."""

import math

from benchmarks.study import ARMS, Answers, compute, explain


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
    runs = {"own": [one(1.0, 0.5, 1.0, 1.0), one(0.5, 0.5, 1.0, 1.0)]}
    runs |= {arm: [start, start] for arm in ("random", "format", "sft")}
    figures = compute(start, runs)
    assert figures["SFT"]["test"] == [31.25] and figures["SFT"]["test, greedy"] == [25.0]
    assert figures["SFT"]["never"] == [0.0]
    assert figures["SFT, best of n"]["test"] == [50.0]
    assert figures["SFT, majority of n"]["test"] == [37.5]
    assert figures[ARMS["own"]]["test"] == [87.5, 75.0]
    assert figures[ARMS["own"]]["never"] == [75.0, 50.0]  # of a and b
    text = explain(figures)
    assert "from 31.2 to 81.2" in text and text.count("50.0 [") == 3  # 87.5 and 75, less 31.25


def test_a_start_that_solves_everything_has_no_never():
    whole = {"test": answers({"a": 1.0}), "chain_sum": answers({"x": 1.0})}
    figures = compute(whole, {arm: [whole] for arm in ARMS})
    assert math.isnan(figures["SFT"]["never"][0])
