"""A random-init tiny Qwen2 with a tokenizer of its own, for tests that run real trainers."""

import json

import pytest

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "Mia has 14 pens. Monday: buys 5. Tuesday: loses 3. How many pens?",
    "<think>\n14 + 5 = 19\n19 - 3 = 16\n</think>\n\n\\boxed{16}",
    "system user assistant 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
]


def build_tiny_model(folder, seed=0):
    """Save a Qwen2 (hidden size 32, 2 layers) and its byte-level BPE tokenizer to `folder`."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    trained.save(str(folder / "trained.json"))
    bpe = json.loads((folder / "trained.json").read_text())["model"]
    (folder / "trained.json").unlink()
    # Through Qwen2Tokenizer, because AutoTokenizer gives every qwen2 folder its pre-tokenizer.
    tokenizer = Qwen2Tokenizer(
        vocab=bpe["vocab"],
        merges=[tuple(pair) for pair in bpe["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.3,  # the default gives near-uniform logits, so greedy ties by rounding
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory):
    """Folder of a tiny random Qwen2 with tokenizer and ChatML template; treat it as read-only."""
    return build_tiny_model(tmp_path_factory.mktemp("tiny-model"))
