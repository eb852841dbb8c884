"""The browser of completions: which are drawn, how they get into the page, what is left out."""

import re
import sys
from collections import Counter

import pytest

from eval.report import browse
from eval.report.render import csp_hash
from pipeline.errors import UserError
from tests.unit.report.runs import HOSTILE, Reader, both_modes, write_log, write_run


def run_browse(monkeypatch, run):
    """`python -m eval.report.browse` on a run: its page, and the facts that filters look at."""
    monkeypatch.setattr(sys, "argv", ["browse", "--run", str(run)])
    browse.main()
    page = Reader(run / browse.PAGE)
    keys = ("from", "verdict", "step", "length")
    pattern = " ".join(f'data-{key}="(.*?)"' for key in keys)
    found = re.findall(f"<article {pattern}>", page.text, re.DOTALL)
    return page, [dict(zip(keys, one, strict=True)) for one in found]


def test_training_and_evaluation_are_in_the_page(tmp_path, monkeypatch, capsys):
    write_run(tmp_path, both_modes(1))
    (tmp_path / "grpo/completions/completions_00003.parquet").write_bytes(b"PAR1")  # being written
    page, rows = run_browse(monkeypatch, tmp_path)
    assert Counter(row["from"] for row in rows) == {"grpo": 8, "eval/grpo": 12}
    assert rows[0] == {"from": "grpo", "verdict": "right", "step": "1", "length": "4"}
    assert page.pres[:2] == ["[system]\nThink.\n\n[user]\n2 + 2?", "so 0"]
    assert "4 characters; reward 1<" in page.text and "reward nan" not in page.text
    assert rows[-1]["step"] == ""
    said = capsys.readouterr()
    assert "completions: 20 of 20" in said.out
    assert "00003.parquet: left out" in said.err and said.err.count("\n") == 1


def test_the_page_runs_its_own_script_alone(tmp_path, monkeypatch):
    """The policy names the script by its hash; texts are text, in attributes too."""
    # Of a trainer that is not ours.
    write_log(tmp_path / "completions/a.parquet", 1, text=HOSTILE, verdict=[HOSTILE] * 4)
    page, rows = run_browse(monkeypatch, tmp_path)
    assert len(rows) == 4 and page.pres[1].startswith("<script>") and "\\x1b" in page.pres[1]
    assert page.text.count("<script") == page.text.count("</script>") == 1
    script = re.search(r"<script>(.*?)</script>", page.text, re.DOTALL)[1]
    assert f"script-src '{csp_hash(script)}'" in page.text and "default-src 'none'" in page.text
    assert "\x1b" not in page.text and "\u202e" not in page.text
    assert not {"img", "svg", "link", "iframe"} & page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_the_page_is_bounded_and_the_draw_even(tmp_path, monkeypatch):
    monkeypatch.setattr(browse, "MAX_SHOWN", 40)
    monkeypatch.setattr(browse, "MAX_CHARACTERS", 8_000)
    monkeypatch.setattr(browse, "MAX_FILES", 4)
    verdict = ["right"] + ["wrong"] * 99
    for step in range(1, 11):
        path = tmp_path / f"completions/completions_{step:05}.parquet"
        write_log(path, step, 100, text="long " * 500, verdict=verdict)
    page, rows = run_browse(monkeypatch, tmp_path)
    kinds = Counter((row["step"], row["verdict"]) for row in rows)
    steps = ["1", "4", "7", "10"]  # every third file, the last too
    assert kinds == {(s, v): n for s in steps for v, n in (("right", 1), ("wrong", 9))}
    assert max(map(len, page.pres)) < 200 and int(rows[0]["length"]) > 2_500
    assert run_browse(monkeypatch, tmp_path)[0].text == page.text


def test_a_folder_without_completions(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="has no completions"):
        run_browse(monkeypatch, tmp_path)
