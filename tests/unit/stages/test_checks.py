"""What is refused before torch is imported: the key that each wrong value, or pair, names."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.key_types import own_keys, shown_type
from pipeline.settings import build, parse, read_settings, run_check
from stages.arguments import DEFAULTS, GRPO, GrpoArguments, SftArguments
from stages.host import check_grpo, check_sft
from stages.rules import check_grpo_keys, check_sft_keys
from stages.trainer.guards import GuardSettings
from tests.unit.stages.helpers import grpo, named, sft, write_model

CONFIGS = Path(__file__).parents[3] / "configs"
BATCH = {
    "device": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "group": "num_generations",
    "steps": "steps_per_generation",
    "whole": "generation_batch_size",
}


def spell_out(text):
    """`device=4 group=8` as the recipe's own keys."""
    pairs = (part.split("=") for part in text.split())
    return {BATCH[key]: int(value) for key, value in pairs}


@pytest.mark.parametrize(
    ("text", "num_processes", "refused"),
    [
        ("", 1, None),  # TRL's defaults: 8 completions, groups of 8
        ("", 4, None),
        ("device=2 accumulation=4 group=8", 2, None),
        ("device=2 accumulation=1 steps=4 group=8", 1, None),
        ("device=4 whole=32 group=8", 2, None),
        ("device=4 accumulation=3 whole=16 group=8", 1, None),  # accumulation plays no part
        ("device=4 group=8", 2, "num_generations"),
        ("device=12 group=8", 1, "num_generations"),
        ("device=5 accumulation=6 group=4", 2, "num_generations"),
        ("device=2 accumulation=8 steps=3 group=8", 1, "num_generations"),
        ("device=4 whole=8 group=8", 2, "num_generations"),
        ("steps=0", 1, "steps_per_generation"),
        ("device=8 whole=24", 3, None),
    ],
)
def test_every_process_has_whole_groups(text, num_processes, refused):
    values = spell_out(text)
    assert named(lambda: check_grpo_keys(grpo(values), num_processes)) == refused
    if refused != "num_generations" or values.get("num_generations") == 1:
        return
    with pytest.raises(UserError) as error:  # and the numbers suggested instead work
        check_grpo_keys(grpo(values), num_processes)
    remedies = [
        (key, int(number))
        for key, numbers in re.findall(r"(?:use|or) (\w+) (\d+(?: or \d+)*)", str(error.value))
        for number in numbers.split(" or ")
    ]
    assert remedies and {key for key, _ in remedies} <= {*BATCH.values()}
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
        ({"attn_implementation": "flash_attention_3"}, ["flash-attn-3", "kernels"]),
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


@pytest.mark.parametrize("make", [sft, grpo])
@pytest.mark.parametrize(
    ("values", "refused"),
    [
        *(({key: True}, key) for key in ("fp16", "tf32", "activation_offloading")),
        ({"load_in_4bit": True, "use_peft": True}, "load_in_4bit"),
        ({"load_in_8bit": True, "use_peft": True}, "load_in_8bit"),
        ({"attn_implementation": "flash_attention_2"}, "attn_implementation"),
        ({"attn_implementation": "sdpa", "tf32": False}, None),
    ],
)
def test_what_needs_a_gpu(make, values, refused):
    check = check_sft_keys if make is sft else check_grpo_keys
    if "activation_offloading" not in values or make is sft:
        assert named(check, make(values | {"use_cpu": True})) == refused
        assert named(check, make(values)) is None


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


def test_help_explains_every_key(capsys):
    with pytest.raises(SystemExit):
        parse("doc", GrpoArguments, argv=["--help"])
    out = capsys.readouterr().out
    for field in (*fields(GrpoArguments), *fields(SftArguments)):
        assert len(field.metadata["help"]) > 10, field.name
    keys = {f.name: f for f in fields(GrpoArguments)}
    for field in fields(GuardSettings):
        key = keys[f"guard_{field.name}"]
        assert (key.default, key.type) == (field.default, field.type)
        own = own_keys(GrpoArguments)
        shown = f"{shown_type(own[key.name].annotation)}, default {key.default!r}"
        words = f"{key.name}: {shown} {field.metadata['help']}"
        assert words in " ".join(out.split())
        if field.default == "warn":  # an action's help lists the actions that work
            for action in key.metadata["help"].rpartition(": ")[2].split(", "):
                GuardSettings(**{field.name: action})
