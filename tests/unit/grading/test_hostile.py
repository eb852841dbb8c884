"""Texts that would raise, hang or need gigabytes are a verdict, and a fault is a warning."""

import logging
import time

import pytest

from grading.compare import is_parseable, is_same_value
from grading.extract import extract, extract_short
from grading.grade import VERDICTS, grade, grade_all


def is_refused(bomb):
    """As a value; it is itself as a text."""
    is_value = is_parseable(bomb) or is_same_value(bomb, r"\sqrt{2}")
    return not is_value and is_same_value(bomb, bomb)


def raises_nothing(text):
    """`grade` would turn what raises into a verdict."""
    assert not is_same_value(text, "5")
    assert not is_same_value("5", text)
    return is_parseable(text) in (True, False)


def is_read(piece):
    text = piece * (100_000 // len(piece))
    for completion in (text, f"</think>{text} so 7", f"\\boxed{{{text}}}"):
        extract_short(completion)
        extract("<think>" + completion + "</think>" + completion, final_number=True)
    return True


def is_graded(text):
    grades = [grade(rf"<think>so</think> \boxed{{{text}}}", gold) for gold in (text, "cx", "5")]
    return {one.verdict for one in grades} <= {*VERDICTS}


TANGENTS = [f"tan2^{{{39999 - n}}}" for n in range(30)]
FLOORS = [rf"\lfloor n/{k}\rfloor(2999-n)!" for k in range(180, 196)]  # they differ late


def boxed(answer):
    return rf"\boxed{{{answer}}}"


def in_boxes(*sets):
    return " ".join(boxed(rf"\{{{','.join(items)}\}}") for items in sets)


@pytest.mark.parametrize(
    "text",
    [
        boxed(" or ".join(TANGENTS)), in_boxes(TANGENTS),
        boxed(r"(\sqrt{2})!" * 40), boxed(r"\sin(\sqrt{2})" * 30),
        in_boxes(FLOORS, ["1", "2"]), in_boxes(*(FLOORS[at:6] + FLOORS[:at] for at in range(6))),
        r"$3x = y \boxed{7}$ and $\boxed{7}$ " * 5000,
    ],
)  # fmt: skip
def test_no_completion_takes_seconds(text):
    started = time.process_time()
    assert grade(f"<think>a</think> {text}", r"\{1,2\}").verdict != "right"
    assert time.process_time() - started < 5


@pytest.mark.parametrize("joint", ["+", "/", "^", "=", ",", "!", "-", r"\cup ", r"\pm ", r"\sqrt "])
@pytest.mark.parametrize("length", [90, 400])
def test_chains_of_any_length_raise_nothing(joint, length, caplog):
    text = joint.join(["(AB)"] * length)
    for prediction, golds in ((text, "5"), ("5", [text, "5"]), (r"\frac{5}{5}", [text, "1"])):
        found = grade(rf"<think>so</think> \boxed{{{prediction}}}", golds, f"Compute ${text}$.")
        assert found.verdict in VERDICTS
    assert caplog.records == []


def test_a_fault_of_the_grader_is_a_verdict_and_a_warning(monkeypatch, caplog):
    def fail(*_):
        raise ValueError("a fault")

    for name in ("match", "golds_as_asked", "is_refused"):
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            patch.setitem(grade_all.__globals__, name, fail)
            assert grade(r"<think>so</think> \boxed{2x+x}", "3x").verdict == "unparseable"
        assert "a fault" in caplog.text
        caplog.clear()
