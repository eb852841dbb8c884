"""The browser of completions: which are drawn, how they get into the page, what is left out."""

import json
import re
import sys
from collections import Counter

import pytest

from eval.report import browse
from eval.report.render import csp_hash
from pipeline.errors import UserError
from tests.unit.report.runs import HOSTILE, both_modes, write_log, write_run
from tests.unit.report.test_page import Reader


def run_browse(monkeypatch, run):
    """`python -m eval.report.browse` on a run; the page and the rows in it."""
    monkeypatch.setattr(sys, "argv", ["browse", "--run", str(run)])
    browse.main()
    text = (run / browse.PAGE).read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="rows">(.*?)</script>', text, re.DOTALL)
    return text, json.loads(data[1])


def test_training_and_evaluation_are_in_the_page(tmp_path, monkeypatch, capsys):
    write_run(tmp_path, both_modes(1))
    (tmp_path / "grpo/completions/completions_00003.parquet").write_bytes(b"PAR1")  # being written
    _, rows = run_browse(monkeypatch, tmp_path)
    assert Counter(row["from"] for row in rows) == {"grpo": 8, "eval/grpo": 12}
    first = rows[0]
    assert (first["step"], first["verdict"], first["length"]) == (1, "right", 4)
    assert first["prompt"] == "[system]\nThink.\n\n[user]\n2 + 2?" and first["completion"] == "so 0"
    assert "reward 1" in first["facts"] and rows[-1]["step"] is None
    said = capsys.readouterr()
    assert "completions: 20 of 20" in said.out
    assert "00003.parquet: left out" in said.err and said.err.count("\n") == 1


def test_the_page_runs_its_own_script_alone(tmp_path, monkeypatch):
    """The policy names the script by its hash; texts are data, in which no tag can begin."""
    (tmp_path / "completions").mkdir()  # of a trainer that is not ours
    write_log(tmp_path / "completions/a.parquet", 1, text=HOSTILE, verdict=[HOSTILE] * 4)
    text, rows = run_browse(monkeypatch, tmp_path)
    assert rows[0]["completion"].startswith("<script>") and "\\x1b" in rows[0]["completion"]
    assert "<img" not in text and text.count("<script") == text.count("</script>") == 2
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    assert f"script-src '{csp_hash(script)}'" in text and "default-src 'none'" in text
    assert "\x1b" not in text and "\u202e" not in text
    assert not {"img", "svg", "link", "iframe"} & Reader(tmp_path / browse.PAGE).tags


def test_the_page_is_bounded_and_the_draw_even(tmp_path, monkeypatch):
    monkeypatch.setattr(browse, "MAX_SHOWN", 40)
    monkeypatch.setattr(browse, "MAX_CHARACTERS", 8_000)
    monkeypatch.setattr(browse, "MAX_FILES", 4)
    (tmp_path / "completions").mkdir()
    for step in range(1, 11):
        verdict = ["right"] + ["wrong"] * 99
        path = tmp_path / f"completions/completions_{step:05}.parquet"
        write_log(path, step, 100, text="long " * 500, verdict=verdict)
    text, rows = run_browse(monkeypatch, tmp_path)
    kinds = Counter((row["step"], row["verdict"]) for row in rows)
    assert sorted({step for step, _ in kinds}) == [1, 4, 7, 10]  # every third file, the last too
    assert all(kinds[step, "right"] == 1 and kinds[step, "wrong"] == 9 for step in (1, 4, 7, 10))
    assert max(len(row["completion"]) for row in rows) < 200 and rows[0]["length"] > 2_500
    assert run_browse(monkeypatch, tmp_path)[0] == text


def test_a_folder_without_completions(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="has no completions"):
        run_browse(monkeypatch, tmp_path)
