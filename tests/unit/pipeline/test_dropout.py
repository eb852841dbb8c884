"""Dropout that is turned off: passes of a model in training are measured, not its attributes."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from pipeline.models import dropout

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
RATE = 0.5
# By type of model its rates, and further sizes.
KINDS = {
    "llama": {"attention_dropout": RATE},
    "gpt2": {"resid_pdrop": RATE, "attn_pdrop": 0.0, "embd_pdrop": 0.0},
    "opt": {"dropout": RATE, "layerdrop": RATE, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "falcon": {"hidden_dropout": RATE, "attention_dropout": RATE},  # read in each pass
    "mixtral": {"router_jitter_noise": RATE, "num_key_value_heads": 2, "intermediate_size": 64},
}


def build(kind):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES | KINDS[kind])
    return AutoModelForCausalLM.from_config(config).train()


@torch.no_grad()
def logits(model):
    return model(torch.arange(3, 23).view(2, 10)).logits


def is_random(model):
    return not torch.equal(logits(model), logits(model))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_without_its_dropout_trains_as_it_evaluates(kind):
    model = build(kind)
    assert is_random(model)
    before = dropout.turn_off(model)
    assert not is_random(model) and dropout.find(model) == []
    torch.testing.assert_close(logits(model), logits(model.eval()))
    dropout.put(before)
    assert is_random(model.train())
    assert f" {RATE:g}" in dropout.describe(before)


def test_a_model_without_dropout_has_nothing_to_turn_off():
    config = AutoConfig.for_model("qwen2", **SIZES)
    assert dropout.turn_off(AutoModelForCausalLM.from_config(config)) == []


def test_the_dropout_of_lora_stays():
    adapters = LoraConfig(target_modules=["q_proj"], lora_dropout=RATE, init_lora_weights=False)
    model = get_peft_model(build("llama"), adapters).train()
    before = dropout.turn_off(model)
    assert {one.name for one in before} == {"attention_dropout"}
    assert is_random(model) and dropout.find(model)
    with model.disable_adapter():
        assert not is_random(model)


def test_a_recipe_asks_by_a_rate():
    for given in ({"attention_dropout": 0.1}, {"resid_pdrop": 0.1, "attn_pdrop": 0.0}):
        assert dropout.is_asked(given) is True
    for given in (None, {"attention_dropout": 0.0, "use_cache": True, "rope_theta": 0.5}):
        assert dropout.is_asked(given) is False
