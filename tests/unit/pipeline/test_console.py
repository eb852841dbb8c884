"""What gets to the terminal: outside text is shown, whatever writes it."""

import json
import sys
from collections import Counter

import pytest
from rich.console import Console

from eval.audit.page import show
from eval.report.render import print_table
from grading.__main__ import summarise
from pipeline.console import MAX_LINE, clean, notice, one_line, quiet_imports, say
from pipeline.errors import UserError, run_cli
from stages.preflight.__main__ import show as show_findings
from stages.preflight.inputs import ERROR, Finding

# Clears the screen, sets the title, turns red (two ways), hides, overwrites, reverses.
HOSTILE = "\x1b[2J\x1b]0;x\x07\x9b31m\x7f\r\b\x00\x85\u202e\u2066\u200f\u061c\ud800"
SAFE = "ok \t naïve 好 \U0001f600 ½\n"


def test_clean_writes_out_what_a_terminal_acts_on_and_nothing_else():
    assert clean(SAFE) == SAFE
    assert clean("\x1b[0m\x9b\u202e\r\n") == "\\x1b[0m\\u009b\\u202e\n"
    assert clean(HOSTILE).isprintable() and clean(HOSTILE).isascii()
    row = {"a": HOSTILE + SAFE}
    assert json.loads(clean(json.dumps(row, ensure_ascii=False))) == row


def test_one_line_keeps_both_ends():
    line = one_line("a.jsonl:1: " + "x\n" * 10**6 + "; fix it")
    assert line.startswith("a.jsonl:1: x x") and line.endswith("; fix it")
    assert "\n" not in line and len(line) < 3 * MAX_LINE


@pytest.fixture(autouse=True)
def an_entry_point():
    quiet_imports()


def fail():
    raise UserError(HOSTILE)


AUDIT = {"sets": {}, "tricks": {}, "notes": [HOSTILE]}
AUDIT["failures"] = [dict.fromkeys(("set", "row", "check", "fault"), HOSTILE)]


@pytest.mark.parametrize(
    "write",
    [
        lambda: run_cli(fail), lambda: notice(HOSTILE), lambda: say(HOSTILE),
        lambda: print_table(Console(), HOSTILE, [HOSTILE], [[HOSTILE]]),
        lambda: show_findings(HOSTILE, [Finding(ERROR, HOSTILE, HOSTILE, HOSTILE)]),
        lambda: show(AUDIT),
        lambda: sys.stdout.write(summarise(HOSTILE, Counter(), [HOSTILE], 1.0)),
    ],
    ids=["error", "notice", "stage", "table", "preflight", "audit", "grading"],
)  # fmt: skip
def test_what_is_written_is_clean(capsys, write):
    try:
        write()
    except SystemExit as end:
        assert end.code == 2
    shown = "".join(capsys.readouterr())
    assert "1b[2J" in shown and clean(shown) == shown
