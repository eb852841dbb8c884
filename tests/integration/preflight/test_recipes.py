"""The shipped recipes are sound, in seconds, without weights or network."""

import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.plan import RECIPES as GPUS
from stages.preflight.__main__ import inspect
from stages.preflight.inputs import PreflightArguments
from tests import demo
from tests.files import write_rows
from tests.recipes import SHIPPED

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "configs"
BASELINE = "grpo7b-published"  # loses its updates on purpose, but for LoRA's


QUICK_LORA = ("grpo7b", "qwen3-1.7b", "tiny-cpu")  # the others with LoRA are slow tests
CASES = [pytest.param(name, None, id=name) for name in SHIPPED]
for name in SHIPPED:
    marks = () if name in QUICK_LORA else pytest.mark.slow
    CASES.append(pytest.param(name, "configs/lora.yaml", id=f"{name} LoRA", marks=marks))


@pytest.mark.parametrize(("name", "lora"), CASES)
def test_shipped_recipes_have_no_error(name, lora, tmp_path, monkeypatch):
    launch = {"gpus": 8, "accelerate": "fsdp2"} if GPUS.get(name, 1) > 1 else {}
    if name == BASELINE:
        launch = {"gpu_memory": 94}  # its card, and its README says so
    write_rows(tmp_path / "problems.jsonl", [])  # of own-problems, in the current folder
    monkeypatch.chdir(tmp_path)
    folder, run = str(CONFIGS / name), str(tmp_path / "run")
    overlay = lora and str(ROOT / lora)
    args = PreflightArguments(recipe=folder, run=run, overlay=overlay, **launch)
    recipe, found = inspect(args)
    assert recipe.settings["grpo"].use_peft is bool(lora)
    assert lora or "gpus" not in launch or recipe.settings["grpo"].dtype == "float32"
    bad = [one for one in found if one.level in ("error", "warning")]
    bad = [one.text for one in bad if one.topic != "disk"]  # this machine's
    lost = name == BASELINE and not lora
    assert len(bad) == lost and all("most updates of this size are lost" in text for text in bad)
    assert {"data", "grpo", "eval"} <= set(recipe.parsed)
    assert {f"{stage} memory" for stage in recipe.stages()} <= {one.topic for one in found}


def test_warnings_end_with_0_and_no_network_is_asked(tmp_path):
    # A proxy that refuses would show in the output if anything were asked of the hub.
    environment = {"HTTPS_PROXY": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hub")}
    flags = f"--recipe {CONFIGS}/grpo7b --run {tmp_path}/run --gpus 8 --accelerate fsdp2"
    flags += " --keys sft.dtype=float32 grpo.dtype=float32"
    command = [sys.executable, "-m", "stages.preflight", *flags.split()]
    done = demo.run(command, **environment)
    assert done.returncode == 0, done.stdout
    assert "TOKENIZER=FOLDER" in done.stdout and "optimizer 7.1 GiB" in done.stdout
    assert "127.0.0.1:9" not in done.stdout + done.stderr


def test_lengths_of_data_that_is_not_built_are_not_checked(tiny_model_dir, tmp_path):
    ignored = shutil.ignore_patterns("config.json", "*.safetensors")
    folder = shutil.copytree(tiny_model_dir, tmp_path / "tokenizer", ignore=ignored)
    arguments = {"recipe": str(CONFIGS / "grpo7b"), "run": str(tmp_path / "run")}
    _, found = inspect(PreflightArguments(tokenizer=str(folder), **arguments))
    (lengths,) = [one for one in found if one.topic == "grpo lengths"]
    assert (lengths.level, lengths.remedy) == ("not checked", "make data RECIPE=…")
