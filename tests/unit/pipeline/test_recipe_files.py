"""A recipe's YAML: how strictly it is read, `extends`, and `show`, which says where keys are."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from pipeline import strict_yaml
from pipeline.chain import order
from pipeline.commands import named_in
from pipeline.errors import UserError
from pipeline.freshness import finds_more
from pipeline.recipe_files import files_of, read_yaml
from pipeline.request import check_goals, read
from pipeline.settings import read_settings
from pipeline.show import lines
from pipeline.stages import RECIPES
from stages.arguments import GrpoArguments
from stages.run.launch import asked_of_launcher
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)


@dataclass
class Empty:
    """A stage without keys."""


HF = ("GRPOConfig", "ModelConfig")
ROOT = "model_name_or_path: m\ntrain_file: a.jsonl\noutput_dir: '{run}/grpo'\n"


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    """Writes `configs/NAME/FILE` and returns its path; each recipe has a data.yaml, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALLOW_CODE", raising=False)

    def write(name, text, file="grpo.yaml"):
        folder = Path("configs", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data.yaml").touch()  # what makes it a recipe
        (folder / file).write_text(text, encoding="utf-8")
        return f"{folder}/{file}"

    return write


def test_a_key_hides_that_of_the_file_it_extends(recipes):
    env = "env: {OMP_NUM_THREADS: 1, NCCL_DEBUG: WARN}\n"
    recipes("root", f"{ROOT}{env}beta: 0.1\nlearning_rate: 1.0e-6\nmax_steps: 9\n")
    recipes("middle", "extends: root\nmax_steps: 5\nenv: {OMP_NUM_THREADS: 3}\n")
    path = recipes("leaf", "extends: middle\nlearning_rate: null\nmax_steps: 7\n")
    settings = read_settings(GrpoArguments, HF, ["--config", path, "--beta", "0.2"])
    assert (settings["max_steps"], settings["beta"]) == (7, 0.2)
    assert settings.env == {"OMP_NUM_THREADS": "3"}
    assert "learning_rate" not in settings  # null: its default
    assert settings.output_dir == "runs/leaf/grpo"  # the run is of the recipe that is asked for
    found = [line for line in lines(settings) if line.startswith(("#", "beta", "env", "l", "max"))]
    assert found == [
        "# command line", "beta: 0.2",
        "# configs/leaf/grpo.yaml", "learning_rate: null", "max_steps: 7",
        "# configs/middle/grpo.yaml", "env: {OMP_NUM_THREADS: '3'}",
        "# configs/root/grpo.yaml",
    ]  # fmt: skip


def test_a_wrong_value_names_the_file_that_has_it(recipes):
    root = recipes("root", ROOT + "min_pass_rate: 2\n")
    path = recipes("leaf", "extends: root\nno_such_key: 1\n")
    with pytest.raises(UserError) as error:
        read_settings(GrpoArguments, HF, ["--config", path])
    wrong, unknown = error.value.lines
    assert wrong.startswith(f"{root}: min_pass_rate") and unknown.startswith(f"{path}: unknown key")
    path = recipes("leaf", "extends: root\n")
    for text in (
        "env: {PYTHONPATH: x}\n",
        "env: {OMP_NUM_THREADS: off}\n",
        "trust_remote_code: true\n",
    ):
        root = recipes("root", ROOT + text)
        refused(f"^{root}: ", read_settings, GrpoArguments, HF, ["--config", path])


def test_null_is_scaled_as_the_default(recipes):
    recipes("root", ROOT + "learning_rate: 1.0e-5\n")
    path = recipes("leaf", "extends: root\nlearning_rate: null\n")
    Path("lora.yaml").write_text("learning_rate_factor: 10\n")
    settings = read_settings(GrpoArguments, HF, ["--config", path, "--overlay", "lora.yaml"])
    assert settings["learning_rate"] == pytest.approx(10 * settings.default_of("learning_rate"))


def test_a_recipe_is_found_beside_its_own_and_then_where_recipe_finds_it(recipes, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for name, text in (
        ("base", "beta: 0.1\n"),
        ("kid", "extends: base\n"),
        ("own", "extends: grpo7b\n"),
    ):
        (elsewhere / name).mkdir(parents=True)
        (elsewhere / name / "grpo.yaml").write_text(text)
    recipes("base", "beta: 0.2\n")
    assert read_yaml(str(elsewhere / "kid/grpo.yaml"))["beta"] == 0.1
    shipped = read_yaml(str(RECIPES / "grpo7b/grpo.yaml"))
    assert read_yaml(str(elsewhere / "own/grpo.yaml")) == shipped
    copy = recipes("grpo7b", "extends: grpo7b\nbeta: 0.5\n")  # of one's own, on the shipped one
    assert read_yaml(copy) == shipped | {"beta": 0.5}
    # A recipe of the package takes nothing from a folder of the user's.
    assert read_yaml(str(RECIPES / "grpo7b-published/grpo.yaml"))["beta"] == shipped["beta"]


@table
def test_what_cannot_be_extended_is_refused_in_one_line(text, fault, recipes):
    recipes("root", ROOT)
    recipes("first", "extends: root")
    recipes("second", "extends: first")
    recipes("third", "extends: second")
    recipes("back", "extends: leaf")
    recipes("bare", "", "sft.yaml")
    path = recipes("leaf", text)
    line = refused(": extends: ", read_yaml, path)
    assert line.startswith("configs/") and fault in line


def test_what_reads_a_whole_recipe_reads_what_its_files_extend(recipes):
    recipes("root", ROOT)
    recipes("root", "model_name_or_path: base-model\ntrain_file: '{run}/distill/a'\n", "sft.yaml")
    recipes("root", "problems_file: a\n", "distill.yaml")
    for file in ("grpo.yaml", "sft.yaml", "distill.yaml"):
        recipes("leaf", "extends: root\n", file)
    assert order(("sft",), "configs/leaf") == ["data", "distill", "sft"]
    assert ("configs/leaf/sft.yaml: model_name_or_path", "base-model") in named_in("configs/leaf")
    files = files_of("configs/leaf")
    assert "configs/root/sft.yaml" in files
    assert not finds_more("audit", {"recipe": "configs/leaf"}, dict.fromkeys(files, ""))
    assert finds_more("audit", {"recipe": "configs/leaf"}, dict.fromkeys(files[1:], ""))


@table
def test_show_takes_a_recipe_and_stages(words, recipe, stages):
    request = read(words.split(), {})
    assert (request.recipe, request.shown, request.goals) == (recipe, tuple(stages), ("show",))


def test_show_stands_alone():
    refused(r"^show: give it alone", check_goals, read(["data", "show"], {}))


def test_what_show_prints_is_the_yaml_that_a_stage_reads():
    command = [sys.executable, "-m", "pipeline", "show", "rlite-packing", "LORA=1", "eval.seed=3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shown = {}
    for part in done.stdout.split("## ")[1:]:
        name, _, text = part.partition("\n")
        shown[name] = yaml.safe_load(text)
    assert shown.keys() == {"data", "grpo", "eval"}
    assert (shown["eval"]["seed"], shown["grpo"]["lora_r"]) == (3, 32)
    settings = read_yaml("configs/rlite-packing/data.yaml", "runs/rlite-packing-lora")
    assert shown["data"] == settings


# Strict YAML


@table
def test_a_key_given_twice_and_what_is_no_yaml_are_refused(text, line, words):
    place = "grpo.yaml:" if line is None else f"grpo.yaml:{line}: "
    message = refused(f"^{place}", strict_yaml.parse, text, "grpo.yaml")
    assert len(message) < 300
    assert all(word in message for word in words)


@table
def test_plain_values_are_read_as_written(written, value):
    assert strict_yaml.parse(f"a: {{b: [{written}]}}" if written else "a: {b: [~]}", "f") == {
        "a": {"b": [value]}
    }


def test_aliases_and_merged_mappings_stay():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a\n"
    assert strict_yaml.parse(text, "f") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": {"x": 1, "y": 2},
    }
    assert strict_yaml.parse("\ufeffa: 1", "f") == {"a": 1}  # as Windows' editors save it


@pytest.mark.parametrize(
    "run", ["runs/a: b", 'runs/"b', "runs/a #c", "runs/a\nseed: 7", "*x", "runs/'d"]
)
def test_a_run_folder_is_never_yaml(run, tmp_path):
    path = tmp_path / "sft.yaml"
    path.write_text("a: {run}/sft\nb: ['x={run}/y', \"{run}\"]\nc: {d: '{run}'}\n")
    expected = {"a": f"{run}/sft", "b": [f"x={run}/y", run], "c": {"d": run}}
    assert read_yaml(str(path), run) == expected


@pytest.mark.parametrize("written", ["off", "1.10", "null", "[a]"])
def test_a_variable_of_the_environment_is_set_as_it_is_written(written, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(f"env: {{WANDB_MODE: {written}}}\n")
    words = "env: WANDB_MODE: must be a valid string"
    refused(words, read_settings, Empty, (), ["--config", str(path)])
    path.write_text("env: {WANDB_MODE: 'off', OMP_NUM_THREADS: 1}\n")
    found = read_settings(Empty, (), ["--config", str(path)]).env
    assert found == {"WANDB_MODE": "off", "OMP_NUM_THREADS": "1"}


def test_the_launchers_file_is_read_as_strictly(tmp_path):
    path = tmp_path / "ddp.yaml"
    path.write_text("num_processes: 2\nuse_cpu: true\nnum_processes: 8\n")
    command = ["accelerate", "launch", "--config_file", str(path), "x.py"]
    refused("lines 1 and 3", asked_of_launcher, command)
