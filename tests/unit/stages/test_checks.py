"""What is refused before torch is imported: the key that each wrong value, or pair, names."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from pipeline import manifest
from pipeline.models.checkpoints import check_checkpoint
from pipeline.settings import build, read_settings, run_check
from stages.arguments import DEFAULTS, GRPO, GrpoArguments
from stages.host import check_grpo, check_sft
from stages.precision import trained_dtype
from stages.preflight.batches import check_precision
from stages.rules import check_grpo_keys, check_rules, check_sft_keys
from stages.trainer.guards import GuardSettings
from tests.refused import refused
from tests.tables import tables_beside
from tests.unit.stages.helpers import grpo, named, sft, write_model

table = tables_beside(__file__)

CONFIGS = Path(__file__).parents[3] / "configs"
BATCH = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "num_generations",
    "steps_per_generation", "generation_batch_size",
)  # fmt: skip


@table
def test_the_numbers_that_are_suggested_give_every_process_whole_groups(numbers, num_processes):
    values = {key: number for key, number in zip(BATCH, numbers, strict=True) if number}
    line = refused(r"^num_generations: ", check_grpo_keys, grpo(values), num_processes)
    remedies = [
        (key, int(number))
        for key, numbers in re.findall(r"(?:use|or) (\w+) (\d+(?: or \d+)*)", line)
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
    wrong = [{key: value} for value in (True, "true", "none/here", str(checkpoint))]
    for values in ({"save_strategy": "best"}, *wrong):
        assert named(lambda values=values: check(build(values))) == next(iter(values))
    for name in ("optimizer.pt", "scheduler.pt"):
        (checkpoint / name).touch()
    for value in (str(checkpoint), None):
        assert named(lambda value=value: check(build({key: value}))) is None


@table
def test_an_override_drops_the_yamls_keys_that_it_makes_pointless(flags, dropped, capsys):
    argv = ["--config", str(CONFIGS / "grpo7b/grpo.yaml"), *flags.split()]
    settings = read_settings(GrpoArguments, GRPO, argv, DEFAULTS)
    kept = run_check(settings, check_grpo_keys)
    assert settings.keys() - kept.keys() == {*dropped}
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
@table
def test_missing_inputs_are_named_with_their_make_target(files, stage, change, key, goal):
    check, build_settings = (check_sft, sft) if stage == "sft" else (check_grpo, grpo)
    settings = build_settings(files | change)
    assert named(check, settings) == key
    if goal:
        refused(f"`make {goal}`", check, settings)


@pytest.mark.parametrize("stage", ["sft", "grpo"])
@table
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


def test_rows_held_out_of_sft(files):
    Path("train.jsonl").write_text(row("What is 2 + 2?"))
    settings = sft(files | {"eval_file": "held_out.jsonl", "eval_strategy": "epoch"})
    assert named(check_sft, settings) == "eval_file"  # which is not there
    for content, key in (
        ("", "eval_file"),
        (row("What is 2 + 2?"), "eval_file"),  # trained on
        (row("What is 3 + 2?"), None),
        ("{}\n", "held_out.jsonl"),
    ):
        Path("held_out.jsonl").write_text(content)
        assert named(check_sft, settings) == key, content


def test_missing_pass_rates(files):
    values = files | {"curriculum": "predictive", "pass_rates": "none.jsonl"}
    refused(r"^pass_rates: none\.jsonl .*`make difficulty`", check_grpo, grpo(values))
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


@table
def test_weights_in_float16_are_not_trained_themselves(values, config, level):
    """AdamW's moments underflow there."""
    settings = sft({"learning_rate": 1e-3} | values)
    dtype = trained_dtype(settings.dtype, config)
    assert check_precision("sft", settings, "ddp", dtype).level == level


def test_rounding_waits_for_the_model_where_the_recipe_leaves_its_dtype():
    for dtype, key in [("auto", None), (None, None), ("float16", "stochastic_rounding")]:
        settings = sft({"stochastic_rounding": True, "dtype": dtype})
        assert named(check_rules, "sft", settings) == key


def test_an_adapter_without_its_base_is_refused(tmp_path):
    for base, is_refused in ((f"{tmp_path}/gone/model", True), ("gpt2", False)):  # of the hub
        files = {"adapter_config.json": {"base_model_name_or_path": base}, "config.json": None}
        write_model(tmp_path / base.replace("/", "-"), files)
        found = named(check_checkpoint, str(tmp_path / base.replace("/", "-")), "MODEL")
        assert found == ("MODEL" if is_refused else None)
