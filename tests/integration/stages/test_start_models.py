"""Start models: base models of other families, NaN, and code of their own."""

import os
import pty
import shutil
import subprocess
import sys

import pytest
import torch

from pipeline.errors import UserError
from tests.integration.conftest import CORPUS, change_json, train_tokenizer

pytestmark = pytest.mark.integration
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def build_base(family, folder):
    """Save a tiny random model of a family, and a tokenizer without a template."""
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    bpe = train_tokenizer(CORPUS, vocab_size=300, special_tokens=["<end>", "<pad>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<end>", pad_token="<pad>")
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    config = AutoConfig.for_model(family, **sizes, eos_token_id=0, pad_token_id=1)
    config.bos_token_id = None
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_sft_brings_a_base_model_its_template_and_grpo_keeps_it(run_stage, tmp_path, family):
    from transformers import AutoTokenizer

    build_base(family, tmp_path / "base")
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    base = {"model_name_or_path": str(tmp_path / "base"), "chat_template_path": str(template)}
    run_stage("sft", **base)
    assert AutoTokenizer.from_pretrained(tmp_path / "sft").chat_template == TEMPLATE
    run_stage("grpo", model_name_or_path=str(tmp_path / "sft"))
    assert AutoTokenizer.from_pretrained(tmp_path / "grpo").chat_template == TEMPLATE


@pytest.fixture
def base(tiny_model_dir, tmp_path):
    """A copy of the tiny model, to be changed."""
    return shutil.copytree(tiny_model_dir, tmp_path / "base")


@pytest.mark.parametrize(
    "lora", [{}, {"lora_target_modules": ["q_proj", "v_proj"], "use_peft": True}]
)
def test_weights_that_are_nan_from_the_start_are_named(run_stage, base, lora):
    from safetensors.torch import load_file, save_file

    weights = load_file(base / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][0, 0] = torch.nan
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"^model_name_or_path: {base}: its weights hold NaN"):
        run_stage("sft", model_name_or_path=str(base), **lora)


ASKED = """
import sys
from data_prep.sampling.hf import load_checkpoint
from pipeline.errors import run_cli
run_cli(lambda: load_checkpoint(sys.argv[1], "float32", "model_name_or_path"))
"""


def test_nothing_asks_on_a_terminal(base):
    """A model with code of its own, and a terminal where transformers would ask for a yes."""
    code = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    change_json(base / "config.json", **code)
    (base / "own.py").write_text("raise SystemExit('the code has run')")
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-c", ASKED, str(base)]
    done = subprocess.run(
        command, stdin=theirs, capture_output=True, text=True, timeout=240, check=False
    )
    os.close(theirs)
    os.close(terminal)
    said, line = done.stdout + done.stderr, done.stderr.splitlines()[-1]
    assert done.returncode == 2 and "[y/N]" not in said and "Traceback" not in said
    assert line.startswith("error: model_name_or_path: ") and "trust_remote_code" in line
