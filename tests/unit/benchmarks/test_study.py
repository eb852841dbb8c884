"""The study's figures from answers written by hand, and its records."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import study, study_page, study_record
from benchmarks.study_page import ARMS, OTHER_SFT, compute, gain, gains
from pipeline.errors import UserError


def answers(**sampled):
    """Answers to one set, whose greedy completion is correct where over half of the samples are."""
    scores = pd.Series(sampled, dtype=float)
    greedy = (scores > 0.5).astype(float)
    columns = {"greedy": greedy, "sampled": scores, "majority": greedy}
    return {"test": pd.DataFrame(columns | {"levels": None, "tokens": 10.0})}


def test_never_and_best_are_those_of_the_sft_model():
    start = answers(a=0.0, b=0.0, c=0.5, d=0.75)
    starts = {0: start, 1: start}
    runs = {"own": {0: answers(a=1, b=0.5, c=1, d=1), 1: answers(a=0.5, b=0.5, c=1, d=1)}}
    runs |= {arm: {1: start} for arm in ("random", "format", "sft")}
    figures = compute(starts, runs)
    assert figures["SFT"]["test"] == [31.25] and figures["SFT"]["test, greedy"] == [25.0]
    assert figures["SFT"]["never"] == [0.0] and figures["SFT, best of n"]["test"] == [50.0]
    assert figures["SFT, majority of n"]["test"] == [25.0]
    assert figures["GRPO"]["test"] == [87.5, 75.0] and OTHER_SFT not in figures
    assert figures["GRPO"]["never"] == [75.0, 50.0]  # of a and b
    values = {label: row["test"][0] for label, row in gains(starts, runs).items()}
    assert values["GRPO - SFT, seed 0"] == 56.25 and values["GRPO - SFT, all seeds"] == 50.0
    assert values["SFT continued - SFT"] == 0.0 and values["GRPO - SFT continued"] == 43.75


def test_control_runs_may_have_a_seed_of_their_own():
    """Their start is none of GRPO's SFT models, and is compared with them alone."""
    one, other = answers(a=0.0, b=0.0), answers(a=1.0, b=0.0)
    runs = {"own": {0: other}, "random": {7: one}}
    figures, found = compute({0: one, 7: other}, runs), gains({0: one, 7: other}, runs)
    assert figures["SFT"]["test"] == [0.0] and figures["GRPO, random reward"]["test"] == [0.0]
    assert figures[OTHER_SFT]["test"] == [50.0]
    assert found["GRPO, random reward - SFT"]["test"][0] == -50.0
    assert "GRPO - GRPO, random reward" not in found


def test_a_gain_is_of_the_problems_that_both_have_and_holds_over_them():
    before = pd.Series({str(i): float(i % 2) for i in range(100)})
    after = pd.concat([before.where(before.index.astype(int) >= 50, 1.0), pd.Series({"new": 1.0})])
    value, low, high = gain([(before, after)])
    assert value == 25.0 and 15 < low < 20 and 30 < high < 35
    value, low, high = gain([(before, after), (after, before)])
    assert value == 0.0 and -5 < low <= 0 <= high < 5  # the mean of both is 0 for each problem
    whole = answers(a=1.0)
    assert math.isnan(compute({0: whole}, {"own": {0: whole}})["SFT"]["never"][0])


RECORD = {
    "base": "start", "weights": "start", "steps": 2, "seconds": 10.0,
    "validation": [[0, 0.1], [2, 0.5]],
    "made": {"commit": "abc", "machine": "2 CPU cores", "versions": {"torch": "2"}},
}  # fmt: skip
COLUMNS = {"greedy": [1.0, 0.0], "majority": [1.0, 0.0], "levels": [None, None], "tokens": 9.0}


@pytest.fixture
def tiny_study(tmp_path):
    """A study of two seeds, one with controls, whose records are in a folder of their own."""
    for stage in ("sft", "grpo", "eval"):
        keys = {"train_file": "{run}/data/train.jsonl", "test_file": "{run}/data/test.jsonl"}
        (tmp_path / f"{stage}.yaml").write_text(json.dumps(keys))
    args = study.StudyArguments(
        grpo_config=str(tmp_path / "grpo.yaml"), recipe_run=str(tmp_path / "run"), seeds=[0, 1],
        control_seeds=[1], own_starts=True, records=str(tmp_path / "records"),
        out=str(tmp_path / "page.md"),
    )  # fmt: skip
    (tmp_path / "records").mkdir()
    return study.Study(args)


def keep(one, arm, seed, **changes):
    """Write the record of a run."""
    sampled = [0.0, 0.5] if arm == "start" else [1.0, 0.5]
    test = COLUMNS | {"problems": [["svamp", "0"], ["svamp", "1"]], "sampled": sampled}
    made = RECORD | {"settings": one.settings, "answers": {"test": test}} | changes
    one.record_file(arm, seed).write_text(json.dumps(made))


def keep_all(one, **changes):
    """Write the record of each run; `changes`: keys of a run's record, by `<arm>_<seed>`."""
    for seed in one.args.seeds:
        for arm in ("start", *one.arms(seed)):
            keep(one, arm, seed, **changes.get(f"{arm}_{seed}", {}))


def test_recorded_runs_are_not_made_again_where_their_models_are_gone(tiny_study):
    keep_all(tiny_study)
    tiny_study.runner.run = None  # nothing may be started
    tiny_study.do_all()
    arms = {arm: tiny_study.records(arm) for arm in ARMS}
    study_page.write(tiny_study.args, tiny_study.records("start"), arms)
    page = Path(tiny_study.args.out)
    found = json.loads(page.with_suffix(".json").read_text())
    assert found["figures"]["GRPO"]["test"] == [75.0, 75.0]
    assert found["gains"]["GRPO - SFT, seed 0"]["test"][0] == 50.0
    assert found["figures"]["SFT continued"]["seconds"] == [10.0]


@pytest.mark.parametrize(
    ("match", "changes"),
    [
        (r"own-0\.json: is of other settings", {"own_0": {"settings": "others"}}),
        (r"sft-1\.json: did not start from the model of .*start-1", {"sft_1": {"base": "other"}}),
        (r"own-0\.json: is damaged", {"own_0": {"answers": {"test": COLUMNS}}}),
    ],
)
def test_records_that_do_not_belong_together_are_refused_and_stay(tiny_study, match, changes):
    keep_all(tiny_study, **changes)
    folder = Path(tiny_study.args.records)
    before = {path: path.read_text() for path in folder.iterdir()}
    with pytest.raises(UserError, match=match):
        tiny_study.do_all()
    assert before == {path: path.read_text() for path in folder.iterdir()}


def test_a_run_is_not_made_where_what_it_starts_from_is_gone(tiny_study):
    keep_all(tiny_study)
    tiny_study.record_file("random", 1).unlink()
    with pytest.raises(UserError, match=r"start-1\.json: its model is not in"):
        tiny_study.do_all()


def test_sft_continued_takes_the_seconds_of_grpo(tiny_study):
    keep(tiny_study, "start", 1, seconds=8.0, steps=4)
    keep(tiny_study, "own", 1, seconds=None)
    with pytest.raises(UserError, match=r"own-0.json: .* was resumed"):
        tiny_study.sft_steps()
    keep(tiny_study, "own", 0, seconds=30.0)  # that run says how long it takes
    assert tiny_study.sft_steps() == 15


def test_the_published_records_are_read():
    for path in Path("docs/results/smollm2").glob("*.json"):
        assert len(study_record.read(path)["answers"]["test"]) == 300
