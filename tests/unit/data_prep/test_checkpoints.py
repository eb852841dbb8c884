"""Tokenizers of checkpoints: what is damaged or lacking is refused by key and folder."""

import json

import pytest

from data_prep.checkpoints import load_tokenizer, tokenizer_path
from data_prep.config import UserError

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


def test_only_what_is_needed_must_be_there(folder):
    assert load_tokenizer(str(folder), "model", needs=())("a")["input_ids"] == [0]
    with pytest.raises(UserError, match=rf"^model: .*{folder} has no chat_template"):
        load_tokenizer(str(folder), "model")


def test_an_adapter_without_a_tokenizer_has_its_base_models(folder, tmp_path_factory):
    adapter = tmp_path_factory.mktemp("adapter")
    config = {"base_model_name_or_path": str(folder)}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    assert tokenizer_path(str(adapter)) == str(folder)
    assert load_tokenizer(str(adapter), "model", needs=()).name_or_path == str(folder)
    (adapter / "tokenizer_config.json").write_text("{}")
    assert tokenizer_path(str(adapter)) == str(adapter)
