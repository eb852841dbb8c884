"""What version 4 of transformers reads under another name stands in a saved folder as well."""

import json
from types import SimpleNamespace

import numpy
import pytest
from safetensors.numpy import save_file

from pipeline.transformers4 import OLDEST, least_version, with_old_names, write_old_names

FACTORS = {"short_factor": [1.0], "long_factor": [2.0]}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0}
PLAIN = {"rope_type": "default"}
TOKENIZER = SimpleNamespace(
    padding_side="left", truncation_side="right", model_input_names=["input_ids"],
    backend_tokenizer=SimpleNamespace(model=type("BPE", (), {})()),
)  # fmt: skip


def layered(sliding, full):
    return {"sliding_attention": PLAIN | sliding, "full_attention": PLAIN | full}


@pytest.mark.parametrize(
    ("kind", "rope", "old"),
    [
        ("qwen2", PLAIN | {"rope_theta": 1e6}, {"rope_theta": 1e6, "rope_scaling": None}),
        ("llama", LLAMA3 | {"rope_theta": 5e5}, {"rope_theta": 5e5, "rope_scaling": LLAMA3}),
        # Filled in by version 5 where the model has none: version 4 would take 1.0 for the factor.
        (
            "qwen3",
            YARN | {"rope_theta": 1e6, "original_max_position_embeddings": 4096},
            {"rope_theta": 1e6, "rope_scaling": YARN},
        ),
        (
            "qwen3",
            YARN | {"rope_theta": 1e6, "original_max_position_embeddings": 1024},
            {"rope_scaling": YARN | {"original_max_position_embeddings": 1024}},
        ),
        (
            "phi",
            PLAIN | {"rope_theta": 5e4, "partial_rotary_factor": 0.25},
            {"rope_theta": 5e4, "partial_rotary_factor": 0.25, "rope_scaling": None},
        ),
        (
            "phi3",
            FACTORS | {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
            {"rope_scaling": FACTORS | {"type": "longrope"}, "partial_rotary_factor": 1.0},
        ),
        (
            "gpt_neox",
            PLAIN | {"rope_theta": 5e4, "partial_rotary_factor": 0.5},
            {"rotary_emb_base": 5e4, "rotary_pct": 0.5},
        ),
        (
            "gemma3_text",
            layered({"rope_theta": 2e4}, {"rope_theta": 1e6}),
            {"rope_theta": 1e6, "rope_local_base_freq": 2e4, "rope_scaling": None},
        ),
        (
            "olmo3",
            layered({"rope_theta": 5e5}, YARN | {"rope_theta": 5e5}),
            {"rope_theta": 5e5, "rope_scaling": YARN},
        ),
    ],
)
def test_rotary_embeddings_have_both_names(kind, rope, old):
    config = {"model_type": kind, "rope_parameters": rope, "max_position_embeddings": 4096}
    found = with_old_names(config)
    assert {key: found[key] for key in old} == old
    assert found["rope_parameters"] == rope
    part = with_old_names({"model_type": "vision", "text_config": config})["text_config"]
    assert part == found
    assert with_old_names(found) == found


def test_other_names(tmp_path):
    assert with_old_names({"dtype": "bfloat16"})["torch_dtype"] == "bfloat16"
    assert with_old_names({"model_type": "qwen3_moe", "num_local_experts": 4})["num_experts"] == 4
    assert "rope_theta" not in with_old_names({"model_type": "gpt2"})


@pytest.mark.parametrize(
    ("kind", "rope", "version"),
    [
        ("qwen2", PLAIN | {"rope_theta": 1e6}, OLDEST),
        ("gpt2", None, OLDEST),
        ("gemma3_text", layered({"rope_theta": 1e4}, {"rope_theta": 1e6}), OLDEST),
        ("olmo3", layered({"rope_theta": 1e4}, {"rope_theta": 1e6}), "5.17.0"),  # one theta there
        ("of_next_year", PLAIN | {"rope_theta": 1e6}, "5.17.0"),
    ],
)
def test_the_least_version_of_a_saved_model(tmp_path, kind, rope, version):
    config = {"model_type": kind, "rope_parameters": rope, "transformers_version": "5.17.0"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_old_names(tmp_path, TOKENIZER)
    assert least_version(tmp_path) == version
    assert least_version(tmp_path / "adapter") == ""


def test_the_tokenizer_is_taken_as_its_file_has_it(tmp_path):
    config = {
        "tokenizer_class": "TokenizersBackend", "add_prefix_space": None, "eos_token": "<e>",
        "extra_special_tokens": ["<s>"], "clean_up_tokenization_spaces": True,
    }  # fmt: skip
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(config))
    write_old_names(tmp_path, TOKENIZER)
    assert json.loads(file.read_text()) == config  # without its file there is no other class
    (tmp_path / "tokenizer.json").write_text("{}")
    write_old_names(tmp_path, TOKENIZER)
    assert json.loads(file.read_text()) == {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<e>", "padding_side": "left",
        "additional_special_tokens": ["<s>"], "clean_up_tokenization_spaces": False,
        "truncation_side": "right", "model_input_names": ["input_ids"],
    }  # fmt: skip
    file.write_text('{"auto_map": {"AutoTokenizer": ["a.B", null]}, "tokenizer_class": "B"}')
    write_old_names(tmp_path, TOKENIZER)
    assert json.loads(file.read_text())["tokenizer_class"] == "B"


@pytest.mark.parametrize(("head", "is_tied"), [(2, False), (1, True), (None, True)])
def test_an_lm_head_of_its_own_is_not_tied(tmp_path, head, is_tied):
    """A model may have one although its configuration says that the embedding is the LM head.

    A sharded model that ties them is saved with both.
    """
    weights = {"model.embed_tokens.weight": numpy.full((2, 2), 1, numpy.float32)}
    if head:
        weights["lm_head.weight"] = numpy.full((2, 2), head, numpy.float32)
    save_file(weights, tmp_path / "model.safetensors")
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "qwen2", "tie_word_embeddings": true}')
    write_old_names(tmp_path, TOKENIZER)
    assert json.loads(config.read_text())["tie_word_embeddings"] is is_tied
