"""The benchmark of time to the same accuracy: what it runs, keeps and shows; no run is started."""

import json
import math
from pathlib import Path

import pytest

from benchmarks import time_page
from benchmarks.time_to_accuracy import ARMS, PAIR, PARTS, Benchmark, TimeArguments, read
from pipeline.errors import UserError

BEST, START = 2e-4, 0.05  # learning rate of the made-up runs, accuracy of their SFT model
NUM_RATES, USED = 2 * 3 * 2, [*ARMS][:4]  # arms, learning rates, seeds


def result_of(run):
    """A run of four steps whose accuracy rises to 0.4; stock's take 10 s, others 2 s."""
    seconds = 10.0 if run.arm == "stock" else 2.0
    final = START if run.purpose == "start" else 0.4 - 0.1 * (run.rate != BEST)
    costs = [{"tokens": 100 * n, "seconds": seconds * n} for n in range(5)]
    tests = [costs[n] | {"accuracy": final * n / 4, "samples": n} for n in (2, 4)]
    if run.purpose == "start":
        tests = [costs[0] | {"accuracy": START, "samples": 4}]
    steps = {name: [cost[name] for cost in costs[1:]] for name in ("tokens", "seconds")}
    steps |= {"generating": [one / 2 for one in steps["seconds"]], "zero_std": [0.5] * 4}
    is_part, is_offline = run.purpose == "part", "offline" in run.arm
    return {
        "scoring": {"tokens": 50 * is_offline, "seconds": 5.0 * is_offline},
        "tests": [] if is_part else tests, "final": [] if is_part else [final] * 20,
        "steps": {name: [] for name in steps} if run.purpose == "start" else steps,
        "seconds_before": 0.0,
    }  # fmt: skip


class Killed(Exception):
    """The benchmark was ended from outside."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Makes a benchmark whose runs are made up; the runs that were done; the folder of its model.

    After `left` runs it is killed.
    """
    for name in ("grpo_train", "validation", "test"):
        path = tmp_path / f"run/data/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    (tmp_path / "run/sft").mkdir()
    (tmp_path / "run/sft/model.safetensors").write_bytes(b"weights")
    done = []

    def finish(left=1000, **keys):
        keys = {
            "grpo_config": "configs/smollm2-135m/grpo.yaml", "recipe_run": str(tmp_path / "run"),
            "out": str(tmp_path / "page.md"), "seeds": [1, 2], "tuning_seeds": [8, 9],
            "part_seeds": [5], "learning_rates": [1e-4, BEST, 4e-4], "jobs": 1,
        } | keys  # fmt: skip
        end = len(done) + left

        def train(self, run, runner):
            if len(done) == end:
                raise Killed
            done.append(run)
            return result_of(run)

        monkeypatch.setattr(Benchmark, "train", train)
        bench = Benchmark(TimeArguments(**keys))
        try:
            bench.do_all()
        except Killed:
            assert len(done) == end
        return bench

    return finish, done, tmp_path


def test_each_run_is_done_once_and_a_killed_benchmark_goes_on(place):
    finish, done, _ = place
    finish(7)
    finish()
    finish()
    assert len(done) == len({*done}) == NUM_RATES + 1 + 2 * len(USED) + len(PARTS)
    purposes = [run.purpose for run in done]
    assert purposes == sorted(purposes, key=["rate", "start", "seed", "part"].index)
    assert {run.rate for run in done if run.purpose in ("seed", "part")} == {BEST}
    of_seeds = [[run.arm for run in done if run[::2] == ("seed", seed)] for seed in (1, 2)]
    assert of_seeds[0][:2] == [*PAIR] and of_seeds[1][:2] == [*PAIR][::-1]


def test_on_another_machine_an_unfinished_seed_starts_afresh(place):
    """Its SFT model is another there; what was finished stays."""
    finish, done, folder = place
    finish(NUM_RATES + 1 + len(USED) + 1)  # the first seed, and one run of the second
    before = len(done)
    (folder / "run/sft/model.safetensors").write_bytes(b"weights of another machine")
    bench = finish()
    again = [run for run in done[before:] if run.purpose != "part"]
    assert [run.arm for run in again if run.seed == 2] == ["ours", "stock", *USED[2:]]
    assert [run.purpose for run in again] == ["start"] + ["seed"] * 4
    results = bench.results("seed")
    assert len(results) == 2 * len(USED)
    for seed in (1, 2):
        assert len({results[arm, seed]["model"] for arm in USED}) == 1
    (folder / "run/sft/model.safetensors").write_bytes(b"weights")  # back on the first
    finish()
    assert done[before:] == [*again, *(run for run in done[before:] if run.purpose == "part")]


def test_a_seed_counts_when_all_its_runs_are_done(place):
    finish, _, _ = place
    assert finish(NUM_RATES + len(USED)).results("seed") == {}
    assert {*finish(1).results("seed")} == {(arm, 1) for arm in USED}


def test_what_does_not_belong_together_is_refused(place):
    finish, _, folder = place
    finish(2)
    with pytest.raises(UserError, match="other settings or data"):
        finish(our_steps=3)
    path = folder / "page.jsonl"
    path.write_text(path.read_text()[:-20] + "\n")
    with pytest.raises(UserError, match=r"page\.jsonl: line 2 is damaged"):
        finish()
    with pytest.raises(UserError, match=r"tuning_seeds: \[1\]"):
        finish(tuning_seeds=[1])


def test_the_page_shows_the_runs(place):
    finish, _, folder = place
    bench = finish()
    time_page.write(bench.args, bench)
    figures = json.loads((folder / "page.json").read_text())
    ours = figures["beside_stock"]["ours"]
    for way in ("needed", "by_means"):  # the same accuracy at the same tokens, in a fifth of 40 s
        assert ours[f"seconds_{way}"][0] == pytest.approx(0.2, abs=2e-3)
        assert ours[f"tokens_{way}"][0] == pytest.approx(1.0, abs=2e-3)
    # After 8 s ours has 0.4, stock 0.05 and 8 of 20 s of the way to 0.2.
    assert ours["at_seconds"][0] == pytest.approx(0.4 - (0.05 + 0.4 * 0.15))
    counted = figures["beside_stock"]["ours, offline, cost counted"]
    assert counted["seconds_needed"][0] == pytest.approx((5 + 8) / 40)
    assert {*figures["curricula"]} == {"ours", "ours, offline", "ours, offline, cost counted"}
    assert figures["parts"]["stock"]["generation"] == [5.0]
    assert figures["tuned"]["ours"] == pytest.approx({"0.0001": 0.3, "0.0002": 0.4, "0.0004": 0.3})
    text = (folder / "page.md").read_text()
    assert all(f"|{arm}|" in text for arm in USED)
    assert (folder / "page.png").stat().st_size > 1000


def test_where_stock_gains_nothing_there_is_no_ratio(place):
    results = place[0]().results("seed")
    pairs = [(results["ours", seed], results["stock", seed]) for seed in (1, 2)]
    assert time_page.needed(pairs, "seconds")[0] == pytest.approx(0.2)
    for test in pairs[0][1]["tests"]:
        test["accuracy"] = START
    assert time_page.needed(pairs, "seconds")[0] == math.inf


def test_the_published_runs_are_read():
    assert read(Path("docs/results/time-to-accuracy.jsonl"))
