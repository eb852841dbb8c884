"""Figures and commands of the pages on recipes and launches are those that the code works out."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.plan import RECIPES
from pipeline import request as requests
from stages.preflight.batches import check_batches
from stages.preflight.capacity import GIB, build_step, check_memory, gpu_need, stage_shape
from stages.preflight.inputs import PreflightArguments, Recipe, read_recipe
from stages.preflight.plan import PlanArguments, describe_sizes, plan
from stages.preflight.step import Step
from stages.run.launch import BATCH_KEYS
from tests.recipes import FULL

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
SCALE, RECIPE_PAGE = ROOT / "docs/scale.md", ROOT / "docs/recipes.md"
LORA = "configs/lora.yaml"
EIGHT = {"gpus": 8, "accelerate": "fsdp2"}
ON_EIGHT = EIGHT | {"keys": ["sft.dtype=float32", "grpo.dtype=float32"]}  # of grpo7b


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def section(page: Path, head: str) -> str:
    """The text below a heading, up to the next one."""
    text = page.read_text(encoding="utf-8")
    return re.search(rf"^#+ {re.escape(head)}\n(.*?)(?=^## |\Z)", text, re.S | re.M)[1]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a page's first table, by the plain text of their first cell."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line] for line in lines[2:]]
    return {re.sub(r"\[?`([^`]*)`\]?(\([^)]*\))?", r"\1", one[0]): one[1:] for one in cells}


def read(name: str, **given) -> Recipe:
    return read_recipe(PreflightArguments(recipe=f"configs/{name}", **given))[0]


def step_of(recipe: Recipe, stage: str) -> Step:
    """A stage's worst optimizer step."""
    settings, shape = recipe.settings[stage], stage_shape(recipe, stage)
    return build_step(stage, shape, settings, None, recipe.engine, recipe.args.gpus)


def needed(recipe: Recipe, stage: str):
    """What a stage takes of a GPU."""
    limit = recipe.args.gpu_memory * GIB
    return gpu_need(recipe.settings[stage], step_of(recipe, stage), limit)


def peak(recipe: Recipe, stage: str) -> str:
    """GiB of a GPU in the update, as preflight prints them; "" where there is no such stage."""
    if stage not in recipe.settings:
        return ""
    return f"{needed(recipe, stage).update / GIB:.1f}"


def commands(path: Path) -> list[requests.Request]:
    """The make commands of a page that name a recipe, read as `python -m pipeline` reads them."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    text = text.replace("RECIPE=mine", f"RECIPE={path.parent.name}")  # a copy of the recipe
    found = []
    for goals, words in re.findall(r"^make ([a-z -]+) (RECIPE=.*?)(?: +#.*)?$", text, re.M):
        found.append(requests.read([*goals.split(), *shlex.split(words)], {}))
    return found


def launch_of(request: requests.Request) -> dict[str, str]:
    """The keys that decide rows, dtype and launch of a command."""
    keys = request.keys.get("grpo", {})
    found = {name: keys[name] for name in (*BATCH_KEYS, "dtype") if name in keys}
    found["processes"] = request["gpus"] or request["num_processes"] or 1
    return found | {name: request[name] for name in ("accelerate", "lora", "recipe")}


@pytest.mark.parametrize("page", [*FULL, "scale"])
def test_preflight_checks_the_launch_that_the_page_runs(page):
    path = SCALE if page == "scale" else ROOT / "configs" / page / "README.md"
    found = [one for one in commands(path) if page in ("scale", one["recipe"])]
    assert {one["recipe"] for one in found} <= {*FULL}
    checked = [launch_of(one) for one in found if one.asks_for("preflight")]
    trained = [one for one in found if one.asks_for("sft", "grpo")]
    # On the page on scale several hosts train justrl-1.5b, without make, before its report.
    by_hand = "justrl-1.5b" if page == "scale" else ""
    whole = [one for one in found if one.asks_for("report", "sweep")]
    trained = trained or [one for one in whole if one["recipe"] != by_hand]
    assert checked and trained
    assert [one for one in map(launch_of, trained) if one not in checked] == []


@pytest.mark.parametrize("name", FULL)
def test_memory_of_the_recipes_page_is_preflight_s(name):
    said = rows(section(RECIPE_PAGE, "Memory"))[name]
    given = EIGHT if RECIPES.get(name, 1) > 1 else {}
    full, lora = read(name, **given), read(name, overlay=LORA, **given)
    assert said == [peak(full, "sft"), peak(full, "grpo"), peak(lora, "grpo")]


@pytest.mark.parametrize(
    "name, launch, said",
    [("rlinf-7b", "fsdp2", ("54.2", "45.2")), ("rlinf-1.5b", "multi_node", ("72.0", "43.4"))],
)
def test_memory_of_rlinf_s_sixteen_hosts_is_the_plan_s_and_preflight_s(name, launch, said):
    text = (ROOT / "configs" / name / "README.md").read_text(encoding="utf-8")
    whole, update = said
    expected = f"{whole} GiB of each while vLLM generates, {update} in the update"
    assert expected in " ".join(text.split())
    assert peak(read(name, gpus=128, accelerate=launch), "grpo") == update
    given = {"recipe": f"configs/{name}", "gpus": 128, "accelerate": launch}
    assert f": grpo {whole} GiB;" in describe_sizes(plan(PlanArguments(**given))[0])


@pytest.mark.parametrize("name", RECIPES)
def test_gpus_and_hours_of_the_recipes_page_are_the_plan_s(name):
    _, gpus, hours, _ = rows(section(RECIPE_PAGE, "Recipes"))[name]
    assert int(gpus) == RECIPES[name]
    given = EIGHT | {"gpus": int(gpus)} if int(gpus) > 1 else {}
    stages = plan(PlanArguments(recipe=f"configs/{name}", **given))[1]
    total = sum(stage.seconds for stage in stages) / 3600
    assert float(hours.replace(",", "")) == pytest.approx(total, rel=0.1)


@pytest.mark.parametrize("name", ["tiny-cpu", "qwen2.5-1.5b", "grpo7b", "llama3.1-8b"])
def test_disk_of_the_first_page_is_preflight_s(name):
    said = rows(section(ROOT / "docs/get-started.md", "How much disk a run needs"))[name][0]
    (text,) = {one.text for one in check_memory(read(name), {}) if one.topic == "disk"}
    amount, unit = re.match(r"([\d.]+) ([MG]iB) needed", text).groups()
    assert said.startswith(f"{float(amount):.0f} {unit}")


def test_the_hours_and_the_cost_of_the_preflight_page_are_the_plan_s():
    page = (ROOT / "docs/preflight.md").read_text(encoding="utf-8")
    price = float(re.search(r"make plan RECIPE=grpo7b PRICE=([\d.]+)", page)[1])
    said = re.search(r"sum is ([\d.]+) hours and a\s+cost of (\d+)", page)
    total = sum(stage.seconds for stage in plan(PlanArguments(recipe="configs/grpo7b"))[1]) / 3600
    assert said.groups() == (f"{total:.1f}", f"{price * total:.0f}")


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "zero2", "zero3", "zero3_offload"])
def test_memory_of_the_launches_is_preflight_s(name):
    said = rows(section(SCALE, "Which launch file"))[name][-1]
    recipe = read("grpo7b", **ON_EIGHT | {"accelerate": name})
    levels = {one.level for one in check_memory(recipe, {}) if one.topic == "grpo memory"}
    assert said.partition(":")[0] == peak(recipe, "grpo")
    assert ("too large" in said) is ("error" in levels)


def test_the_worked_example_fits_and_has_the_figures_that_the_page_says():
    recipe = read("grpo7b", **ON_EIGHT)
    text = " ".join(section(SCALE, "Several GPUs, several hosts").split())
    sft, grpo = peak(recipe, "sft"), peak(recipe, "grpo")
    assert f"32 rows a step, {sft} GiB a GPU for SFT, {grpo} for GRPO" in text
    texts = [one.text for one in check_batches(recipe)]
    assert sum(" ".join(one.split()).startswith("32 ") for one in texts) == 2
    found = {one.topic: one for one in check_memory(recipe, {})}
    needed = float(re.match(r"([\d.]+) GiB needed", found["disk"].text)[1])
    assert f"{needed:.0f} GiB of disk" in text
    assert not any(one.level == "error" for one in found.values() if one.topic != "disk")
    keys = [f"{one}.dtype=float32" for one in ("sft", "grpo")]
    keys += [f"{one}.gradient_accumulation_steps=8" for one in ("sft", "grpo")]
    several = read("grpo7b", **EIGHT | {"keys": keys})
    text = section(SCALE, "Batch").replace("\n  ", " ")
    assert f"needs {peak(several, 'grpo')} GiB in place of {grpo}" in " ".join(text.split())


def test_the_batches_of_the_page_are_those_of_the_recipes():
    found = rows(section(SCALE, "Batch"))
    assert len(found) == 4
    for name, cells in found.items():
        recipe, (gpus, size, times, step) = name.partition(",")[0], map(int, cells)
        assert size * times * gpus == step
        given = EIGHT | {"gpus": gpus, "keys": ["grpo.dtype=float32"]} if gpus > 1 else {}
        values = read(recipe, **given).settings["grpo"]
        assert values.per_device_train_batch_size == size
        assert values.gradient_accumulation_steps == times
        is_own = "as it is" in name
        assert (RECIPES[recipe] == gpus == values.batch_for_gpus) is is_own


def test_the_example_on_several_hosts_fits():
    recipe = read("justrl-1.5b", gpus=32, accelerate="multi_node")
    found = [*check_batches(recipe), *check_memory(recipe, {})]
    assert [one.text for one in found if one.level == "error"] == []


def test_the_example_of_preflight_s_page_is_what_it_prints():
    page = (ROOT / "docs/preflight.md").read_text(encoding="utf-8")
    recipe = read(
        "grpo7b", keys=["sft.stochastic_rounding=false", "grpo.stochastic_rounding=false"]
    )
    (found, _) = (one for one in check_memory(recipe, {}) if one.topic == "grpo memory")
    assert " ".join(found.text.split()) in " ".join(page.split())


def test_grpo_takes_the_weights_as_sft_saves_them():
    for dtype in ("float32", "bfloat16"):
        recipe = read("grpo7b", keys=[f"sft.dtype={dtype}", "grpo.dtype=auto"])
        assert step_of(recipe, "grpo").dtype == dtype
