"""A model's folder: its files, the tokenizer that they make, a template without today's date."""

import json
from datetime import datetime
from pathlib import Path

import numpy
import pytest
import trl
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from pipeline.models import template_date
from pipeline.models.checkpoints import check_checkpoint, tokenizer_path
from pipeline.models.tokenizer import PROBE, load_template, load_tokenizer, open_tokenizer, reads_as
from pipeline.models.weights import keep_own_head
from tests.refused import refused
from tests.tables import read_beside, tables_beside
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


# A tokenizer reads text as its tokenizer.json does, whatever class its folder names.

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


# Templates that print today's date: the same text on every day, and all else as it was.

BODY = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{{ bos_token }}"
SHIPPED = [
    path
    for path in sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))
    if template_date.ASKS in path.read_text(encoding="utf-8")
]
TEMPLATES = {name: text + BODY for name, text in read_beside(__file__)["dated"].items()}
TEMPLATES |= {path.stem: path.read_text(encoding="utf-8") for path in SHIPPED}
MESSAGES = [{"role": "system", "content": "Think."}, {"role": "user", "content": "1 + 1?"}]


class Day(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None):
        return cls(2031, 5, 4, 3, 2, 1)


def render(template, **more):
    more |= {"bos_token": "<s>", "add_generation_prompt": True}
    messages = [MESSAGES, MESSAGES[1:]]
    return chat_template_utils.render_jinja_template(messages, chat_template=template, **more)[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_only_the_date_differs(name, monkeypatch):
    template, fixed = TEMPLATES[name], template_date.fix(TEMPLATES[name])
    wanted = render(template, strftime_now=template_date.DATE.strftime)
    assert render(fixed) == wanted
    monkeypatch.setattr(chat_template_utils, "datetime", Day)
    assert render(fixed) == wanted
    assert template_date.is_fixed(fixed) and template_date.fix(fixed) == fixed


def test_other_templates_stay_as_they_are():
    for template in (None, "", BODY, "{% set date_string = '26 Jul 2024' %}" + BODY):
        assert template_date.fix(template) == template
        assert not template_date.is_fixed(template)
    several = {"default": TEMPLATES["today"], "plain": BODY}
    fixed = template_date.fix(several)
    assert fixed["plain"] == BODY and template_date.is_fixed(fixed["default"])
    assert template_date.is_fixed(fixed) and not template_date.is_fixed(several)


def test_what_is_loaded_and_saved_again_has_one_date(tmp_path, monkeypatch):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0, "?": 1}, unk_token="?")), eos_token="?"
    )
    tokenizer.chat_template = TEMPLATES["today"]
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "dated.jinja").write_text(TEMPLATES["today"])
    texts = []
    for day in (Day, datetime):
        monkeypatch.setattr(chat_template_utils, "datetime", day)
        loaded = load_tokenizer(str(tmp_path / "model"), "model_name_or_path")
        loaded.save_pretrained(tmp_path / "saved")
        plain = AutoTokenizer.from_pretrained(tmp_path / "saved")
        for one in (loaded, plain):
            texts.append(one.apply_chat_template(MESSAGES, tokenize=False))
        plain.chat_template = load_template(str(tmp_path / "dated.jinja"))
        texts.append(plain.apply_chat_template(MESSAGES, tokenize=False))
    assert len({*texts}) == 1 and "26 July 2024" in texts[0]
