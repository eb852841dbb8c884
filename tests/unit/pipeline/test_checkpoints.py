"""Tokenizers of checkpoints: what is damaged or lacking is refused by key and folder."""

import json

import pytest
import tokenizers

from pipeline.errors import UserError
from pipeline.models import checkpoints
from pipeline.models.checkpoints import check_checkpoint, load_tokenizer, tokenizer_path
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


INDEX = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 988097824\n"
SIZE = {"config.json": {"vocab_size": 5}}
ADDED = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 7, "content": "<x>"}]}
IMAGE = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 5, "content": "<image>"}]}
CHAT = {"chat_template": "x", "eos_token": "a"}
NAMED = CHAT | {"image_token": "<image>"}
NAMED_BELOW = CHAT | {"extra_special_tokens": {"image_token": {"content": "<image>"}}}
BARE = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "x"}


@pytest.mark.parametrize(
    ("files", "template", "refused"),
    [
        ({}, None, None),
        ({"config.json": "{"}, None, r"config\.json cannot be read"),
        ({"config.json": "[1]"}, None, r"config\.json cannot be read .*mapping"),
        ({"model.safetensors": None}, None, "holds no weights"),
        ({"model.safetensors": None, "training_args.bin": "x"}, None, "holds no weights"),
        ({"model.safetensors": None, "pytorch_model.bin": "x"}, None, None),
        ({"model.safetensors": POINTER}, None, "git lfs pull"),
        ({"model.safetensors": NO_TENSORS[:-1]}, None, "cut off"),
        ({"model.safetensors.index.json": INDEX}, None, "lacks model-1-of-2"),
        ({"tokenizer.json": None}, None, "holds no tokenizer"),
        ({"tokenizer.json": None, "vocab.txt": "a"}, None, None),
        ({"tokenizer_config.json": {"eos_token": None}}, "x", "no eos_token"),
        ({"tokenizer_config.json": BARE}, None, "no eos_token"),
        (
            {"tokenizer_config.json": BARE, "special_tokens_map.json": {"eos_token": "e"}},
            None,
            None,
        ),
        ({"tokenizer_config.json": {}}, None, "no chat_template; .*chat_template_path"),
        ({"tokenizer_config.json": {}}, "x.jinja", None),
        ({"tokenizer_config.json": {}, "chat_template.jinja": "x"}, None, None),
        ({"adapter_config.json": {}}, None, "base_model_name_or_path is missing"),
        # more tokens than embeddings
        (SIZE | {"tokenizer.json": {"model": {"vocab": {"a": 0, "b": 4}}}}, None, None),
        (SIZE | {"tokenizer.json": {"model": {"vocab": {"a": 0, "b": 5}}}}, None, "6 tokens"),
        (
            SIZE | {"tokenizer.json": {"model": {"vocab": [[c, 0.0] for c in "abcdef"]}}},
            None,
            "6 tokens",
        ),
        (SIZE | {"tokenizer.json": ADDED}, None, "8 tokens"),
        (SIZE | {"added_tokens.json": {"<x>": 5}}, None, "6 tokens"),
        ({"config.json": {"text_config": {"vocab_size": 5}}, "tokenizer.json": ADDED}, None, "8 t"),
        # Gemma 3 1B: a text model without a row for the place of an image
        (SIZE | {"tokenizer.json": IMAGE, "tokenizer_config.json": NAMED}, None, None),
        (SIZE | {"tokenizer.json": IMAGE, "tokenizer_config.json": NAMED_BELOW}, None, None),
        (SIZE | {"tokenizer.json": IMAGE}, None, "6 tokens"),
        (SIZE | {"tokenizer.json": {"model": []}}, None, None),  # loading tells
    ],
)
def test_a_local_model_must_be_whole(tmp_path, files, template, refused):
    write_model(tmp_path, files)
    if refused is None:
        check_checkpoint(str(tmp_path), "model", template)
        return
    with pytest.raises(UserError, match=f"^model: {tmp_path}.*{refused}") as error:
        check_checkpoint(str(tmp_path), "model", template)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("extra", "num_tokens"), [({"image_token": "<image>"}, 2), ({"x_token": "<x>"}, 3)]
)
def test_files_and_tokenizer_give_the_same_number_of_tokens(tmp_path, extra, num_tokens):
    transformers = pytest.importorskip("transformers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    built = transformers.PreTrainedTokenizerFast(tokenizer_object=model, extra_special_tokens=extra)
    built.save_pretrained(tmp_path)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    files = [
        checkpoints.read_json(tmp_path / name, "model_name_or_path")
        for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json")
    ]
    assert len(loaded) == 3
    assert checkpoints.num_tokens_of(loaded) == checkpoints.count_tokens(*files) == num_tokens
