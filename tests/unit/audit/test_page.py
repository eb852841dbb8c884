"""The audit as text: rounding, tables that fit a terminal uncut, the file, the verdict."""

import copy

import pytest

from eval.audit.__main__ import MAX_FAULTS
from eval.audit.cases import TRICKS
from eval.audit.page import MAX_CHARS, MAX_LINES, percent, show, write
from eval.audit.parsers import PARSERS
from eval.audit.verdict import judge

SHARES = {"ours": 1.0} | dict.fromkeys(PARSERS.values(), 0.4)
REPORT = {
    "recipe": "configs/tiny-cpu",
    "tokenizer": "the recipe's",
    "max_new_tokens": 96,
    "sets": {
        "sft_train": {
            "num_rows": 32_000,
            "rates": {"question": 1.0, "template": 1.0, "reward": 0.98996, "task": None},
            "official": {},
        },
        "arc_challenge": {
            "num_rows": 1_319,
            "rates": {"question": 1.0, "template": 1.0, "reward": None, "task": 0.9996},
            "official": dict.fromkeys(("own form", "sentence", "displayed"), SHARES),
        },
    },
    "tricks": {
        name: {"num_rows": 1_200, "num_paid": at % 2, "num_above": 0}
        for at, name in enumerate(TRICKS)
    },
    "failures": [],
    "skipped": {},
    "notes": ["sft_train: 91.3 % of its <answer> tags fit"],
    "passes": False,
    "faults": ["a | b", "[bold]two[/bold]"],
}


@pytest.fixture
def report():
    return copy.deepcopy(REPORT)


def test_percent_rounds_down():
    shown = {None: "-", 1: "100.0", 0.99999: "99.9", 0.98996: "98.9", 0.99: "99.0", 0.29: "29.0"}
    assert {share: percent(share) for share in shown} == shown


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


def test_judge_names_each_fault(report):
    rewards = {"correctness_reward": 1.0}
    faults = judge(report, rewards)
    assert len(faults) == 1 + len(TRICKS) // 2 > MAX_FAULTS
    assert faults[0].startswith("sft_train: reward passes 98.9 % of the golds")
    assert judge(report | {"sets": {}, "tricks": {}}, rewards) == ["no set could be audited"]
    for only in ("think_format_reward", "loose_think_format_reward", "soft_length_penalty"):
        fault = judge(report, {only: 1.0, "random_reward": 1.0})[0]
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
