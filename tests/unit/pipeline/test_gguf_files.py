"""GGUF files that cannot be converted are refused in one line, before anything heavy is loaded."""

import numpy
import pytest

from pipeline.errors import UserError
from pipeline.models import gguf_files
from tests.gguf_writer import SPECIAL, TOKENS, write_gguf

QUANTIZED = {"blk.0.attn_q.weight": numpy.ones((4, 32)), "output_norm.weight": numpy.ones(32)}


def refusal(path):
    with pytest.raises(UserError) as found:
        gguf_files.check(gguf_files.GgufFile(path))
    line = str(found.value)
    assert line.startswith(f"{path}: ") and "; " in line and "\n" not in line
    return line


@pytest.mark.parametrize(
    ("architecture", "shape", "named"),
    [
        ("gemma", {}, "gemma"),
        ("llama", {"expert_count": 8}, "llama with experts"),
        ("qwen2", {"rope.scaling.type": "yarn"}, "rotary positions"),
    ],
)
def test_other_models_are_refused(tmp_path, architecture, shape, named):
    assert named in refusal(write_gguf(tmp_path / "a.gguf", architecture, shape=shape))


def test_llama_3s_scaled_positions_are_refused(tmp_path):
    tensors = {"rope_freqs.weight": numpy.ones(8)}
    assert "rotary positions" in refusal(write_gguf(tmp_path / "a.gguf", tensors=tensors))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": "llama"}, "model llama"),
        ({"pre": "tekken"}, "pre tekken"),
        ({"eos_token_id": None}, "eos_token_id"),
        ({"eos_token_id": 5000}, "eos_token_id"),
        ({"tokens": None}, "of 0 tokens lacks the special token"),
        ({"tokens": ["a", "b", "c", *TOKENS[3:]], "bos_token_id": None}, "padding_token_id"),
    ],
)
def test_tokenizers_that_would_be_others_are_refused(tmp_path, changes, named):
    assert named in refusal(write_gguf(tmp_path / "a.gguf", **changes))


def test_damaged_files_are_refused(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", tensors=QUANTIZED)
    whole = path.read_bytes()
    for length in (6, 60, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:length])
        assert "damaged or cut off" in refusal(path)
    path.write_bytes(b"PK\3\4" + whole)
    assert "is not a GGUF file" in refusal(path)
    path.write_bytes(b"")
    assert "is not a GGUF file" in refusal(path)


def test_merges_of_unknown_tokens_are_refused(tmp_path):
    file = gguf_files.GgufFile(write_gguf(tmp_path / "a.gguf", merges=["q zz"]))
    with pytest.raises(UserError, match="its tokenizer is damaged"):
        gguf_files.build_tokenizer(file)


def test_padding_is_never_the_end(tmp_path):
    ids = gguf_files.special_ids(gguf_files.GgufFile(write_gguf(tmp_path / "a.gguf")))
    assert [SPECIAL[ids[f"{name}_token_id"]] for name in ("bos", "eos", "pad")] == [
        "<|im_start|>", "<|im_end|>", "<|endoftext|>",
    ]  # fmt: skip
    own = write_gguf(tmp_path / "b.gguf", padding_token_id=7)
    assert gguf_files.special_ids(gguf_files.GgufFile(own))["pad_token_id"] == 7


@pytest.mark.parametrize(
    ("kind", "dtype", "blocks"),
    [
        ("F32", "float32", ""),
        ("F16", "float16", ""),
        ("BF16", "bfloat16", ""),
        ("Q8_0", "float32", "Q8_0 (8-bit)"),
        ("Q4_1", "float32", "Q4_1 (4-bit)"),
    ],
)
def test_the_type_to_save_in(tmp_path, kind, dtype, blocks):
    file = gguf_files.GgufFile(write_gguf(tmp_path / "a.gguf", tensors=QUANTIZED, kind=kind))
    assert (file.dtype(), file.quantization()) == (dtype, blocks)


def test_a_small_disk_is_refused_before_the_weights_are_read(tmp_path, monkeypatch):
    file = gguf_files.GgufFile(write_gguf(tmp_path / "a.gguf", tensors=QUANTIZED))
    space = type("Space", (), {"free": 4 * (4 * 32 + 32) - 1})
    monkeypatch.setattr(gguf_files.shutil, "disk_usage", lambda folder: space)
    with pytest.raises(UserError, match="XDG_CACHE_HOME"):
        gguf_files.check_disk(file, tmp_path / "model")
    space.free += 1
    gguf_files.check_disk(file, tmp_path / "model")
