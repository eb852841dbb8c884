"""What `make fetch` asks the hub for; the hub is a stand-in."""

import sys

import pytest

from eval import fetch
from pipeline import commands
from pipeline.request import read
from tests.refused import refused


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Names of what is asked for; a model named `owner/empty` has no weights."""
    asked = []

    def fetch_model(name, place, patterns):
        asked.append((name, place))
        folder = tmp_path / name
        folder.mkdir(parents=True)
        if name != "owner/empty":
            (folder / "model.safetensors").touch()
        return folder

    def read_rows(task, data_root, **_):
        asked.append((task, data_root))
        return [{}] * 3

    monkeypatch.setattr(fetch, "fetch", fetch_model)
    monkeypatch.setattr(fetch.suite, "read_problem_rows", read_rows)
    load = lambda names, metadata: asked.append((tuple(names), metadata["data_root"]))  # noqa: E731
    monkeypatch.setattr(fetch.suite, "load_official_tasks", load)

    def call(*flags):
        monkeypatch.setattr(sys, "argv", ["fetch", *flags, "--run", str(tmp_path / "run")])
        fetch.main()
        return asked

    return call


def test_models_and_sets_of_a_recipe(hub, capsys):
    asked = dict(hub("--recipe", "configs/grpo7b"))
    assert "Qwen/Qwen2.5-7B-Instruct" in asked and "math500" in asked
    assert not {"held_out", "transfer"} & asked.keys()  # `make data` builds those
    said = capsys.readouterr().out.splitlines()
    assert not [name for name in asked if str(name).startswith("run/")]
    assert said[-1].startswith("fetch: complete") and "fetch: set math500 (3 problems)" in said


def test_a_model_and_sets_of_one_s_own(hub):
    asked = hub("--recipe", "configs/grpo7b", "--model", "owner/model", "--data_root", ".",
                "--keys", "eval.tasks=aime24", "eval.official=math500")  # fmt: skip
    assert asked == [("owner/model", "MODEL"), ("aime24", "."), (("math500",), ".")]


def test_teachers_and_a_template_are_fetched_too(hub, tmp_path):
    recipe = tmp_path / "mine"
    recipe.mkdir()
    (recipe / "sft.yaml").write_text("model_name_or_path: a/base\nchat_template_path: b/chat\n")
    teachers = "teachers: [{name: one, model_name_or_path: c/one}, {name: two}]\n"
    (recipe / "distill.yaml").write_text(teachers)
    assert [name for name, _ in hub("--recipe", str(recipe))] == ["c/one", "a/base", "b/chat"]


def test_a_model_without_weights_is_refused(hub):
    told = r"MODEL: owner/empty has no \.safetensors files"
    refused(told, hub, "--recipe", "configs/grpo7b", "--model", "owner/empty")


@pytest.mark.parametrize(
    ("recipe", "stages"), [("grpo7b", ["data", "fetch"]), ("evaluate", ["fetch"])]
)
def test_the_data_come_first_where_there_are_any(recipe, stages):
    planned = commands.commands(read(["fetch", f"RECIPE={recipe}", "RUN=no/run"], {}))
    assert [one.stage for one in planned] == stages
