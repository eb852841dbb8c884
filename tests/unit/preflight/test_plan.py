"""Hours by arithmetic: hand-worked cases, and what must rise with what."""

import math
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from trl.trainer.utils import RepeatSampler

from benchmarks.plan import KNOWN, RECIPES, step_row
from stages.arguments import steps_per_epoch
from stages.preflight import roofline
from stages.preflight.batches import check_passes
from stages.preflight.capacity import check_memory
from stages.preflight.inputs import load_shape, read_recipe
from stages.preflight.passes import Work, count_update, split, update_of
from stages.preflight.plan import PlanArguments, grpo_seconds, main, plan, warnings
from stages.trainer.update import fill_passes
from tests.files import write_rows
from tests.recipes import FULL
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)

ROOT = Path(__file__).parents[3]
GPU = roofline.Device(flops=1e15, bandwidth=4e12, memory=80, reached=0.4)
SEVEN = roofline.read_model(load_shape("7B"))
FLOAT32 = ["sft.dtype=float32", "grpo.dtype=float32"]
ONE_EACH = ["sft.gradient_accumulation_steps=1", "grpo.gradient_accumulation_steps=1"]


def planned(name, **given):
    gpus = given.pop("gpus", None) or RECIPES.get(name, 1)
    given |= {"accelerate": "fsdp2"} if gpus > 1 else {}
    recipe = str(ROOT / "configs" / name)
    return {s.name: s for s in plan(PlanArguments(recipe=recipe, gpus=gpus, **given))[1]}


def test_a_pass_costs_two_operations_a_parameter_and_token():
    # 28 layers of 233,046,016 weights and a head of 152,064 x 3,584, and attention over 1,000.
    linear = 28 * (3584 * (2 * 3584 + 2 * 512) + 3 * 3584 * 18944) + 152064 * 3584
    assert roofline.forward_flops(SEVEN, 1000) == 2 * linear + 2 * 28 * 3584 * 1000
    seconds = roofline.pass_seconds(SEVEN, GPU, 1e6, 0, roofline.update_passes(True))
    speed = 0.4e15 * SEVEN.params / (SEVEN.params + 1e9)  # half of 0.4 for a billion parameters
    assert seconds == pytest.approx(8 * linear * 1e6 / speed)
    assert roofline.update_passes(False, is_full=False) == 2


def test_one_completion_reads_the_weights_for_every_token():
    seconds = roofline.generation_seconds(SEVEN, GPU, 1, 0, 100, 100, cache=1e9)
    end = 100 * 0.5772  # exponential lengths: the one of one
    read = 2 * SEVEN.params / (roofline.BANDWIDTH * 4e12)
    assert seconds == pytest.approx(end * (read + roofline.OVERHEAD + roofline.EACH), rel=0.05)


def test_a_batch_shares_the_weights_until_the_cache_is_full():
    def seconds(num, cache=1e9):
        return roofline.generation_seconds(SEVEN, GPU, num, 100, 500, 2000, cache)

    assert seconds(64) < 8 * seconds(1)
    waits = seconds(64, cache=8 * 600)  # eight at a time
    assert 3 * seconds(8) < waits < 8 * seconds(8)
    assert roofline.cache_tokens(SEVEN, GPU, 0.1) == 0
    room = (0.5 * 80 - 2) * 2**30 - 2 * SEVEN.params
    assert roofline.cache_tokens(SEVEN, GPU, 0.5) == room / (4 * 28 * 512)


def test_transformers_writes_batch_after_batch():
    def seconds(num, rows, longest=512):
        return roofline.loop_seconds(SEVEN, GPU, num, rows, prompt=0, mean=1e9, longest=longest)

    one = seconds(8, 8)  # a step reads the weights, or takes each layer's least time
    read = (2 * SEVEN.params + SEVEN.cached * 8 * 256) / (roofline.BANDWIDTH * GPU.bandwidth)
    assert one == pytest.approx(512 * max(read, 28 * roofline.LOOP))
    assert seconds(24, 8) == pytest.approx(3 * one) and seconds(17, 8) == pytest.approx(3 * one)
    assert seconds(8, 64) == pytest.approx(one)  # no more rows than there are
    assert seconds(8, 8, longest=1024) > 1.99 * one


def test_what_transformers_writes_takes_longer():
    slow = planned("qwen2.5-0.5b", keys=["eval.backend=hf", "grpo.use_vllm=false"])
    fast = planned("qwen2.5-0.5b")
    assert slow["eval"].seconds > 10 * fast["eval"].seconds
    assert slow["grpo"].seconds > 1.3 * fast["grpo"].seconds
    assert slow["eval"].tokens == fast["eval"].tokens


@table
def test_passes_and_tokens_of_an_update(update_tokens, is_padded, passes, tokens):
    values = SimpleNamespace(
        per_device_train_batch_size=2, gradient_accumulation_steps=2, update_tokens=update_tokens
    )
    found, trl = count_update(values, 4, 10, mean=100, longest=150, is_padded=is_padded)
    assert found == Work(passes, tokens)
    assert trl == Work(2, 4 * 160)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("update_tokens", [20, 100, 170, 1000])
def test_passes_are_filled_as_the_trainer_fills_them(update_tokens, is_padded):
    lengths = [160, 109, 58, 58, 24, 23, 5, 1]
    filled = fill_passes(lengths, update_tokens, is_padded)
    expected = [[lengths[row] for row in rows] for rows in filled]
    assert split(lengths, update_tokens, is_padded) == expected


@pytest.mark.parametrize("name", FULL)
def test_the_page_s_passes_and_tokens_are_the_plan_s(name):
    recipe, _ = read_recipe(PlanArguments(recipe=str(ROOT / "configs" / name)))
    work, trl = update_of(recipe)
    lines = (ROOT / "docs/speed.md").read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith("|`") and f"`{name}`" in line)
    assert row.endswith(f"|{trl.passes}|{work.tokens / 1000:,.0f}|{trl.tokens / 1000:,.0f}|")
    assert work.passes == trl.passes


@pytest.mark.parametrize("name", FULL)
def test_the_hours_of_the_readmes_are_the_plan_s(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where own-problems looks for its file
    row = {"question": "What is 12 plus 30?", "answer": "42"}
    write_rows(tmp_path / "problems.jsonl", [row] * 600)
    text = (ROOT / "configs" / name / "README.md").read_text(encoding="utf-8")
    said = re.search(r"\*\*Hours\*\*: about ([\d.,]+)", text)[1].rstrip(".,").replace(",", "")
    hours = sum(stage.seconds for stage in planned(name).values()) / 3600
    assert float(said) == pytest.approx(hours, rel=0.1)


@table
def test_more_passes_than_trl_s_on_a_gpu_are_a_warning(name, keys, level):
    recipe, _ = read_recipe(PlanArguments(recipe=str(ROOT / "configs" / name), keys=keys))
    assert check_passes(recipe).level == level


def test_a_pass_takes_the_host_time():
    small = roofline.read_model(load_shape("0.5B"))

    def update(**values):
        keys = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 8, "beta": 0,
                "num_iterations": 1, "use_vllm": False, "gradient_checkpointing": True,
                "use_peft": False}  # fmt: skip
        values = SimpleNamespace(**keys | values)
        return grpo_seconds(small, GPU, values, 64, 150, 150, 512, share=0.9)["update"]

    assert update(update_tokens="auto") == pytest.approx(4 * 8 * 24 * roofline.LAUNCH)
    assert update(update_tokens=1) == pytest.approx(8 * update(update_tokens="auto"))
    assert update(update_tokens=None) > update(update_tokens="auto")


def test_the_plan_of_a_recipe_follows_its_keys():
    one, longer = planned("grpo7b"), planned("grpo7b", completion_tokens=600)
    assert list(one) == ["sft", "difficulty", "grpo", "eval"]
    assert one["sft"].tokens == 27_473 * 417 * 2
    assert one["grpo"].tokens == pytest.approx(1000 * 32 * (2 * 0.3 * 1024 + 150))
    assert longer["grpo"].seconds > 1.1 * one["grpo"].seconds and longer["sft"] == one["sft"]
    assert planned("grpo7b", step_seconds=10.0)["grpo"].seconds == 10_000
    seconds = planned("grpo7b", gpu="a100")["sft"].seconds
    assert seconds == pytest.approx(one["sft"].seconds * 989 * 0.45 / (312 * 0.6))
    assert planned("qwen2.5-1.5b", gpus=8)["sft"].seconds < one["sft"].seconds / 8
    eight = planned("grpo7b", gpus=8, keys=[*FLOAT32, *ONE_EACH])
    assert eight["grpo"].what.startswith("1,000 steps of 32 ")


def test_without_a_limit_completions_fill_the_engine_s_context():
    limited, free = planned("grpo7b"), planned("grpo7b", keys=["grpo.max_completion_length=null"])
    # 1,536 tokens of context without the 512 of a prompt are the limit that the recipe sets.
    assert free["grpo"] == limited["grpo"]


def test_two_teachers_double_the_rows_of_sft(tmp_path):
    folder = tmp_path / "perplexity"
    shutil.copytree(ROOT / "configs/perplexity", folder)
    one = planned(str(folder), gpus=1)["sft"]
    with (folder / "distill.yaml").open("a", encoding="utf-8") as file:
        file.write("\nteachers: [{name: a}, {name: b, temperature: 0.9}]\n")
    assert planned(str(folder), gpus=1)["sft"].tokens == 2 * one.tokens


@table
def test_a_plan_warns_of_what_preflight_finds_too_large(name, given, stages):
    recipe, _ = plan(PlanArguments(recipe=str(ROOT / "configs" / name), **given))
    found = warnings(recipe)
    assert {re.match(r"warning: (\w+) memory: ", line)[1] for line in found} == {*stages}
    findings = [
        one for one in check_memory(recipe, {}) if one.level != "ok" and "memory" in one.topic
    ]
    assert all(line.endswith(f"; {one.remedy}") for line, one in zip(found, findings, strict=True))
    assert not found or f"{recipe.args.gpu_memory:g} GiB" in found[0]


@pytest.mark.parametrize(("name", "is_last"), [("grpo7b-published", True), ("grpo7b", False)])
def test_a_plan_ends_with_its_warnings(name, is_last, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plan", "--recipe", str(ROOT / "configs" / name)])
    main()
    shown = capsys.readouterr().out
    assert re.search(r"update_tokens: \S+: about 8 passes, [\d,]+ tokens .*; TRL: 8 passes", shown)
    last = shown.rpartition("docs/results/plan.md")[2].strip()
    assert last.startswith("warning: grpo memory: ") is is_last and bool(last) is is_last


@pytest.mark.parametrize("case", KNOWN["cases"], ids=lambda case: case["run"])
def test_a_published_step_is_planned(case):
    assert abs(float(step_row(case)["error"].rstrip("%"))) < 50


@pytest.mark.parametrize("rows", [64, 65, 1000])
@pytest.mark.parametrize(("times", "served", "iterations"), [(4, 4, 2), (3, 16, 1)])
def test_steps_of_an_epoch_are_those_of_trl_s_sampler(rows, times, served, iterations):
    values = SimpleNamespace(
        per_device_train_batch_size=256 // served, gradient_accumulation_steps=times,
        steps_per_generation=served, generation_batch_size=None, num_generations=8,
        num_iterations=iterations,
    )  # fmt: skip
    completions = 2 * 256  # of two processes: 64 problems
    sampler = RepeatSampler(range(rows), 8, completions // 8, served * iterations)
    micro_batches = len(sampler) // completions
    assert steps_per_epoch(values, rows, 2) == math.ceil(micro_batches / times)


def test_a_recipe_for_a_cpu_has_no_stages_to_plan():
    assert plan(PlanArguments(recipe=str(ROOT / "configs/tiny-cpu")))[1] == []


def test_what_cannot_be_planned_is_said(tmp_path):
    (tmp_path / "eval.yaml").write_text("num_sample: 8")
    wrong = {"accelerate": "no YAML file is", tmp_path: "'num_sample'"}
    for recipe, text in wrong.items():
        refused(text, plan, PlanArguments(recipe=str(ROOT / "configs" / recipe)))
