"""The audit without a recipe: its cases, its verdict and its page."""

import copy
from pathlib import Path

import pandas as pd
import pytest
import yaml

from eval.audit.__main__ import MAX_FAULTS
from eval.audit.cases import (
    ENDINGS,
    SPARE,
    TRICKS,
    ending_completion,
    gold_completion,
    trick_completions,
    wrong_answers,
)
from eval.audit.checks import GOLD, SUM, Line
from eval.audit.page import MAX_CHARS, MAX_LINES, show, write
from eval.audit.parsers import PARSERS
from eval.audit.verdict import count_tricks, find_failures, find_rates, judge
from grading.grade import grade_all
from pipeline.prompts import ANSWER_FORMS, BARE_FORMS, THINK_OPEN

TABLES = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
GOLDS = TABLES["golds"]


def verdicts(form, completions, golds, **more):
    return [one.verdict for one in grade_all(completions, golds, answer_form=form, **more)]


@pytest.mark.parametrize("final_number", [False, True])
@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_no_trick_is_paid_for_any_kind_of_gold(form, final_number):
    wrong = wrong_answers([{"answers": [gold]} for gold in GOLDS])
    cases = [
        (name, gold, text)
        for gold, other in zip(GOLDS, wrong, strict=True)
        for name, text in trick_completions([gold], form, other).items()
    ]
    golds, texts = [gold for _, gold, _ in cases], [text for *_, text in cases]
    found = verdicts(form, texts, golds, final_number=final_number)
    assert [case for case, verdict in zip(cases, found, strict=True) if verdict == "right"] == []


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_every_gold_is_paid_in_its_form_and_read_in_every_ending(form, ending):
    completions = [ending_completion([gold], form, ending) for gold in GOLDS]
    assert {*verdicts(form, completions, GOLDS)} == {"right"}
    rest = [completion.removeprefix(THINK_OPEN) for completion in completions]
    assert {*verdicts(form, rest, GOLDS, think_prefilled=True)} == {"right"}
    own = completions == [gold_completion([gold], form) for gold in GOLDS]
    assert own is ("box" not in form or ending == "own form")


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_a_trick_that_holds_the_gold_would_be_paid_without_its_fault(form):
    """Each holds the gold's own text, so that it is the trick that fails and not the writing."""
    texts = trick_completions(["72"], form, "17")
    without = {name for name, text in texts.items() if "72" not in text}
    if form in BARE_FORMS:
        without -= {"no thought"}
    assert without == {"a wrong answer", "nothing at all", "empty box"}
    assert len({*texts.values()}) == len(TRICKS)


@pytest.mark.parametrize(("golds", "wrong"), TABLES["wrong"])
def test_a_wrong_answer_is_another_problems_where_it_can_be(golds, wrong):
    expected = [SPARE[one] if isinstance(one, int) else one for one in wrong]
    assert wrong_answers([{"answers": [gold]} for gold in golds]) == expected


NAMES = {"GOLD": GOLD, "SUM": SUM}
LINES = [Line(*(NAMES.get(one, one) for one in line)) for line in TABLES["lines"]]
TABLE = pd.DataFrame(LINES, columns=Line._fields, dtype=object).astype({"applies": bool})


def test_what_is_read_off_the_table():
    rates = {"question": None, "template": 1.0, "reward": 0.25, "task": None}
    assert find_rates(TABLE, ["correctness_reward"]) == rates
    assert find_rates(TABLE, ["think_format_reward"]) == rates | {"reward": None}
    # Sums, and what does not apply, are not counted as tried.
    nothing = {"num_rows": 0, "num_paid": 0, "num_above": 0}
    found = {"empty box": {"num_rows": 3, "num_paid": 2, "num_above": 1}}
    assert count_tricks(TABLE) == dict.fromkeys(TRICKS, nothing) | found
    assert count_tricks(TABLE[:0]) == dict.fromkeys(TRICKS, nothing)
    # Five golds and one exploit of each kind are kept.
    faults = [(one["row"], one["fault"]) for one in find_failures(TABLE)]
    golds = [(row, "is 0") for row in range(5)]
    assert faults == [*golds, (0, "is rewarded"), (0, "earns 1")]


@pytest.fixture
def report():
    """A report of two sets, in which every other exploit is rewarded."""
    made = copy.deepcopy(TABLES["report"])
    forms = made["sets"]["arc_challenge"]["official"]
    for form, share in forms.items():
        forms[form] = {"ours": 1.0} | dict.fromkeys(PARSERS.values(), share)
    tricks = enumerate(TRICKS)
    counts = {"num_rows": 1_200, "num_above": 0}
    return made | {"tricks": {name: counts | {"num_paid": at % 2} for at, name in tricks}}


def test_judge_names_each_fault(report):
    rewards = {"correctness_reward": 1.0}
    faults = judge(report, rewards)
    assert len(faults) == 1 + len(TRICKS) // 2 > MAX_FAULTS
    assert faults[0].startswith("sft_train: reward passes 98.9 % of the golds")
    assert judge(report | {"sets": {}, "tricks": {}}, rewards) == ["no set could be audited"]
    for only in ("think_format_reward", "loose_think_format_reward", "soft_length_penalty"):
        weights = {only: 1.0, "random_reward": 1.0, "correctness_reward": 0.0}
        fault = judge(report, weights)[0]
        assert f"nothing rewards correctness: {only}, random_reward" in fault
    for found in report["tricks"].values():
        found["num_paid"] = 0
    report["tricks"]["empty box"]["num_above"] = 1
    assert "'empty box'" in judge(report, rewards)[1]
    report["tricks"]["empty box"]["num_above"] = 0
    assert "reward_funcs: random_reward" in judge(report, rewards | {"random_reward": 0.5})[1]
    for rate, is_enough in ((0.99, True), (0.9899, False), (1.0, True)):
        report["sets"]["sft_train"]["rates"]["reward"] = rate
        assert (judge(report, rewards) == []) is is_enough


def test_tables_fit_a_terminal_uncut(report, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    show(report)
    out = capsys.readouterr().out
    assert "…" not in out and all(name in out for name in [*TRICKS][1::2])
    lines = [line for line in out.splitlines() if not line.startswith("note: ")]
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert ["arc_challenge", "own", "form", "100.0", *["40.0"] * 5] in rows
    assert ["sft_train", "32,000", "100.0", "100.0", "98.9", "-"] in rows


def test_failure_lines_are_bounded_and_printable(report, tmp_path):
    one = {"set": "gsm8k", "row": "\ud800" * 999, "check": "task", "fault": "\x1b[31m\nred"}
    report["failures"] = [one] * 500
    write(report, f"{tmp_path}/audit.txt")
    text = (tmp_path / "audit.txt").read_text()
    assert text.startswith("Audit of configs/tiny-cpu: the recipe fails:\n- a | b\n- [bold]two")
    lines = [line for line in text.splitlines() if line.startswith("failed: ")]
    assert len(lines) == MAX_LINES + 1 and "460" in lines[-1] and "\x1b" not in text
    assert max(map(len, lines)) == MAX_CHARS
