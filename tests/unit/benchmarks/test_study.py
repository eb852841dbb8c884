"""The study's figures from answers written by hand."""

import json
import math
from pathlib import Path

import pytest

from benchmarks import study, study_page, study_record
from benchmarks.study_page import ARMS, OTHER_SFT, compute, explain, gain, gains, seeds_of
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
    assert figures[ARMS["own"]]["test"] == [87.5, 75.0] and OTHER_SFT not in figures
    assert figures["GRPO, best of n"]["test"] == [100.0, 100.0]
    assert figures[ARMS["own"]]["never"] == [75.0, 50.0]  # of a and b
    found = gains(starts, runs)
    values = {label: row["test"][0] for label, row in found.items()}
    assert values["GRPO - SFT, seed 0"] == 56.25 and values["GRPO - SFT, seed 1"] == 43.75
    assert values["GRPO - SFT, all seeds"] == 50.0
    assert values["SFT continued - SFT"] == 0.0 and values["GRPO - SFT continued"] == 43.75
    text = explain(figures, found, runs)
    assert "Seeds 0 1: " in text and "from 31.2 to 81.2" in text and "gain of 50.0 [" in text
    assert "control runs (seed 1): " in text and "SFT continued 0.0 [" in text


def test_control_runs_may_have_a_seed_of_their_own():
    """Their start is none of GRPO's SFT models, and is compared with them alone."""
    one, other = ({"test": answers({"a": share, "b": 0.0})} for share in (0.0, 1.0))
    runs = {"own": {0: other}, "random": {7: one}}
    figures, found = compute({0: one, 7: other}, runs), gains({0: one, 7: other}, runs)
    assert figures["SFT"]["test"] == [0.0] and figures["GRPO, random reward"]["test"] == [0.0]
    assert figures[OTHER_SFT]["test"] == [50.0] and seeds_of(OTHER_SFT, runs) == "7"
    assert found["GRPO, random reward - SFT"]["test"][0] == -50.0
    assert "GRPO - GRPO, random reward" not in found
    assert "control runs (seed 7): GRPO, random reward -50.0 [" in explain(figures, found, runs)
    args = study.StudyArguments(
        grpo_config="a", recipe_run="b", seeds=[1, 2], control_seeds=[7], own_starts=True
    )
    seeds = {arm: args.seeds_of(arm) for arm in ("start", "own", "random", "sft")}
    assert seeds == {"start": [1, 2, 7], "own": [1, 2], "random": [7], "sft": [7]}


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


def record(settings, *shares, seconds=10.0, steps=2, base="start", weights="start"):
    """A record with a share of correct samples for each problem of its test set."""
    found = {"test": answers({("svamp", str(at)): share for at, share in enumerate(shares)})}
    example = {"question": "1 + 1?", "gold": "2", "score": 1.0, "completion": "2"}
    return Record(
        settings, base, weights, found, steps, seconds, [[0, 0.1], [2, 0.5]],
        {"step_time": [[1, 2.0]]}, [example],
        {"commit": "abc", "machine": "2 CPU cores", "versions": {"torch": "2"}},
    )  # fmt: skip


@pytest.fixture
def tiny_study(tmp_path):
    """A study of two seeds, one with controls, whose records are in a folder of their own."""
    for stage in ("sft", "grpo", "eval"):
        keys = {"train_file": "{run}/data/train.jsonl", "test_file": "{run}/data/test.jsonl"}
        (tmp_path / f"{stage}.yaml").write_text(json.dumps(keys))
    args = study.StudyArguments(
        grpo_config=str(tmp_path / "grpo.yaml"), recipe_run=str(tmp_path / "run"), seeds=[0, 1],
        control_seeds=[1], own_starts=True, records=str(tmp_path / "records"),
    )  # fmt: skip
    return study.Study(args)


def all_runs(args):
    runs = [(arm, seed) for arm in ARMS for seed in args.seeds_of(arm)]
    return [("start", seed) for seed in args.seeds] + runs


def keep_all(one, **changes):
    """Write the record of each run; `changes`: keys of a run's record, by `<arm>_<seed>`."""
    for arm, seed in all_runs(one.args):
        keys = changes.get(f"{arm}_{seed}", {})
        shares = (0.0, 0.5) if arm == "start" else (1.0, 0.5)
        path = one.record_file(arm, seed)
        study_record.write(path, record(keys.pop("settings", one.settings), *shares, **keys))


def test_a_record_comes_back_as_it_was(tmp_path):
    path = tmp_path / "a/own-0.json"
    written = record("s", 0.0, 0.5, seconds=None)
    study_record.write(path, written)
    assert study_record.read(path) == written
    assert study_record.read(tmp_path / "a/own-1.json") is None
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found | {"of_a_later_version": 1}))
    assert study_record.read(path) == written
    found["answers"]["test"]["greedy"].pop()
    for broken in (found, {"settings": 1}):
        path.write_text(json.dumps(broken))
        with pytest.raises(UserError, match=r"own-0\.json: is damaged"):
            study_record.read(path)


def test_what_is_no_number_is_left_out_of_a_curve():
    assert study_record.finite([1, 2, 3], [0.5, math.nan, math.inf]) == [[1, 0.5]]


def test_recorded_runs_are_not_made_again_where_their_models_are_gone(tiny_study, tmp_path):
    keep_all(tiny_study)
    tiny_study.runner.run = None  # nothing may be started
    tiny_study.do_all()
    starts = tiny_study.records("start")
    arms = {arm: tiny_study.records(arm) for arm in ARMS}
    page, about = tmp_path / "page.md", study_page.About("tiny", 2, True, None)
    study_page.write(page, about, starts, arms)
    text = " ".join(page.read_text().split())
    found = json.loads(page.with_suffix(".json").read_text())
    assert found["figures"]["GRPO"]["test"] == [75.0, 75.0]
    assert found["gains"]["GRPO - SFT, seed 0"]["test"][0] == 50.0
    assert found["figures"]["SFT continued"]["seconds"] == [10.0]
    assert "Both have seed 1." in text and "Control runs" in text
    assert "2 CPU cores, torch 2: SFT 0 (abc); SFT 1 (abc); GRPO 0 (abc); GRPO 1 (abc)" in text
    del arms["random"], arms["format"], arms["sft"]
    study_page.write(page, about, starts, arms)
    assert "Control runs" not in page.read_text()


def test_sets_without_levels_have_no_panel(tiny_study, tmp_path):
    keep_all(tiny_study)
    starts, arms = tiny_study.records("start"), {"own": tiny_study.records("own")}
    for one in (*starts.values(), *arms["own"].values()):
        one.answers["test"].levels = dict.fromkeys(one.answers["test"].levels)
    study_page.write(tmp_path / "p.md", study_page.About("tiny", 2, True, None), starts, arms)
    assert (tmp_path / "p.png").is_file()


def test_records_that_do_not_belong_together_are_refused_and_stay(tiny_study):
    def refuse(match, **changes):
        keep_all(tiny_study, **changes)
        before = {path: path.read_text() for path in Path(tiny_study.args.records).iterdir()}
        with pytest.raises(UserError, match=match):
            tiny_study.do_all()
        assert before == {
            path: path.read_text() for path in Path(tiny_study.args.records).iterdir()
        }

    refuse(r"own-0\.json: is of other settings", own_0={"settings": "others"})
    refuse(r"sft-1\.json: did not start from the model of .*start-1", sft_1={"base": "other"})
    refuse(r"start-1\.json: started from another model than .*start-0", start_1={"base": "hub"})


def test_a_run_is_not_made_where_what_it_starts_from_is_gone(tiny_study, monkeypatch):
    keep_all(tiny_study)
    tiny_study.record_file("random", 1).unlink()
    with pytest.raises(UserError, match=r"start-1\.json: its model is not in"):
        tiny_study.do_all()
    model = tiny_study.model("start", 1)
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")  # of other weights
    with pytest.raises(UserError, match=r"start-1\.json: its model is not in"):
        tiny_study.do_all()
    started = []
    monkeypatch.setattr(study.Study, "train", lambda _, arm, seed: started.append((arm, seed)))
    monkeypatch.setattr(study.Study, "evaluate", lambda *_: None)
    monkeypatch.setattr(
        study.study_record, "make", lambda *_: record(tiny_study.settings, 0.5, base="start")
    )
    monkeypatch.setattr(study.manifest, "sha256", lambda _: "start")
    tiny_study.do_all()
    assert started == [("random", 1)]


@pytest.mark.parametrize("name", ["sft.yaml", "grpo.yaml", "eval.yaml", "run/data/test.jsonl"])
def test_a_record_is_of_its_recipe_and_problems(tiny_study, tmp_path, name):
    keep_all(tiny_study)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"seed": 1}')
    with pytest.raises(UserError, match="is of other settings or data"):
        study.Study(tiny_study.args).check()


@pytest.mark.parametrize("key", ["num_samples", "max_steps", "limit"])
def test_a_record_is_of_its_keys(tiny_study, key):
    keep_all(tiny_study)
    setattr(tiny_study.args, key, 1)
    with pytest.raises(UserError, match="is of other settings or data"):
        study.Study(tiny_study.args).check()


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
    keep("start", 1, seconds=None)
    with pytest.raises(UserError, match=r"start-1.json: .* was resumed"):
        tiny_study.sft_steps(1)


def test_a_seed_that_is_given_twice_is_refused():
    with pytest.raises(UserError, match=r"seeds: .* twice"):
        study.StudyArguments(grpo_config="g", recipe_run="r", seeds=[1, 1])
