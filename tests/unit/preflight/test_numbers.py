"""Preflight's small numbers: chances, engines, findings and how they are shown."""

import pytest

from pipeline.errors import UserError
from stages.planned_launch import read_launch
from stages.preflight.__main__ import show
from stages.preflight.inputs import (
    Finding,
    PreflightArguments,
    find_engine,
    from_error,
)
from stages.preflight.lengths import compare


@pytest.mark.parametrize(
    ("limit", "level", "remedy"),
    [(99, "ok", ""), (98, "warning", "max_length: 99 keeps 99 %"), (79, "error", "keeps 99 %")],
)
def test_lengths_are_compared_with_a_limit(limit, level, remedy):
    found = compare("sft lengths", range(1, 101), "max_length", limit, "dropped", "error")
    assert "median 50, 95 % 95, 99 % 99, longest 100 tokens" in found.text
    assert found.level == level and remedy in found.remedy


def test_engine_of_a_launch():
    assert find_engine(read_launch(None, 1), 1) == "none"
    assert find_engine(read_launch(None, 2), 2) == "ddp"
    for name in ("zero2", "zero3_offload", "fsdp2"):
        assert find_engine(read_launch(name, 8), 8) == name


def test_an_unknown_launch_is_refused():
    with pytest.raises(UserError, match=r"zero4.*choose.*zero3"):
        read_launch("zero4", 8)


def test_a_missing_folder_is_refused():
    with pytest.raises(ValueError, match=r"^tokenizer: "):
        PreflightArguments(recipe="x", tokenizer="nowhere/at/all")


def test_a_refusal_is_split_into_finding_and_remedy():
    found = from_error("a", UserError("x: 1; bad; use 2"))
    assert found == Finding("error", "a", "x: 1; bad", "use 2")
    assert from_error("a", UserError("x: bad")) == Finding("error", "a", "x: bad")


def test_the_worst_is_shown_last_and_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = [
        Finding("ok", "keys", "fine"),
        Finding("warning", "grpo.yaml", "word " * 60, "change [this]"),
        Finding("error", "disk", "full", "buy one"),
    ]
    show("configs/x", found)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("fine") < text.index("warning") < text.index("error ")
    assert "→ change [this]" in text  # brackets are no markup
    assert text.rstrip().endswith("preflight: error 1, warning 1, ok 1")
