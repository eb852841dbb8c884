"""The study's figures from answers written by hand."""

import json
import math
from pathlib import Path

import pytest

from benchmarks import study, study_page, study_record
from benchmarks.study_page import ARMS, compute, explain, gain, gains
from benchmarks.study_record import Answers, Record
from pipeline.errors import UserError


def answers(sampled, majority=None):
    """Answers whose greedy completion is correct where over half of the samples are."""
    greedy = {key: float(share > 0.5) for key, share in sampled.items()}
    return Answers(greedy, sampled, majority or greedy, dict.fromkeys(sampled, 1), 10.0)


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


def record(settings, *shares, seconds=10.0, steps=2):
    """A record with a share of correct samples for each problem of its test set."""
    found = {"test": answers({("svamp", str(at)): share for at, share in enumerate(shares)})}
    example = {"question": "1 + 1?", "gold": "2", "score": 1.0, "completion": "2"}
    return Record(
        settings, found, steps, seconds, [[0, 0.1], [2, 0.5]], {"step_time": [[1, 2.0]]},
        [example], {"commit": "abc", "machine": "2 CPU cores"},
    )  # fmt: skip


@pytest.fixture
def tiny_study(tmp_path):
    """A study of two seeds, one with controls, whose records are in a folder of their own."""
    args = study.StudyArguments(
        grpo_config=str(tmp_path / "grpo.yaml"), recipe_run=str(tmp_path / "run"), seeds=[0, 1],
        control_seeds=[1], own_starts=True, records=str(tmp_path / "records"),
    )  # fmt: skip
    return study.Study(args)


def all_runs(args):
    runs = [(arm, seed) for arm in ARMS for seed in args.seeds_of(arm)]
    return [("start", seed) for seed in args.seeds] + runs


def test_a_record_comes_back_as_it_was(tmp_path):
    written = record("s", 0.0, 0.5, seconds=None)
    study_record.write(tmp_path / "a/own-0.json", written)
    assert study_record.read(tmp_path / "a/own-0.json") == written
    assert study_record.read(tmp_path / "a/own-1.json") is None
    (tmp_path / "a/own-0.json").write_text('{"settings": 1}')
    with pytest.raises(UserError, match=r"own-0\.json: is damaged"):
        study_record.read(tmp_path / "a/own-0.json")


def test_recorded_runs_are_not_made_again_where_their_models_are_gone(tiny_study, tmp_path):
    for arm, seed in all_runs(tiny_study.args):
        shares = (0.0, 0.5) if arm == "start" else (1.0, 0.5)
        path = tiny_study.record_file(arm, seed)
        study_record.write(path, record(tiny_study.settings, *shares))
    tiny_study.runner.run = None  # nothing may be started
    tiny_study.do_all()
    starts = tiny_study.records("start")
    arms = {arm: tiny_study.records(arm) for arm in ARMS}
    page = tmp_path / "page.md"
    study_page.write(page, study_page.About("tiny", 2, True, 1), starts, arms)
    text, found = page.read_text(), json.loads(page.with_suffix(".json").read_text())
    assert found["figures"]["GRPO"]["test"] == [75.0, 75.0]
    assert found["gains"]["GRPO - SFT, seed 0"]["test"][0] == 50.0
    assert found["figures"]["SFT continued"]["seconds"] == [10.0]
    assert "Seeds of both: 1." in text and "commit abc on 2 CPU cores: SFT 0, SFT 1" in text
    del arms["random"], arms["format"], arms["sft"]
    study_page.write(page, study_page.About("tiny", 2, True, 1), starts, arms)
    assert "control" not in page.read_text()


def test_runs_of_a_seed_begin_with_the_same_weights_and_settings(tiny_study, monkeypatch, capsys):
    started = []
    monkeypatch.setattr(study.Study, "do", lambda _, arm, seed: started.append((arm, seed)))
    for arm, seed in all_runs(tiny_study.args):
        path = tiny_study.record_file(arm, seed)
        settings = "others" if (arm, seed) == ("sft", 1) else tiny_study.settings
        study_record.write(path, record(settings, 0.5))
    tiny_study.do_all()  # SFT continued is missing, and what it starts from is gone
    assert started == [("start", 1), *((arm, 1) for arm in ARMS)]
    assert "seed 1 started from is gone" in capsys.readouterr().out
    assert not tiny_study.record("own", 1) and tiny_study.record("own", 0)


def test_a_record_is_of_its_data_and_keys(tiny_study):
    args = tiny_study.args
    study_record.write(tiny_study.record_file("own", 0), record(tiny_study.settings, 0.5))
    assert study.Study(args).record("own", 0)
    args.num_samples += 1
    assert not study.Study(args).record("own", 0)
    args.num_samples -= 1
    rows = Path(args.recipe_run, "data/test.jsonl")
    rows.parent.mkdir(parents=True)
    rows.write_text("{}\n")
    assert not study.Study(args).record("own", 0)


def test_sft_continued_takes_the_seconds_of_grpo_of_its_seed(tiny_study):
    def keep(arm, seed, **made):
        path = tiny_study.record_file(arm, seed)
        study_record.write(path, record(tiny_study.settings, 0.5, **made))

    keep("start", 1, seconds=8.0, steps=4)
    keep("own", 1, seconds=None)
    with pytest.raises(UserError, match=r"own-1.json: .* was resumed"):
        tiny_study.sft_steps(1)
    keep("own", 0, seconds=30.0)  # another seed says how long it takes
    assert tiny_study.sft_steps(1) == 15
    keep("own", 1, seconds=20.0)
    assert tiny_study.sft_steps(1) == 10


def test_wrong_numbers_and_seeds_are_refused():
    def refuse(match, **keys):
        with pytest.raises(UserError, match=match):
            study.StudyArguments(grpo_config="g", recipe_run="r", **keys)

    refuse("jobs: 0", jobs=0)
    refuse("num_samples: 0", num_samples=0)
    refuse("seeds: .* twice", seeds=[1, 1])
