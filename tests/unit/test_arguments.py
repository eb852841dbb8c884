"""Batch arithmetic, recipe checks, and every entry point's answer to --help and to a mistake."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from data_prep.config import UserError
from stages.settings.arguments import (
    GrpoArguments,
    check_batch,
    check_grpo,
    check_grpo_numbers,
    check_sft,
)

ROOT = Path(__file__).parents[2]
SHORT = {
    "device": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "group": "num_generations",
    "steps": "steps_per_generation",
    "whole": "generation_batch_size",
}


def spell_out(text):
    """`device=4 group=8` as the recipe's own keys."""
    pairs = (part.split("=") for part in text.split())
    return {SHORT[key]: int(value) for key, value in pairs}


@pytest.mark.parametrize(
    ("text", "num_processes"),
    [
        ("", 1),  # TRL's defaults: 8 completions, groups of 8
        ("", 4),
        ("device=128 group=8", 1),
        ("device=4 accumulation=8 group=4", 1),
        ("device=2 accumulation=4 group=8", 2),
        ("device=2 accumulation=1 steps=4 group=8", 1),
        ("device=3 accumulation=8 group=8", 1),
        ("device=4 whole=16 group=8", 1),
        ("device=4 whole=32 group=8", 2),
        ("device=4 accumulation=3 whole=16 group=8", 1),  # the accumulation plays no part here
    ],
)
def test_whole_groups_on_every_process(text, num_processes):
    check_batch(spell_out(text), num_processes)


@pytest.mark.parametrize(
    ("text", "num_processes", "words"),
    [
        ("device=4 group=8", 1, "8 does not divide the 4 completions of one process"),
        ("device=4 group=8", 2, "8 does not divide the 4 completions of one process"),
        ("device=12 group=8", 1, "8 does not divide the 12 completions"),
        ("device=130 group=8", 1, "8 does not divide the 130 completions"),
        ("device=1 group=2", 1, "2 does not divide the 1 completions"),
        ("device=3 accumulation=4 group=8", 1, "8 does not divide the 12 completions"),
        ("device=5 accumulation=6 group=4", 2, "4 does not divide the 30 completions"),
        ("device=2 accumulation=8 steps=3 group=8", 1, "8 does not divide the 6 completions"),
        ("device=4 whole=12 group=8", 1, "8 does not divide the 12 completions"),
        ("device=4 whole=24 group=8", 2, "8 does not divide the 12 completions"),
        ("device=6 whole=120 group=8", 2, "8 does not divide the 60 completions"),
    ],
)
def test_broken_groups_and_the_numbers_suggested_instead(text, num_processes, words):
    values = spell_out(text)
    with pytest.raises(UserError, match=words) as error:
        check_batch(values, num_processes)
    message = str(error.value)
    assert "\n" not in message
    remedies = [
        (key, int(number))
        for key, numbers in re.findall(r"(?:use|or) (\w+) (\d+(?: or \d+)*)", message)
        for number in numbers.split(" or ")
    ]
    assert remedies
    for key, number in remedies:
        assert key in SHORT.values()
        check_batch(values | {key: number}, num_processes)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (spell_out("group=1"), "num_generations: 1 gives no group"),
        (spell_out("device=0"), "per_device_train_batch_size: 0 must be at least 1"),
        (spell_out("accumulation=-1"), "gradient_accumulation_steps: -1 must be at least 1"),
        (spell_out("device=8 steps=1 whole=8"), "set it or steps_per_generation, not both"),
        (spell_out("device=8 whole=20"), "generation_batch_size: 20 is no multiple of .* = 8"),
    ],
)
def test_other_batch_faults(values, words):
    with pytest.raises(UserError, match=words):
        check_batch(values, 1)


def test_numbers_from_the_command_line_are_text():
    check_batch({"per_device_train_batch_size": "16", "num_generations": "8"}, 1)
    with pytest.raises(UserError, match="8 does not divide the 20 completions"):
        check_batch({"per_device_train_batch_size": "2e1", "num_generations": "8"}, 1)


def test_the_number_of_processes_comes_from_the_launcher(monkeypatch):
    values = spell_out("device=8 whole=24 group=8")
    monkeypatch.setenv("WORLD_SIZE", "3")
    check_grpo_numbers(values)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="processes = 16"):
        check_grpo_numbers(values)


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize("check", [check_sft, check_grpo])
def test_missing_inputs_are_named_with_their_make_target(tmp_path, checkpoint, check, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()  # so that runs/none is no hub id
    train = tmp_path / "train.jsonl"
    train.write_text("{}\n")
    sound = {"train_file": str(train), "model_name_or_path": str(checkpoint)}
    check(sound)
    (tmp_path / "empty").mkdir()
    target = "base" if check is check_sft else "sft"
    for change, words in [
        ({"train_file": "none.jsonl"}, "train_file: none.jsonl does not exist; run `make data`"),
        ({"model_name_or_path": None}, "model_name_or_path: missing"),
        ({"model_name_or_path": str(tmp_path / "none")}, f"/none holds no model.*`make {target}`"),
        ({"model_name_or_path": "runs/none"}, f"runs/none holds no model; run `make {target}`"),
        ({"model_name_or_path": str(tmp_path / "empty")}, "/empty holds no model"),
    ]:
        with pytest.raises(UserError, match=words):
            check(sound | change)
    check(sound | {"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"})  # a hub id
    (tmp_path / "empty/adapter_config.json").write_text("{}")
    check(sound | {"model_name_or_path": str(tmp_path / "empty")})


def test_missing_pass_rates(tmp_path, checkpoint):
    train = tmp_path / "train.jsonl"
    train.write_text("{}\n")
    values = {"train_file": str(train), "model_name_or_path": str(checkpoint)}
    values["curriculum"] = "predictive"
    check_grpo(values | {"pass_rates": None})
    with pytest.raises(UserError, match=r"none\.jsonl .*run `make difficulty` first"):
        check_grpo(values | {"pass_rates": "none.jsonl"})


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, None),
        ({"reward_funcs": ["correctness_reward"]}, None),
        ({"reward_funcs": ["accuracy"]}, "reward_funcs: 'accuracy' is none of correctness_reward"),
        ({"min_pass_rate": 0.0, "max_pass_rate": 1.0}, None),
        ({"min_pass_rate": 0.5, "max_pass_rate": 0.5}, None),
        ({"min_pass_rate": 0.6, "max_pass_rate": 0.5}, "min_pass_rate: 0.6"),
        ({"min_pass_rate": -0.1}, "min_pass_rate: -0.1"),
        ({"max_pass_rate": 1.1}, "max_pass_rate: 1.1"),
        ({"length_penalty_start": 0, "length_penalty_end": 1}, None),
        ({"length_penalty_start": 800}, "length_penalty_start: 800 must lie below"),
        ({"length_penalty_start": -1}, "length_penalty_start: -1"),
        ({"length_penalty_max": 0.0}, None),
        ({"length_penalty_max": -0.1}, "length_penalty_max: -0.1 must not be negative"),
        ({"repetition_ngram_size": 1, "repetition_max_penalty": 0.0}, None),
        ({"repetition_ngram_size": 0}, "repetition_ngram_size: 0 must be above 0"),
        ({"repetition_max_penalty": -1.0}, "repetition_max_penalty: -1.0 must not be negative"),
    ],
)
def test_grpo_arguments(keys, words):
    if words is None:
        GrpoArguments(train_file="f", **keys)
        return
    with pytest.raises(ValueError, match=words):
        GrpoArguments(train_file="f", **keys)


@pytest.mark.parametrize("recipe", sorted(p.parent.name for p in ROOT.glob("configs/*/grpo.yaml")))
def test_shipped_recipes_add_up(recipe):
    config = yaml.safe_load((ROOT / "configs" / recipe / "grpo.yaml").read_text(encoding="utf-8"))
    check_grpo_numbers(config)


MODULES = {
    "data_prep.build": "data.yaml",
    "stages.tiny_model": "model.yaml",
    "stages.sft": "sft.yaml",
    "stages.difficulty": "difficulty.yaml",
    "stages.distill": "distill.yaml",
    "stages.grpo": "grpo.yaml",
    "eval.run": "eval.yaml",
    "stages.preflight": None,
}
HEAVY = {"torch", "transformers", "datasets", "lm_eval", "sympy"}  # `import trl` alone is lazy
WRAPPER = f"""
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print("imported:", *sorted({HEAVY} & set(sys.modules)))
"""


def call(module, *flags):
    """Run `python -m module flags` in a process that says at the end what it imported."""
    command = [sys.executable, "-c", WRAPPER, module, *flags]
    env = os.environ | {"PYTHONPATH": str(ROOT), "WORLD_SIZE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    out, _, imported = done.stdout.rpartition("imported:")
    assert imported.strip() == "", f"{module} {flags} imported {imported}"
    return done.returncode, out, done.stderr


def assert_one_error(done, *words):
    code, out, err = done
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1, done
    assert all(word in err for word in words), err


@pytest.mark.parametrize("module", MODULES)
def test_help(module):
    code, out, err = call(module, "--help")
    assert code == 0 and err == ""
    assert f"python -m {module}" in out and "keys (YAML or --key value)" in out


@pytest.mark.parametrize("module", MODULES)
def test_an_unknown_key(module):
    assert_one_error(call(module, "--no_such_key", "1"), "unknown key 'no_such_key'")


@pytest.mark.parametrize("module", [name for name, file in MODULES.items() if file])
def test_a_missing_input(module, tmp_path):
    """With the shipped recipe and an empty run folder; the build needs no earlier stage."""
    flags = ["--config", f"configs/tiny-cpu/{MODULES[module]}", "--run_dir", str(tmp_path)]
    if module == "data_prep.build":
        assert_one_error(call(module, *flags, "--data_root", str(tmp_path / "x")), "data_root")
    else:
        assert_one_error(call(module, *flags), str(tmp_path), "does not exist", "make data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["stages.sft", "stages.grpo"])
def test_a_broken_config(module, tmp_path):
    (tmp_path / "a.yaml").write_text("learning_rate: quick\n")
    flags = ["--config", str(tmp_path / "a.yaml")]
    assert_one_error(call(module, *flags), "a.yaml: learning_rate: 'quick' is not a number")


def test_preflight_names_what_it_cannot_read(tmp_path):
    assert_one_error(call("stages.preflight", "--recipe", str(tmp_path / "none")), "not a folder")
    assert_one_error(call("stages.preflight", "--recipe", str(tmp_path)), "no YAML file")
    (tmp_path / "data.yaml").write_text("output_dir: x\nsft: [{name: nope}]\n")
    (tmp_path / "extra.yaml").write_text("a: 1\n")
    code, out, err = call("stages.preflight", "--recipe", str(tmp_path))
    assert (code, err) == (2, "") and "'nope'" in out and "extra.yaml" in out
