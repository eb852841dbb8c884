"""Checkpoints: what is damaged or lacking is refused by key and folder; own LM heads stay."""

import json

import numpy
import pytest
from safetensors.numpy import save_file

from pipeline.errors import UserError
from pipeline.models.checkpoints import check_checkpoint, tokenizer_path
from pipeline.models.tokenizer import load_tokenizer
from pipeline.models.weights import keep_own_head
from tests.unit.stages.helpers import NO_TENSORS, write_model

VALID = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(kind))
    (tmp_path / "tokenizer.json").write_text(json.dumps(VALID))
    return tmp_path


@pytest.mark.parametrize(
    "content",
    ["not json", "{}", json.dumps({"version": "1.0", "added_tokens": []})],
    ids=["no JSON", "no tokens", "no model"],
)
def test_a_damaged_tokenizer_is_refused_in_one_line(folder, content):
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=rf"^model: {folder}: .*cannot be loaded") as error:
        load_tokenizer(str(folder), "model", needs=())
    assert "\n" not in str(error.value) and error.value.__cause__


@pytest.mark.parametrize("relative", [True, False])
def test_a_missing_folder_is_no_name_for_the_hub(folder, monkeypatch, relative):
    monkeypatch.chdir(folder)
    name = "./runs/llama-base" if relative else f"{folder}/llama-base"
    with pytest.raises(UserError, match=f"^model: {name} is not there"):
        load_tokenizer(name, "model")


def test_only_what_is_needed_must_be_there(folder):
    assert load_tokenizer(str(folder), "model", needs=())("a")["input_ids"] == [0]
    for needs in ("chat_template", "eos_token"):
        with pytest.raises(UserError, match=rf"^model: .*{folder} has no {needs}"):
            load_tokenizer(str(folder), "model", needs=(needs,))


def test_an_adapter_without_a_tokenizer_has_its_base_models(folder, tmp_path_factory):
    adapter = tmp_path_factory.mktemp("adapter")
    config = {"base_model_name_or_path": str(folder)}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    assert tokenizer_path(str(adapter)) == str(folder)
    assert load_tokenizer(str(adapter), "model", needs=()).name_or_path == str(folder)
    (adapter / "tokenizer_config.json").write_text("{}")
    assert tokenizer_path(str(adapter)) == str(adapter)


def test_a_file_is_no_model(tmp_path):
    (tmp_path / "mine.gguf").touch()
    with pytest.raises(UserError, match="holds no model; give a model's folder or hub id"):
        check_checkpoint(str(tmp_path / "mine.gguf"), "MODEL")


INDEX = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 988097824\n"


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ({}, None),
        ({"config.json": "{"}, r"config\.json cannot be read"),
        ({"config.json": "[1]"}, r"config\.json cannot be read .*mapping"),
        ({"config.json": {"is_encoder_decoder": True}}, "has an encoder"),
        ({"config.json": None}, "holds no model"),
        ({"model.safetensors": None}, "holds no weights"),
        ({"model.safetensors": None, "training_args.bin": "x"}, "holds no weights"),
        ({"model.safetensors": None, "pytorch_model.bin": "x"}, None),
        ({"model.safetensors": POINTER}, "git lfs pull"),
        ({"model.safetensors": NO_TENSORS[:-1]}, "cut off"),
        ({"model.safetensors.index.json": INDEX}, "lacks model-1-of-2"),
        ({"tokenizer.json": None}, "holds no tokenizer"),
        ({"tokenizer.json": None, "vocab.txt": "a"}, None),
        ({"adapter_config.json": {}}, "base_model_name_or_path is missing"),
    ],
)
def test_the_files_of_a_local_model_must_be_there(tmp_path, files, refused):
    write_model(tmp_path, files)
    if refused is None:
        check_checkpoint(str(tmp_path), "model")
        return
    with pytest.raises(UserError, match=f"^model: {tmp_path}.*{refused}") as error:
        check_checkpoint(str(tmp_path), "model")
    assert "\n" not in str(error.value)


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
