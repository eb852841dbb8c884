"""Build the tiny-cpu recipe's base model: a random-init Qwen2 and a tokenizer that fits its data.

    python -m stages.tiny_model --config configs/tiny-cpu/model.yaml

The tokenizer is Qwen2's own class (byte-level BPE), trained on the words of `synthetic`.
Whole numbers are *added tokens*. Qwen2's pre-tokenizer splits numbers into digits, and
`AutoTokenizer` uses that pre-tokenizer whatever a tokenizer file says. Added tokens are matched
before it. A round trip through `AutoTokenizer` is checked before anything is saved.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.sources.synthetic import MAX_VALUE
from pipeline import manifest
from pipeline.console import quiet
from pipeline.errors import UserError, run_cli
from pipeline.models.tokenizer import load_tokenizer
from pipeline.settings import parse, setting
from pipeline.values import Count, Positive

EOS, PAD = "<|im_end|>", "<|endoftext|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class ModelArguments:
    """Shape of the tiny model; every size is in units of hidden dimensions or layers."""

    output_dir: str = field(metadata={"help": "folder for model and tokenizer"})
    train_file: str = field(metadata={"help": "SFT rows whose words the tokenizer learns"})
    hidden_size: Count = setting(64, "width")
    num_layers: Count = setting(3, "decoder layers")
    num_heads: Count = setting(4, "attention heads; must divide hidden_size")
    num_kv_heads: Count = setting(4, "key/value heads")
    intermediate_size: Count = setting(192, "MLP width")
    initializer_range: Positive = setting(0.1, "std of the initial weights")
    rope_theta: Positive = setting(10_000.0, "base of the rotary frequencies")
    max_position_embeddings: Count = setting(512, "longest sequence, tokens")
    seed: int = setting(0, "seed of the weights")

    def __post_init__(self) -> None:
        heads, size = self.num_heads, self.hidden_size
        if size % heads:
            raise ValueError(f"num_heads: {heads} does not divide hidden_size {size}")


def build_tokenizer(texts: list[str]) -> Any:
    """Qwen2 tokenizer over the words of `texts`; 0..99, also after a space, are single tokens."""
    from tokenizers import AddedToken, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=[],
        show_progress=False,
        min_frequency=2,
        # Every byte: text of other problems must not be lost.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend = Qwen2Tokenizer()._tokenizer  # Qwen2's normalizer and pre-tokenizer, no words yet
    backend.train_from_iterator(texts, trainer)
    model = json.loads(backend.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(merge) for merge in model["merges"]],
        unk_token=PAD,
        eos_token=EOS,
        pad_token=PAD,
        extra_special_tokens=["<|im_start|>"],
    )
    numbers = [f"{space}{n}" for n in range(MAX_VALUE * 5) for space in ("", " ")]
    tokenizer.add_tokens([AddedToken(n, normalized=False, special=False) for n in numbers])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(args: ModelArguments, tokenizer: Any) -> Any:
    """Random-init fp32 Qwen2 with tied embeddings, sized to the tokenizer."""
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(args.seed)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=args.hidden_size,
        num_hidden_layers=args.num_layers,
        num_attention_heads=args.num_heads,
        num_key_value_heads=args.num_kv_heads,
        intermediate_size=args.intermediate_size,
        initializer_range=args.initializer_range,
        max_position_embeddings=args.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": args.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        **ends,
        dtype="float32",
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(**ends)
    return model


def check_round_trip(folder: str, texts: list[str], tokenizer: Any) -> None:
    """Assert that `AutoTokenizer` reads back the same tokenizer and loses no character."""
    loaded = load_tokenizer(folder, "output_dir")
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        assert loaded(text)["input_ids"] == ids, f"AutoTokenizer splits {text!r} differently"
        assert loaded.decode(ids) == text, f"the tokenizer loses a part of {text!r}"


def main() -> None:
    """Build tokenizer and model, check them, save them, write the manifest."""
    (args,) = parse(__doc__, ModelArguments, owns="output_dir")
    if not Path(args.train_file).is_file():
        raise UserError(f"train_file: {args.train_file} does not exist; run `make data` first")
    asked = {"config": vars(args), "defaults": manifest.defaults_of(args)}
    if manifest.is_current(args.output_dir, **asked):
        return
    inputs = manifest.hash_inputs([args.train_file])

    from data_prep.schema import check_row
    from pipeline.rows import read_rows

    quiet()
    texts = []
    for where, row in read_rows(args.train_file):
        check_row(row, ("prompt", "completion"), where)
        prompt = row["prompt"]
        if not isinstance(prompt, str):
            prompt = "".join(f"{m['role']}\n{m['content']}\n" for m in prompt) + "assistant\n"
        texts.append(prompt + row["completion"])
    tokenizer = build_tokenizer(texts)
    model = build_model(args, tokenizer)
    started = manifest.start(args.output_dir)
    tokenizer.save_pretrained(args.output_dir)
    model.save_pretrained(args.output_dir)
    check_round_trip(args.output_dir, texts[:200], tokenizer)
    num_parameters = sum(p.numel() for p in model.parameters())
    counts = {"num_parameters": num_parameters, "vocab_size": len(tokenizer)}
    files = [file.name for file in manifest.model_files(Path(args.output_dir))]
    manifest.write(args.output_dir, "base", vars(args), inputs, counts, started, files)
    sys.stdout.write(
        f"base: random-init Qwen2 with {num_parameters:,} parameters and {len(tokenizer)} tokens"
        f" -> {args.output_dir}\n"
    )


if __name__ == "__main__":
    run_cli(main)
