"""The pages beside the report: runs side by side, and the browser of completions."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from eval.report import browse, compare
from eval.report.render import csp_hash
from pipeline.errors import UserError
from tests.unit.report.runs import (
    HOSTILE,
    Reader,
    both_modes,
    make_rows,
    seal,
    solved,
    write_json,
    write_log,
    write_run,
)

REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))


def run_compare(monkeypatch, folder, *runs):
    """`python -m eval.report.compare` on runs below a folder; the content of compare.json."""
    argv = ["compare", "--runs", *(str(folder / run) for run in runs), "--out", f"{folder}/out"]
    monkeypatch.setattr(sys, "argv", argv)
    compare.main()
    return json.loads((folder / "out/compare.json").read_text())


def test_seeds_count_as_one_run_and_changes_are_paired_over_problems(tmp_path, monkeypatch):
    """a solves p0 with either seed; b p0 with one, p0, p1 and p2 with the other: 2 of 4.

    The runs were moved since: they are read where they are.
    """
    for run, seed, right in (("a", 0, 1), ("a", 1, 1), ("b", 0, 1), ("b", 10, 3), ("c", 0, 4)):
        write_run(tmp_path / f"old/{run}/seed-{seed}", both_modes(right), seed)
    folder = (tmp_path / "old").rename(tmp_path / "new")
    found = run_compare(monkeypatch, folder, "a", "b", "c/seed-0")
    scores = {name: one["held_out"]["sampled"] for name, one in found["scores"].items()}
    values = {name: one["metrics"]["avg@2"]["value"] for name, one in scores.items()}
    assert values == {"a/seed-0": 0.25, "a/seed-1": 0.25, "b/seed-0": 0.25, "b/seed-10": 0.75,
                      "a": 0.25, "b": 0.5, "c": 1.0}  # fmt: skip
    changes = found["changes"]["held_out"]["sampled"]
    shown = [(one["from"], one["to"], one["score"]["value"], one["score"]["n"]) for one in changes]
    assert shown == [("a", "b", 0.25, 4), ("a", "c", 0.75, 4)]
    assert ["grpo, seed", "0 / 1", "0 / 10", "0"] in found["differ"][1]
    assert not any("output_dir" in row[0] for row in found["differ"][1])
    page = Reader(folder / "out/compare.html")
    page.check_safe()
    assert "KL to the reference" in page.text and "seed-10" in page.text


def test_seeds_of_one_run_are_compared_with_each_other(tmp_path, monkeypatch):
    for seed in (2, 10):
        write_run(tmp_path / f"a/seed-{seed}", both_modes(1), seed)
    assert list(run_compare(monkeypatch, tmp_path, "a")["checkpoints"]) == ["seed-2", "seed-10"]


@pytest.mark.parametrize("has_interval", [True, False])
def test_runs_of_an_official_task_alone(tmp_path, monkeypatch, has_interval):
    """Version 0.2.0 gave official scores no interval."""
    for run in "ab":
        write_run(tmp_path / run, make_rows(solved(1), "gsm8k", "official:gsm8k"))
        (path,) = (tmp_path / run).rglob("scores.json")
        if not has_interval:
            path.write_text(re.sub(r',\s*"(low|high)": [\w.]+', "", path.read_text()))
        seal(tmp_path / run / "eval", {"checkpoints": [f"grpo={tmp_path / run}/grpo"]})
    first = run_compare(monkeypatch, tmp_path, "a", "b")["headline"][0]
    assert first["value"] == "25.0 %" and first["note"].startswith("95 % [") is has_interval


@pytest.mark.parametrize(("runs", "changed", "words"), REFUSED["compare"])
def test_what_cannot_be_compared(tmp_path, monkeypatch, runs, changed, words):
    for run in "ab":
        write_run(tmp_path / run, both_modes(1))
        path = tmp_path / run / "eval/grpo/scores.json"
        scores = json.loads(path.read_text())
        scores["fingerprint"]["data"] = {f"{tmp_path}/{run}/test.jsonl": "same"}
        for key, values in changed.items() if run == "b" else ():
            scores[key] |= values
        write_json(path, scores)
        config = json.loads((tmp_path / run / "eval/manifest.json").read_text())["config"]
        seal(tmp_path / run / "eval", config)
    with pytest.raises(UserError, match=words) as error:
        run_compare(monkeypatch, tmp_path, *runs)
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_names_are_paths_without_what_all_share(tmp_path):
    rows = make_rows({"p": ["right"]})
    for run in ("x/a", "y/a", "y/seeds/seed-0", "y/seeds/seed-1"):
        write_run(tmp_path / run, rows)
    found = compare.find_runs(f"{tmp_path}/{run}" for run in ("x/a", "y/a", "y/seeds"))
    sizes = {name: len(folders) for name, folders in found.items()}
    assert sizes == {"x/a": 1, "y/a": 1, "y/seeds": 2}


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
