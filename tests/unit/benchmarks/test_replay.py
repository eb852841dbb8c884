"""Logs of completions, read as TRL writes them, and what is predicted from them."""

import sys

import numpy as np
import pandas as pd
import pytest

from benchmarks import replay
from benchmarks.replay import Log, Pool, ReplayArguments, check_halves, predict, read_log
from pipeline.errors import UserError


def rows(step, rights, size=4, **columns):
    """A generation's table: problem n has `rights[n]` right completions, which are short."""
    num = [n for n in range(len(rights)) for _ in range(size)]
    right = [float(k < rights[n]) for n in range(len(rights)) for k in range(size)]
    table = {"step": [step] * len(num), "prompt": [f"problem {n}" for n in num]}
    table["completion"] = [f"{step}{'ab' if r else 'abcd'}" for r in right]
    return table | {"accuracy": right, "advantage": [0.0] * len(num)} | columns


@pytest.fixture
def log(tmp_path):
    """Write tables as files, in this order, and read them."""

    def call(*tables, **keys):
        paths = []
        for n, table in enumerate(tables):
            paths.append(str(tmp_path / f"completions_{n:05d}.parquet"))
            pd.DataFrame(table).to_parquet(paths[-1])
        return read_log(ReplayArguments(paths, **keys))

    return call


FOUR = [rows(step, [0, step - 1, 4]) for step in (1, 2, 3, 4)]


def test_groups_are_read_in_the_order_of_their_steps(log):
    found = log(*FOUR[::-1])
    assert found.size == 4 and found.right.tolist() == [0, 0, 4, 0, 1, 4, 0, 2, 4, 0, 3, 4]
    assert found.problem.tolist() == [0, 1, 2] * 4
    assert found.batch.tolist() == sorted([0, 1, 2, 3] * 3)
    assert found.has_no_variance().tolist() == [True, True, True] + [True, False, True] * 3
    assert found.costs == (5, 3)


def test_what_other_runs_log(log):
    # Optimizer steps that share a generation, a missing verdict, a problem drawn twice in a row.
    later = [table | {"step": [table["step"][0] + 1] * 12} for table in FOUR[1:]]
    again = FOUR[0] | {"step": [2] * 12}
    assert log(FOUR[0], again, *later).batch.tolist() == log(*FOUR).batch.tolist()
    unknown = FOUR[0] | {"accuracy": [None, *FOUR[0]["accuracy"][1:]]}
    assert log(unknown, *FOUR[1:]).right.tolist() == log(*FOUR).right.tolist()[1:]
    twice = rows(1, [1, 2]) | {"prompt": ["same"] * 8}
    assert log(twice, *FOUR[1:]).right.tolist()[:2] == [1, 2]


@pytest.mark.parametrize(
    ("tables", "keys", "words"),
    [
        (FOUR[:3], {}, "3 generations; at least 4"),
        ([rows(1, [1]) | {"step": [2] * 4}, *FOUR], {}, "step 2 is in another file"),
        ([{"step": [1], "prompt": ["a"]}], {}, "no column 'completion'"),
        ([t | {"length": [1] * 12} for t in FOUR], {}, r"--reward: name .*\(accuracy, length\)"),
        (FOUR, {"reward": "right"}, r"--reward: name .*\(accuracy\)"),
        ([rows(n, [0, 1, 0], 1) for n in range(4)], {}, "no groups of several"),
        ([rows(n, [0, 4, 4]) for n in range(4)], {}, "no group is informative"),
    ],
)
def test_a_log_that_says_nothing_is_refused(log, tables, keys, words):
    with pytest.raises(UserError, match=words):
        log(*tables, **keys)


def test_files_that_are_none(tmp_path, monkeypatch):
    (tmp_path / "text.parquet").write_text("no table")
    for name in ("text", "absent"):
        with pytest.raises(UserError, match="not a Parquet file"):
            read_log(ReplayArguments([str(tmp_path / f"{name}.parquet")]))
    monkeypatch.setattr(sys, "argv", ["replay"])
    with pytest.raises(UserError, match="no files"):
        replay.main()


def world(slope, seed=0):
    """A log of 60 batches of 16 groups of 8; a third of 2,000 problems can be learned from."""
    random = np.random.default_rng(seed)
    ability = np.repeat([-6.0, 0.0, 6.0], [700, 600, 700]) + random.normal(0, 1, 2_000)
    batch = np.repeat(np.arange(60), 16)
    drawn = random.permutation(2_000)[: len(batch)]
    right = random.binomial(8, 1 / (1 + np.exp(-ability[drawn] - slope * batch)))
    return Log(np.arange(len(batch)), batch, right, 8, (20.0, 10.0))


@pytest.mark.parametrize("slope", [0.0, 0.06])
def test_what_was_not_seen_is_predicted(slope):
    log = world(slope)
    predicted, seen, margin = check_halves(log)
    assert abs(predicted - seen) < 0.05 < margin < 0.07
    assert Pool(log, 960).slope == pytest.approx(slope, abs=0.02)


def test_every_mode_is_held_against_uniform_sampling():
    log = world(0.0)
    found = predict(log, 2_000, 1)
    assert found["off"]["no_variance"] == pytest.approx(log.has_no_variance().mean(), abs=0.05)
    assert found["predictive"]["no_variance"] < found["off"]["no_variance"] - 0.04
    assert found["offline"]["no_variance"] < 0.2  # its filter has seen each problem
    # A mode without an informative group promises nothing.
    (_, none) = replay.render(
        {"off": found["off"], "x": {"no_variance": 1.0, "cost": np.inf}}, "tokens"
    )
    assert none["saved"] == "none" and none["zero-variance groups"] == "100.0%"
