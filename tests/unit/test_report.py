"""The whole report of a made-up run: what is written, what it says, and that it is safe to open."""

import json
import math
import re
from html.parser import HTMLParser

import pytest
from report_runs import both_modes, make_rows, run_report, solved, write_result

EVIL = (
    "<think><script>alert(1)</script></details></pre>\n```\n`````\n<img src=http://evil.example/x>"
    "\x1b[31m \u202e ![x](http://evil.example/x)</think> $\\frac{1}{2}$"
)
VOID = {"meta", "br", "img"}


class Reader(HTMLParser):
    """Collects a page's tags, tables and the text of its `<pre>`; checks that tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.tables, self.pres = set(), [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
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


def markdown_tables(text):
    """Every table of a Markdown text outside its fences, as lists of rows of cells."""
    text = re.sub(r"^(`{3,})text$.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    tables, inside = [], False
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")]
            if not inside:
                tables.append([])
            if not set(line) <= set("|-: "):
                tables[-1].append(cells)
        inside = line.startswith("|")
    return tables


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of three checkpoints on two tasks, one of them official too, with trainer logs."""
    tmp_path = tmp_path_factory.mktemp("run")
    kinds = (("base", 0, "right"), ("sft", 1, "unread"), ("grpo", 3, "unread"))
    for name, right, official in kinds:
        rows = both_modes(right, level=2) + both_modes(right, "gsm8k", num_problems=3)
        rows += make_rows(solved(3, num_problems=3), "gsm8k", "official:gsm8k")
        for row in rows[-3:]:
            row["outcome"] = official
            row["score"] = float(official == "right")
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
        state = tmp_path / name / "trainer_state.json"
        state.write_text(json.dumps({"log_history": logs}))
    (tmp_path / "data").mkdir()
    found = {"config": {"seed": 5}, "counts": {"rows": 9}, "dropped": {"train": {"too long": 3}}}
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(found))
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_report(tmp_path, monkeypatch, ["base", "sft", "grpo"])
    return tmp_path


@pytest.fixture
def folder(made):
    return made / "report"


def test_the_files_and_the_numbers(folder):
    assert {path.name for path in folder.iterdir()} == {
        "report.html", "report.md", "report.json", "manifest.json", "scores.png", "changes.png",
        "sft_curves.png", "grpo_curves.png",
    }  # fmt: skip
    report = json.loads((folder / "report.json").read_text())
    assert report["scores"]["grpo"]["held_out"]["sampled"]["metrics"]["avg@2"]["value"] == 0.75
    changes = report["changes"]["held_out"]["greedy"]
    assert [(one["from"], one["to"]) for one in changes] == [
        ("base", "sft"), ("sft", "grpo"), ("base", "grpo"),
    ]  # fmt: skip
    # Two of four problems newly solved: differences 0, 1, 1, 0.
    assert changes[1]["score"]["value"] == changes[1]["ability"]["value"] == 0.5
    assert changes[1]["score"]["stderr"] == pytest.approx(math.sqrt(1 / 12))
    assert report["outcomes"]["gsm8k"]["official:gsm8k"]["grpo"]["unread"] == 1
    assert report["levels"]["held_out"]["sampled"]["sft"]["2"]["value"] == 0.25
    assert report["levels"]["gsm8k"]["greedy"]["sft"] == {}
    assert report["curves"]["grpo"]["Evaluation while training"] == {"avg@4": [[2], [50.0]]}
    assert [found["title"] for found in report["references"]] == ["GSM8K"]
    assert (report["git_commit"], report["versions"]) == ("abc123", {"torch": "0.1"})
    assert report["evaluation_config"] == {"title": "as evaluated"}
    # p1's is what a model wrote, all three are right for our grader and not for the official one.
    assert sorted(found["id"] for found in report["unread"]) == ["p0", "p1", "p2"]
    assert {found["sides"][0]["verdict"] for found in report["unread"]} == {"right"}
    assert report["summary"].startswith("grpo over sft on held_out: +50.0 points avg@2 [")
    assert "% of grpo's answers" in " ".join(report["warnings"])


def test_the_page_and_its_twin_have_the_same_tables(folder):
    text = (folder / "report.md").read_text()
    page = Reader((folder / "report.html").read_text())
    assert markdown_tables(text) == page.tables
    assert len(page.tables) == 17
    assert ["grpo", "75.0 ± 25.0", "75.0 ± 25.0", "75.0 ± 25.0", "75.0 ± 25.0"] in page.tables[0]
    assert any(
        row[:2] == ["dropped, train, too long", "3"] for table in page.tables for row in table
    )
    for name in ("scores", "changes", "sft_curves", "grpo_curves"):
        assert f"]({name}.png)" in text
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_loads_nothing_and_runs_nothing(folder):
    text = (folder / "report.html").read_text()
    page = Reader(text)
    assert not page.tags & {"script", "img", "link", "iframe", "object", "embed", "base", "form"}
    targets = {name: value for name, value in page.attributes if name.endswith(("href", "src"))}
    assert targets and all(value.startswith("#") for value in targets.values())
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert "url(" not in style and "@import" not in style
    assert "default-src 'none'" in text


def test_ids_are_unique_and_every_reference_has_one(folder):
    page = Reader((folder / "report.html").read_text())
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = {value[1:] for name, value in page.attributes if name.endswith("href")}
    used |= {v[5:-1] for n, v in page.attributes if n == "clip-path"}
    assert used and used <= set(ids)


def test_texts_of_models_are_shown_and_nothing_else(folder):
    page = Reader((folder / "report.html").read_text())
    shown = EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert shown in page.pres
    for name in ("report.html", "report.md"):
        text = (folder / name).read_text()
        assert "\x1b" not in text and "\u202e" not in text
    text = (folder / "report.md").read_text()
    assert f"``````text\n{shown}\n``````" in text  # longer than the longest run within
    outside = re.sub(r"^(`{3,})text$.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "evil" in outside  # the prediction
    assert "<script" not in outside and "<img" not in outside and "](http" not in outside


def test_the_same_run_gives_the_same_page(made, folder, monkeypatch, capsys):
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    run_report(made, monkeypatch, ["base", "sft", "grpo"])
    again = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [name for name in first if first[name] != again[name]] in ([], ["manifest.json"])

    out = capsys.readouterr().out
    assert "75.0 ± 25.0" in out and "warning: Fewer than 100 problems" in out
    *lines, last = out.splitlines()
    assert last == f"Report: {folder}/report.html, {folder}/report.md"
    assert max(map(len, lines)) <= 100
    assert "evil" not in out


def test_one_checkpoint_has_scores_and_no_changes(tmp_path, monkeypatch):
    write_result(tmp_path / "eval" / "base", both_modes(1))
    folder = run_report(tmp_path, monkeypatch, ["base"])
    assert {path.name for path in folder.glob("*.png")} == {"scores.png"}
    text = (folder / "report.md").read_text()
    assert "base on held_out: avg@2 25.0 ± 25.0 %." in text
    assert "→" not in text and "## Side by side" not in text


def test_an_official_task_alone(tmp_path, monkeypatch):
    for name, right in (("sft", 1), ("grpo", 2)):
        rows = make_rows(solved(right), "arc_challenge", "official:arc_challenge")
        rows = [row | {"completion": None, "verdict": None, "num_tokens": None} for row in rows]
        write_result(tmp_path / "eval" / name, rows)
    text = (run_report(tmp_path, monkeypatch, ["sft", "grpo"]) / "report.md").read_text()
    assert "No completion changed" in text  # log-likelihoods are no completions
    assert "67.06 → 62.97 → 62.80" in text and "25.0 → 50.0 (sft → grpo)" in text


def test_a_best_model_shows_its_stage(tmp_path, monkeypatch):
    write_result(tmp_path / "eval" / "grpo", both_modes(1))
    stage = tmp_path / "run"
    (stage / "best").mkdir(parents=True)
    logs = [{"step": 1, "rollout/rewards": 0.5}]
    (stage / "trainer_state.json").write_text(json.dumps({"log_history": logs}))
    (stage / "manifest.json").write_text(json.dumps({"config": {"beta": 0.04}, "counts": {}}))
    checkpoint = ["--checkpoints", f"grpo={stage}/best"]
    text = (run_report(tmp_path, monkeypatch, [], *checkpoint) / "report.md").read_text()
    assert "grpo_curves.png" in text and "| beta | 0.04 |" in text


def test_stages_beside_the_checkpoints(tmp_path, monkeypatch):
    for name in ("sft", "grpo"):
        write_result(tmp_path / "eval" / name, both_modes(1))
    for name in ("data", "audit", "difficulty", "sft", "grpo"):
        (tmp_path / name).mkdir()
        found = {"stage": name, "config": {"seed": 3}, "counts": {"rows": 9}}
        (tmp_path / name / "manifest.json").write_text(json.dumps(found))

    def stages(*more):
        folder = run_report(tmp_path, monkeypatch, ["sft", "grpo"], *more)
        assert "commit of this report" in (folder / "report.md").read_text()
        return list(json.loads((folder / "report.json").read_text())["stages"])

    assert stages() == ["data", "audit", "sft", "difficulty", "grpo"]
    elsewhere = ["--test_file", f"{tmp_path}/other/test.jsonl"]
    assert stages(*elsewhere) == ["data", "audit", "sft", "difficulty", "grpo"]
    (tmp_path / "audit" / "manifest.json").write_text('{"stage": "other", "counts": {}}')
    assert stages() == ["data", "sft", "difficulty", "grpo"]
