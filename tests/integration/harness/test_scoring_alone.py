"""`make eval MODEL= TASKS=`: a model from elsewhere is scored, nothing is trained."""

import importlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from pipeline import commands, scoring
from pipeline import request as requests
from tests.integration.harness.eval_runs import counting, read_scores

pytestmark = pytest.mark.integration


@pytest.fixture
def score(tmp_path, tiny_model_dir, shared_data, monkeypatch):
    """Run the command in this process; returns the folder of its run, and how much was asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    model = tmp_path / "runs/mine/my model"
    shutil.copytree(tiny_model_dir, model)
    config = json.loads(
        (model / "config.json").read_text()
    )  # its tokens are little more than bytes
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))

    def call(tasks, samples="2", **given):
        values = {"MODEL": str(model), "DATA_ROOT": str(shared_data), "TASKS": tasks}
        values |= {"SAMPLES": samples, "max_new_tokens": "8", "limit": "3", "dtype": "float32"}
        words = [f"{key}={value}" for key, value in (values | given).items()]
        request = requests.read(["eval", *words], {})
        requests.check_goals(request)
        scoring.check_scoring(request)
        with counting() as asked:
            for command in commands.commands(request):
                _, module, *flags = command.words
                name = {"eval.report": "eval.report.__main__"}.get(module, module)
                monkeypatch.setattr(sys, "argv", [module, *flags])
                importlib.import_module(name).main()
        return Path(request.run), len(asked)

    return call


def test_one_command_scores_a_model_and_another_list_of_tasks_shares_its_completions(score, capsys):
    run, asked = score("math500,aime24")
    assert run.parent.name.startswith("evaluate-my.model-") and run.name == "math500-aime24"
    assert asked == 2 * 3 * (1 + 2)
    assert {path.name for path in run.iterdir() if path.is_dir()} == {"eval", "report"}
    scores = read_scores(run / "eval/my.model")
    assert [*scores["tasks"]] == ["math500", "aime24"]
    assert "avg@2" in scores["tasks"]["aime24"]["sampled"]["metrics"]
    report = json.loads((run / "report/report.json").read_text())
    assert report["title"] == "Scores of my model" and report["stages"] == {}
    assert not [one for modes in report["changes"].values() for one in modes.values() if one]
    page = (run / "report/report.html").read_text()
    assert "paired" not in page and "the change comes from" not in page
    assert f"{run}/report/report.html" in capsys.readouterr().out

    before = (run / "eval/my.model/scores.json").read_bytes()
    other, asked = score("aime24", samples="4")
    assert other != run and asked == 3 * 2  # two more samples of three problems
    assert "avg@4" in read_scores(other / "eval/my.model")["tasks"]["aime24"]["sampled"]["metrics"]
    assert (run / "eval/my.model/scores.json").read_bytes() == before
    assert score("math500,aime24") == (run, 0)


def test_another_recipe_gives_the_prompt_and_another_run_s_card_is_left_alone(score):
    """And no samples leave the greedy completions."""
    trained = Path("runs/mine/my model")
    (trained / "README.md").write_text("its own scores")
    made = {"stage": "grpo", "config": {}, "counts": {}, "files": {}, "inputs": {}}
    (trained / "manifest.json").write_text(json.dumps(made))
    run, asked = score("math500", samples="0", RECIPE="qwen2.5-1.5b", backend="hf")
    assert run.parent.name.startswith("qwen2.5-1.5b-my.model-")
    scores = read_scores(run / "eval/my.model")
    assert scores["settings"]["prompt"] == "think" and scores["settings"]["official"] == []
    (modes,) = scores["tasks"].values()
    assert asked == 3 and [*modes] == ["greedy"]
    page = (run / "report/report.html").read_text()
    assert "avg@" not in page and "greedy accuracy" in page
    assert (trained / "README.md").read_text() == "its own scores"
