"""`examples/chat_template.py`: a base model with the chat template of another one."""

import importlib.util
import json
import shutil
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.errors import UserError
from pipeline.models import card
from pipeline.models.checkpoints import check_checkpoint
from pipeline.models.tokenizer import load_tokenizer
from tests.integration.conftest import CHATML, ROOT

pytestmark = pytest.mark.integration


def change(folder, name, **values):
    path = folder / name
    found = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(found | values))


@pytest.fixture
def base(tmp_path, tiny_model_dir):
    """The tiny model as a base model: no template, and the end of a document as its end."""
    folder = tmp_path / "base"
    shutil.copytree(tiny_model_dir, folder)
    (folder / "chat_template.jinja").unlink()
    pad = AutoTokenizer.from_pretrained(folder).pad_token_id
    change(folder, "tokenizer_config.json", eos_token="<|endoftext|>")
    change(folder, "config.json", eos_token_id=pad)
    change(folder, "generation_config.json", eos_token_id=pad)
    change(folder, "manifest.json", stage="sft")  # is not the new folder's
    (folder / "README.md").write_text("---\nlicense: llama3.1\n---\n")
    return folder


@pytest.fixture
def chat(tmp_path, tiny_model_dir):
    """A chat model without its weights; its generation has two ends, as Llama's."""
    folder = tmp_path / "chat"
    shutil.copytree(tiny_model_dir, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = [tokenizer.pad_token_id, tokenizer.eos_token_id]
    change(folder, "generation_config.json", eos_token_id=ends)
    return folder


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["chat_template.py", *map(str, words)])
    place = importlib.util.spec_from_file_location("example", ROOT / "examples/chat_template.py")
    example = importlib.util.module_from_spec(place)
    place.loader.exec_module(example)
    example.main()


def test_a_base_model_gets_template_and_ends(base, chat, tmp_path, monkeypatch, capsys):
    with pytest.raises(UserError, match="has no chat_template"):
        load_tokenizer(str(base), "MODEL", ("chat_template",))
    folder = tmp_path / "made/whole"
    run(monkeypatch, base, chat, folder)
    ends = json.loads((chat / "generation_config.json").read_text())["eos_token_id"]
    assert capsys.readouterr().out.endswith(f"ends at {ends} -> {folder}\n")
    check_checkpoint(str(folder), "MODEL")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.chat_template, tokenizer.eos_token) == (CHATML, "<|im_end|>")
    model, before = (AutoModelForCausalLM.from_pretrained(one) for one in (folder, base))
    assert model.generation_config.eos_token_id == model.config.eos_token_id == ends
    for name, weight in before.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight)
    assert (folder / "model.safetensors").resolve() == (base / "model.safetensors").resolve()
    assert not (folder / "manifest.json").exists()
    assert card.find_licence(str(folder)) == "llama3.1"
    # BASE and what lies beside the folder are as before.
    assert not (base / "chat_template.jinja").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["whole"]


def test_nothing_is_overwritten(base, chat, tmp_path, monkeypatch):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "mine").write_text("x")
    with pytest.raises(UserError, match=r"^FOLDER: .*made exists"):
        run(monkeypatch, base, chat, folder)
    assert [path.name for path in folder.iterdir()] == ["mine"]


def without_weights(base, chat):
    (base / "model.safetensors").unlink()


def without_template(base, chat):
    (chat / "chat_template.jinja").unlink()


def other_token(base, chat):
    (chat / "chat_template.jinja").write_text(CHATML + "<|object_ref_start|>")
    tokenizer = AutoTokenizer.from_pretrained(chat)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|object_ref_start|>"]})
    tokenizer.save_pretrained(chat)


def other_id(base, chat):
    text = (base / "tokenizer.json").read_text()
    swapped = text.replace("<|im_start|>", "<|x|>").replace("<|im_end|>", "<|im_start|>")
    (base / "tokenizer.json").write_text(swapped.replace("<|x|>", "<|im_end|>"))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without_weights, "^BASE: .* holds no weights"),
        (without_template, "^OTHER: .* has no chat_template"),
        (other_token, r"^OTHER: .*'<\|object_ref_start\|>' .* and none in "),
        (other_id, r"^OTHER: .*'<\|im_(start|end)\|>' of its template"),
    ],
)
def test_models_that_do_not_fit_leave_nothing(base, chat, tmp_path, monkeypatch, harm, message):
    harm(base, chat)
    with pytest.raises(UserError, match=message):
        run(monkeypatch, base, chat, tmp_path / "made/whole")
    assert not (tmp_path / "made").exists()


def test_words_that_are_no_models(base, chat, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for words, message in (
        ((base, chat), "^give three words"),
        ((tmp_path / "none", chat, tmp_path / "made"), "^BASE: .* is no folder"),
        ((base, tmp_path / "none", tmp_path / "made"), "^OTHER: .* is no folder"),
        ((base, "nobody/nothing-here", tmp_path / "made"), "^OTHER: nobody/nothing-here: "),
    ):
        with pytest.raises(UserError, match=message):
            run(monkeypatch, *words)
    assert not (tmp_path / "made").exists()
