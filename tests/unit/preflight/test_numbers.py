"""Preflight's small numbers: chances, engines, findings and how they are shown."""

import pytest

from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.preflight.__main__ import show
from stages.preflight.batches import check_precision, check_saves, check_steps
from stages.preflight.inputs import (
    Finding,
    PreflightArguments,
    find_engine,
    from_error,
)
from stages.preflight.lengths import compare
from stages.run.launch import read_launch
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)


@table
def test_lengths_are_compared_with_a_limit(limit, level, remedy):
    found = compare("sft lengths", range(1, 1001), "max_length", limit, "dropped", "error")
    assert "median 500, 95 % 950, 99 % 990, longest 1,000 tokens" in found.text
    assert found.level == level and remedy in found.remedy


STEPS = {
    "max_steps": 200, "save_steps": 50, "warmup_steps": 10, "eval_strategy": "steps",
    "eval_steps": 50,
}  # fmt: skip


@table
def test_what_a_short_run_never_comes_to_is_named(changes, named):
    values = Settings(STEPS | changes, {}, {})
    found = [one for one in check_steps("sft.yaml", values, 1000, 8, 125) if one.level == "warning"]
    assert len(found) == len(named)
    assert all(text in one.text for text, one in zip(named, found, strict=True))


@pytest.mark.parametrize(
    ("strategy", "weights_alone", "key"),
    [("steps", False, ""), ("no", False, "save_strategy"), ("steps", True, "save_only_model")],
)
def test_a_run_that_could_not_be_resumed_is_named(strategy, weights_alone, key):
    values = Settings({"save_strategy": strategy, "save_only_model": weights_alone}, {}, {})
    assert "".join(one.text.partition(":")[0] for one in check_saves("sft", values)) == key


@pytest.mark.parametrize(
    ("rate", "level"),
    [(2e-6, "error"), (2.01e-6, "warning"), (9.99e-6, "warning"), (1e-5, "ok")],
)
def test_a_learning_rate_that_16_bit_weights_round_away(rate, level):
    values = {"learning_rate": rate, "dtype": "bfloat16", "use_peft": False}
    settings = Settings(values | {"stochastic_rounding": False}, {}, {})
    assert check_precision("sft", settings, "none", "bfloat16").level == level
    assert check_precision("sft", settings, "none", "float32").level == "ok"


def test_engine_of_a_launch():
    assert find_engine(read_launch(None, 1), 1) == "none"
    assert find_engine(read_launch(None, 2), 2) == "ddp"
    for name in ("zero2", "zero3_offload", "fsdp2"):
        assert find_engine(read_launch(name, 8), 8) == name
    refused(r"zero4.*choose.*zero3", read_launch, "zero4", 8)
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
