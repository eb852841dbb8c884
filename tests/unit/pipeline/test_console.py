"""What gets to the terminal: outside text is shown, whatever writes it; a share has one text."""

import json
import math
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from eval.audit.page import show
from eval.report.render import print_table
from grading.__main__ import summarise
from pipeline.console import MAX_LINE, clean, notice, one_line, quiet_imports, say
from pipeline.errors import UserError, run_cli
from pipeline.figures import percent, points
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
    quiet_imports()  # as an entry point does
    try:
        write()
    except SystemExit as end:
        assert end.code == 2
    shown = "".join(capsys.readouterr())
    assert "1b[2J" in shown and clean(shown) == shown


# Figures: the same share has one text, however it was computed.


@given(st.integers(-2000, 2000), st.integers(-8, 8))
def test_the_last_bits_of_a_share_do_not_show(half, steps):
    """Near an edge of rounding, such as 0.0125, a few units in the last place decide nothing."""
    share = (half + 0.5) / 1000
    near = share
    for _ in range(abs(steps)):
        near = math.nextafter(near, math.copysign(math.inf, steps))
    assert percent(share) == percent(near) and points(share) == points(near)
    assert percent(10 * share, 0) == percent(10 * near, 0)
    assert points(share).lstrip("+") == percent(share)


def test_a_difference_has_a_sign_unless_it_rounds_to_nothing():
    texts = {0.1234: "+12.3", -0.1234: "-12.3", 0.0004: "0.0", -0.0004: "0.0", 1: "+100.0"}
    for value, text in texts.items():
        assert points(value) == text and points(value, "-") == text.removeprefix("+")
