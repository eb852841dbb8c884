"""The benchmark of time to the same accuracy: what it runs, keeps and shows; no run is started."""

import json
import math
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks import time_page
from benchmarks.time_to_accuracy import ARMS, PAIR, PARTS, Benchmark, Run, TimeArguments
from benchmarks.training_run import RunArguments
from pipeline.errors import UserError
from pipeline.lock import claim
from pipeline.settings import read_settings
from pipeline.side_by_side import Runner
from stages.arguments import GrpoArguments

RECIPE = "configs/smollm2-135m/grpo.yaml"
BEST = 2e-4  # learning rate of the made-up runs
START = 0.05
TRAIN = Benchmark.train


def result_of(run):
    """A run of four steps whose accuracy rises to 0.4; stock's take 10 s, others 2 s.

    It is tested at half of its steps and at the end.
    """
    seconds = 10.0 if run.arm == "stock" else 2.0
    final = 0.4 - 0.1 * (run.rate != BEST)
    costs = [{"tokens": 100 * n, "seconds": seconds * n} for n in range(5)]
    halves = {"zero_std": 0.5, "groups": [0.0, 8.0, 3.0]}
    steps = [cost | halves | {"generating": cost["seconds"] / 2} for cost in costs[1:]]
    tests = [
        costs[2] | {"accuracy": final / 2, "samples": 1},
        costs[4] | {"accuracy": final, "samples": 4},
    ]
    if run.purpose == "start":
        steps, final = [], START
        tests = [costs[0] | {"accuracy": START, "samples": 4}]
    is_tested = run.purpose != "part"
    return {
        "mode": run.arm, "seed": run.seed, "steps": steps, "tests": tests if is_tested else [],
        "scoring": {"tokens": 50, "seconds": 5.0} if "offline" in run.arm else
        {"tokens": 0, "seconds": 0.0},
        "seconds_before": 0.0, "problems": 9, "groups_per_step": 3, "num_generations": 8,
        "final": {f"p{n}": final for n in range(20)} if is_tested else {}, "commit": "abc",
    }  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A recipe's run with data and a model, and a benchmark of it whose runs are made up."""
    recipe_run = tmp_path / "run"
    for name in ("grpo_train", "validation", "test"):
        path = recipe_run / f"data/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    (recipe_run / "sft").mkdir()
    (recipe_run / "sft/model.safetensors").write_bytes(b"weights")
    done = []

    def train(self, run, runner):
        done.append(run)
        return result_of(run)

    monkeypatch.setattr(Benchmark, "train", train)

    def make(**keys):
        keys = {
            "grpo_config": RECIPE, "recipe_run": str(recipe_run), "out": str(tmp_path / "page.md"),
            "seeds": [1, 2], "tuning_seeds": [8, 9], "part_seeds": [5],
            "learning_rates": [1e-4, BEST, 4e-4],
        } | keys  # fmt: skip
        return Benchmark(TimeArguments(**keys))

    return make, done, recipe_run


def finish(bench, num=None):
    """Do what is missing, or `num` runs of it."""
    for missing, _ in bench.batches():
        for run in missing:
            if num == 0:
                return
            bench.do(run, None)
            num = None if num is None else num - 1


NUM_RATES = 2 * 3 * 2  # runs: arms, learning rates, seeds


def test_each_run_is_done_once_and_a_killed_benchmark_goes_on(place):
    make, done, _ = place
    finish(make(), 7)
    assert len(done) == 7
    finish(make())
    assert len(done) == len({*done}) == NUM_RATES + 1 + 2 * len(ARMS) + len(PARTS)
    finish(make())
    assert len(done) == len({*done})
    purposes = [run.purpose for run in done]
    assert purposes == sorted(purposes, key=["rate", "start", "seed", "part"].index)
    assert {run.rate for run in done if run.purpose in ("seed", "part")} == {BEST}


def test_stock_and_ours_of_a_seed_start_together(place):
    make, done, _ = place
    finish(make())
    of_seeds = [[run.arm for run in done if run[::2] == ("seed", seed)] for seed in (1, 2)]
    assert of_seeds[0][:2] == [*PAIR] and of_seeds[1][:2] == [*PAIR][::-1]
    assert all({*arms} == {*ARMS} for arms in of_seeds)


def test_a_best_rate_at_the_edge_asks_for_more(place):
    make, done, _ = place
    finish(make(learning_rates=[4 * BEST, 8 * BEST, 16 * BEST]))
    for arm in PAIR:
        tried = {run.rate for run in done if run.purpose == "rate" and run.arm == arm}
        # All but the best are equal, the first of them is at the edge.
        assert tried == {BEST / 2, BEST, 2 * BEST, 4 * BEST, 8 * BEST, 16 * BEST}
    assert {run.rate for run in done if run.purpose == "seed"} == {BEST}


def test_a_single_rate_is_taken(place):
    make, done, _ = place
    finish(make(learning_rates=[1e-4]))
    assert {run.rate for run in done if run.purpose == "rate"} == {1e-4}


def test_on_another_machine_an_unfinished_seed_starts_afresh(place):
    """Its SFT model is another there; what was finished stays."""
    make, done, recipe_run = place
    finish(make(), NUM_RATES + 1 + len(ARMS) + 1)  # the first seed, and one run of the second
    assert done[-1].seed == 2
    (recipe_run / "sft/model.safetensors").write_bytes(b"weights of another machine")
    before = len(done)
    bench = make()
    finish(bench)
    again = [run for run in done[before:] if run.purpose == "seed"]
    assert {run.seed for run in again} == {2} and {run.arm for run in again} == {*ARMS}
    assert not [run for run in done[before:] if run.purpose == "rate"]
    assert [run.purpose for run in done[before:]].count("start") == 1
    unused = [line for line in bench.lines if line not in bench.used_lines()]
    assert [(line["arm"], line["seed"]) for line in unused] == [(done[before - 1].arm, 2)]
    results = bench.results("seed")
    assert len(results) == 2 * len(ARMS)
    for seed in (1, 2):
        assert len({results[arm, seed]["model"] for arm in ARMS}) == 1


def test_so_does_a_tuning_seed(place):
    """Learning rates are compared from one model."""
    make, done, recipe_run = place
    finish(make(), 4)  # stock's of the first seed, and one of ours
    (recipe_run / "sft/model.safetensors").write_bytes(b"weights of another machine")
    finish(make())
    rates = [run for run in done if run.purpose == "rate"]
    assert len(rates) == NUM_RATES + 1 and rates.count(rates[3]) == 2


def test_a_seed_counts_when_all_its_runs_are_done(place):
    make, _, _ = place
    finish(make(), NUM_RATES + 1 + len(ARMS) - 1)
    assert make().results("seed") == {}
    finish(make(), 1)
    assert {*make().results("seed")} == {(arm, 1) for arm in ARMS}


def test_runs_of_other_settings_are_refused(place):
    make, _, _ = place
    finish(make(), 1)
    with pytest.raises(UserError, match="other settings or data"):
        make(our_steps=3)


def test_a_damaged_line_is_named(place, tmp_path):
    make, _, _ = place
    finish(make(), 2)
    path = tmp_path / "page.jsonl"
    path.write_text(path.read_text()[:-20] + "\n")
    with pytest.raises(UserError, match=r"page\.jsonl: line 2 is damaged"):
        make()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tuning_seeds": [1]}, r"tuning_seeds: \[1\]"),
        ({"seeds": []}, "seeds"),
        ({"learning_rates": [1e-4, 1e-4]}, "learning_rates"),
    ],
)
def test_wrong_keys_are_refused(place, keys, message):
    make, _, _ = place
    with pytest.raises(UserError, match=message):
        make(**keys)


def test_the_page_shows_the_runs(place, tmp_path):
    make, _, _ = place
    bench = make()
    finish(bench)
    time_page.write(bench.args, bench)
    figures = json.loads((tmp_path / "page.json").read_text())
    ours = figures["beside_stock"]["ours"]
    # The same accuracy at the same tokens, in a fifth of the seconds.
    for way in ("needed", "by_means"):
        assert ours[f"seconds_{way}"][0] == pytest.approx(0.2, abs=2e-3)
        assert ours[f"tokens_{way}"][0] == pytest.approx(1.0, abs=2e-3)
    assert ours["at_tokens"][0] == pytest.approx(0.0)
    # After 8 s ours has 0.4, stock 0.05 and 8 of 20 s of the way to 0.2.
    assert ours["at_seconds"][0] == pytest.approx(0.4 - (0.05 + 0.4 * 0.15))
    counted = figures["beside_stock"]["ours, offline, cost counted"]
    assert counted["seconds_needed"][0] == pytest.approx((5 + 8) / 40)
    assert counted["tokens_needed"][0] == pytest.approx(450 / 400)
    assert {*figures["curricula"]} == {"ours", "ours, offline", "ours, offline, cost counted"}
    assert figures["curricula"]["ours"]["at_seconds"][0] == pytest.approx(0.0)
    assert figures["arms"]["stock"]["start"] == START and figures["arms"]["ours"]["end"] == 0.4
    assert figures["parts"]["stock"]["generation"] == [5.0]
    assert figures["tuned"]["ours"] == pytest.approx({"0.0001": 0.3, "0.0002": 0.4, "0.0004": 0.3})
    text = (tmp_path / "page.md").read_text()
    for arm in ARMS:
        assert f"|{arm}|" in text
    for part in [*PARTS][1:]:
        assert f"|and {part}|" in text
    assert (tmp_path / "page.png").stat().st_size > 1000


def test_where_stock_gains_nothing_there_is_no_ratio(place):
    make, _, _ = place
    bench = make()
    finish(bench)
    pairs = time_page.pairs_of(bench.results("seed"), "ours", "stock")
    assert time_page.needed(pairs, "seconds")[0] == pytest.approx(0.2)
    for test in pairs[0][1]["tests"]:
        test["accuracy"] = START
    assert time_page.needed(pairs, "seconds")[0] == math.inf


def test_a_line_has_what_tells_runs_apart(place, tmp_path):
    make, _, _ = place
    bench = make()
    bench.do(Run("seed", "ours", 1, BEST), None)
    (text,) = (tmp_path / "page.jsonl").read_text().splitlines()
    line = json.loads(text)
    assert line["arm"] == "ours" and line["seed"] == 1 and line["model"] == bench.model
    assert line["settings"] == bench.settings and "CPU cores" in line["about"]["machine"]


class Commands:
    """A runner that starts nothing: it keeps the settings of each run, and makes up its result."""

    def __init__(self):
        self.settings = []

    def run(self, words, output):
        found = read_settings(RunArguments, ("GRPOConfig", "ModelConfig"), words[3:])
        self.settings.append(found)
        Path(found.output_dir, "result.json").write_text("{}")
        return 0


def settings_of(bench, runs):
    """What each run would be started with."""
    commands = Commands()
    for run in runs:
        TRAIN(bench, run, commands)
    return dict(zip((run.arm for run in runs), commands.settings, strict=True))


def test_arms_differ_in_what_they_say_and_in_nothing_else(place):
    make, _, _ = place
    bench = make(stock_steps=2, our_steps=3)
    arms = settings_of(bench, [Run("seed", arm, 7, BEST) for arm in ARMS])
    for settings in arms.values():
        assert settings.seed == 7 and settings.num_threads == 1
        assert settings.learning_rate == pytest.approx(BEST)
        assert settings.train_file == arms["stock"].train_file
        assert settings.test_file.endswith("test.jsonl") and settings.last_samples == 4
    recipe = read_settings(GrpoArguments, ("GRPOConfig", "ModelConfig"), ["--config", RECIPE])
    assert {arm: settings.curriculum for arm, settings in arms.items()} == {
        "stock": "off", "ours": recipe.curriculum,
        "ours, no curriculum": "off", "ours, offline": "offline",
    }  # fmt: skip
    assert [settings.max_steps for settings in arms.values()] == [2, 3, 3, 3]


def test_each_part_adds_to_the_one_above(place):
    make, _, _ = place
    bench = make(part_steps=2)
    parts = settings_of(bench, [Run("part", part, 7, BEST) for part in PARTS])
    # (this project's trainer, packed update, rows without advantage left out, curriculum)
    has = [
        (
            settings.mode != "stock",
            settings.mode != "stock" and settings.update_tokens is not None,
            settings.mode != "stock"
            and settings.update_tokens is not None
            and not settings.every_row_has_gradient,
            settings.curriculum != "off",
        )
        for settings in parts.values()
    ]
    assert has == [tuple(number > part for part in range(4)) for number in range(5)]
    assert {settings.max_steps for settings in parts.values()} == {2}


def test_a_run_that_fails_lets_the_one_beside_it_end(place, monkeypatch):
    make, _, _ = place
    bench, both_run = make(), threading.Barrier(2)

    def train(self, run, runner):
        both_run.wait(10)
        if run.rate == BEST:
            raise UserError("run.log: the run ended with exit code 1")
        for _ in range(1000):  # until the failure is known
            if bench.fault:
                break
            time.sleep(0.01)
        return result_of(run)

    monkeypatch.setattr(Benchmark, "train", train)
    runner = Runner(2)
    runs = [Run("rate", "ours", 8, rate) for rate in (BEST, 1e-4, 4e-4)]
    runner.run_all(bench.do, [(run, runner) for run in runs])
    assert [line["rate"] for line in bench.lines] == [1e-4]
    assert "exit code 1" in str(bench.fault)


def test_a_second_benchmark_waits_for_the_first(place, tmp_path):
    _, _, recipe_run = place
    words = [
        "--grpo_config", RECIPE, "--recipe_run", recipe_run, "--out", tmp_path / "page.md"
    ]  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.time_to_accuracy", *map(str, words)]
    claim(recipe_run / "time_to_accuracy")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "in use by process" in done.stderr
    assert not (tmp_path / "page.jsonl").exists()
