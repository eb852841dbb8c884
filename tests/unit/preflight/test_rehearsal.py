"""What is looked for before the first stage of a command is paid for."""

import shutil
import socket
from contextlib import closing

import pytest
import yaml

from pipeline import manifest, memory
from stages.preflight import capacity, rehearsal
from stages.preflight.inputs import PreflightArguments, check_teachers, read_recipe
from tests.conftest import ROOT
from tests.refused import refused
from tests.servers import serve_json
from tests.tables import tables_beside

table = tables_beside(__file__)

LAPTOP = "configs/smollm2-135m"


@pytest.fixture
def look(monkeypatch, tmp_path):
    """Check a recipe ahead, as the command of a goal does, where all packages are installed."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(rehearsal, "is_installed", lambda package: True)
    monkeypatch.setattr(rehearsal, "check_packages", lambda settings: None)

    def call(recipe, *keys, goal="grpo"):
        line = ["ahead", "--recipe", str(recipe), "--run", str(tmp_path / "run"), "--goal", goal]
        monkeypatch.setattr("sys.argv", [*line, *(("--keys", *keys) if keys else ())])
        rehearsal.main()

    return call


def finish(tmp_path, stage):
    """Let a stage's result be there."""
    (tmp_path / "run" / stage).mkdir(parents=True)
    (tmp_path / "run" / stage / "manifest.json").touch()


def test_a_missing_vllm_is_told_unless_nothing_is_left_for_it(look, monkeypatch, tmp_path):
    monkeypatch.setattr(rehearsal, "is_installed", lambda package: False)
    told = r"difficulty\.yaml: vLLM is not installed"
    refused(told, look, "configs/grpo7b", goal="difficulty")
    look("configs/grpo7b", "difficulty.backend=hf", goal="difficulty")
    finish(tmp_path, "difficulty")
    look("configs/grpo7b", goal="difficulty")


def test_a_missing_package_of_a_later_stage_is_told_first(look, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(manifest, "versions", lambda names: {"tensorboard"} & {*names})
    told = "use_liger_kernel: True needs the package liger-kernel"
    refused(told, look, ROOT / "configs/tiny-cpu", "grpo.use_liger_kernel=true")


@table
def test_samples_that_the_context_cannot_hold_are_told_first(look, keys, line):
    """Before SFT and GRPO are trained, whose models have as many positions as the first."""
    stage = keys[0].partition(".")[0]
    if line:
        told = rf"{stage}\.yaml: max_new_tokens.*{line}"
        refused(told, look, "configs/grpo7b", *keys, goal=stage)
    else:
        look("configs/grpo7b", *keys, goal=stage)


@pytest.mark.parametrize("teachers", [False, True])
def test_a_teacher_without_its_server_is_told_before_data_are_built(
    look, monkeypatch, tmp_path, teachers
):
    pytest.importorskip("openai", reason="the extra `distill` has the client")
    monkeypatch.setenv("NO_PROXY", "*")
    recipe = shutil.copytree("configs/perplexity", tmp_path / "recipe")
    file = recipe / "distill.yaml"
    given = yaml.safe_load(file.read_text(encoding="utf-8"))

    def look_at(address):
        model = {"name": "R1", "model_name_or_path": "deepseek-ai/DeepSeek-R1", "base_url": address}
        changes = {"teachers": [model]} if teachers else {"base_url": address}
        file.write_text(yaml.safe_dump(given | changes), encoding="utf-8")
        look(recipe, "sft.model_name_or_path=meta-llama/Llama-3.1-8B")

    with closing(socket.socket()) as taken:  # nobody listens there
        taken.bind(("127.0.0.1", 0))
        silent = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        name = "teachers: R1: " if teachers else ""
        refused(rf"distill\.yaml: {name}base_url: {silent}", look_at, silent)
        models = [{"id": "deepseek-ai/DeepSeek-R1"}, {"id": "Qwen/QwQ-32B-Preview"}]
        with serve_json({"v1/models": (200, {"object": "list", "data": models})}) as port:
            look_at(f"http://127.0.0.1:{port}/v1")
        finish(tmp_path, "distill")
        look_at(silent)  # its traces are there


def test_preflight_names_the_servers_that_a_recipe_needs(tmp_path):
    args = PreflightArguments(recipe=f"{ROOT}/configs/perplexity", run=str(tmp_path / "run"))
    recipe, _ = read_recipe(args)
    (found,) = check_teachers(recipe)
    assert found.level == "not checked" and "http://localhost:8000/v1" in found.text
    assert "Qwen/QwQ-32B-Preview" in found.text and found.remedy
    recipe.settings["distill"]["teachers"] = [
        {"name": "QwQ"},
        {"name": "R1", "model_name_or_path": "R1", "base_url": "http://localhost:8001/v1"},
    ]
    one, other = check_teachers(recipe)
    assert "--port" not in one.remedy and "--port 8001" in other.remedy
    finish(tmp_path, "distill")
    assert [*check_teachers(recipe)] == []


@table
def test_a_recipe_that_needs_more_memory_than_the_host_has_is_refused(
    look, monkeypatch, gib, keys, words
):
    monkeypatch.setattr(capacity, "total_memory", lambda: int(gib * 2**30))
    if words is None:
        look(LAPTOP, *keys)
        return
    refused(f"smollm2-135m/{words}", look, LAPTOP, *keys)


@table
def test_a_control_group_bounds_the_memory(
    monkeypatch, tmp_path, text, expected, group, controller
):
    mine, root = tmp_path / "cgroup", tmp_path / "sys"
    mine.write_text(f"12:cpu:/other\n0:{controller}:{group}\n")
    limit = root / group.strip("/").removesuffix("/step") / "memory.max"
    limit.parent.mkdir(parents=True)
    if text:
        limit.write_text(text)
    (root / "other").mkdir()
    (root / "other/memory.max").write_text("1")  # a group that limits processors, not memory
    monkeypatch.setattr(memory, "GROUPS", str(mine))
    monkeypatch.setattr(memory, "LIMITS", {controller: str(root / "memory.max")})
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("M", (), {"total": 10**6}))
    assert memory.total_memory() == expected
