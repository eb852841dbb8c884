"""A converted GGUF file is the model and the tokenizer that it was written from."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import gguf
import numpy
import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.convert_slow_tokenizer import TikTokenConverter

from pipeline.models import gguf_files, named_models
from pipeline.models.checkpoints import check_checkpoint
from tests.gguf_writer import KINDS, MERGES, TEMPLATE, TOKENS, UNUSED, write_gguf

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
SHAPE = {
    "vocab_size": len(TOKENS), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "initializer_range": 0.2, "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1234.0},
}  # fmt: skip
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE, tie_word_embeddings=False)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, tie_word_embeddings=True, head_dim=32)),
}
TEXT = " the 12345 in\n\n  's the THE'S ½ é.x <|im_start|>a<tool><|im_end|>[PAD0]"
ABOUT = {"file": "tiny.gguf", "source": "a file of the user", "sha256": "0"}


@pytest.fixture
def source(request):
    """A random model of an architecture, and what its GGUF file says of its shape."""
    kind, config = MODELS[request.param]
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:  # norms and biases start at one value
                weight += 0.1 * torch.randn_like(weight)
    shape = {
        "block_count": 2, "context_length": 128, "embedding_length": 64, "feed_forward_length": 96,
        "attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": len(TOKENS),
        "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1234.0,
    }  # fmt: skip
    if request.param == "qwen3":
        shape |= {"attention.key_length": 32, "attention.value_length": 32}
    return request.param, model, shape


def by_gguf_name(architecture, model):
    """The weights as llama.cpp names them, Llama's rotary halves interleaved as it has them."""
    number = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == architecture)
    names = gguf.get_tensor_name_map(number, 2)
    found = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        stem, _, kind = name.rpartition(".")
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            heads = 4 if stem.endswith("q_proj") else 2
            halves = weight.reshape(heads, 2, -1, weight.shape[1])
            weight = halves.transpose(1, 2).reshape(weight.shape)
        found[f"{names.get_name(stem)}.{kind}"] = weight.numpy()
    return found


def logits(model):
    with torch.no_grad():
        return model(torch.arange(3, 40)[None]).logits


def convert(tmp_path, source, **changes):
    """The folder of a source's GGUF file."""
    architecture, model, shape = source
    tensors = changes.pop("tensors", None) or by_gguf_name(architecture, model)
    path = write_gguf(tmp_path / "tiny.gguf", architecture, tensors, shape, **changes)
    gguf_files.convert(path, tmp_path / "model", ABOUT)
    return tmp_path / "model"


@pytest.mark.parametrize("source", MODELS, indirect=True)
def test_a_converted_model_is_the_one_that_was_written(tmp_path, source):
    folder = convert(tmp_path, source)
    check_checkpoint(str(folder), "MODEL")
    loaded = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(loaded) is type(source[1]) and loaded.dtype == torch.float32
    torch.testing.assert_close(logits(loaded), logits(source[1]), rtol=0, atol=1e-5)
    for file in ("config.json", "generation_config.json"):
        said = json.loads((folder / file).read_text())
        ids = [said[f"{name}_token_id"] for name in ("bos", "eos", "pad")]
        assert ids == [1, 2, 0]
        assert str(tmp_path) not in json.dumps(said) and "quantization_config" not in said
        assert not any("name_or_path" in key for key in said)
    assert json.loads((folder / "origin.json").read_text()) == ABOUT | {"quantization": ""}
    assert 'license: "mit"' in (folder / "README.md").read_text()


@pytest.mark.parametrize("source", ["llama"], indirect=True)
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_blocks_become_the_numbers_that_they_stand_for(tmp_path, source, kind):
    folder = convert(tmp_path, source, kind=kind)
    loaded = AutoModelForCausalLM.from_pretrained(folder).eval()
    architecture, model, _ = source
    exact = by_gguf_name(architecture, model)
    wanted = gguf.GGMLQuantizationType[kind]
    for name, weight in by_gguf_name(architecture, loaded).items():
        if weight.ndim > 1:
            blocks = gguf.dequantize(gguf.quantize(exact[name], wanted), wanted)
            numpy.testing.assert_array_equal(weight, blocks)
            assert not numpy.array_equal(weight, exact[name])
    assert kind in json.loads((folder / "origin.json").read_text())["quantization"]


@pytest.mark.parametrize("source", ["qwen2"], indirect=True)
def test_a_file_that_lacks_weights_is_refused(tmp_path, source):
    tensors = by_gguf_name(*source[:2])
    del tensors["blk.1.attn_q.bias"]
    with pytest.raises(ValueError, match="1 would start at random") as found:
        convert(tmp_path, source, tensors=tensors)
    assert "\n" not in str(found.value) and f"{tmp_path}/tiny.gguf: " in str(found.value)


def known_tokenizer(split):
    """A tokenizer with the split of the published one, by other code than ours."""
    vocabulary = {
        token: n for n, (token, k) in enumerate(zip(TOKENS, KINDS, strict=True)) if k != UNUSED
    }
    merges = [tuple(merge.split()) for merge in MERGES]
    if split == "qwen2":
        backend = Qwen2Tokenizer(vocab=vocabulary, merges=merges)._tokenizer
        backend.add_special_tokens(TOKENS[:3])
    else:
        backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=split == "llama-bpe"))
        digits = pre_tokenizers.Digits(individual_digits=True)
        if split == "llama-bpe":
            pattern = TikTokenConverter.__init__.__defaults__[1]
            digits = pre_tokenizers.Split(Regex(pattern), "isolated")
        use_regex = split == "smollm"
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, letters])
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens(TOKENS[:3])
    backend.add_tokens(["<tool>"])
    return backend


@pytest.mark.parametrize("split", ["smollm", "qwen2", "llama-bpe"])
def test_the_tokenizer_splits_as_the_published_one(tmp_path, split):
    file = gguf_files.GgufFile(write_gguf(tmp_path / "tiny.gguf", pre=split))
    gguf_files.build_tokenizer(file).save_pretrained(tmp_path)
    loaded, known = AutoTokenizer.from_pretrained(tmp_path), known_tokenizer(split)
    ids = loaded(TEXT)["input_ids"]
    assert ids == known.encode(TEXT).ids
    assert loaded.decode(ids) == TEXT
    assert {TOKENS.index("123") in ids, split == "llama-bpe"} in ({True}, {False})
    ends = [loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id]
    assert ends == [1, 2, 0] and loaded.chat_template == TEMPLATE
    added = loaded.decode(ids, skip_special_tokens=True)
    assert "<tool>" in added and "<|im_end|>" not in added


def test_a_bos_is_put_before_texts_where_the_file_says_so(tmp_path):
    for number, (split, given, has) in enumerate(
        [("smollm", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)]
    ):
        path = write_gguf(tmp_path / f"{number}.gguf", pre=split, add_bos_token=given)
        tokenizer = gguf_files.build_tokenizer(gguf_files.GgufFile(path))
        ids = tokenizer("the")["input_ids"]
        assert (ids[0] == 1) == has and tokenizer("the", add_special_tokens=False)[
            "input_ids"
        ] == ids[has:]


def start(path, limit=None):
    """A process that resolves a file as an entry point does."""
    code = (
        "from pipeline import errors, named_models\n"
        f"errors.run_cli(lambda: print(named_models.resolve({str(path)!r}, 'MODEL')))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, preexec_fn=limit, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    return tmp_path / "cache/sft-grpo-math/models"


@pytest.mark.parametrize("source", ["llama"], indirect=True)
def test_of_two_processes_one_converts_and_a_full_disk_leaves_nothing(tmp_path, source, cache):
    architecture, model, shape = source
    path = write_gguf(tmp_path / "x.gguf", architecture, by_gguf_name(*source[:2]), shape)

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    failed = start(path, full)
    _, told = failed.communicate()
    assert failed.returncode == 2 and told.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in told and [*cache.rglob("*/*")] == []

    both = [start(path), start(path)]
    ends = [process.communicate() for process in both]
    folder = ends[0][0].strip()
    assert [process.returncode for process in both] == [0, 0]
    assert ends[1][0].strip() == folder and Path(folder).parent.parent == cache
    assert sum(told.count("converted, once") for _, told in ends) == 1
    assert named_models.find(str(path)) == folder
    loaded = AutoModelForCausalLM.from_pretrained(folder).eval()
    torch.testing.assert_close(logits(loaded), logits(model), rtol=0, atol=1e-5)


def test_a_refusal_of_the_conversion_names_the_users_file(tmp_path, cache):
    path = write_gguf(tmp_path / "x.gguf", "gemma")
    process = start(path)
    out, told = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert told.splitlines()[-1].startswith(f"error: MODEL: {path}: general.architecture: gemma")
    assert [*cache.rglob("*/*")] == []
