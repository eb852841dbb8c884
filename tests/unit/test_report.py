"""The report's numbers by hand, and the whole report of a made-up run."""

import json
import math
import sys

import pytest

from data_prep.config import UserError
from eval import compare, pages, plots, report


def rows(verdicts, mode="sampled", level=None, source="s"):
    """Rows of `completions.jsonl`; `verdicts` is `{id: [verdict of each completion]}`."""
    return [
        {"id": id, "source": source, "level": level, "mode": mode, "sample": i, "cut_off": False}
        | {"verdict": verdict}
        for id, found in verdicts.items()
        for i, verdict in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("values", "mean", "stderr"),
    [
        ([1, 0, 1, 0], 0.5, math.sqrt((4 * 0.25 / 3) / 4)),
        ([0.5, 0.5, 0.5], 0.5, 0.0),
        ([1, 0.25], 0.625, 0.375),  # s = 0.75 / sqrt(2), over sqrt(2)
        ([1], 1.0, None),
    ],
)
def test_mean_stderr(values, mean, stderr):
    found = compare.mean_stderr(values)
    assert found[0] == pytest.approx(mean)
    assert found[1] == (None if stderr is None else pytest.approx(stderr))


def test_problem_scores_are_means_over_samples_and_keep_sources_apart():
    found = rows({"a": ["right", "wrong", "right", "no_answer"], "b": ["right"]})
    found += rows({"a": ["wrong"]}, source="other") + rows({"a": ["wrong"]}, mode="greedy")
    expected = {("s", "a"): 0.5, ("s", "b"): 1.0, ("other", "a"): 0.0}
    assert compare.problem_scores(found, "sampled") == expected


def test_paired_difference_by_hand():
    before = {"a": 1.0, "b": 0.0, "c": 0.5}
    after = {"c": 1.0, "a": 1.0, "b": 1.0}
    # Differences 0, 1, 0.5: mean 0.5, s = 0.5, s / sqrt(3).
    found = compare.paired_difference(before, after)
    assert found == {"value": 0.5, "stderr": pytest.approx(0.5 / math.sqrt(3)), "n": 3}


def test_paired_difference_refuses_other_problems():
    with pytest.raises(ValueError, match="one side only"):
        compare.paired_difference({"a": 1.0}, {"a": 1.0, "b": 0.0})


def test_level_scores_ascend_and_skip_problems_without_level():
    found = rows({"x": ["right"], "y": ["wrong"]}, level=2) + rows({"z": ["right"]}, level=1)
    found += rows({"n": ["right"]}, level=None)
    levels = compare.level_scores(found, "sampled")
    assert list(levels) == [1, 2]
    assert levels[2] == {"value": 0.5, "stderr": pytest.approx(0.5), "n": 2}


@pytest.mark.parametrize(
    ("verdict", "cut_off", "expected"),
    [
        ("right", False, "right"),
        ("right", True, "right"),  # the box came, the end did not: the score counts it, so do we
        ("wrong", False, "wrong"),
        ("wrong", True, "cut off"),
        ("unclosed_think", True, "cut off"),
        ("no_think", False, "unreadable"),
        ("several_answers", False, "unreadable"),
    ],
)
def test_outcome(verdict, cut_off, expected):
    assert compare.outcome({"verdict": verdict, "cut_off": cut_off}) == expected


def test_outcome_rates_sum_to_one():
    found = rows({"a": ["right", "wrong", "no_answer", "right"]})
    rates = compare.outcome_rates(found, "sampled")
    assert rates == {"right": 0.5, "wrong": 0.25, "unreadable": 0.25, "cut off": 0.0}


@pytest.mark.parametrize(
    ("values", "reach", "expected"),
    [
        ([1, 3, 8], 0, [1, 3, 8]),
        ([0, 6, 0, 6], 1, [0, 2, 4, 6]),
        ([1, 2, 3, 4, 10], 2, [1, 2, 4, 17 / 3, 10]),
    ],
)
def test_moving_average(values, reach, expected):
    assert plots.moving_average(values, reach) == pytest.approx(expected)


def test_read_curve_skips_logs_without_the_key():
    history = [{"step": 1, "loss": 2.0}, {"step": 2, "reward": 0.5}, {"step": 3, "loss": 1.0}]
    assert plots.read_curve(history, "loss") == ([1, 3], [2.0, 1.0])
    assert plots.read_curve(history, "rollout/rewards") == ([], [])


@pytest.mark.parametrize(
    ("score", "signed", "expected"),
    [
        ({"value": 0.1234, "stderr": 0.011}, False, "12.3 ± 1.1"),
        ({"value": 0.1234, "stderr": 0.011}, True, "+12.3 ± 1.1"),
        ({"value": -0.02, "stderr": None}, True, "-2.0"),
        (None, False, "-"),
    ],
)
def test_percent(score, signed, expected):
    assert pages.percent(score, signed) == expected


def write_checkpoint(folder, right):
    """Results of 4 problems and 2 samples, of which the first `right` problems are solved."""
    found = []
    for mode, k in (("greedy", 1), ("sampled", 2)):
        verdicts = {f"p{i}": ["right" if i < right else "wrong"] * k for i in range(4)}
        found += rows(verdicts, mode=mode, level=1)
    others = {"format_rate": 1.0, "cut_off_rate": 0.0, "completion_length": 20.0}
    scores = {
        mode: {name: {"value": value, "stderr": 0.1, "n": 4} for name, value in values.items()}
        for mode, values in (
            ("greedy", {"accuracy": right / 4, **others}),
            ("sampled", {"avg@k": right / 4, **others}),
        )
    }
    settings = {"num_samples": 2, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 96}
    folder.mkdir(parents=True)
    (folder / "scores.json").write_text(json.dumps({"scores": scores, "settings": settings}))
    (folder / "completions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in found))


def run_report(tmp_path, monkeypatch, names):
    checkpoints = [f"{name}={tmp_path}/{name}" for name in names]
    argv = ["report", "--test_file", f"{tmp_path}/data/test.jsonl", "--checkpoints", *checkpoints]
    argv += ["--output_dir", f"{tmp_path}/eval", "--report_dir", f"{tmp_path}/report"]
    monkeypatch.setattr(sys, "argv", argv)
    report.main()


def test_whole_report(tmp_path, monkeypatch, capsys):
    for name, right in (("base", 0), ("sft", 1), ("grpo", 3)):
        write_checkpoint(tmp_path / "eval" / name, right)
    history = {
        "sft": [{"step": s, "loss": 2 / s, "mean_token_accuracy": 0.5} for s in (1, 2)],
        "grpo": [{"step": s, "rollout/rewards": s / 3, "reward": 0} for s in (1, 2)],
    }
    for name, logs in history.items():
        (tmp_path / name).mkdir()
        state = tmp_path / name / "trainer_state.json"
        state.write_text(json.dumps({"log_history": logs}))
    (tmp_path / "data").mkdir()
    found = {"config": {"seed": 5}, "counts": {"rows": 9}, "dropped": {"train": {"too long": 3}}}
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(found))

    run_report(tmp_path, monkeypatch, ["base", "sft", "grpo"])

    folder = tmp_path / "report"
    written = {path.name for path in folder.iterdir()}
    assert written == {
        "report.md", "report.json", "manifest.json", "scores.png", "sft_curves.png",
        "grpo_curves.png",
    }  # fmt: skip
    numbers = json.loads((folder / "report.json").read_text())
    assert numbers["scores"]["grpo"]["sampled"]["avg@k"] == {"value": 0.75, "stderr": 0.1, "n": 4}
    # Two of four problems newly solved: differences 0, 1, 1, 0.
    difference = numbers["differences"]["grpo"]["greedy"]
    assert difference["from"] == "sft"
    assert difference["value"] == 0.5
    assert difference["stderr"] == pytest.approx(math.sqrt(1 / 12))
    assert "base" not in numbers["differences"]
    text = (folder / "report.md").read_text()
    assert "| grpo | 75.0 ± 10.0 | +50.0 ± 28.9 |" in text
    assert "| dropped, train, too long | 3 |" in text
    assert "![Training of `grpo`; bold: moving average](grpo_curves.png)" in text
    assert "75.0 ± 10.0" in capsys.readouterr().out


def test_report_before_grpo_has_run(tmp_path, monkeypatch):
    for name, right in (("base", 0), ("sft", 1)):
        write_checkpoint(tmp_path / "eval" / name, right)
    run_report(tmp_path, monkeypatch, ["base", "sft"])
    assert {p.name for p in (tmp_path / "report").glob("*.png")} == {"scores.png"}


def test_missing_scores_name_the_file(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"base/scores\.json is missing; `make eval`"):
        run_report(tmp_path, monkeypatch, ["base"])
