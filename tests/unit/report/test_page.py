"""The page of a made-up run: what is written, what it says, and that it is safe to open."""

import json
import math
import re
from html.parser import HTMLParser

import pytest

from eval.report import plots
from eval.report.browse import PAGE
from eval.report.page import load_references, reference_table
from tests.unit.report.runs import (
    both_modes,
    hostile_page,
    make_rows,
    run_report,
    solved,
    write_result,
)

EVIL = (
    "<think><script>alert(1)</script></details></pre>\n<img src=http://evil.example/x>"
    "\x1b[31m \u202e </think> $\\frac{1}{2}$"
)
VOID = {"meta", "br", "img", "input"}
NAMES = ["base", "sft", "grpo"]


class Reader(HTMLParser):
    """Collects a page's tags, tables and the text of its `<pre>`; checks that tags are balanced."""

    def __init__(self, path):
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.tags, self.attributes, self.open, self.tables, self.pres = set(), [], [], [], []
        self.feed(self.text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag == "pre":
            self.pres.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "pre" in self.open:
            self.pres[-1] += data
        elif "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    @property
    def rows(self):
        return [row for table in self.tables for row in table]

    def check_safe(self):
        """It loads nothing and runs nothing; ids are unique and every reference has one."""
        bad = {"script", "img", "link", "iframe", "object", "embed", "base", "form"}
        assert not self.tags & bad
        targets = [value for name, value in self.attributes if name.endswith(("href", "src"))]
        assert targets and all(value.startswith("#") or value == PAGE for value in targets)
        assert not [name for name, _ in self.attributes if name.startswith("on")]
        style = re.search(r"<style>(.*?)</style>", self.text, re.DOTALL)[1]
        assert "url(" not in style and "@import" not in style
        assert "default-src 'none'" in self.text
        ids = [value for name, value in self.attributes if name == "id"]
        assert len(ids) == len(set(ids))
        used = {v[5:-1] for n, v in self.attributes if n == "clip-path"}
        assert {value[1:] for value in targets if value != PAGE} | used <= set(ids)
        assert "\x1b" not in self.text and "\u202e" not in self.text


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of three checkpoints on two tasks, one of them official too, with trainer logs."""
    tmp_path = tmp_path_factory.mktemp("run")
    for name, right, official in zip(NAMES, (0, 1, 3), ("right", "unread", "unread"), strict=True):
        rows = both_modes(right, level=2) + both_modes(right, "gsm8k", num_problems=3)
        rows += make_rows(solved(3, num_problems=3), "gsm8k", "official:gsm8k")
        for row in rows[-3:]:
            row |= {"outcome": official, "score": float(official == "right")}
        evil = {"completion": EVIL, "prediction": "```<img src=http://evil.example/y>`"}
        rows = [row | evil if row["id"] == "p1" else row for row in rows]
        write_result(tmp_path / "eval" / name, rows)
    history = {
        "sft": [{"step": s, "loss": 2 / s, "mean_token_accuracy": 0.5} for s in (1, 2)],
        "grpo": [{"step": s, "rollout/rewards": s / 3, "reward": 0} for s in (1, 2)]
        + [{"step": 2, "eval_avg@4": 0.5, "eval_avg@4_stderr": 0.1}],
    }
    for name, logs in history.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(json.dumps({"log_history": logs}))
    (tmp_path / "data").mkdir()
    found = {"stage": "data", "config": {"seed": 5}, "counts": {"rows": 9}}
    found["dropped"] = {"train": {"too long": 3}}
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(found))
    found = {"stage": "grpo", "config": {"reward_funcs": ["rlinf_reward"]}, "counts": {}}
    (tmp_path / "grpo" / "manifest.json").write_text(json.dumps(found))
    with pytest.MonkeyPatch.context() as monkeypatch:
        return run_report(tmp_path, monkeypatch, NAMES)


@pytest.fixture
def page(made):
    return Reader(made / "report.html")


def test_the_files_and_the_numbers(made):
    names = {"report.html", "report.json", "completions.html", "manifest.json"}
    assert {path.name for path in made.iterdir()} == names
    report = json.loads((made / "report.json").read_text())
    assert report["scores"]["grpo"]["held_out"]["sampled"]["metrics"]["avg@2"]["value"] == 0.75
    changes = report["changes"]["held_out"]["greedy"]
    assert [(one["from"], one["to"]) for one in changes] == [
        ("base", "sft"), ("sft", "grpo"), ("base", "grpo"),
    ]  # fmt: skip
    # Two of four problems newly solved: differences 0, 1, 1, 0.
    assert changes[1]["score"]["value"] == changes[1]["correct"]["value"] == 0.5
    assert changes[1]["score"]["stderr"] == pytest.approx(math.sqrt(1 / 12))
    assert report["outcomes"]["gsm8k"]["official:gsm8k"]["grpo"]["unread"] == 1
    assert report["levels"]["held_out"]["sampled"]["sft"]["2"]["value"] == 0.25
    assert report["levels"]["gsm8k"]["greedy"]["sft"] == {}
    assert report["curves"]["grpo"]["Evaluation while training"] == {"avg@4": [[2], [50.0]]}
    assert [found["title"] for found in report["references"]] == ["GSM8K"]
    assert (report["git_commit"], report["versions"]) == ("abc123", {"torch": "0.1"})
    assert report["evaluation_config"]["checkpoints"][0].startswith("base=")
    # p1's is what a model wrote, all three are right for our grader and not for the official one.
    assert sorted(found["id"] for found in report["unread"]) == ["p0", "p1", "p2"]
    assert {found["sides"][0]["verdict"] for found in report["unread"]} == {"right"}
    assert report["result"].startswith("grpo scores 75.0 % on held_out (avg@2), 50.0 points more")


def test_published_figures_stand_beside_ours_where_all_their_tasks_were_run():
    tasks = {"aime24": 0.1, "aime25": 0.2, "gpqa_diamond": 0.6}
    found = {
        task: {"sampled": {"main": "avg@32", "metrics": {"avg@32": {"value": value}}}}
        for task, value in tasks.items()
    }
    report = {"scores": {"base": found}, "references": load_references([*tasks])}
    rows = reference_table(report | {"base_model": "mine"})[1]
    theirs = ["DeepSeek-R1-Distill-Qwen-1.5B", "theirs, score: RLinf"]
    assert ["aime24, aime25, gpqa_diamond", "mine", "ours, avg@32", "30.0 (base)"] in rows
    assert ["average", *theirs, "26.89 → 40.84 (base -> RL)"] in rows
    older = "theirs, score: RLinf, older page of the same project"
    assert [older, "29.06 base, 43.55 AReaL-1.5B, 48.44 RLinf"] in [row[2:] for row in rows]
    assert "average" not in {one["title"] for one in load_references(["aime24", "aime25"])}


def test_what_the_page_says(page):
    assert ["grpo", *["75.0 ± 25.0"] * 4] in page.tables[0]
    assert ["dropped, train, too long", "3"] in page.rows
    assert ["GSM8K", "Qwen2.5-7B-Instruct"] in [row[:2] for row in page.rows]  # a published one
    ids = [value for name, value in page.attributes if name == "id"]
    sections = {"scores", "changes", "levels", "training", "flips", "references", "stages"}
    assert sections <= {*ids} and "Fewer than 100 problems" in page.text
    assert "runs from -5 to 5" in page.text and "no KL is measured" not in page.text
    assert "currentColor" in page.text and plots.INK not in page.text  # figures in dark too
    for figure in ("outcomes-", "sft_curves-", "grpo_curves-"):
        assert any(id.startswith(figure) for id in ids)


def test_the_result_comes_first(page, made):
    """A sentence, three numbers and two pictures, then warnings and tables."""
    headline = json.loads((made / "report.json").read_text())["headline"]
    assert [one["value"] for one in headline] == ["75.0 %", "+50.0 points", "100.0 %"]
    text = page.text
    places = [text.index('class="lead"')]
    places += [text.index(f"<b>{one['value']}</b>") for one in headline]
    places += [
        text.index("outcomes-"),
        text.index("parts-"),
        text.index('class="warnings"'),
        text.index('id="scores"'),
    ]
    assert places == sorted(places)


def test_the_page_is_safe_and_shows_texts_of_models_as_they_are(page):
    page.check_safe()
    assert EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") in page.pres
    assert "&lt;img src=http://evil.example/y&gt;" in page.text  # the prediction


def test_every_field_is_shown_as_text(made):
    found = Reader(hostile_page(made))
    found.check_safe()
    assert "1337" not in found.text and not set("\x07\x7f\x9b\r") & set(found.text)
    assert found.text.count("&lt;script&gt;") > 100


def test_the_same_run_gives_the_same_page(made, monkeypatch, capsys):
    first = (made / "report.html").read_bytes()
    run_report(made.parent, monkeypatch, NAMES)
    assert (made / "report.html").read_bytes() == first
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f"Report: {made}/report.html"
    assert max(map(len, lines)) <= 100 and not any("evil" in line for line in lines)


def test_an_official_task_alone(tmp_path, monkeypatch):
    for name, right in (("sft", 1), ("grpo", 2)):
        rows = make_rows(solved(right), "arc_challenge", "official:arc_challenge")
        rows = [row | {"completion": None, "verdict": None, "num_tokens": None} for row in rows]
        write_result(tmp_path / "eval" / name, rows)
    text = (run_report(tmp_path, monkeypatch, ["sft", "grpo"]) / "report.html").read_text()
    assert "No completion changed" in text  # log-likelihoods are no completions
    assert "67.06 → 62.97 → 62.80 (" in text and "25.0 → 50.0 (sft → grpo)" in text
    alone = run_report(tmp_path, monkeypatch, ["sft"]) / "report.html"
    assert "→" not in alone.read_text().split('id="references"')[0]


def test_stages_and_curves_next_to_the_checkpoints(tmp_path, monkeypatch):
    for name in ("sft", "grpo"):
        write_result(tmp_path / "eval" / name, both_modes(1))
    for name in ("data", "audit", "difficulty", "sft", "grpo"):
        (tmp_path / name).mkdir()
        found = {"stage": name, "config": {"seed": 3}, "counts": {"rows": 9}}
        (tmp_path / name / "manifest.json").write_text(json.dumps(found))
    (tmp_path / "grpo/best").mkdir()
    logs = [{"step": 1, "rollout/rewards": 0.5}]
    (tmp_path / "grpo/trainer_state.json").write_text(json.dumps({"log_history": logs}))
    (tmp_path / "audit/manifest.json").write_text('{"stage": "other", "counts": {}}')
    folder = run_report(tmp_path, monkeypatch, ["sft", "grpo/best"])
    report = json.loads((folder / "report.json").read_text())
    assert list(report["stages"]) == ["data", "sft", "difficulty", "grpo"]
    assert list(report["curves"]) == ["grpo"]
