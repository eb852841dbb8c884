"""The shipped recipes: whole folders, published numbers, batches, context lengths, LoRA twins."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from eval.report.page import load_references, reference_table
from pipeline.key_types import known_keys
from pipeline.recipe_files import files_of, read_yaml
from pipeline.settings import read_settings
from stages import published_sweeps
from stages.arguments import DEFAULTS
from stages.preflight.inputs import KEYS_OF
from tests.recipes import FULL, SCORING, SHIPPED

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "configs"
PAGE = yaml.safe_load((ROOT / "docs/published.yaml").read_text(encoding="utf-8"))
SOURCES, PUBLISHED = PAGE["sources"], PAGE["numbers"]
# (recipe, entry) of every published number; an entry may be that of several recipes.
ENTRIES = []
for one in PUBLISHED:
    named = one.get("recipe", one["run"])
    ENTRIES += [(recipe, one) for recipe in (named if isinstance(named, list) else [named])]
GPUS = {recipe: one["value"] for recipe, one in ENTRIES if one["at"] == "GPUs"}
SAID = re.compile(r"published: (.{1,60}?), here: (.{1,60}?), because \w")


def read(recipe, stage):
    """What a recipe's file gives, with what it extends; `null` is a key that is not given."""
    found = read_yaml(str(CONFIGS / recipe / f"{stage}.yaml"))
    return {key: value for key, value in found.items() if value is not None}


def stages_of(recipe):
    found = {path.stem for path in (CONFIGS / recipe).glob("*.yaml")}
    return {name for name in found if not name.startswith("data-")}  # of a sweep


def readme(recipe):
    return (CONFIGS / recipe / "README.md").read_text(encoding="utf-8")


def test_every_recipe_is_listed_and_on_the_page():
    tracked = ["git", "ls-files", "configs/*/eval.yaml"]
    done = subprocess.run(tracked, cwd=ROOT, capture_output=True, text=True, check=False)
    if (ROOT / ".git").exists():
        assert {Path(line).parent.name for line in done.stdout.split()} == {*SHIPPED, *SCORING}
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [name for name in FULL if f"`{name}`" not in page] == []


@pytest.mark.parametrize("recipe", FULL)
def test_a_recipe_is_whole(recipe):
    found = stages_of(recipe)
    assert {"data", "grpo", "eval"} <= found
    start = read(recipe, "grpo")["model_name_or_path"]
    assert (start == "{run}/sft") is ("sft" in found)
    assert ("difficulty" in found) is (read(recipe, "grpo").get("curriculum") == "offline")
    base = read(recipe, "sft")["model_name_or_path"] if "sft" in found else start
    assert f"base={base}" in read(recipe, "eval")["checkpoints"]
    text = readme(recipe)
    name = "mine" if "configs/mine" in text else recipe  # one that is there to be copied
    assert len(text.splitlines()) <= 60 and f"RECIPE={name}" in text
    assert [word for word in ("Hardware", "Hours", "Expected") if f"**{word}**" not in text] == []


@pytest.mark.parametrize("recipe", FULL)
def test_prompt_reward_and_evaluation_agree(recipe):
    data, grpo, evaluation = (read(recipe, stage) for stage in ("data", "grpo", "eval"))
    assert data.get("eval_prompt", data["prompt"]) == evaluation["prompt"]
    assert ("eval_prompt" in data) is recipe.startswith("perplexity")  # the only one with two
    assert grpo.get("final_number", False) == evaluation.get("final_number", False)
    assert evaluation["max_new_tokens"] >= grpo["max_completion_length"]


@pytest.mark.parametrize("recipe", FULL)
def test_no_small_update_is_lost(recipe):
    """Weights of bfloat16 are rounded by chance; all others are float32."""
    for stage in {"sft", "grpo"} & stages_of(recipe):
        values = read(recipe, stage)
        is_rounded = values.get("stochastic_rounding", False)
        keeps = values["dtype"] == ("bfloat16" if is_rounded else "float32")
        assert keeps is (recipe != "grpo7b-published"), stage  # which is there to lose them
        assert "optim" not in values, stage


@pytest.mark.parametrize("recipe", FULL)
def test_the_engine_has_room_for_prompt_and_completion(recipe):
    grpo = read(recipe, "grpo")
    length = grpo["max_prompt_length"] + grpo["max_completion_length"]
    assert grpo["vllm_max_model_length"] == length
    assert grpo["update_tokens"] == "auto"  # no more passes than TRL
    assert (grpo["use_vllm"], grpo["vllm_mode"]) == (True, "colocate")


def batch(recipe):
    """What the recipe's batch keys come to on the published number of GPUs."""
    grpo, gpus = read(recipe, "grpo"), GPUS[recipe]
    accumulation = grpo["gradient_accumulation_steps"]
    steps = grpo.get("steps_per_generation", accumulation)
    completions = grpo["per_device_train_batch_size"] * steps * gpus
    problems, minibatches = completions // grpo["num_generations"], steps // accumulation
    found = {"completions": completions, "problems": problems, "minibatches": minibatches}
    found["minibatch_problems"] = problems // minibatches
    epochs = grpo.get("num_train_epochs", 1)
    found["steps_of_106k"] = epochs * (106_000 // problems) * minibatches  # of boba
    if "sft" in stages_of(recipe):
        sft = read(recipe, "sft")
        assert not sft.get("packing"), "rows hold several examples"
        rows = sft["per_device_train_batch_size"] * sft["gradient_accumulation_steps"]
        found["sft_examples"] = rows * gpus
    return found


def plain(text):
    """A page on one line: without its line breaks, and the backslashes before those of commands."""
    return " ".join(text.replace("\\\n", " ").split())


def defaults_of(stage):
    """The value of each key that a recipe's YAML does not have."""
    keys = known_keys(*KEYS_OF[stage][:2])
    return {name: key.default for name, key in keys.items()} | DEFAULTS


def look_up(recipe, one):
    """What a recipe has where an entry says."""
    place, _, path = one["at"].partition("/")
    if place == "GPUs":
        return GPUS[recipe]
    if place == "batch":
        return batch(recipe)[path]
    if place == "README":
        text = one.get("text", str(one["value"]))
        return one["value"] if text in plain(readme(recipe)) else None
    if place == "references":
        rows = [row for row in load_references(one["tasks"]) if row["tasks"] == one["tasks"]]
        scores = [row["scores"] for row in rows if row["scores"] == one["value"]]
        return scores[0] if scores else [row["scores"] for row in rows]
    if place == "sweeps":
        found = published_sweeps.find(recipe, path.split(","))
        scores = [*found.scores.values()]
        if len(found.keys) == 1:
            return scores
        width = len([*found.keys.values()][-1])
        return [scores[at : at + width] for at in range(0, len(scores), width)]
    if place == "tasks":
        name, _, path = path.partition("/")
        text = (ROOT / f"eval/tasks/{name}.yaml").read_text(encoding="utf-8")
        found = yaml.safe_load(text.replace("!function ", ""))
    else:
        found = defaults_of(place) | read(recipe, place)
    for key in path.split("/"):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


@pytest.mark.parametrize(
    "recipe, one", [pytest.param(*each, id=f"{each[0]} {each[1]['key']}") for each in ENTRIES]
)
def test_a_published_number_is_in_the_recipe_or_differs_as_it_says(recipe, one):
    assert one["source"] in SOURCES and recipe in FULL
    differs = one.get("differs", {})
    assert look_up(recipe, one) == differs.get("here", one["value"])
    assert not differs or (differs["because"] and differs["here"] != one["value"])


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_a_commit_of_a_branch_or_says_that_it_is_unchecked(name):
    source = SOURCES[name]
    if "title" not in source:
        assert {"repository", "file", "commit", "branch"} == source.keys()
        assert re.fullmatch(r"[0-9a-f]{7,40}", str(source["commit"]))
    assert name in {one["source"] for one in PUBLISHED}


def test_the_report_shows_each_published_score():
    tasks = sorted({task for one in PUBLISHED for task in one.get("tasks", [])})
    report = {"scores": {"base": {task: {} for task in tasks}}, "base_model": "mine"}
    rows = reference_table(report | {"references": load_references(tasks)})[1]
    shown = [{*re.findall(r"\d+\.\d\d", row[-1])} for row in rows]
    for one in PUBLISHED:
        if one["at"] == "references":
            wanted = {f"{score:.2f}" for score in one["value"]}
            assert any(wanted == found for found in shown), one["key"]


@pytest.mark.parametrize("recipe", FULL)
def test_what_differs_is_said_in_the_recipe_and_nothing_else_is(recipe):
    """In a comment, there or in a file that it extends, or in the README: published: …, here: …"""
    own = {str(path) for path in (CONFIGS / recipe).iterdir()}
    listed = [one for name, one in ENTRIES if name == recipe and "differs" in one]
    differs = {(one["value"], one["differs"]["here"]) for one in listed}
    assert said_in(own) <= differs <= said_in({*own, *files_of(str(CONFIGS / recipe))})


def said_in(files):
    found = set()
    for file in files:
        text = re.sub(r"\s*\n\s*#? *", " ", Path(file).read_text(encoding="utf-8"))
        found |= {tuple(map(yaml.safe_load, pair)) for pair in SAID.findall(text)}
    return found


@pytest.mark.parametrize("recipe", FULL)
def test_a_user_s_model_leaves_nothing_of_the_recipe_s(recipe):
    bases = [c for c in read(recipe, "eval")["checkpoints"] if c.startswith("base=")]
    own = bases[0].rpartition("/")[2]
    for stage in stages_of(recipe) - {"data", "model", "distill"}:
        kinds = KEYS_OF[stage][:2]
        argv = ["--config", str(CONFIGS / recipe / f"{stage}.yaml"), "--model", "my/weights"]
        settings = read_settings(*kinds, argv)
        assert own not in json.dumps(settings), stage
        assert ("my/weights" in json.dumps(settings)) is (
            stage in ("sft", "eval") or "sft" not in stages_of(recipe)
        ), stage
