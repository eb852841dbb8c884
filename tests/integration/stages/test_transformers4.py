"""Saved models are the same in transformers 4.57, whose environment the slow tests build."""

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from pipeline.transformers4 import SAME_IN_4, with_old_names, write_old_names
from stages import run_folder
from tests.integration.stages import old_reader

pytestmark = pytest.mark.integration

LENGTH = 120
TEXTS = [
    "Mia has 14 pens.\nHow many ?",
    "  two  <|im_start|>user\nDon't <|im_end|>",
    "x² , 数学",
    "",
]
SIZES = {
    "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 256,
    "head_dim": 16, "initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "sliding_window": 32,
    # of mixtures of experts and latent attention
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "n_routed_experts": 4,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16,
    "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 8,
}  # fmt: skip
SCALED = {
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32},
    "yarn": {"factor": 4.0},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
}  # fmt: skip
LONGROPE = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


def rotary(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 5e5, **more}}


CASES = {kind: (kind, {}) for kind in SAME_IN_4}
CASES |= {f"{kind} {name}": (kind, rotary(name, **more)) for kind in ("llama", "qwen2", "qwen3")
          for name, more in SCALED.items()}  # fmt: skip
CASES |= {
    "qwen2 tied": ("qwen2", rotary("default") | {"tie_word_embeddings": True}),
    "qwen2 bfloat16": ("qwen2", rotary("default") | {"dtype": "bfloat16"}),
    "gemma untied": ("gemma", {"tie_word_embeddings": False}),
    "phi3 long": (
        "phi3", rotary("longrope", **LONGROPE) | {"original_max_position_embeddings": 64},
    ),
    "phi3 partial": ("phi3", rotary("default", partial_rotary_factor=0.5)),
}  # fmt: skip


def config_of(kind, changes):
    """A small configuration of a model type, with thetas that are nobody's default."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    names = {*made.__dataclass_fields__, *made.attribute_map}
    rope = getattr(made(), "rope_parameters", None)
    if rope and "rope_type" in rope:
        changes = {"rope_parameters": rope | {"rope_theta": 123456.0}} | changes
    elif rope:
        thetas = {"full_attention": 123456.0, "sliding_attention": 123456.0}
        if kind == "gemma3_text":
            thetas["sliding_attention"] = 23456.0
        rope = {layer: rope[layer] | {"rope_theta": theta} for layer, theta in thetas.items()}
        changes = {"rope_parameters": rope} | changes
    return made(**{key: value for key, value in SIZES.items() if key in names} | changes)


@pytest.mark.parametrize("case", CASES)
def test_version_5_reads_both_names_as_one(case):
    """The configuration is the one that was saved, but for keys without an effect."""
    config = config_of(*CASES[case])
    saved = json.loads(config.to_json_string())
    again = json.loads(type(config)(**with_old_names(saved)).to_json_string())
    added = {"partial_rotary_factor", "rope_theta"}  # kept where the class has no such field
    for key in (saved.keys() | again.keys()) - added - {"rope_parameters"}:
        assert again.get(key) == saved.get(key), key
    if config.model_type == "phi3":  # "type" beside "rope_type"
        again["rope_parameters"].pop("type", None)
    assert again.get("rope_parameters") == saved.get("rope_parameters")


@pytest.fixture(scope="module")
def stage_folders(tmp_path_factory, data_dir, tiny_model_dir):
    """What LoRA SFT saves, by name; the base model has a theta of its own."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    home = tmp_path_factory.mktemp("stage")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    model.config.rope_parameters["rope_theta"] = 1e6
    model.save_pretrained(home / "base")
    tokenizer.save_pretrained(home / "base")
    write_old_names(home / "base", tokenizer)  # version 4 reads the adapter's base model too
    values = {
        "model_name_or_path": home / "base", "train_file": data_dir / "sft_train.jsonl",
        "output_dir": home / "sft", "max_steps": 2, "save_steps": 1, "report_to": "none",
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "learning_rate": 1e-2,
        "per_device_train_batch_size": 4, "use_peft": True, "lora_target_modules": "all-linear",
    }  # fmt: skip
    (home / "sft.yaml").write_text(json.dumps(values, default=str))
    from stages import sft

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sft", "--config", str(home / "sft.yaml")])
        sft.main()
    folder = home / "sft"
    return {
        "merged": folder, "adapter": folder / "adapter", "checkpoint": folder / "checkpoint-2",
    }  # fmt: skip


def test_every_folder_that_a_stage_saves_has_both_names(stage_folders):
    merged = json.loads((stage_folders["merged"] / "config.json").read_text())
    assert merged["rope_theta"] == merged["rope_parameters"]["rope_theta"] == 1e6
    assert merged["torch_dtype"] == merged["dtype"]
    for name, folder in stage_folders.items():
        config = json.loads((folder / "tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == "PreTrainedTokenizerFast", name
        assert "extra_special_tokens" not in config, name
    assert run_folder.damage(stage_folders["checkpoint"]) == ""
    card = (stage_folders["merged"] / "README.md").read_text()
    assert "transformers 4.57" in card


@pytest.fixture(scope="session")
def old_python(pytestconfig):
    """A Python with transformers 4.57: that of TRANSFORMERS_4_PYTHON, or one of pytest's cache."""
    if given := os.environ.get("TRANSFORMERS_4_PYTHON"):
        return given
    folder = Path(pytestconfig.cache.mkdir("transformers-4.57"))
    python = folder / "bin/python"
    if (folder / "ready").exists():
        return str(python)
    venv.create(folder, with_pip=True, clear=True)
    torch = importlib.metadata.version("torch").partition("+")[0]
    wanted = [f"torch=={torch}", "transformers==4.57.*", "peft", "accelerate", "jinja2"]
    done = subprocess.run([python, "-m", "pip", "install", "-q", *wanted], capture_output=True)
    if done.returncode:
        pytest.skip(f"no environment with transformers 4.57: {done.stderr.decode()[-300:]}")
    (folder / "ready").touch()
    return str(python)


def assert_read_alike(python, folders, tmp_path):
    """Both versions find the same logits, token ids, texts and next tokens in each folder."""
    import torch

    given = {"folders": [str(folder) for folder in folders], "texts": TEXTS, "length": LENGTH}
    (tmp_path / "asked.json").write_text(json.dumps(given))
    command = [python, old_reader.__file__, str(tmp_path / "asked.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for folder, found in json.loads((tmp_path / "found.json").read_text()).items():
        expected = old_reader.read(folder, TEXTS, LENGTH)
        logits, wanted = torch.tensor(found.pop("logits")), torch.tensor(expected.pop("logits"))
        torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-4, msg=folder)
        assert found == expected, folder


@pytest.mark.slow
def test_what_stages_save_is_the_same_in_version_4(old_python, stage_folders, tmp_path):
    assert_read_alike(old_python, stage_folders.values(), tmp_path)


@pytest.mark.slow
def test_every_family_is_the_same_in_version_4(old_python, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    for case, (kind, changes) in CASES.items():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config_of(kind, changes))
        model.save_pretrained(tmp_path / case)
        write_old_names(tmp_path / case, None)
    assert_read_alike(old_python, [tmp_path / case for case in CASES], tmp_path)


def build_tokenizer(name):
    """A tokenizer of a class of version 5; "Backend" as Llama 3's, with a BOS by its file."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    bpe = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    bpe.decoder = decoders.ByteLevel()
    special = ["<unk>", "<s>", "</s>", "<pad>", "<eos>", "<bos>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 500, "initial_alphabet": alphabet, "show_progress": False}
    bpe.train_from_iterator(TEXTS * 5, trainers.BpeTrainer(special_tokens=special, **options))
    more = {"extra_special_tokens": ["<|im_start|>"]}
    if name == "Backend":
        begin = [("<s>", bpe.token_to_id("<s>"))]
        bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=begin)
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=bpe, eos_token="<|im_end|>", bos_token="<s>", pad_token="<pad>",
            clean_up_tokenization_spaces=True, **more,
        )  # fmt: skip
    model = json.loads(bpe.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return getattr(transformers, f"{name}Tokenizer")(vocab=model["vocab"], merges=merges, **more)


@pytest.mark.slow
def test_every_tokenizer_is_the_same_in_version_4(old_python, tmp_path):
    """The classes that version 4 has of the same name would give other ids, or do not load."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    kinds = {"Qwen2": "qwen2", "Llama": "llama", "Gemma": "gemma", "GPT2": "gpt2"}
    for name, kind in (kinds | {"Backend": "llama"}).items():
        tokenizer = build_tokenizer(name)
        tokenizer.chat_template = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
        made = config_of(kind, {"vocab_size": len(tokenizer)})
        AutoModelForCausalLM.from_config(made).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        write_old_names(tmp_path / name, tokenizer)
        again = AutoTokenizer.from_pretrained(tmp_path / name)
        for text in TEXTS:
            assert again(text)["input_ids"] == tokenizer(text)["input_ids"], name
    assert_read_alike(old_python, [tmp_path / name for name in (*kinds, "Backend")], tmp_path)
