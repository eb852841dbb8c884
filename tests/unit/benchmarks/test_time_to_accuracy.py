"""The benchmark of time to the same accuracy: what it runs, keeps and shows; no run is started."""

import json
from pathlib import Path

import pytest

from benchmarks import time_page, time_to_accuracy
from benchmarks.time_to_accuracy import ARMS, PAIR, PARTS, Benchmark, Key, TimeArguments
from pipeline.errors import UserError

RECIPE = "configs/smollm2-135m/grpo.yaml"
BEST = 2e-4  # learning rate of the made-up runs


def result_of(key, num_steps=4):
    """A run whose accuracy rises to 0.4; stock's steps take 10 s, others 2 s."""
    slow = 10.0 if key.arm == "stock" else 2.0
    cost = 5.0 if "offline" in key.arm else 0.0
    final = 0.4 - 0.1 * (key.rate != BEST)
    steps = [
        {"tokens": 100 * n, "seconds": slow * n, "generating": slow * n / 2,
         "zero_std": 0.5, "groups": [0.0, 8.0, 3.0]}
        for n in range(1, num_steps + 1)
    ]  # fmt: skip
    tests = [
        {"tokens": 100 * n, "seconds": slow * n, "accuracy": final * n / num_steps}
        for n in range(num_steps + 1)
    ]
    if key.purpose == "part":
        tests, final = [], None
    return {
        "mode": key.arm, "seed": key.seed, "scoring": {"tokens": 50, "seconds": cost},
        "steps": steps, "tests": tests, "before": 0.0, "problems": 9, "groups_per_step": 3,
        "final": {} if final is None else {f"p{n}": final for n in range(20)},
        "num_generations": 8, "commit": "abc",
    }  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A recipe's run with data and a model, and a benchmark of it whose runs are made up."""
    run = tmp_path / "run"
    for name in ("grpo_train", "validation", "test"):
        path = run / f"data/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    (run / "sft").mkdir()
    (run / "sft/model.safetensors").write_bytes(b"weights")
    done = []

    def do(self, key):
        done.append(key)
        return result_of(key)

    monkeypatch.setattr(Benchmark, "run", do)

    def make(**keys):
        keys = {
            "grpo_config": RECIPE, "recipe_run": str(run), "out": str(tmp_path / "page.md"),
            "seeds": [1, 2], "tuning_seeds": [8, 9], "part_seeds": [5],
            "learning_rates": [1e-4, BEST, 4e-4],
        } | keys  # fmt: skip
        return Benchmark(TimeArguments(**keys))

    return make, done, run


def finish(bench, num=None):
    """Do what is missing, or `num` runs of it."""
    for missing in bench.batches():
        for key in missing:
            if num == 0:
                return
            bench.do(key)
            num = None if num is None else num - 1


def test_each_run_is_done_once_and_a_killed_benchmark_goes_on(place):
    make, done, _ = place
    finish(make(), 7)
    assert len(done) == 7
    finish(make())
    assert len(done) == len({*done}) == 2 * 3 * 2 + 2 * len(ARMS) + len(PARTS)
    finish(make())
    assert len(done) == len({*done})
    by_purpose = [key.purpose for key in done]
    assert by_purpose == sorted(by_purpose, key=["rate", "seed", "part"].index)
    assert {key.rate for key in done if key.purpose != "rate"} == {BEST}
    seeds = [key for key in done if key.purpose == "seed"]
    assert [key.seed for key in seeds] == [1] * len(ARMS) + [2] * len(ARMS)
    assert seeds[0].arm != seeds[len(ARMS)].arm  # no arm is always the first


def test_a_best_rate_at_the_edge_asks_for_one_more(place):
    make, done, _ = place
    finish(make(learning_rates=[BEST, 4e-4, 8e-4]))
    tried = {key.rate for key in done if key.purpose == "rate" and key.arm == "ours"}
    assert tried == {BEST / 2, BEST, 4e-4, 8e-4}
    assert {key.rate for key in done if key.purpose == "seed"} == {BEST}


def test_on_another_machine_an_unfinished_seed_starts_afresh(place):
    """Its SFT model is another there; finished seeds and the learning rates stay."""
    make, done, run = place
    finish(make(), 12 + len(ARMS) + 1)  # the first seed, and one run of the second
    assert done[-1].seed == 2
    (run / "sft/model.safetensors").write_bytes(b"weights of another machine")
    before = len(done)
    bench = make()
    finish(bench)
    again = [key for key in done[before:] if key.purpose == "seed"]
    assert {key.seed for key in again} == {2} and {key.arm for key in again} == {*ARMS}
    assert not [key for key in done[before:] if key.purpose == "rate"]
    runs = bench.results("seed")
    assert len(runs) == 2 * len(ARMS)
    for seed in (1, 2):
        assert len({runs[arm, seed]["start"] for arm in ARMS}) == 1


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


def test_a_failed_run_leaves_no_line(place, tmp_path, monkeypatch):
    make, _, _ = place
    bench = make()
    monkeypatch.setattr(Benchmark, "run", lambda self, key: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        finish(bench)
    assert not (tmp_path / "page.jsonl").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tuning_seeds": [1]}, "tuning_seeds: .*1"),
        ({"seeds": []}, "seeds"),
        ({"learning_rates": [1e-4, 1e-4]}, "learning_rates"),
        ({"stock_steps": 0}, "stock_steps: 0"),
        ({"jobs": 0}, "jobs: 0"),
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
    runs, parts = bench.results("seed"), bench.results("part")
    time_page.write(bench.args, runs, parts, bench.all_tuned(), bench.cells)
    figures = json.loads((tmp_path / "page.json").read_text())
    ours = figures["figures"]["ours"]
    # The same accuracy at the same tokens, in a fifth of the seconds.
    assert ours["seconds_ratio"][0] == pytest.approx(0.2)
    assert ours["tokens_ratio"][0] == pytest.approx(1.0)
    assert ours["at_tokens"][0] == pytest.approx(0.0)
    assert ours["at_seconds"][0] == pytest.approx(0.32)  # 0.4 beside 0.08, after 8 s
    counted = figures["figures"]["ours, offline, cost counted"]
    assert counted["seconds_ratio"][0] == pytest.approx((5 + 8) / 40)
    assert figures["parts"]["stock"]["generation"] == [5.0]
    assert figures["tuned"]["ours"] == {"0.0001": 0.3, "0.0002": 0.4, "0.0004": 0.3}
    text = (tmp_path / "page.md").read_text()
    for arm in ARMS:
        assert f"|{arm}|" in text
    for part in [*PARTS][1:]:
        assert f"|and {part}|" in text
    assert (tmp_path / "page.png").stat().st_size > 1000


def test_a_line_has_what_tells_runs_apart(place, tmp_path):
    make, _, _ = place
    bench = make()
    bench.do(Key("seed", "ours", 1, BEST))
    (line,) = (tmp_path / "page.jsonl").read_text().splitlines()
    cell = json.loads(line)
    assert cell["arm"] == "ours" and cell["seed"] == 1 and cell["start"] == bench.start
    assert cell["settings"] == bench.settings and "CPU cores" in cell["about"]["machine"]
    assert len(line) < 4000


def test_arms_change_what_they_say():
    assert ARMS["ours"] == {} and PARTS["curriculum"] == {}  # the recipe as it stands
    assert next(iter(PARTS)) == "stock" and {*PAIR} <= {*ARMS}
    keys = Path(time_to_accuracy.__file__).with_name("time_to_accuracy-smollm2-135m.yaml")
    assert keys.is_file()
