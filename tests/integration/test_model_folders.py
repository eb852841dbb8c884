"""Model folders of six families whose files do not belong together: one line, by its key."""

import contextlib
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
)

from pipeline.errors import UserError
from pipeline.models.checkpoints import check_checkpoint
from pipeline.models.tokenizer import load_tokenizer
from pipeline.models.weights import check_start, check_tokens, load, num_positions
from stages.arguments import row_limits
from tests.integration.conftest import change_json
from tests.unit.stages.helpers import grpo, sft

pytestmark = pytest.mark.integration
TABLES = yaml.safe_load(Path(__file__).with_name("model_folders.yaml").read_text())
SIZES, FAMILIES = TABLES["sizes"], TABLES["families"]
ROWS = SIZES["vocab_size"]  # of the embedding
TEMPLATE = "{% for message in messages %}<a>{{ message['content'] }}<e>{% endfor %}"


def build_tokenizer(num_tokens=ROWS, added=(), turn="", **special):
    """A tokenizer of whole words; the first ones are its special tokens."""
    words = ["<p>", "<e>", "<a>", *(f"w{number}" for number in range(3, num_tokens))]
    backend = Tokenizer(models.WordLevel(dict(zip(words, range(num_tokens), strict=True)), "w3"))
    backend.add_special_tokens(words[:3])
    ends = {"eos_token": "<e>", "pad_token": "<p>"} | special
    found = PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=TEMPLATE + turn, **ends)
    found.add_tokens([*added])
    return found


def build_model(family, sizes):
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **sizes, bos_token_id=1, eos_token_id=1, pad_token_id=0)
    return AutoModelForCausalLM.from_config(config)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Whole folders, one of each family."""
    home = tmp_path_factory.mktemp("families")
    for family, sizes in FAMILIES.items():
        build_model(family, sizes).save_pretrained(home / family)
        build_tokenizer().save_pretrained(home / family)
    return home


@pytest.fixture(params=FAMILIES)
def folder(request, whole, tmp_path):
    return shutil.copytree(whole / request.param, tmp_path / request.param)


def change_config(folder, **values):
    kinds = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers"}
    found = json.loads((folder / "config.json").read_text())
    names = {kinds.get(name, name): name for name in found}
    change_json(folder / "config.json", **{names[key]: value for key, value in values.items()})


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    # A matrix of the second layer, whatever it is called.
    change(weights, next(name for name in weights if ".1." in name and weights[name].ndim == 2))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def drop(weights, name):
    del weights[name]


def widen(weights, name):
    weights[name] = torch.zeros(len(weights[name]) + 1, weights[name].shape[1])


def harm(folder, config=None, weights=None, tokenizer=None):
    """Do the damage of a row of the table."""
    if config:
        change_config(folder, **config)
    if weights:
        change_weights(folder, {"drop": drop, "widen": widen}[weights])
    if tokenizer:
        build_tokenizer(**tokenizer).save_pretrained(folder)


def start(folder, limits=None):
    """What a stage does with the model that it starts from."""
    check_checkpoint(str(folder), "key")
    check_start(str(folder), "key", load_tokenizer(str(folder), "key"), limits or {})


@pytest.mark.parametrize("damage", TABLES["damage"], ids=str)
def test_damage_is_one_line(folder, damage):
    changes = dict(damage)
    told = changes.pop("says")
    harm(folder, **changes)
    with pytest.raises(UserError, match=rf"^key: .*{re.escape(str(folder))}.*{told}") as error:
        start(folder)
    assert "\n" not in str(error.value)


def shard(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="6KB")


@pytest.mark.parametrize("change", ["whole", "shards", "fewer tokens"])
def test_a_whole_folder_passes_in_silence(folder, change, capsys):
    if change == "shards":
        shard(folder)
    elif change == "fewer tokens":
        build_tokenizer(40).save_pretrained(folder)
    capsys.readouterr()
    start(folder)
    assert capsys.readouterr().out == ""


def add_weights(folder):
    change_weights(folder, lambda w, name: w.update({"value_head.weight": torch.ones(3)}))


def drop_layer(folder):
    """Its weights stay: they may be those of multi-token prediction."""
    config = json.loads((folder / "config.json").read_text())
    types = {key: value[:1] for key, value in config.items() if key == "layer_types"}
    change_config(folder, num_hidden_layers=1, **types)


@pytest.mark.parametrize(
    ("change", "shown"),
    [(add_weights, "1 weights are not used, first value_head.weight"), (drop_layer, ".1.")],
)
def test_weights_without_a_place_are_shown(folder, change, shown, capsys):
    change(folder)
    start(folder)
    assert shown in capsys.readouterr().out


def test_padding_beyond_the_embedding_is_one_line(whole, tmp_path):
    """GPT-2 and Falcon have no use for the number, and take it."""
    folder = shutil.copytree(whole / "qwen3", tmp_path / "qwen3")
    change_config(folder, pad_token_id=ROWS)
    with pytest.raises(UserError, match=rf"^key: {folder}: its model .*Padding_idx"):
        start(folder)


def test_the_real_load_refuses_too(folder):
    change_weights(folder, drop)
    with pytest.raises(UserError, match=r"^key: .*1 would start at random"):
        load(str(folder), "key")


def test_a_place_of_an_image_needs_a_row_only_where_it_is_written():
    """Gemma 3 1B, a text model, has none for its `image_token`."""
    extra = {"image_token": "<image>"}
    check_tokens(build_tokenizer(extra_special_tokens=extra), ROWS, "key")
    tokenizer = build_tokenizer(turn="<image>", extra_special_tokens=extra)
    check_tokens(tokenizer, ROWS + 1, "key")
    with pytest.raises(UserError, match=r"^key: chat_template: '<image>'"):
        check_tokens(tokenizer, ROWS, "key")


@pytest.mark.parametrize(
    ("family", "most"), [("gpt2", 32), ("opt", 32), ("biogpt", 32), ("qwen3", None)]
)
def test_learned_positions_are_counted(family, most):
    sizes = {**FAMILIES, **TABLES["others"]}[family]
    assert num_positions(build_model(family, sizes)) == most


@pytest.mark.parametrize(("stage", "keys", "refused"), TABLES["limits"])
def test_rows_longer_than_the_learned_positions_are_refused(whole, stage, keys, refused):
    settings = {"sft": sft, "grpo": grpo}[stage](keys)
    limits = row_limits(settings, settings)
    start(whole / "qwen3", limits)
    expected = pytest.raises(UserError, match=rf"^{refused}.* has learned 32 positions")
    with expected if refused else contextlib.nullcontext():
        start(whole / "gpt2", limits)


def test_an_adapter_is_checked_in_its_base_model(folder, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    change_json(adapter / "adapter_config.json", base_model_name_or_path=str(folder))
    (adapter / "adapter_model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    start(adapter)
    change_weights(folder, drop)
    with pytest.raises(UserError, match=rf"^key: {folder}: .*1 would start at random"):
        start(adapter)


def test_of_a_model_that_sees_the_text_part_is_asked_for(tmp_path):
    """Its config.json has several parts, and transformers takes the one of the text."""
    heads = ("linear_num_value_heads", "linear_num_key_heads")
    widths = ("linear_key_head_dim", "linear_value_head_dim")
    text = {**SIZES, **dict.fromkeys(heads, 2), **dict.fromkeys(widths, 8), "head_dim": 8}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2}
    vision |= {"out_hidden_size": 16, "num_position_embeddings": 16, "patch_size": 4}
    config = AutoConfig.for_model("qwen3_5", text_config=text, vision_config=vision)
    AutoModelForImageTextToText.from_config(config).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    start(tmp_path)


def test_weights_of_few_bits_are_their_librarys_to_check(folder):
    change_weights(folder, drop)
    quantization = {"quant_method": "gptq", "bits": 4}
    change_json(folder / "config.json", quantization_config=quantization)
    start(folder)
