"""Files of a checkpoint that do not belong together are refused by key, before torch."""

import json

import numpy
import pytest
from safetensors.numpy import save_file

from pipeline.errors import UserError
from pipeline.models.checkpoints import check_checkpoint
from pipeline.models.weights import keep_own_head, num_positions
from tests.unit.stages.helpers import write_model

CONFIG = {"vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 2}
WEIGHTS = {
    "model.embed_tokens.weight": (8, 4),
    "model.layers.0.mlp.up_proj.weight": (6, 4),
    "model.layers.1.mlp.up_proj.weight": (6, 4),
}
INDEX = {"weight_map": dict.fromkeys(WEIGHTS, "model.safetensors")}
TOKENS = {
    "added_tokens": [{"id": 7, "content": "<end>"}],
    "model": {"vocab": {"a": 0}},
}
# More tokens than rows.
LARGER = {
    "added_tokens": [*TOKENS["added_tokens"], {"id": 9, "content": "<turn>"}],
    "model": {"vocab": {"a": 0, "b": 8}},
}


def named(tmp_path, config=CONFIG, shapes=WEIGHTS, **files):
    """The message that refuses a model, "" where it passes."""
    names = {"config": config, "tokenizer": TOKENS, "tokenizer_config": {"eos_token": "<end>"}}
    names["tokenizer_config"]["chat_template"] = "x"
    write_model(tmp_path, {f"{name}.json": value for name, value in (names | files).items()})
    weights = {name: numpy.ones(shape, numpy.float32) for name, shape in shapes.items()}
    save_file(weights, tmp_path / "model.safetensors")
    try:
        check_checkpoint(str(tmp_path), "model")
    except UserError as error:
        assert str(error).startswith("model: ") and "\n" not in str(error)
        return str(error)
    return ""


@pytest.mark.parametrize(
    "config", [CONFIG, {"text_config": CONFIG}, {}, CONFIG | {"num_hidden_layers": 1}]
)
def test_files_that_belong_together_pass(tmp_path, config):
    """More layers than the configuration has may be those of multi-token prediction."""
    assert not named(tmp_path, config, **{"model.safetensors.index": INDEX})


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers"])
@pytest.mark.parametrize("is_nested", [False, True])
def test_weights_of_another_config_are_refused(tmp_path, key, is_nested):
    config = CONFIG | {key: 16}
    assert key in named(tmp_path, {"text_config": config} if is_nested else config)


def test_an_index_must_name_weights_that_are_there(tmp_path):
    index = {"weight_map": INDEX["weight_map"] | {"lm_head.weight": "model.safetensors"}}
    assert "lm_head.weight" in named(tmp_path, **{"model.safetensors.index": index})


@pytest.mark.parametrize(
    ("tokenizer_config", "place"),
    [
        ({"eos_token": "<turn>", "chat_template": "x"}, "eos_token"),
        ({"eos_token": {"content": "b"}, "chat_template": "x"}, "eos_token"),
        ({"eos_token": "<end>", "pad_token": "b", "chat_template": "x"}, "pad_token"),
        ({"eos_token": "<end>", "chat_template": "{{ x }}<turn>"}, "chat_template"),
        # in no vocabulary: the tokenizer would add it
        ({"eos_token": "<nope>", "chat_template": "x"}, "eos_token"),
    ],
)
def test_a_token_without_a_row_is_refused(tmp_path, tokenizer_config, place):
    found = named(tmp_path, tokenizer=LARGER, tokenizer_config=tokenizer_config)
    assert f": {place}: " in found


def test_padding_beyond_the_embedding_is_refused(tmp_path):
    assert "pad_token_id: 8" in named(tmp_path, CONFIG | {"pad_token_id": 8})


def test_other_vocabularies_are_read(tmp_path):
    unigram = {"model": {"vocab": [["a", 0.0]] * 8 + [["b", -1.0]]}}
    assert "eos_token" in named(
        tmp_path, tokenizer=unigram, tokenizer_config={"eos_token": "b", "chat_template": "x"}
    )
    old = json.loads(
        '{"eos_token": "c", "chat_template": "x", "added_tokens_decoder": {"9": {"content": "c"}}}'
    )
    assert "eos_token" in named(tmp_path, tokenizer={}, tokenizer_config=old)


@pytest.mark.parametrize(
    ("model_type", "name", "expected"),
    [
        ("gpt2", "transformer.wpe.weight", 32),
        ("opt", "model.decoder.embed_positions.weight", 30),  # its first two rows are nobody's
        ("bert", "bert.embeddings.position_embeddings.weight", 32),
        ("llama", "model.embed_tokens.weight", None),
    ],
)
def test_learned_positions_are_counted(tmp_path, model_type, name, expected):
    save_file({name: numpy.zeros((32, 4), numpy.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert num_positions(tmp_path) == expected


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
    keep_own_head(tmp_path)
    assert json.loads(config.read_text())["tie_word_embeddings"] is is_tied
