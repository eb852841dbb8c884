"""What another project would run: examples, and the script of the grader's page."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.errors import UserError
from pipeline.models import card
from pipeline.models.checkpoints import check_checkpoint
from pipeline.models.tokenizer import load_tokenizer
from tests.demo import ROOT
from tests.integration.conftest import CHATML, change_json

pytestmark = pytest.mark.integration
EXAMPLES = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def run(monkeypatch):
    """Run `python examples/NAME.py WORDS` in this process; returns its variables."""

    def call(name, *words):
        path = ROOT / f"examples/{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, words)])
        if name == "chat_template":  # its errors as they are raised
            return runpy.run_path(str(path))["main"]()
        return runpy.run_path(str(path), run_name="__main__")

    return call


def test_these_are_all_of_them():
    found = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert found == {*EXAMPLES, "chat_template"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(run, name, tiny_model_dir, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    found = run(name, *([] if name == "grade" else [tiny_model_dir]))
    text = capfd.readouterr().out
    assert [part for part in EXAMPLES[name] if part not in text] == [], text
    if name == "guards":
        assert found["trainer"].state.global_step < 40
        assert len((tmp_path / "out-guards/events.jsonl").read_text().splitlines()) == 1


# docs/grader.md: the grader in a plain TRL trainer

MODEL, CONFIG = '"Qwen/Qwen2.5-0.5B-Instruct"', 'GRPOConfig("runs/trl", '


def run_script(path):
    """The whole of a process."""
    runpy.run_path(path, run_name="__main__")
    sys.exit()


def test_the_script_of_the_graders_page_trains(fork_server, tiny_model_dir, tmp_path):
    text = (ROOT / "docs/grader.md").read_text(encoding="utf-8")
    (script,) = [one for one in re.findall(r"```python\n(.*?)```", text, re.S) if CONFIG in one]
    assert MODEL in script
    script = script.replace(MODEL, repr(str(tiny_model_dir)))
    small = "max_completion_length=8, use_cpu=True, bf16=False, report_to='none', "
    script = script.replace(CONFIG, f"GRPOConfig({str(tmp_path)!r}, {small}")
    script += "print(trainer.state.log_history[0]['rewards/correctness_reward/mean'])\n"
    path = tmp_path / "mine.py"
    path.write_text(script)
    (lines,) = fork_server.finish(path, setup=(run_script, str(path)))
    assert float(lines[-1]) == 0.0  # of a random model


# examples/chat_template.py: a base model with the chat template of another one


@pytest.fixture
def base(tmp_path, tiny_model_dir):
    """The tiny model as a base model: no template, and the end of a document as its end."""
    folder = shutil.copytree(tiny_model_dir, tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    pad = AutoTokenizer.from_pretrained(folder).pad_token_id
    change_json(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    change_json(folder / "config.json", eos_token_id=pad)
    change_json(folder / "generation_config.json", eos_token_id=pad)
    change_json(folder / "manifest.json", stage="sft")  # is not the new folder's
    (folder / "README.md").write_text("---\nlicense: llama3.1\n---\n")
    return folder


@pytest.fixture
def chat(tmp_path, tiny_model_dir):
    """A chat model without its weights; its generation has two ends, as Llama's."""
    ignored = shutil.ignore_patterns("*.safetensors")
    folder = shutil.copytree(tiny_model_dir, tmp_path / "chat", ignore=ignored)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = [tokenizer.pad_token_id, tokenizer.eos_token_id]
    change_json(folder / "generation_config.json", eos_token_id=ends)
    return folder


def test_a_base_model_gets_template_and_ends(run, base, chat, tmp_path, capsys):
    folder = tmp_path / "made/whole"
    run("chat_template", base, chat, folder)
    ends = json.loads((chat / "generation_config.json").read_text())["eos_token_id"]
    assert capsys.readouterr().out.endswith(f"ends at {ends} -> {folder}\n")
    check_checkpoint(str(folder), "MODEL")
    tokenizer = load_tokenizer(str(folder), "MODEL", ("chat_template",))
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
        ("base/model.safetensors", "^BASE: .* holds no weights"),
        ("base", "^BASE: .* is no folder"),
        ("chat/chat_template.jinja", "^OTHER: .* has no chat_template"),
        (other_token, r"^OTHER: .*'<\|object_ref_start\|>' .* and none in "),
        (other_id, r"^OTHER: .*'<\|im_(start|end)\|>' of its template"),
        (None, r"^FOLDER: .*whole exists"),
    ],
)
def test_models_that_do_not_fit_leave_nothing(base, chat, tmp_path, run, harm, message):
    """After a change, without a file or folder, or where there is another one."""
    if callable(harm):
        harm(base, chat)
    elif harm is None:
        (tmp_path / "made/whole").mkdir(parents=True)
    else:
        place = tmp_path / harm
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=message):
        run("chat_template", base, chat, tmp_path / "made/whole")
    assert sorted(tmp_path.rglob("*")) == before
