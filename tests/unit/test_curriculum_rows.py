"""What a curriculum starts from: pass-rate files, which rows are alike, and the recipe's keys."""

import json

import numpy as np
import pytest

from data_prep.config import UserError
from data_prep.sampling.pass_rates import load_pass_counts
from stages.settings.curriculum_arguments import ADVANTAGES, MODES, CurriculumArguments
from stages.trainer import curriculum as module
from stages.trainer.curriculum import (
    Curriculum,
    build_curriculum,
    find_peers,
    keep_by_pass_rate,
)

ROWS = [{"id": name} for name in "abcdefg"]
COUNTS = {  # g was not measured
    "a": (0, 4), "b": (1, 4), "c": (3, 8), "d": (2, 4), "e": (3, 4), "f": (4, 4),
}  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "kept"),
    [
        (0.25, 0.5, "bcd"),  # both ends belong to the band
        (0.26, 0.49, "c"),
        (0.0, 1.0, "abcdef"),
        (0.0, 0.0, "a"),
        (1.0, 1.0, "f"),
        (0.8, 0.9, ""),
    ],
)
def test_keep_by_pass_rate(low, high, kept):
    assert keep_by_pass_rate(ROWS, COUNTS, low, high) == [{"id": name} for name in kept]


def write_counts(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_load_pass_counts(tmp_path):
    rows = [{"id": "a", "num_right": 1, "num_samples": 4}]
    rows += [{"id": "b", "num_right": 3, "num_samples": 3}]
    rows += [{"id": "c", "num_right": 0, "num_samples": 1}]
    path = write_counts(tmp_path / "pass_rates.jsonl", *rows)
    assert load_pass_counts(path) == {"a": (1, 4), "b": (3, 3), "c": (0, 1)}


@pytest.mark.parametrize(
    "row",
    [
        {"num_right": 1, "num_samples": 4},
        {"id": "a", "num_samples": 4},
        {"id": "a", "num_right": 1},
        {"id": "a", "num_right": 0, "num_samples": 0},
        {"id": "a", "num_right": 5, "num_samples": 4},
        {"id": "a", "num_right": -1, "num_samples": 4},
        {"id": "a", "num_right": "one", "num_samples": 4},
        {"id": "a", "num_right": "1", "num_samples": 4},
        {"id": "a", "num_right": 1.5, "num_samples": 4},
        {"id": "a", "num_right": True, "num_samples": 4},
        {"id": "a", "num_right": None, "num_samples": 4},
        {"id": ["a"], "num_right": 1, "num_samples": 4},
    ],
)
def test_malformed_rows_are_named_by_line(tmp_path, row):
    good = {"id": "z", "num_right": 1, "num_samples": 4}
    path = write_counts(tmp_path / "pass_rates.jsonl", good, row)
    with pytest.raises(UserError, match=r"pass_rates\.jsonl:2: needs id, num_right"):
        load_pass_counts(path)


def test_a_file_cut_short_is_named_by_line(tmp_path):
    path = tmp_path / "pass_rates.jsonl"
    path.write_text('{"id": "a", "num_right": 1, "num_samples": 4}\n{"id": "b", "num_')
    with pytest.raises(UserError, match=r"pass_rates\.jsonl:2: truncated"):
        load_pass_counts(str(path))


def row(length, **keys):
    """A row whose question has so many characters."""
    system = {"role": "system", "content": "x" * 7 * (length % 5)}
    return {"prompt": [system, {"role": "user", "content": "x" * length}]} | keys


def test_peers_by_level():
    rows = [row(1, source="a", level=2), row(9, source="a", level=2), row(1, source="b", level=2)]
    rows += [row(1, source="a", level=0), row(1, source="a", level="hard")]
    peers = [("a", "level 2"), ("a", "level 2"), ("b", "level 2")]
    assert find_peers(rows) == [*peers, ("a", "level 0"), ("a", "level hard")]


def test_peers_by_length():
    """80 lengths of one source in eight equal parts; those of another are cut on their own."""
    lengths = [(37 * i) % 80 + 1 for i in range(80)]
    rows = [row(n, source="a") for n in lengths] + [row(100 * n, source="b") for n in lengths]
    peers = find_peers(rows)
    expected = [(n - 1) // 10 + 1 for n in lengths]
    assert peers[:80] == [("a", f"length {part} of 8") for part in expected]
    assert peers[80:] == [("b", f"length {part} of 8") for part in expected]


def test_peers_of_rows_that_are_all_as_long_or_come_from_nowhere():
    assert len({*find_peers([row(5, source="a")] * 20)}) == 1
    ((source, part),) = {*find_peers([row(5)])}
    assert source == "" and part.startswith("length ")


def test_peers_of_a_source_with_some_levels():
    rows = [row(n, source="a") if n % 2 else row(99, source="a", level=0) for n in range(1, 17)]
    peers = find_peers(rows)
    assert {*peers[1::2]} == {("a", "level 0")}
    assert peers[::2] == [("a", f"length {part} of 8") for part in range(1, 9)]


def build(peers):
    return Curriculum(peers, num_generations=8, seed=0)


def test_offline_pass_rates_give_levels_and_spread():
    rng, levels = np.random.default_rng(4), np.repeat([-2.0, 0.0, 3.0], 300)
    rates = 1 / (1 + np.exp(-levels - rng.normal(0, 1, 900)))
    measured = rng.permutation(900)[:800]
    counts = {int(i): (int(rng.binomial(8, rates[i])), 8) for i in measured}
    curriculum = build([*levels.tolist(), "unseen"])
    curriculum.learn_prior(counts)
    state = curriculum.state_dict()
    assert state["level"][0] == pytest.approx([-2.0, 0.0, 3.0, 0.0], abs=0.25)
    spread = np.divide(*state["spread"])  # the prior's 2.25 still counts
    assert all(0.8 < value < 1.4 for value in spread[:3]) and spread[3] == 1.5**2
    assert max(state["level"][1][:3]) < 0.02 and state["level"][1][3] == 1.5**2
    found = np.array(curriculum.pass_rates(range(900)))
    unmeasured = np.setdiff1d(range(900), measured)
    doubts = np.array(state["offset"])[1, unmeasured]
    assert doubts == pytest.approx(spread[np.repeat([0, 1, 2], 300)[unmeasured]])
    for level in (-2.0, 0.0, 3.0):  # where nothing is known of a problem, its peers tell
        others = found[unmeasured[levels[unmeasured] == level]]
        assert np.ptp(others) < 1e-9
        assert others[0] == pytest.approx(rates[levels == level].mean(), abs=0.05)
    assert np.abs(found - rates)[measured].mean() < 0.11
    # The order of a file's rows is no matter.
    other = build([*levels.tolist(), "unseen"])
    other.learn_prior(dict(sorted(counts.items())))
    assert other.pass_rates(range(901)) == pytest.approx([*found, 0.5], abs=1e-9)
    assert other.choose(100) == curriculum.choose(100)


@pytest.mark.parametrize("right", [0, 2, 4])
def test_a_problem_alone_is_learned_offline_as_from_a_group(right):
    offline, online = build(["a"]), build(["a"])
    offline.learn_prior({0: (right, 4)})
    online.update([0], [right], 4)
    assert offline.pass_rates([0]) == pytest.approx(online.pass_rates([0]), abs=0.03)


def test_no_offline_pass_rates_change_nothing():
    curriculum = build(["a"] * 3)
    before = curriculum.state_dict()
    curriculum.learn_prior({})
    assert curriculum.state_dict() == before


POOL = [row(n, id=f"p{n}", source="a", level=1) for n in range(6)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_a_curriculum_is_built_where_pass_rates_are_followed(tmp_path, mode, advantage):
    counts = {"id": "p0", "num_right": 1, "num_samples": 4}
    file = write_counts(tmp_path / "pass_rates.jsonl", counts) if mode == "offline" else None
    args = CurriculumArguments(curriculum=mode, advantage=advantage, pass_rates=file)
    found = build_curriculum(POOL, args, 8, 0)
    is_followed = advantage == "posterior" or "refill" in mode or "predictive" in mode
    assert (found is not None) == is_followed == args.follows_pass_rates()
    if is_followed:
        assert found.is_predictive == ("predictive" in mode)
        assert sorted(found.choose(6)) == list(range(6))


def test_the_recipes_keys_reach_the_curriculum(monkeypatch):
    found = []
    monkeypatch.setattr(
        module, "Curriculum", lambda *a, **k: found.append((a, k)) or Curriculum(*a, **k)
    )
    args = CurriculumArguments(
        curriculum="predictive", explore_share=0.2, rest_batches=5, half_life=7.0
    )
    build_curriculum(POOL, args, 4, 9)
    keys = {"is_predictive": True, "explore_share": 0.2, "rest": 5, "half_life": 7.0}
    assert found == [(([("a", "level 1")] * 6, 4, 9), keys)]


def test_a_curriculum_starts_from_offline_pass_rates(tmp_path):
    rows = [{"id": "p4", "num_right": 8, "num_samples": 8}]
    rows += [{"id": "elsewhere", "num_right": 8, "num_samples": 8}]
    rows += [{"id": "p1", "num_right": 0, "num_samples": 8}]
    path = write_counts(tmp_path / "pass_rates.jsonl", *rows)
    args = CurriculumArguments(curriculum="predictive", pass_rates=path)
    rates = build_curriculum(POOL, args, 8, 0).pass_rates(range(6))
    assert rates[1] < 0.2 and rates[4] > 0.8
    assert [rates[i] for i in (0, 2, 3, 5)] == pytest.approx([0.5] * 4, abs=1e-3)


def test_ids_that_are_not_unique_are_refused():
    args = CurriculumArguments(curriculum="predictive")
    with pytest.raises(UserError, match="train_file: two rows have the same id"):
        build_curriculum([*POOL, POOL[0]], args, 8, 0)


def test_pass_rates_of_other_problems_are_refused(tmp_path):
    file = write_counts(
        tmp_path / "pass_rates.jsonl", {"id": "x", "num_right": 1, "num_samples": 4}
    )
    args = CurriculumArguments(curriculum="predictive", pass_rates=file)
    with pytest.raises(UserError, match="has none of the ids of train_file"):
        build_curriculum(POOL, args, 8, 0)
