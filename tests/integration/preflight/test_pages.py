"""Figures of the pages on recipes and launches are those that the code works out."""

import re

import pytest

from benchmarks.plan import RECIPES
from stages.preflight.capacity import GIB, build_step, check_memory, gpu_need, stage_shape
from stages.preflight.inputs import PreflightArguments, Recipe, read_recipe
from stages.preflight.plan import PlanArguments, plan
from tests.pages import ROOT
from tests.recipes import FULL

pytestmark = pytest.mark.integration
LORA = "configs/lora.yaml"
EIGHT = {"gpus": 8, "accelerate": "fsdp2"}
ON_EIGHT = EIGHT | {"keys": ["sft.dtype=float32", "grpo.dtype=float32"]}  # of grpo7b


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def text_of(page: str) -> str:
    """A page's text; each line's end is a blank in `" ".join(text.split())`."""
    return (ROOT / page).read_text(encoding="utf-8")


def section(page: str, head: str) -> str:
    """The text below a heading, up to the next one."""
    return re.search(rf"^#+ {re.escape(head)}\n(.*?)(?=^## |\Z)", text_of(page), re.S | re.M)[1]


def rows(page: str, head: str) -> dict[str, list[str]]:
    """The rows of a section's first table, by the plain text or the names of their first cell."""
    found = {}
    for line in [line for line in section(page, head).splitlines() if line[:1] == "|"][2:]:
        first, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        for name in first.replace("`, `", "`|`").split("|"):
            found[re.sub(r"\[?`([^`]*)`\]?(\([^)]*\))?", r"\1", name)] = cells
    return found


def read(name: str, **given) -> Recipe:
    return read_recipe(PreflightArguments(recipe=f"configs/{name}", **given))[0]


def peak(recipe: Recipe, stage: str) -> str:
    """GiB of a GPU in the update, as preflight prints them; "" where there is no such stage."""
    if stage not in recipe.settings:
        return ""
    settings, shape = recipe.settings[stage], stage_shape(recipe, stage)
    step = build_step(stage, shape, settings, None, recipe.engine, recipe.args.gpus)
    return f"{gpu_need(settings, step, recipe.args.gpu_memory * GIB).update / GIB:.1f}"


@pytest.mark.parametrize("name", FULL)
def test_memory_of_the_recipes_page_is_preflight_s(name):
    said = rows("docs/recipes.md", "Memory")[name]
    given = EIGHT if RECIPES.get(name, 1) > 1 else {}
    full, lora = read(name, **given), read(name, overlay=LORA, **given)
    assert said == [peak(full, "sft"), peak(full, "grpo"), peak(lora, "grpo")]


@pytest.mark.parametrize("name", RECIPES)
def test_gpus_and_hours_of_the_recipes_page_are_the_plan_s(name):
    _, gpus, hours, _ = rows("docs/recipes.md", "Recipes")[name]
    assert int(gpus) == RECIPES[name]
    given = EIGHT | {"gpus": int(gpus)} if int(gpus) > 1 else {}
    stages = plan(PlanArguments(recipe=f"configs/{name}", **given))[1]
    total = sum(stage.seconds for stage in stages) / 3600
    assert float(hours.replace(",", "")) == pytest.approx(total, rel=0.1)


def test_the_example_of_preflight_s_page_is_what_plan_and_preflight_print():
    page = text_of("docs/preflight.md")
    price = float(re.search(r"make plan RECIPE=grpo7b PRICE=([\d.]+)", page)[1])
    said = re.search(r"sum is ([\d.]+) hours and a\s+cost of (\d+)", page)
    total = sum(stage.seconds for stage in plan(PlanArguments(recipe="configs/grpo7b"))[1]) / 3600
    assert said.groups() == (f"{total:.1f}", f"{price * total:.0f}")
    keys = ["sft.stochastic_rounding=false", "grpo.stochastic_rounding=false"]
    (found, _) = (
        one for one in check_memory(read("grpo7b", keys=keys), {}) if one.topic == "grpo memory"
    )
    shown = re.search(r"```\nerror +grpo memory(.*?)→", page, re.S)[1].split("…")
    assert all(" ".join(part.split()) in " ".join(found.text.split()) for part in shown)


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "zero2", "zero3", "zero3_offload"])
def test_memory_of_the_launches_is_preflight_s(name):
    said = rows("docs/scale.md", "Which launch file")[name][-1]
    recipe = read("grpo7b", **ON_EIGHT | {"accelerate": name})
    levels = {one.level for one in check_memory(recipe, {}) if one.topic == "grpo memory"}
    assert said.partition(":")[0] == peak(recipe, "grpo")
    assert ("too large" in said) is ("error" in levels)


def test_the_worked_example_fits_and_has_the_figures_that_the_page_says():
    recipe = read("grpo7b", **ON_EIGHT)
    text = " ".join(section("docs/scale.md", "Several GPUs, several hosts").split())
    sft, grpo = peak(recipe, "sft"), peak(recipe, "grpo")
    assert f"32 rows a step, {sft} GiB a GPU for SFT, {grpo} for GRPO" in text
    found = {one.topic: one for one in check_memory(recipe, {})}
    needed = float(re.match(r"([\d.]+) GiB needed", found["disk"].text)[1])
    assert f"{needed:.0f} GiB of disk" in text
    assert not any(one.level == "error" for one in found.values() if one.topic != "disk")
    twice = [f"{stage}.gradient_accumulation_steps=8" for stage in ("sft", "grpo")]
    several = peak(read("grpo7b", **EIGHT | {"keys": ON_EIGHT["keys"] + twice}), "grpo")
    text = " ".join(section("docs/scale.md", "Batch").split())
    assert f"needs {several} GiB in place of {grpo}" in text


def test_the_batches_of_the_page_are_those_of_the_recipes():
    found = rows("docs/scale.md", "Batch")
    assert len(found) == 4
    for name, cells in found.items():
        recipe, (gpus, size, times, step) = name.partition(",")[0], map(int, cells)
        assert size * times * gpus == step
        given = EIGHT | {"gpus": gpus, "keys": ["grpo.dtype=float32"]} if gpus > 1 else {}
        values = read(recipe, **given).settings["grpo"]
        assert values.per_device_train_batch_size == size
        assert values.gradient_accumulation_steps == times
        assert (RECIPES[recipe] == gpus == values.batch_for_gpus) is ("as it is" in name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_grpo_takes_the_weights_as_sft_saves_them(dtype):
    recipe = read("grpo7b", keys=[f"sft.dtype={dtype}", "grpo.dtype=auto"])
    shape = stage_shape(recipe, "grpo")
    assert build_step("grpo", shape, recipe.settings["grpo"], None).dtype == dtype
