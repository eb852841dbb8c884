"""What is refused before torch is imported: the key that each wrong value, or pair, names."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.models.checkpoints import check_checkpoint
from pipeline.settings import build, read_settings, run_check
from stages.arguments import DEFAULTS, GRPO, GrpoArguments
from stages.host import check_grpo, check_sft
from stages.precision import trained_dtype
from stages.preflight.batches import check_precision
from stages.rules import check_grpo_keys, check_rules, check_sft_keys
from stages.trainer.guards import GuardSettings
from tests.unit.stages.helpers import grpo, named, sft, write_model

CONFIGS = Path(__file__).parents[3] / "configs"
BATCH = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "num_generations",
    "steps_per_generation", "generation_batch_size",
)  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "num_processes"),
    [
        ((4, None, 8, None, None), 2),
        ((5, 6, 4, None, None), 2),
        ((2, 8, 8, 3, None), 1),
        ((4, None, 8, None, 8), 2),
    ],
)
def test_the_numbers_that_are_suggested_give_every_process_whole_groups(numbers, num_processes):
    values = {key: number for key, number in zip(BATCH, numbers, strict=True) if number}
    with pytest.raises(UserError, match=r"^num_generations: ") as error:
        check_grpo_keys(grpo(values), num_processes)
    remedies = [
        (key, int(number))
        for key, numbers in re.findall(r"(?:use|or) (\w+) (\d+(?: or \d+)*)", str(error.value))
        for number in numbers.split(" or ")
    ]
    assert remedies and {key for key, _ in remedies} <= {*BATCH}
    for key, number in remedies:
        check_grpo_keys(grpo(values | {key: number}), num_processes)


@pytest.mark.parametrize(("check", "build"), [(check_sft_keys, sft), (check_grpo_keys, grpo)])
def test_what_cannot_be_resumed(tmp_path, check, build):
    checkpoint = tmp_path / "checkpoint-4"
    write_model(checkpoint, {"trainer_state.json": {"global_step": 4}})
    key = "resume_from_checkpoint"
    refused = [{key: value} for value in (True, "true", "none/here", str(checkpoint))]
    for values in ({"save_strategy": "best"}, *refused):
        assert named(lambda values=values: check(build(values))) == next(iter(values))
    for name in ("optimizer.pt", "scheduler.pt"):
        (checkpoint / name).touch()
    for value in (str(checkpoint), None):
        assert named(lambda value=value: check(build({key: value}))) is None


@pytest.mark.parametrize(
    ("flags", "dropped"),
    [
        ("--curriculum off", {"pass_rates", "min_pass_rate", "max_pass_rate"}),
        ("--curriculum predictive", {"min_pass_rate", "max_pass_rate"}),
        ("--eval_strategy no", {"eval_problems", "eval_steps", "eval_on_start",
                                "num_generations_eval", "per_device_eval_batch_size"}),
        ("--dtype float32", {"stochastic_rounding"}),
    ],
)  # fmt: skip
def test_an_override_drops_the_yamls_keys_that_it_makes_pointless(flags, dropped, capsys):
    argv = ["--config", str(CONFIGS / "grpo7b/grpo.yaml"), *flags.split()]
    settings = read_settings(GrpoArguments, GRPO, argv, DEFAULTS)
    kept = run_check(settings, check_grpo_keys)
    assert settings.keys() - kept.keys() == dropped
    build(kept, GrpoArguments)
    assert len(capsys.readouterr().err.splitlines()) == len(dropped)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Values of a recipe whose files exist, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("runs", "base", "empty"):  # with `runs` here, runs/none is no hub id
        (tmp_path / name).mkdir()
    write_model(tmp_path / "base")
    (tmp_path / "train.jsonl").write_text("{}\n")
    return {"train_file": "train.jsonl", "model_name_or_path": "base"}


@pytest.mark.parametrize("stage", ["sft", "grpo"])
@pytest.mark.parametrize(
    ("change", "refused", "goal"),
    [
        ({}, None, None),
        ({"train_file": "none.jsonl"}, "train_file", "data"),
        ({"model_name_or_path": None}, "model_name_or_path", None),
        ({"model_name_or_path": "runs/sft"}, "model_name_or_path", "sft"),
        ({"model_name_or_path": "runs/base"}, "model_name_or_path", "base"),
        ({"model_name_or_path": "empty"}, "model_name_or_path", None),
        ({"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}, None, None),  # a hub id
    ],
)
def test_missing_inputs_are_named_with_their_make_target(files, stage, change, refused, goal):
    check, build_settings = (check_sft, sft) if stage == "sft" else (check_grpo, grpo)
    settings = build_settings(files | change)
    assert named(check, settings) == refused
    if goal:
        with pytest.raises(UserError, match=f"`make {goal}`"):
            check(settings)


@pytest.mark.parametrize("stage", ["sft", "grpo"])
@pytest.mark.parametrize(
    ("values", "packages"),
    [
        ({"report_to": "wandb"}, ["wandb"]),
        ({"report_to": ["tensorboard", "trackio"]}, ["trackio"]),
        ({"use_liger_kernel": True}, ["liger-kernel"]),
        ({"attn_implementation": "flash_attention_2"}, ["flash-attn", "kernels"]),
        ({"attn_implementation": "kernels-community/flash-attn2"}, ["kernels"]),
        ({"attn_implementation": "sdpa", "use_liger_kernel": False, "report_to": "none"}, []),
    ],
)
def test_missing_packages(files, monkeypatch, stage, values, packages):
    check, build_settings = (check_sft, sft) if stage == "sft" else (check_grpo, grpo)
    settings = build_settings(files | values)
    here = {"tensorboard"}
    monkeypatch.setattr(manifest, "versions", lambda names: dict.fromkeys(here & {*names}))
    assert named(check, settings) == (next(iter(values)) if packages else None)
    for package in packages:  # any of them will do
        here = {"tensorboard", package}
        assert named(check, settings) is None


def row(question):
    prompt = [{"role": "user", "content": question}]
    return json.dumps({"prompt": prompt, "completion": "<think>t</think>x"}) + "\n"


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (None, "eval_file"),
        ("", "eval_file"),
        (row("What is 2 + 2?"), "eval_file"),  # trained on
        (row("What is 3 + 2?"), None),
        ("{}\n", "held_out.jsonl"),
    ],
)
def test_rows_held_out_of_sft(files, content, refused):
    Path("train.jsonl").write_text(row("What is 2 + 2?"))
    if content is not None:
        Path("held_out.jsonl").write_text(content)
    held_out = {"eval_file": "held_out.jsonl", "eval_strategy": "epoch"}
    assert named(check_sft, sft(files | held_out)) == refused


def test_missing_pass_rates(files):
    values = files | {"curriculum": "predictive", "pass_rates": "none.jsonl"}
    with pytest.raises(UserError, match=r"^pass_rates: none\.jsonl .*`make difficulty`"):
        check_grpo(grpo(values))
    write_model(
        Path("empty"), {"adapter_config.json": {"base_model_name_or_path": "base"}}
    )  # an adapter is a model, too
    check_grpo(grpo(files | {"model_name_or_path": "empty"}))


def test_a_guard_s_key_has_its_default_and_the_actions_that_work():
    keys = {one.name: one for one in fields(GrpoArguments)}
    for one in fields(GuardSettings):
        key = keys[f"guard_{one.name}"]
        assert (key.default, key.type) == (one.default, one.type)
        if one.default == "warn":
            for action in key.metadata["help"].rpartition(": ")[2].split(", "):
                GuardSettings(**{one.name: action})


LORA = {"use_peft": True}


@pytest.mark.parametrize(
    ("values", "config", "level"),
    [
        ({"dtype": "float16"}, {}, "error"),
        ({"dtype": "auto"}, {"dtype": "float16"}, "error"),
        ({"dtype": "auto"}, {"dtype": "float32"}, "ok"),
        ({"dtype": "float16"} | LORA, {}, "ok"),
        ({"dtype": "bfloat16"}, {}, "ok"),
    ],
)
def test_weights_in_float16_are_not_trained_themselves(values, config, level):
    """AdamW's moments underflow there."""
    settings = sft({"learning_rate": 1e-3} | values)
    dtype = trained_dtype(settings.dtype, config)
    assert check_precision("sft", settings, "ddp", dtype).level == level


def test_rounding_waits_for_the_model_where_the_recipe_leaves_its_dtype():
    for dtype, refused in [("auto", None), (None, None), ("float16", "stochastic_rounding")]:
        settings = sft({"stochastic_rounding": True, "dtype": dtype})
        assert named(check_rules, "sft", settings) == refused


def test_an_adapter_without_its_base_is_refused(tmp_path):
    for base, is_refused in ((f"{tmp_path}/gone/model", True), ("gpt2", False)):  # of the hub
        files = {"adapter_config.json": {"base_model_name_or_path": base}, "config.json": None}
        write_model(tmp_path / base.replace("/", "-"), files)
        found = named(check_checkpoint, str(tmp_path / base.replace("/", "-")), "MODEL")
        assert found == ("MODEL" if is_refused else None)
