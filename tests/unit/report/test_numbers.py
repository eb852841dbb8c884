"""The report's numbers and sentences by hand: changes and their parts, levels, curves, examples."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.harness.metrics import OUTCOMES
from eval.report import numbers, page, plots
from eval.report.decomposition import (
    MIN_READABLE,
    PARTS,
    Rates,
    problem_shares,
    split_change,
    split_rates,
    task_rates,
)
from tests.unit.report.runs import both_modes, make_rows, solved, write_result


def summarise(tmp_path, rows):
    """`numbers.summarise` of `{checkpoint: rows}`."""
    results = {}
    for name, found in rows.items():
        write_result(tmp_path / name, found)
        results[name] = numbers.read_result(tmp_path / name)
    return numbers.summarise({name: f"path/{name}" for name in rows}, results)


def test_scores_by_level_and_by_source(tmp_path):
    """A level between whole ones has its own row, none has none; a single source no table."""
    levels = {5: 1, 5.5: 0, 6.0: 1, 6.5: 0, None: 1}
    rows = [
        row | {"id": f"of {level}"}
        for level, right in levels.items()
        for row in make_rows(solved(right, num_problems=1, k=2), level=level)
    ]
    rows += [row | {"source": "orz"} for row in make_rows(solved(3, num_problems=4, k=2))]
    gsm8k = make_rows(solved(1), "gsm8k", "greedy")
    report = summarise(tmp_path, {"sft": rows + gsm8k})
    ((title, (header, body)),) = page.tables_by(report, "level").items()
    assert title == "held_out, avg@2" and header == ["level", "problems", "sft"]
    assert [(level, score[:5]) for level, _, score in body] == [
        ("5", "100.0"), ("5.5", "0.0 ("), ("6", "100.0"), ("6.5", "0.0 (")
    ]  # fmt: skip
    ((_, (header, body)),) = page.tables_by(report, "source").items()
    assert header[0] == "source" and body[0][:2] == ["orz", "4"] and body[0][2].startswith("75.0")
    assert body[1][:2] == ["s", "5"] and report["sources"]["gsm8k"]["greedy"]["sft"] == {}


def test_problems_without_a_source_count(tmp_path):
    rows = [
        row | {"source": None} for row in both_modes(1) + make_rows(solved(1), "gsm8k", "greedy")
    ]
    report = summarise(tmp_path, {"sft": rows, "grpo": rows})
    assert report["changes"]["held_out"]["greedy"][0]["score"]["n"] == 4
    assert report["rates"]["held_out"]["sampled"]["sft"]["correct"] == 0.25
    assert page.tables_by(report, "source") == {}


def test_a_change_is_the_sum_of_its_parts(tmp_path):
    before = {"a": ["right", "wrong"], "b": ["unread", "cut off"], "c": ["no answer", "unclosed"]}
    after = {"a": ["right", "right"], "b": ["right", "right"], "c": ["wrong", "right"]}
    report = summarise(tmp_path, {"sft": make_rows(before), "grpo": make_rows(after)})
    found = {part: report[part]["held_out"]["sampled"] for part in ("changes", *numbers.MEASURES)}
    (change,) = found["changes"]
    # Of six completions: finished 5 -> 6, readable 2 -> 6, correct 1 -> 5.
    assert [*found["rates"]["sft"].values()] == pytest.approx([5 / 6, 2 / 5, 1 / 2])
    assert found["rates"]["grpo"] == {"finished": 1, "readable": 1, "correct": pytest.approx(5 / 6)}
    parts = [change[part]["value"] for part in PARTS]
    assert change["score"]["value"] == pytest.approx(sum(parts)) == pytest.approx(4 / 6)
    assert min(parts) > 0
    shares = [found["outcomes"]["sft"]["unread"], found["cut_off"]["sft"]]
    assert [*shares, found["no_thought"]["sft"]] == pytest.approx([1 / 6] * 3)  # one unclosed
    assert found["verdicts"]["grpo"] == {"right": 5 / 6, "wrong": 1 / 6}


def test_the_shape_is_that_of_the_completions():
    rows = pd.DataFrame(make_rows({"a": ["right", "cut off"], "b": ["unread", "cut off"]}))
    rows.loc[1, "lenient"], rows.loc[3, "num_tokens"] = "right", 40
    assert numbers.shape(rows) == {
        "answer_right": 3 / 4, "ours_right": 1 / 4, "well_formed": 2 / 4, "num_tokens": 25,
        "cut_off_right": 1 / 2,
    }  # fmt: skip
    assert numbers.shape(rows[:1])["cut_off_right"] is None
    assert {*numbers.shape(rows.assign(verdict=None)).values()} == {None}


def test_the_outcome_table_has_both_graders_on_the_same_official_completions(tmp_path):
    rows = both_modes(1, "gsm8k") + make_rows(solved(3), "gsm8k", "official:gsm8k")
    rows[-4] |= {"outcome": "unread", "score": 0.0}
    header, rows = page.outcome_table(summarise(tmp_path, {"sft": rows}), "gsm8k")
    last = dict(zip(header, rows[2], strict=True))
    expected = {"correct": "50.0", "correct by our grader": "75.0", "mean length in tokens": "20"}
    assert expected.items() <= last.items()
    assert "correct answer before the cut" not in header  # nothing was cut off


def many(num_right, other="wrong", task="held_out"):
    return both_modes(num_right, task, num_problems=100, other=other)


def official(outcomes):
    rows = make_rows({f"p{i}": [one] for i, one in enumerate(outcomes)}, "gsm8k", "official:gsm8k")
    return rows + many(50, task="gsm8k")


OFFICIAL_RIGHT = official(["right"] * 60 + ["wrong"] * 40)
CUT = {"num_cut_prompts": 12}
WARNINGS = [
    (many(50), many(70), {}, None),
    (many(50), many(70), {"limit": 100}, "`limit`: only the first 100 problems"),
    (OFFICIAL_RIGHT, OFFICIAL_RIGHT, CUT, "Official prompts .* official:gsm8k 12 of 100.$"),
    (many(50), many(89, "cut off"), {}, "cut off at `max_new_tok.*grpo held_out greedy 11 %"),
    (many(50), many(89, "unclosed"), {}, "exactly one closed thought.*grpo held_out greedy 11 %"),
    (many(50)[1:50] + many(50)[100:], many(60)[1:50] + many(60)[100:], {}, "held_out has 49"),
    (
        official(["right"] * 50 + ["unread"] * 50), OFFICIAL_RIGHT, {},
        "official parser.*: sft gsm8k official:gsm8k 50 %",
    ),
    (
        official(["cut off"] * 11 + ["right"] * 89), OFFICIAL_RIGHT, {},
        "official ones at their task's own.*sft gsm8k official:gsm8k 11 %",
    ),
    # A few-shot prompt asks for no thought.
    (official(["unclosed"] * 50 + ["wrong"] * 50), OFFICIAL_RIGHT, {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("sft", "grpo", "more", "expected"), WARNINGS)
def test_each_warning_where_it_is_due_and_only_there(tmp_path, sft, grpo, more, expected):
    report = summarise(tmp_path, {"sft": sft, "grpo": grpo})
    if more == CUT:
        report["scores"]["grpo"]["gsm8k"]["official:gsm8k"] |= more
    report["settings"] = report["settings"] | more
    found = page.warnings(report)
    assert len(found) == (expected is not None), found
    assert not expected or re.search(expected, found[0])


def test_a_base_with_random_weights_is_a_note_and_no_warning(tmp_path):
    report = summarise(tmp_path, {"base": many(0, "cut off"), "sft": many(50)})
    assert "base held_out" in page.warnings(report)[0] and page.notes(report) == []
    report["stages"] = {"base": {"stage": "base"}}
    assert page.warnings(report) == []
    (note,) = page.notes(report)
    assert note.startswith("base has random weights")


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


def test_every_place_rounds_a_figure_alike(tmp_path):
    """5 of 400 are gained: the mean of the differences is 0.0125, the part 0.0125 and a bit."""
    rows = {name: make_rows(solved(n, 400)) for name, n in (("sft", 0), ("grpo", 5))}
    report = summarise(tmp_path, rows)
    (change,) = report["changes"]["held_out"]["sampled"]
    assert 0 < change["correct"]["value"] - change["score"]["value"] < 1e-15
    figures = plots.draw_parts(page.steps(report))
    figures += plots.draw_outcomes(page.bars(report, ["grpo"]))
    assert ">+1.2<" in figures and ">1.2<" in figures and "1.3<" not in figures
    ((_, score, _, _, correct),) = page.split_table(report, "held_out")[1]
    assert score.split()[0] == correct.split()[0] == "+1.2"
    for table in (page.rate_table, page.outcome_table, page.score_table):
        assert table(report, "held_out")[1][1][1].split()[0] == "1.2"
    assert [one["value"] for one in page.headline(report)[:2]] == ["1.2 %", "+1.2 points"]
    text = page.summary(report)
    assert text.startswith("grpo scores 1.2 % on held_out (avg@1), 1.2 points more")
    assert "correct +1.2." in text


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
    panels = plots.read_panels(history)
    assert [(one.title, [line.label for line in one.lines]) for one in panels[:4]] == [
        ("Reward", ["rollout/rewards"]), ("a", ["a"]), ("b", ["b"]),
        ("Evaluation while training", ["avg@4"]),
    ]  # fmt: skip
    assert [panel.title for panel in panels[4:]] == [
        "KL to the reference", "Gradient norm", "Learning rate"
    ]  # fmt: skip
    assert panels[3].lines == [plots.Line("avg@4", [0, 1], [25.0, 50.0])]  # an error is missing
    (panel,) = plots.read_panels([{"step": 1, "grad_norm": 2, "kl": 1}])  # of SFT
    assert panel.lines == [plots.Line("grad_norm", [1], [2])]


@pytest.mark.parametrize(("num", "value"), [(2, math.inf), (plots.FEW, -math.inf), (2, math.nan)])
def test_a_value_that_is_not_finite_is_a_gap(num, value):
    history = [{"step": s, "loss": 1.0, "grad_norm": 3.0, "eval_loss": value} for s in range(num)]
    history[0]["grad_norm"] = value  # as fp16 logs, until its scale is low enough
    panels = plots.read_panels(history)
    assert [panel.title for panel in panels] == ["Training loss", "Gradient norm"]
    gap = pytest.approx([math.nan] + [3.0] * (num - 1), nan_ok=True)
    assert panels[1].lines[0].values == gap
    assert len(plots.draw_curves(panels, "sft")) == 2


def flips_of(before, after):
    """(row before, row after) of each flip."""
    tables = [pd.DataFrame(rows).assign(place=range(len(rows))) for rows in (before, after)]
    found = numbers.find_flips(*tables)
    return [(before[old], after[new]) for old, new in found.itertuples(index=False)]


def test_flips_take_turns_over_tasks_official_ones_and_directions():
    before = both_modes(10, num_problems=40) + both_modes(0, "gsm8k", num_problems=40)
    official = make_rows(solved(0, num_problems=40), "gsm8k", "official:gsm8k")
    before += [row | {"id": f"o{row['id']}"} for row in official]
    after = [row | {"score": 1 - row["score"]} for row in before]
    found = flips_of(before, after)
    kinds = [(r["task"], numbers.is_official(r["mode"]), r["score"]) for _, r in found]
    # Four queues take turns: held_out's gains and losses, gsm8k's gains, ours and official.
    assert kinds == [("held_out", False, 1)] * 3 + [("held_out", False, 0)] * 3 + [
        ("gsm8k", False, 1)] * 2 + [("gsm8k", True, 1)] * 2  # fmt: skip
    assert len({(row["task"], row["id"]) for _, row in found}) == numbers.NUM_FLIPS
    assert all(one[key] == other[key] for one, other in found for key in numbers.SAMPLE)


def test_flips_do_not_depend_on_the_order_of_the_rows():
    before, after = both_modes(0, num_problems=30), both_modes(20, num_problems=30)
    drawn = []
    for step in (1, -1):
        found = flips_of(before[::step], after[::step])
        drawn.append([(row["id"], row["mode"], row["sample"]) for row, _ in found])
    assert drawn[0] == drawn[1] and len(drawn[0]) == numbers.NUM_FLIPS
    assert [id for id, *_ in drawn[0]] != [f"p{i}" for i in range(10)]  # not the first ones


def test_loglikelihoods_and_equal_scores_do_not_flip():
    choices = make_rows(solved(0), mode="official:arc_challenge")
    choices = [row | {"completion": None, "verdict": None} for row in choices]
    after = [row | {"score": 1.0} for row in choices]
    assert flips_of(choices + both_modes(2), after + both_modes(2)) == []


def test_unread_are_right_for_us_and_not_for_the_official_parser():
    rows = make_rows(solved(9, num_problems=9), "gsm8k", "official:gsm8k")
    table = pd.DataFrame(rows).assign(outcome="unread", score=0.0, place=range(9))
    assert len(numbers.find_unread(table)) == numbers.MAX_UNREAD
    for key, value in (("verdict", "no_answer"), ("mode", "greedy"), ("outcome", "right")):
        assert len(numbers.find_unread(table.assign(**{key: value}))) == 0


def rows_of(problems):
    """Rows of made-up outcomes, `[[outcome of each sample] of each problem]`."""
    rows = [("s", str(id), name) for id, samples in enumerate(problems) for name in samples]
    return pd.DataFrame(rows, columns=["source", "id", "outcome"])


def rates_of(problems):
    return task_rates(problem_shares(rows_of(problems)))


def values(found):
    return {name: part["value"] for name, part in found.items()}


def test_rates_by_hand():
    """Of 10: 2 cut off, 8 finished; 2 of those not readable, 6 readable; 3 correct."""
    problems = [["right", "right", "wrong", "wrong", "unread"]]
    problems += [["right", "wrong", "no answer", "cut off", "cut off"]]
    assert rates_of(problems) == pytest.approx((8 / 10, 6 / 8, 3 / 6))
    assert rates_of([["cut off"]]) == (0.0, None, None)
    assert rates_of([["unclosed", "cut off"]]) == (0.5, 0.0, None)
    assert rates_of([["right", "cut off"]]) == (0.5, 1.0, 1.0)  # if cut off after its answer, too


def test_parts_by_hand():
    """0.5 x 0.5 x 0.4 = 0.1 becomes 1 x 0.8 x 0.5 = 0.4.

    finished: 0.5 (2 0.5 0.4 + 0.5 0.5 + 0.8 0.4 + 2 0.8 0.5) / 6 = 0.5 (1.77) / 6 = 0.1475
    readable: 0.3 (2 0.5 0.4 + 0.5 0.5 + 1 0.4 + 2 1 0.5) / 6 = 0.3 (2.05) / 6 = 0.1025
    correct:  0.1 (2 0.5 0.5 + 0.5 0.8 + 1 0.5 + 2 1 0.8) / 6 = 0.1 (3) / 6 = 0.05
    """
    found = split_rates(Rates(0.5, 0.5, 0.4), Rates(1.0, 0.8, 0.5))
    assert found == pytest.approx({"finished": 0.1475, "readable": 0.1025, "correct": 0.05})


def test_a_change_by_hand():
    same = ["right"] * 4
    before = [same, ["right", "wrong", "wrong", "unread"], ["right", "wrong", "cut off", "unread"]]
    before += [["unclosed", "no answer", "unread", "wrong"]]
    after = [same, ["right", "wrong", "wrong", "right"], ["right", "wrong", "right", "unread"]]
    after += [["wrong", "no answer", "unread", "wrong"]]
    found = split_change(rows_of(before), rows_of(after))
    assert values(found) == pytest.approx(
        values(split_change(rows_of(before)[::-1], rows_of(after)))
    )
    # Finished 15 -> 16 of 16, readable 10 of 15 -> 13 of 16, correct 6 of 10 -> 8 of 13.
    parts = split_rates(Rates(15 / 16, 10 / 15, 6 / 10), Rates(1.0, 13 / 16, 8 / 13))
    assert values(found) == pytest.approx({"score": 2 / 16} | parts)
    # By problem the score moves by 0, 1/4, 1/4, 0: s^2 = 4 (1/8)^2 / 3, stderr = s / 2.
    assert found["score"]["stderr"] == pytest.approx(math.sqrt(4 / 64 / 3) / 2)
    assert {part["n"] for part in found.values()} == {4}
    # 10 readable completions say too little.
    assert {found[part][key] for part in PARTS for key in ("stderr", "low", "high")} == {None}


def test_the_interval_of_a_part_is_as_wide_as_a_bootstrap_says():
    """A seeded bootstrap over problems: its standard error is within 15 % of the delta method's."""
    random = np.random.default_rng(0)
    sides = [
        [list(random.choice(OUTCOMES, 2, p=weights)) for _ in range(200)]
        for weights in ([0.2, 0.3, 0.1, 0.05, 0.05, 0.3], [0.5, 0.2, 0.1, 0.05, 0.05, 0.1])
    ]
    found = split_change(*map(rows_of, sides))
    shares = [problem_shares(rows_of(side)) for side in sides]
    drawn = []
    for _ in range(600):
        places = random.integers(0, 200, 200)
        both = [task_rates(side.iloc[places]) for side in shares]
        drawn.append([*split_rates(*both).values()])
    for part, spread in zip(PARTS, np.std(drawn, axis=0), strict=True):
        assert found[part]["stderr"] == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize(("num", "has_interval"), [(MIN_READABLE - 1, False), (MIN_READABLE, True)])
def test_few_readable_completions_give_no_interval(num, has_interval):
    before = [["right"]] * num + [["cut off"]] * 20
    found = split_change(rows_of(before), rows_of([["right"]] * (num + 20)))
    assert all((found[part]["low"] is not None) is has_interval for part in PARTS)
    assert found["score"]["low"] is not None


SAMPLES = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SAMPLES, SAMPLES), min_size=1, max_size=8))
def test_parts_sum_to_the_change_and_have_the_sign_of_their_rate(problems):
    before, after = ([*side] for side in zip(*problems, strict=True))
    found = values(split_change(rows_of(before), rows_of(after)))
    assert math.fsum(found[part] for part in PARTS) == pytest.approx(found["score"], abs=1e-9)
    for part, one, two in zip(PARTS, rates_of(before), rates_of(after), strict=True):
        if one is None or two is None:
            assert found[part] == 0
        else:
            assert found[part] * (two - one) >= 0
