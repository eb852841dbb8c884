"""Which modules LoRA may train: what is refused before torch, and preflight's finding of it."""

import json

import pytest

from pipeline.checkpoints import check_checkpoint
from pipeline.errors import UserError
from stages.checks import check_grpo, check_sft
from stages.checks.lora import fits, is_tied
from stages.preflight import inputs
from stages.preflight.__main__ import inspect
from tests.unit.stages.helpers import grpo, named, sft, write_model

MODULES, PARAMETERS, SAVED = "lora_target_modules", "lora_target_parameters", "lora_modules_to_save"
TIED, UNTIED = {"tie_word_embeddings": True}, {"model_type": "qwen2"}
LINEAR = ["q_proj", "v_proj"]
CASES = {
    "linear layers": (TIED, {MODULES: LINEAR}, None),
    "none named": (TIED, {}, None),
    "all linear": (TIED, {MODULES: ["all-linear"]}, None),
    "all linear as text": (TIED, {MODULES: "all-linear"}, None),
    "all linear and more": (UNTIED, {MODULES: ["all-linear", "embed_tokens"]}, MODULES),
    "tied embedding": (TIED, {MODULES: ["q_proj", "embed_tokens"]}, MODULES),
    "its whole path": (TIED, {MODULES: ["q_proj", "model.embed_tokens"]}, MODULES),
    "by pattern": (TIED, {MODULES: [".*(q_proj|embed_tokens)"]}, MODULES),
    "by pattern as text": (TIED, {MODULES: ".*embed.*"}, MODULES),
    "of GPT-2": ({"model_type": "gpt2"}, {MODULES: ["c_attn", "wte"]}, MODULES),
    "by parameter": (TIED, {PARAMETERS: ["embed_tokens.weight"]}, PARAMETERS),
    "tied by the class": ({"model_type": "gemma2"}, {MODULES: ["q_proj", "embed_tokens"]}, MODULES),
    "embedding of its own": (UNTIED, {MODULES: ["q_proj", "embed_tokens"]}, None),
    "head": (UNTIED, {MODULES: ["q_proj", "lm_head"]}, MODULES),
    "head alone": (UNTIED, {MODULES: ["lm_head"]}, MODULES),
    "head by pattern": (UNTIED, {MODULES: ".*"}, MODULES),
    "head by parameter": (UNTIED, {PARAMETERS: ["lm_head.weight"]}, PARAMETERS),
    "no pattern": (UNTIED, {MODULES: ["*q_proj"]}, MODULES),
    "trained whole": (TIED, {MODULES: LINEAR, SAVED: ["embed_tokens"]}, None),
    "trained whole, with vLLM": (TIED, {SAVED: ["embed_tokens"], "use_vllm": True}, SAVED),
    "head trained whole, with vLLM": (TIED, {SAVED: ["lm_head"], "use_vllm": True}, SAVED),
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A model and rows in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("")
    monkeypatch.setattr("stages.checks.check_vllm", lambda settings: None)

    def write(config):
        write_model(tmp_path / "model", {"config.json": config})
        return {"train_file": "rows.jsonl", "model_name_or_path": "model", "use_peft": True}

    return write


@pytest.mark.parametrize("case", CASES)
def test_targets_that_cannot_be_merged_are_refused(files, case):
    config, keys, key = CASES[case]
    values = files(config) | {"report_to": "none"} | keys
    assert named(check_grpo, grpo(values)) == key
    if "use_vllm" not in keys:
        assert named(check_sft, sft(values)) == key


def test_an_adapter_has_the_embedding_of_its_base(files, tmp_path):
    values = files(TIED) | {MODULES: ["q_proj", "embed_tokens"], "model_name_or_path": "adapter"}
    adapter = {"adapter_config.json": {"base_model_name_or_path": "model"}, "config.json": None}
    write_model(tmp_path / "adapter", adapter)
    assert named(check_sft, sft(values | {"report_to": "none"})) == MODULES


def test_the_class_decides_where_the_config_is_silent():
    assert [name for name in ("gpt2", "gemma3_text", "opt") if is_tied({"model_type": name})]
    assert not any(is_tied({"model_type": name}) for name in ("llama", "qwen3", "phi3", "made-up"))
    assert not is_tied({"model_type": "gpt2", "tie_word_embeddings": False})
    assert is_tied({"text_config": {"tie_word_embeddings": True}})


def test_a_list_of_one_is_a_pattern_of_the_whole_path():
    """TRL makes a text of it."""
    path = "model.embed_tokens"
    assert not fits(["embed_tokens"], path) and fits([".*embed_tokens"], path)
    assert fits(["embed_tokens", "q_proj"], path) and not fits(["tokens", "q_proj"], path)


def test_preflight_finds_it(tmp_path):
    keys = [f"{MODULES}=[q_proj, embed_tokens]", "use_peft=true"]
    args = inputs.PreflightArguments(recipe="configs/qwen2.5-1.5b", keys=keys)
    _, found = inspect(args)
    assert [one for one in found if one.level == inputs.ERROR and MODULES in one.text]


def test_an_adapter_without_its_base_is_refused(tmp_path):
    base = str(tmp_path / "gone/model")
    files = {"adapter_config.json": {"base_model_name_or_path": base}, "config.json": None}
    write_model(tmp_path / "adapter", files)
    with pytest.raises(UserError, match=rf"^MODEL: .*adapter_config.json: .*{base} is not there"):
        check_checkpoint(str(tmp_path / "adapter"), "MODEL")
    (tmp_path / "adapter/adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "gpt2"})
    )  # may be on the hub
    check_checkpoint(str(tmp_path / "adapter"), "MODEL")
