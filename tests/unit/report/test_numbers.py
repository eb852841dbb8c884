"""The report's numbers and sentences by hand: changes, levels, warnings, figures."""

import math
import re
from pathlib import Path

import pytest

from eval.harness import score
from eval.report import numbers, page, plots
from eval.report.decomposition import PARTS
from tests.unit.report.runs import both_modes, make_rows, solved, write_result


def summarise(tmp_path, rows):
    """`numbers.summarise` of `{checkpoint: rows}`."""
    results = {}
    for name, found in rows.items():
        write_result(tmp_path / name, found)
        results[name] = numbers.read_result(tmp_path / name)
    return numbers.summarise({name: f"path/{name}" for name in rows}, results)


def test_each_level_has_its_own_row_also_between_whole_ones(tmp_path):
    levels = {5: 1, 5.5: 0, 6.0: 1, 6.5: 0, None: 1}
    rows = [
        row | {"id": f"of {level}"}
        for level, right in levels.items()
        for row in make_rows(solved(right, num_problems=1), level=level)
    ]
    report = summarise(tmp_path, {"sft": rows})
    ((header, shown),) = page.level_tables(report).values()
    assert header == ["level", "problems", "sft"]
    assert [(str(level), score[:5]) for level, _, score in shown] == [
        ("5", "100.0"), ("5.5", "0.0 ("), ("6", "100.0"), ("6.5", "0.0 (")
    ]  # fmt: skip


def test_scores_by_source_where_problems_came_from_several(tmp_path):
    rows = make_rows(solved(1, num_problems=2, k=2))
    others = [row | {"source": "orz"} for row in make_rows(solved(3, num_problems=4, k=2))]
    gsm8k = make_rows(solved(1), "gsm8k", "greedy")
    report = summarise(tmp_path, {"sft": rows + others + gsm8k})
    found = report["sources"]["held_out"]["sampled"]["sft"]
    assert {name: (one["value"], one["n"]) for name, one in found.items()} == {
        "orz": (0.75, 4), "s": (0.5, 2),
    }  # fmt: skip
    assert report["sources"]["gsm8k"]["greedy"]["sft"] == {}  # all from one
    ((title, (header, body)),) = page.source_tables(report).items()
    assert title == "held_out, avg@2" and header == ["source", "problems", "sft"]
    assert [row[:2] for row in body] == [["orz", 4], ["s", 2]] and body[0][2].startswith("75.0")


def test_modes_have_an_order_and_a_headline():
    modes = ["official:x", "sampled", "official:a", "greedy"]
    assert numbers.order(modes) == ["greedy", "sampled", "official:x", "official:a"]
    assert numbers.headline_mode(modes) == "sampled"
    assert numbers.headline_mode(["official:x", "official:a"]) == "official:x"


def test_a_change_is_the_sum_of_its_parts(tmp_path):
    before = {"a": ["right", "wrong"], "b": ["unread", "cut off"], "c": ["no answer", "unclosed"]}
    after = {"a": ["right", "right"], "b": ["right", "right"], "c": ["wrong", "right"]}
    report = summarise(tmp_path, {"sft": make_rows(before), "grpo": make_rows(after)})
    (change,) = report["changes"]["held_out"]["sampled"]
    # Of six completions: finished 5 -> 6, readable 2 -> 6, correct 1 -> 5.
    rates = report["rates"]["held_out"]["sampled"]
    assert [*rates["sft"].values()] == pytest.approx([5 / 6, 2 / 5, 1 / 2])
    assert rates["grpo"] == {"finished": 1, "readable": 1, "correct": pytest.approx(5 / 6)}
    assert change["score"]["value"] == pytest.approx(4 / 6)
    parts = [change[part]["value"] for part in PARTS]
    assert sum(parts) == pytest.approx(4 / 6) and min(parts) > 0
    assert report["outcomes"]["held_out"]["sampled"]["sft"]["unread"] == pytest.approx(1 / 6)
    assert report["cut_off"]["held_out"]["sampled"]["sft"] == pytest.approx(1 / 6)
    assert report["no_thought"]["held_out"]["sampled"]["sft"] == pytest.approx(1 / 6)  # unclosed
    assert report["verdicts"]["held_out"]["sampled"]["grpo"] == {"right": 5 / 6, "wrong": 1 / 6}


def test_the_shape_is_that_of_the_completions():
    rows = make_rows({"a": ["right", "cut off"], "b": ["unread", "cut off"]})
    rows[1]["lenient"], rows[3]["num_tokens"] = "right", 40
    assert numbers.shape(rows) == {
        "answer_right": 3 / 4, "ours_right": 1 / 4, "well_formed": 2 / 4, "num_tokens": 25,
        "cut_off_right": 1 / 2,
    }  # fmt: skip
    assert numbers.shape(rows[:1])["cut_off_right"] is None
    assert {*numbers.shape([row | {"verdict": None} for row in rows]).values()} == {None}


def test_the_outcome_table_has_both_graders_on_the_same_official_completions(tmp_path):
    rows = both_modes(1, "gsm8k") + make_rows(solved(3), "gsm8k", "official:gsm8k")
    rows[-4] |= {"outcome": "unread", "score": 0.0}
    header, rows = page.outcome_table(summarise(tmp_path, {"sft": rows}), "gsm8k")
    last = dict(zip(header, rows[2], strict=True))
    expected = {"correct": "50.0", "correct by our grader": "75.0", "mean length in tokens": "20"}
    assert expected.items() <= last.items()
    assert not [name for name in header if "cut" in name and name != "cut off"]  # nothing was


def many(num_right, other="wrong", task="held_out"):
    return both_modes(num_right, task, num_problems=100, other=other)


def official(outcomes):
    rows = make_rows({f"p{i}": [one] for i, one in enumerate(outcomes)}, "gsm8k", "official:gsm8k")
    return rows + many(50, task="gsm8k")


OFFICIAL_RIGHT = official(["right"] * 60 + ["wrong"] * 40)
WARNINGS = [
    (many(50), many(70), None),
    (many(50), many(50), "sft and grpo have identical scores"),
    (many(50), many(89, "cut off"), "cut off at 96 tokens.*grpo held_out greedy 11 %"),
    (many(50), many(89, "unclosed"), "exactly one closed thought.*grpo held_out greedy 11 %"),
    (many(50)[1:50] + many(50)[100:], many(60)[1:50] + many(60)[100:], "held_out has 49"),
    (
        official(["right"] * 50 + ["unread"] * 50), OFFICIAL_RIGHT,
        "official parser.*: sft gsm8k official:gsm8k 50 %",
    ),
    (
        official(["cut off"] * 11 + ["right"] * 89), OFFICIAL_RIGHT,
        r"the harness's own limit \(256 tokens.*sft gsm8k official:gsm8k 11 %",
    ),
    # A few-shot prompt asks for no thought.
    (official(["unclosed"] * 50 + ["wrong"] * 50), OFFICIAL_RIGHT, None),
]  # fmt: skip


@pytest.mark.parametrize(("sft", "grpo", "expected"), WARNINGS)
def test_each_warning_where_it_is_due_and_only_there(tmp_path, sft, grpo, expected):
    report = summarise(tmp_path, {"sft": sft, "grpo": grpo})
    found = page.warnings(report)
    assert len(found) == (expected is not None), found
    assert not expected or re.search(expected, found[0])
    report["fingerprints"]["grpo"] = report["fingerprints"]["sft"]
    assert "are the same checkpoint" in page.warnings(report)[0]


def test_the_first_problems_alone_are_no_benchmark(tmp_path):
    report = summarise(tmp_path, {"sft": many(50), "grpo": many(70)})
    report["settings"] = report["settings"] | {"limit": 100}
    (found,) = page.warnings(report)
    assert found.startswith("`limit`: only the first 100 problems")


def test_prompts_that_were_cut_are_told(tmp_path):
    report = summarise(tmp_path, {"sft": OFFICIAL_RIGHT, "grpo": official(["right"] * 100)})
    assert page.warnings(report) == []
    report["scores"]["grpo"]["gsm8k"]["official:gsm8k"]["num_cut_prompts"] = 12
    (found,) = page.warnings(report)
    assert found.endswith("grpo gsm8k official:gsm8k 12 of 100.")


def test_the_harness_limit_is_as_said():
    text = (Path(score.__file__).parent / "cached_lm.py").read_text()
    assert f"\nHARNESS_MAX_NEW_TOKENS = {page.HARNESS_LIMIT} " in text


@pytest.mark.parametrize(
    ("right", "is_told"), [((10, 12), False), ((10, 10), True), ((0, 28), True)]
)
def test_few_problems_cannot_tell_a_small_change(tmp_path, right, is_told):
    few = {"num_problems": 30, "task": "aime24"}
    rows = {name: both_modes(n, **few) for name, n in zip(("a", "b"), right, strict=True)}
    found = re.findall(
        r"30 problems of aime24 cannot tell a and b apart: .* \+6\.7 .* up to about (\S+) may",
        " ".join(page.warnings(summarise(tmp_path, rows))),
    )
    assert is_told is not bool(found) and all(6.7 < float(one) < 15 for one in found)


@pytest.mark.parametrize(
    ("value", "n", "text"),
    [
        (1.0, 30, "100.0 (≥ 90.5)"),
        (0.0, 30, "0.0 (≤ 9.5)"),
        (1.0, 1319, "100.0 (≥ 99.8)"),
        (1.0, 1, "100.0 (≥ 5.0)"),
        (0.5, 30, "50.0 ± 1.0"),
    ],
)
def test_all_right_and_all_wrong_have_a_bound(value, n, text):
    assert page.percent({"value": value, "stderr": 0.01, "n": n}) == text


def test_the_summary_is_made_of_the_numbers(tmp_path):
    rows = {"base": many(10), "sft": many(50, "unread"), "grpo": many(50)}
    report = summarise(tmp_path, rows)
    for one in report["changes"]["held_out"]["sampled"]:
        for part in ("score", *PARTS):
            value = one[part]["value"]
            one[part] |= {"low": value - 0.02, "high": value + 0.02}
    assert page.summary(report) == (
        "grpo scores 50.0 % on held_out (avg@2), as much as sft (95 % interval -2.0 to 2.0). "
        "Parts: finished 0.0, readable +37.5, correct -37.5. Since base: +40.0 [38.0, 42.0]."
    )
    assert page.result(report) == page.summary(report).partition(" Parts")[0]


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.123, 0.1, 0.146, "12.3 points more than sft (95 % interval 10.0 to 14.6)"),
        (-0.01, -0.03, 0.01, "1.0 points less than sft (95 % interval -3.0 to 1.0), which may be "
         "chance"),
        (0.5, None, None, "50.0 points more than sft"),
    ],
)  # fmt: skip
def test_a_change_in_words(value, low, high, text):
    score = {"value": value, "low": low, "high": high}
    assert page.describe_change({"from": "sft", "score": score}) == text


def test_a_base_with_random_weights_is_a_note_and_no_warning(tmp_path):
    rows = {"base": many(0, "cut off"), "sft": many(50)}
    report = summarise(tmp_path, rows)
    assert "base held_out" in page.warnings(report)[0] and page.notes(report) == []
    report["stages"] = {"base": {"stage": "base"}}
    assert page.warnings(report) == []
    (note,) = page.notes(report)
    assert note.startswith("base has random weights")


def test_moving_average():
    assert plots.moving_average([0, 6, 0, 6], 1) == pytest.approx([0, 2, 4, 6])
    assert plots.moving_average([1, 2, 3, 4, 10], 2) == pytest.approx([1, 2, 4, 17 / 3, 10])
    gap = pytest.approx([math.nan, 4, 5, 7], nan_ok=True)
    assert plots.moving_average([math.nan, 3, 5, 7], 1) == gap


def test_panels_are_those_that_were_logged():
    history = [
        {"step": 0, "eval_avg@4": 0.25, "eval_avg@4_stderr": 0.05, "eval_runtime": 3},
        {"step": 1, "rollout/rewards": 0.5, "loss": 1.0, "eval_avg@4": 0.5, "kl": 0.1,
         "rewards/a/mean": 0.25, "rewards/a/std": 9, "rewards/b/mean": 2, "eval_rewards/a/mean": 1,
         "grad_norm": 3, "learning_rate": 1e-6},
    ]  # fmt: skip
    reward, one, two, evaluation, *others = plots.read_panels(history)
    assert reward.lines == {"rollout/rewards": ([1], [0.5])}
    assert (one.title, one.lines) == ("a", {"a": ([1], [0.25])}) and two.lines == {"b": ([1], [2])}
    assert [panel.title for panel in others] == [
        "KL to the reference", "Gradient norm", "Learning rate"
    ]  # fmt: skip
    assert evaluation.lines == {"avg@4": ([0, 1], [25.0, 50.0])} and evaluation.errors == {}
    (panel,) = plots.read_panels([{"step": 1, "grad_norm": 2, "kl": 1}])  # of SFT
    assert panel.lines == {"grad_norm": ([1], [2])}


@pytest.mark.parametrize("num", [2, plots.FEW])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_value_that_is_not_finite_is_a_gap(num, value):
    history = [{"step": s, "loss": 1.0, "grad_norm": 3.0, "eval_loss": value} for s in range(num)]
    history[0]["grad_norm"] = value  # as fp16 logs, until its scale is low enough
    panels = plots.read_panels(history)
    assert [panel.title for panel in panels] == ["Training loss", "Gradient norm"]
    gap = pytest.approx([math.nan] + [3.0] * (num - 1), nan_ok=True)
    assert panels[1].lines["grad_norm"] == ([*range(num)], gap)
    assert len(plots.draw_curves(panels, "sft")) == 2


def grouped(rows):
    found = {}
    for place, row in enumerate(rows):
        found.setdefault((row["task"], row["mode"]), []).append(row | {"place": place})
    return found


def test_flips_take_turns_over_tasks_official_ones_and_directions():
    before = both_modes(10, num_problems=40) + both_modes(0, "gsm8k", num_problems=40)
    official = make_rows(solved(0, num_problems=40), "gsm8k", "official:gsm8k")
    before += [row | {"id": f"o{row['id']}"} for row in official]
    after = [row | {"score": 1 - row["score"]} for row in before]
    found = numbers.find_flips(grouped(before), grouped(after))
    kinds = [(r["task"], numbers.is_official(r["mode"]), r["score"]) for _, r in found]
    # Four queues take turns: held_out's gains and losses, gsm8k's gains, ours and official.
    assert kinds == [("held_out", False, 1)] * 3 + [("held_out", False, 0)] * 3 + [
        ("gsm8k", False, 1)] * 2 + [("gsm8k", True, 1)] * 2  # fmt: skip
    assert len({(row["task"], row["id"]) for _, row in found}) == numbers.NUM_FLIPS
    assert all((a["id"], a["mode"], a["sample"]) == (b["id"], b["mode"], b["sample"])
               for a, b in found)  # fmt: skip


def test_flips_do_not_depend_on_the_order_of_the_rows():
    before, after = both_modes(0, num_problems=30), both_modes(20, num_problems=30)
    drawn = []
    for step in (1, -1):
        found = numbers.find_flips(grouped(before[::step]), grouped(after[::step]))
        drawn.append([(row["id"], row["mode"], row["sample"]) for _, row in found])
    assert drawn[0] == drawn[1] and len(drawn[0]) == numbers.NUM_FLIPS
    assert [id for id, *_ in drawn[0]] != [f"p{i}" for i in range(10)]  # not the first ones


def test_long_texts_lose_their_middle():
    text = numbers.shorten("a" * 3 + "b" * 1234 + "c" * 5, 8)
    assert text.startswith("aaa\n") and text.endswith("\nccccc")
    assert "1,234" in text and "bb" not in text


def test_loglikelihoods_and_equal_scores_do_not_flip():
    choices = make_rows(solved(0), mode="official:arc_challenge")
    choices = [row | {"completion": None, "verdict": None} for row in choices]
    after = [row | {"score": 1.0} for row in choices]
    same = both_modes(2)
    assert numbers.find_flips(grouped(choices + same), grouped(after + same)) == []


def test_unread_are_right_for_us_and_not_for_the_official_parser():
    rows = make_rows(solved(9, num_problems=9), "gsm8k", "official:gsm8k")
    unread = [row | {"outcome": "unread", "score": 0.0} for row in rows]
    others = unread[0] | {"verdict": "no_answer"}, unread[1] | {"mode": "greedy"}, rows[2]
    assert numbers.find_unread(grouped(others)) == []
    assert len(numbers.find_unread(grouped(unread))) == numbers.MAX_UNREAD
