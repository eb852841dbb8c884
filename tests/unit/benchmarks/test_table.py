"""Intervals by hand, and the files that a benchmark leaves."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.table import (
    KEPT,
    figures_file,
    mean_interval,
    publish,
    ratio_interval,
    run,
)
from pipeline.errors import UserError
from pipeline.side_by_side import Runner

INF = math.inf


def test_mean_interval():
    # Mean 2, standard error 1; t of one degree of freedom is tan(0.475 pi) = 12.7062.
    assert mean_interval([1, 3]) == pytest.approx((2, 2 - 12.7062, 2 + 12.7062), abs=1e-4)
    assert mean_interval([5]) == (5, -INF, INF)


def test_ratio_interval():
    half = math.exp(4.302653 * math.log(2) / math.sqrt(3))  # logs -ln 2, 0, ln 2
    assert ratio_interval([0.5, 1, 2]) == pytest.approx((1, 1 / half, half), rel=1e-5)
    assert ratio_interval([0.5]) == pytest.approx((0.5, 0, INF))
    for bad in (INF, math.nan, 0.0):
        assert ratio_interval([0.5, bad]) == (INF, 0, INF)


def test_publish_prints_what_it_writes(tmp_path, capsys):
    out, rows = tmp_path / "new" / "x.md", [{"a": "1"}, {"a": "22", "b": "3"}]
    publish(str(out), "Title", "How.", rows, {"ratio": (INF, 0, INF)}, "- note")
    text, printed = out.read_text(), capsys.readouterr().out
    table = "| a   | b   |\n| --- | --- |\n| 1   |     |\n| 22  | 3   |\n"
    page = "|a|b|\n|---|---|\n|1||\n|22|3|\n"
    assert text.startswith(f"# Title\n\nHow.\n\n{page}\n- note\n") and "torch" in text
    assert table in printed and str(out) in printed
    assert json.loads(out.with_suffix(".json").read_text())["ratio"] == [None, 0, None]


def test_text_below_the_mark_stays_when_a_page_is_written_again(tmp_path):
    out = tmp_path / "x.md"
    for value in ("1", "2"):
        publish(str(out), "Title", "How.", [{"a": value}], {})
        if value == "1":
            out.write_text(f"{out.read_text()}\n{KEPT}\nBy hand.\n")
    assert "|2|" in out.read_text() and "|1|" not in out.read_text()
    assert out.read_text().endswith(f"\n\n{KEPT}\nBy hand.\n")


def test_figures_of_the_docs_are_kept_out_of_them(tmp_path):
    assert figures_file(Path("docs/results/x.md")) == Path("runs/results/x.json")
    assert figures_file(tmp_path / "x.md") == tmp_path / "x.json"


def test_a_run_that_fails_names_its_log(tmp_path):
    log = tmp_path / "new/run.log"
    run(Runner(1), ["-c", "print('once')"], log)
    with pytest.raises(UserError, match=r"run\.log: .* exit code 3"):
        run(Runner(1), ["-c", "raise SystemExit(3)"], log)
    assert log.read_text() == "once\n"
