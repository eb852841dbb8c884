"""Checkpoints: what is damaged or lacking is refused by key and folder; own LM heads stay."""

import json

import numpy
import pytest
from safetensors.numpy import save_file

from pipeline.models.checkpoints import check_checkpoint, tokenizer_path
from pipeline.models.tokenizer import load_tokenizer
from pipeline.models.weights import keep_own_head
from tests.refused import refused
from tests.tables import tables_beside
from tests.unit.stages.helpers import write_model

table = tables_beside(__file__)

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


def test_a_damaged_tokenizer_is_refused_in_one_line(folder):
    told = rf"^model: {folder}: .*cannot be loaded"
    for content in ("not json", "{}", '{"version": "1.0", "added_tokens": []}'):
        (folder / "tokenizer.json").write_text(content)
        refused(told, load_tokenizer, str(folder), "model", needs=())


def test_a_missing_folder_is_no_name_for_the_hub(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("./runs/llama-base", f"{folder}/llama-base"):
        refused(f"^model: {name} is not there", load_tokenizer, name, "model")


def test_only_what_is_needed_must_be_there(folder):
    assert load_tokenizer(str(folder), "model", needs=())("a")["input_ids"] == [0]
    for needs in ("chat_template", "eos_token"):
        told = rf"^model: .*{folder} has no {needs}"
        refused(told, load_tokenizer, str(folder), "model", needs=(needs,))


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
    told = "holds no model; give a model's folder or hub id"
    refused(told, check_checkpoint, str(tmp_path / "mine.gguf"), "MODEL")


@table
def test_the_files_of_a_local_model_must_be_there(tmp_path, files, told):
    write_model(tmp_path, files)
    if told is None:
        check_checkpoint(str(tmp_path), "model")
    else:
        refused(f"^model: {tmp_path}.*{told}", check_checkpoint, str(tmp_path), "model")


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
