"""The report of a made-up run: its numbers, its page that is safe to open, what it refuses."""

import math
from pathlib import Path

import pytest
import yaml

from eval.report.page import load_references, reference_table
from pipeline.errors import UserError
from tests.unit.report.runs import (
    Reader,
    both_modes,
    hostile_page,
    make_rows,
    read_report,
    run_report,
    solved,
    write_json,
    write_result,
)

REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))
EVIL = (
    "<think><script>alert(1)</script></details></pre>\n<img src=http://evil.example/x>"
    "\x1b[31m \u202e </think> $\\frac{1}{2}$"
)
NAMES = ["base", "sft", "grpo"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of three checkpoints on two tasks, one of them official too, with trainer logs."""
    folder = tmp_path_factory.mktemp("run")
    for name, right, official in zip(NAMES, (0, 1, 3), ("right", "unread", "unread"), strict=True):
        rows = both_modes(right, level=2) + both_modes(right, "gsm8k", num_problems=3)
        parsed = make_rows(solved(3, num_problems=3), "gsm8k", "official:gsm8k")
        rows += [row | {"outcome": official, "score": float(official == "right")} for row in parsed]
        evil = {"completion": EVIL, "prediction": "```<img src=http://evil.example/y>`"}
        rows = [row | evil if row["id"] == "p1" else row for row in rows]
        write_result(folder / "eval" / name, rows)
    logs = [{"step": s, "loss": 2 / s, "mean_token_accuracy": 0.5} for s in (1, 2)]
    write_json(folder / "sft/trainer_state.json", {"log_history": logs})
    logs = [{"step": s, "rollout/rewards": s / 3, "reward": 0} for s in (1, 2)]
    logs += [{"step": 2, "eval_avg@4": 0.5, "eval_avg@4_stderr": 0.1}]
    write_json(folder / "grpo/trainer_state.json", {"log_history": logs})
    found = {"stage": "data", "config": {"seed": 5}, "counts": {"rows": 9}}
    write_json(folder / "data/manifest.json", found | {"dropped": {"train": {"too long": 3}}})
    found = {"stage": "grpo", "config": {"reward_funcs": ["rlinf_reward"]}, "counts": {}}
    write_json(folder / "grpo/manifest.json", found)
    with pytest.MonkeyPatch.context() as monkeypatch:
        return run_report(folder, monkeypatch, NAMES)


def test_the_files_and_the_numbers(made):
    names = {"report.html", "report.json", "completions.html", "manifest.json"}
    assert {path.name for path in made.iterdir()} == names
    report = read_report(made)
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
    assert report["stages"]["data"]["dropped"] == {"train": {"too long": 3}}
    # p1's is what a model wrote, all three are right for our grader and not for the official one.
    assert sorted(found["id"] for found in report["unread"]) == ["p0", "p1", "p2"]
    assert {found["sides"][0]["verdict"] for found in report["unread"]} == {"right"}
    assert report["result"].startswith("grpo scores 75.0 % on held_out (avg@2), 50.0 points more")
    shown = [one["value"] for one in report["headline"]]
    assert shown == ["75.0 %", "+50.0 points", "100.0 %"]


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
    assert "average" not in {one["title"] for one in load_references(["aime24", "aime25"])}


def test_the_page_has_its_sections_and_the_result_comes_first(made):
    page = Reader(made / "report.html")
    ids = [value for name, value in page.attributes if name == "id"]
    sections = ["scores", "changes", "levels", "training", "flips", "references", "stages"]
    assert {*sections} <= {*ids}
    for figure in ("outcomes-", "sft_curves-", "grpo_curves-"):
        assert any(id.startswith(figure) for id in ids)
    shown = [f"<b>{one['value']}</b>" for one in read_report(made)["headline"]]
    parts = ['class="lead"', *shown, "outcomes-", "parts-", 'class="warnings"', 'id="scores"']
    places = [page.text.index(part) for part in parts]
    assert places == sorted(places)


def test_the_page_is_safe_and_shows_texts_of_models_as_they_are(made):
    page = Reader(made / "report.html")
    page.check_safe()
    assert EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") in page.pres
    assert "&lt;img src=http://evil.example/y&gt;" in page.text  # the prediction
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
    """Log-likelihoods are no completions: none of them changes."""
    for name, right in (("sft", 1), ("grpo", 2)):
        rows = make_rows(solved(right), "arc_challenge", "official:arc_challenge")
        rows = [row | {"completion": None, "verdict": None, "num_tokens": None} for row in rows]
        write_result(tmp_path / "eval" / name, rows)
    folder = run_report(tmp_path, monkeypatch, ["sft", "grpo"])
    assert read_report(folder)["flips"] == []
    text = (folder / "report.html").read_text()
    assert "67.06 → 62.97 → 62.80 (" in text and "25.0 → 50.0 (sft → grpo)" in text
    alone = run_report(tmp_path, monkeypatch, ["sft"]) / "report.html"
    assert "→" not in alone.read_text().split('id="references"')[0]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two checkpoints' results, and a call that reports on them."""
    for name in ("sft", "grpo"):
        write_result(tmp_path / "eval" / name, both_modes(1))
    (tmp_path / "sft").mkdir()
    return lambda *flags: run_report(tmp_path, monkeypatch, ["sft", "grpo/best"], *flags)


def test_stages_and_curves_next_to_the_checkpoints(run, tmp_path):
    for name in ("data", "difficulty", "sft", "grpo"):
        found = {"stage": name, "config": {"seed": 3}, "counts": {"rows": 9}}
        write_json(tmp_path / name / "manifest.json", found)
    write_json(tmp_path / "audit/manifest.json", {"stage": "other", "counts": {}})
    (tmp_path / "grpo/best").mkdir()
    logs = [{"step": 1, "rollout/rewards": 0.5}]
    write_json(tmp_path / "grpo/trainer_state.json", {"log_history": logs})
    report = read_report(run())
    assert list(report["stages"]) == ["data", "sft", "difficulty", "grpo"]
    assert list(report["curves"]) == ["grpo"]


def test_what_was_evaluated_is_reported_not_what_the_recipe_says(run):
    report = read_report(run("--title", "{base}, trained", "--temperature", "0.6"))
    assert (report["title"], [*report["checkpoints"]]) == ("sft, trained", ["sft", "grpo"])
    assert report["settings"]["temperature"] == 1.0


def test_converted_weights_are_a_note(run, tmp_path):
    blocks = {"file": "a.gguf", "source": "here", "sha256": "0", "quantization": "Q4_1 (4-bit)"}
    whole = blocks | {"file": "b.gguf", "quantization": ""}
    made = {"stage": "sft", "origins": {"/cache/a": blocks, str(tmp_path / "sft"): whole}}
    write_json(tmp_path / "sft/manifest.json", made)
    folder = run()
    assert read_report(folder)["origins"] == made["origins"]
    page = (folder / "report.html").read_text()
    assert "/cache/a was converted from a.gguf, here: its weights were rounded to Q4_1" in page
    assert "sft was converted from b.gguf, here." in page


@pytest.mark.parametrize(("name", "text", "message"), REFUSED["report"])
def test_a_missing_or_damaged_file_is_named(run, tmp_path, name, text, message):
    path = tmp_path / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        run()
    assert name in str(error.value) and "\n" not in str(error.value)


def test_a_checkpoint_that_was_scored_by_other_code(run, tmp_path, monkeypatch):
    write_result(tmp_path / "eval/new", both_modes(1), code="newer")
    with pytest.raises(UserError, match="code: new was evaluated with another code than sft"):
        run_report(tmp_path, monkeypatch, ["sft", "new"])
    assert not (tmp_path / "report").exists()
