"""A tokenizer reads text as its tokenizer.json does, whatever class its folder names."""

import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.models.tokenizer import PROBE, load_tokenizer, open_tokenizer, reads_as

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Digits(individual_digits=True)
LLAMA_3 = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?\p{L}+|\s+|[^\s\p{L}\p{N}]+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
KEYS = {"eos_token": "<end>", "pad_token": "<pad>", "chat_template": "x"}


def write_folder(folder, kind, name, pre_tokenizer):
    """A byte-level tokenizer.json whose folder names a class; returns the file's ids of `PROBE`."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizer, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<end>", "<pad>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    bpe.train_from_iterator([PROBE] * 2, trainer)
    bpe.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name} | KEYS))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return bpe.encode(PROBE, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("kind", "name", "pre_tokenizer"),
    [
        ("llama", "LlamaTokenizerFast", LLAMA_3),  # R1's distilled Llama: spaces were lost
        ("llama", "GPT2Tokenizer", pre_tokenizers.Sequence([DIGITS, BYTES])),  # SmolLM2: digits
        ("qwen2", "PreTrainedTokenizerFast", BYTES),
    ],
)
def test_the_file_is_used_where_the_class_splits_otherwise(
    tmp_path, capsys, kind, name, pre_tokenizer
):
    ids = write_folder(tmp_path, kind, name, pre_tokenizer)
    tokenizer = load_tokenizer(str(tmp_path), "model", padding_side="left")
    assert capsys.readouterr().out.startswith(f"model: {tmp_path}: AutoTokenizer (")
    assert tokenizer(PROBE, add_special_tokens=False)["input_ids"] == ids
    assert tokenizer.decode(ids) == PROBE
    assert {key: getattr(tokenizer, key) for key in KEYS} == KEYS
    assert tokenizer.padding_side == "left"


def test_nothing_is_said_where_both_agree(tmp_path, capsys):
    write_folder(tmp_path, "llama", "PreTrainedTokenizerFast", LLAMA_3)
    assert open_tokenizer(str(tmp_path), "model")[1] == ""
    load_tokenizer(str(tmp_path), "model")
    assert capsys.readouterr().out == ""


def test_what_is_saved_is_read_the_same_by_other_programs(tmp_path):
    from transformers import AutoTokenizer

    ids = write_folder(tmp_path, "llama", "LlamaTokenizerFast", LLAMA_3)
    tokenizer, difference = open_tokenizer(str(tmp_path), "model")
    assert difference
    saved = tmp_path / "saved"
    tokenizer.save_pretrained(saved)
    (saved / "config.json").write_text((tmp_path / "config.json").read_text())
    again = AutoTokenizer.from_pretrained(saved)
    assert again(PROBE, add_special_tokens=False)["input_ids"] == ids
    assert reads_as(again, tmp_path / "tokenizer.json")
