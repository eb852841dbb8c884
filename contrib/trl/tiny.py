"""A tiny Qwen2 with random weights and a tokenizer of letters: the tests need no hub.

In TRL's own test suite `trl-internal-testing/tiny-Qwen2ForCausalLM-2.5` takes its place.
"""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def build_tokenizer():
    vocab = {token: number for number, token in enumerate([*LETTERS, "<eos>", "<pad>"])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>", padding_side="left")


def build_model(tokenizer, hidden_size=32, num_layers=2, vocab_size=None):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocab_size or len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=4 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 16,
        num_key_value_heads=hidden_size // 16,
        initializer_range=1.6 / hidden_size**0.5,  # wide: tokens change what comes after them
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)
