"""Start models whose files do not belong together, hold NaN, or bring code of their own."""

import json
import os
import pty
import shutil
import subprocess
import sys

import pytest
import torch

from pipeline.errors import UserError

pytestmark = pytest.mark.integration


@pytest.fixture
def base(tiny_model_dir, tmp_path):
    """A copy of the tiny model, to be changed."""
    return shutil.copytree(tiny_model_dir, tmp_path / "base")


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_that_are_nan_from_the_start_are_named(run_stage, base, frozen):
    from safetensors.torch import load_file, save_file

    weights = load_file(base / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][0, 0] = torch.nan
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    lora = {"use_peft": True, "lora_target_modules": ["q_proj", "v_proj"]} if frozen else {}
    with pytest.raises(UserError, match=f"^model_name_or_path: {base}: its weights hold NaN"):
        run_stage("sft", model_name_or_path=str(base), **lora)


@pytest.mark.parametrize(
    ("stage", "change"), [("sft", "missing"), ("difficulty", "missing"), ("grpo", "shape")]
)
def test_weights_that_do_not_fit_are_never_filled_at_random(run_stage, base, stage, change):
    """Of a norm: the headers alone do not tell."""
    from safetensors.torch import load_file, save_file

    from data_prep.sampling.hf import load_checkpoint

    name = "model.layers.1.input_layernorm.weight"
    weights = load_file(base / "model.safetensors")
    weight = weights.pop(name)
    if change == "shape":
        weights[name] = torch.ones(len(weight) + 1)
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"^model_name_or_path: {base}: its weights.*{name}"):
        if stage == "difficulty":
            load_checkpoint(str(base), "float32", "model_name_or_path")
        else:
            run_stage(stage, model_name_or_path=str(base))


def test_unused_weights_are_told(run_stage, base, capsys):
    from safetensors.torch import load_file, save_file

    weights = load_file(base / "model.safetensors") | {"value_head.weight": torch.ones(3)}
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    run_stage("sft", model_name_or_path=str(base), max_steps=1)
    assert "value_head.weight" in capsys.readouterr().out


ASKED = """
import sys
from data_prep.sampling.hf import load_checkpoint
from pipeline.errors import run_cli
run_cli(lambda: load_checkpoint(sys.argv[1], "float32", "model_name_or_path"))
"""


def test_nothing_asks_on_a_terminal(base):
    """A model with code of its own, and a terminal where transformers would ask for a yes."""
    config = json.loads((base / "config.json").read_text())
    code = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (base / "config.json").write_text(json.dumps(config | code))
    (base / "own.py").write_text("raise SystemExit('the code has run')")
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-c", ASKED, str(base)]
    done = subprocess.run(
        command, stdin=theirs, capture_output=True, text=True, timeout=240, check=False
    )
    os.close(theirs)
    os.close(terminal)
    assert done.returncode == 2 and "[y/N]" not in done.stdout + done.stderr
    line = done.stderr.splitlines()[-1]
    assert (
        "Traceback" not in done.stderr
        and line.startswith("error: model_name_or_path: ")
        and "trust_remote_code" in line
    )
