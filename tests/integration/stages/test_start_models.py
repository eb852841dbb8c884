"""Start models: the demo's, other families, NaN, code and sampling defaults of their own."""

import json
import os
import pty
import shutil
import subprocess
import sys

import pytest
import torch

from data_prep.sources.synthetic import MAX_VALUE
from pipeline import manifest
from pipeline.errors import UserError
from pipeline.rows import read_rows
from stages import tiny_model
from tests.integration.conftest import CORPUS, change_json, train_tokenizer
from tests.integration.trainer.runs import read_logs

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


# Sampling is tried before training; rollouts do not take the model's own defaults


@pytest.mark.parametrize(
    ("stage", "values", "kept", "lost"),
    [
        ("sft", {"temperature": 0.6, "top_p": 0.95}, {"temperature": 0.6, "do_sample": True}, []),
        ("grpo", {"num_return_sequences": 4, "early_stopping": True, "max_new_tokens": -1}, {},
         ["early_stopping", "max_new_tokens"]),
    ],
)  # fmt: skip
def test_contradicting_defaults_are_repaired_with_one_line(
    run_stage, base, capsys, stage, values, kept, lost
):
    change_json(base / "generation_config.json", **values)
    folder = run_stage(stage, model_name_or_path=str(base), save_strategy="no", max_steps=1)
    saved = json.loads((folder / "generation_config.json").read_text())
    assert saved.items() >= kept.items() and not saved.keys() & set(lost)
    lines = [line for line in capsys.readouterr().out.splitlines() if "is repaired" in line]
    assert len(lines) == 1 and str(base) in lines[0] and all(key in lines[0] for key in lost)
    assert not list(folder.glob("*.partial"))


def test_rollouts_follow_the_recipe_alone(run_stage, base, capsys, monkeypatch):
    """Under these defaults every completion would be one long repetition without an end."""
    from transformers import GenerationMixin

    seen = []
    prepare = GenerationMixin._prepare_generation_config

    def record(self, *args, **kwargs):
        found = prepare(self, *args, **kwargs)
        seen.append(found[0])
        return found

    monkeypatch.setattr(GenerationMixin, "_prepare_generation_config", record)
    leaks = {
        "min_new_tokens": 11, "suppress_tokens": [5, 6], "no_repeat_ngram_size": 2,
        "bad_words_ids": [[7]], "forced_eos_token_id": 9, "min_length": 30, "do_sample": True,
        "temperature": 0.1, "exponential_decay_length_penalty": [3, 2.0],
    }  # fmt: skip
    change_json(base / "generation_config.json", **leaks)
    folder = run_stage("grpo", model_name_or_path=str(base), max_steps=1)
    assert seen
    for config in seen:
        taken = [name for name in leaks if getattr(config, name) == leaks[name]]
        assert taken == ["do_sample"]
        assert config.eos_token_id
    ignored = [line for line in capsys.readouterr().out.splitlines() if "min_new_tokens" in line]
    assert len(ignored) == 1 and "suppress_tokens" in ignored[0]
    saved = json.loads((folder / "generation_config.json").read_text())
    assert saved["min_new_tokens"] == 11  # the model's own users keep its defaults


def test_rollouts_end_at_each_token_that_ends_the_model_s_text(run_stage, base):
    """The model's own `stop_strings` are no setting of the recipe; this is what their line says."""
    ends = {"eos_token_id": [*range(100, 300)], "stop_strings": ["x"]}
    change_json(base / "generation_config.json", **ends)
    given = {"no_repeat_ngram_size": 3}
    keys = {"model_name_or_path": str(base), "max_steps": 1}
    folder = run_stage("grpo", **keys, generation_kwargs=given)
    (log,) = read_logs(folder)
    assert log["completions/clipped_ratio"] < 0.5 and log["completions/mean_length"] < 8


def test_trying_a_setting_changes_no_rollout(run_stage, tmp_path):
    folders = [
        run_stage("grpo", output_dir=str(tmp_path / name), max_steps=2, generation_kwargs=given)
        for name, given in (("with", {"renormalize_logits": True}), ("without", None))
    ]
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second


# The demo's: a tokenizer that survives loading, and a model that fits it


@pytest.fixture(scope="module")
def demo_base(tmp_path_factory, data_dir):
    """The folder of `stages.tiny_model`, run in this process with a small shape."""
    folder = tmp_path_factory.mktemp("base")
    values = {"output_dir": folder, "train_file": data_dir / "sft_train.jsonl"}
    values |= {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 48}
    flags = [word for key, value in values.items() for word in (f"--{key}", str(value))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["tiny_model", *flags])
        tiny_model.main()
    return folder


@pytest.fixture(scope="module")
def tokenizer(demo_base):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo_base)


def test_numbers_are_single_tokens(tokenizer):
    for number in range(MAX_VALUE + 1):
        (alone,) = tokenizer(str(number))["input_ids"]
        (after_space,) = tokenizer(f" {number}")["input_ids"]
        assert alone != after_space
        first, *_, last = tokenizer(f"{number} + 1 = {number}")["input_ids"]
        assert (first, last) == (alone, after_space)


def test_the_model_fits_its_tokenizer_and_the_manifest(demo_base, tokenizer, data_dir):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(demo_base)
    counts = manifest.read(demo_base)["counts"]
    embeddings = model.get_input_embeddings().weight
    assert embeddings.shape == (len(tokenizer), 32) and embeddings.dtype.itemsize == 4
    assert model.get_output_embeddings().weight is embeddings  # tied
    assert counts["vocab_size"] == len(tokenizer)
    assert counts["num_parameters"] == sum(p.numel() for p in model.parameters())
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    for _, row in read_rows(data_dir / "sft_train.jsonl"):
        ids = tokenizer(row["question"] + row["completion"])["input_ids"]
        assert len(ids) < model.config.max_position_embeddings


def test_a_changed_round_trip_is_caught(demo_base, tokenizer):
    tiny_model.check_round_trip(demo_base, ["How many pens?"], tokenizer)
    with pytest.raises(AssertionError, match="loses a part"):
        tiny_model.check_round_trip(demo_base, ["cafe\u0301"], tokenizer)


def test_heads_that_do_not_share_the_width_are_refused():
    with pytest.raises(ValueError, match=r"^num_heads: 3 does not divide hidden_size 64"):
        tiny_model.ModelArguments("base", "rows.jsonl", num_heads=3)
