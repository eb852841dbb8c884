"""A GGUF file of a Llama, Qwen2 or Qwen3 model as a plain folder of transformers.

    python -m pipeline.models.gguf_files FILE.gguf FOLDER '{"source": "where the file comes from"}'

`pipeline.models.named_models` starts it. transformers reads the weights; blocks of few bits become
float32 numbers. The tokenizer is built here from the file's tokens and merges. The one that
transformers 5.17 makes of a Llama's has the BOS as its EOS, and does not split numbers as the model
learned.

SmolLM2-135M (98 MB as Q4_1) takes 1.4 GB of memory, a minute on one core, and 517 MiB of disk.
"""

import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline import manifest
from pipeline.console import quiet_transformers
from pipeline.errors import UserError, run_cli, size
from pipeline.models.checkpoints import loading

ARCHITECTURES = ("llama", "qwen2", "qwen3")
AGAIN = "copy or download the file again"
OTHER = "take the model's folder or hub id instead"
# Splits of a text before byte-pair encoding, by `tokenizer.ggml.pre`: those of the published
# tokenizer.json of Qwen2.5 and Llama 3. SmolLM2 splits digits, then as GPT-2.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {
    "smollm": None,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|"),
}
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # of `tokenizer.ggml.token_type`
FLOATS = ("F64", "F32", "F16", "BF16")
# Padding must not be the end of a text, or masks by id hide that too.
PADS = ("<|endoftext|>", "<|finetune_right_pad_id|>", "<pad>")


class GgufFile:
    """A file's metadata and list of tensors; raises `UserError` where it is damaged."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        self.path = path
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UserError(f"{path}: is not a GGUF file; {AGAIN}")
        try:
            reader = GGUFReader(path)
            self.fields = {name: field.contents() for name, field in reader.fields.items()}
        # Another owner's file: where it is damaged decides what is raised.
        except Exception as error:
            fault = f"is damaged or cut off ({type(error).__name__}: {error})"
            raise UserError(f"{path}: {fault}; {AGAIN}") from error
        self.architecture = self.fields.get("general.architecture")
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def of_model(self, name: str) -> Any:
        """A value below the name of the architecture, or None."""
        return self.fields.get(f"{self.architecture}.{name}")

    def of_tokenizer(self, name: str) -> Any:
        """A value of the tokenizer, or None."""
        return self.fields.get(f"tokenizer.ggml.{name}")

    def count_types(self) -> Counter[str]:
        """How many weights have each type, such as Q4_1 or F32."""
        found: Counter[str] = Counter()
        for tensor in self.tensors.values():
            found[tensor.tensor_type.name] += int(tensor.n_elements)
        return found

    def quantization(self) -> str:
        """The types of fewer than 16 bits, the most frequent first: `Q4_1 (4-bit)`; "" if none."""
        names = [name for name, _ in self.count_types().most_common() if name not in FLOATS]
        bits = {name: re.search(r"\d+", name) for name in names}
        return ", ".join(f"{name} ({found[0]}-bit)" for name, found in bits.items() if found)

    def dtype(self) -> str:
        """The type to save in: the file's own, or float32 for blocks, whose values it holds."""
        types = {*self.count_types()}
        if types <= {"F16", "F32"} and "F16" in types:
            return "float16"
        if types <= {"BF16", "F32"} and "BF16" in types:
            return "bfloat16"
        return "float32"


def check(file: GgufFile) -> None:
    """Refuse what cannot be converted without loss, before anything heavy is imported."""
    found = file.architecture
    if found not in ARCHITECTURES or file.of_model("expert_count"):
        kind = f"{found} with experts" if found in ARCHITECTURES else found
        known = ", ".join(ARCHITECTURES)
        raise UserError(
            f"{file.path}: general.architecture: {kind} is not converted, only {known}; {OTHER}"
        )
    scaling = file.of_model("rope.scaling.type")
    if scaling not in (None, "none") or "rope_freqs.weight" in file.tensors:
        fault = "scales its rotary positions, as Llama 3.1 does, which the conversion would lose"
        raise UserError(f"{file.path}: {fault}; {OTHER}")
    kind, split = file.of_tokenizer("model"), file.of_tokenizer("pre")
    if kind != "gpt2" or split not in SPLITS:
        fault = f"tokenizer.ggml: model {kind}, pre {split}: is not converted, only model gpt2 with"
        raise UserError(f"{file.path}: {fault} pre {', '.join(SPLITS)}; {OTHER}")
    special_ids(file)


def special_ids(file: GgufFile) -> dict[str, int]:
    """The ids of EOS, padding and, if there is one, BOS; refuses a file without end."""
    tokens = file.of_tokenizer("tokens") or []

    def known(name: str) -> int | None:
        found = file.of_tokenizer(f"{name}_token_id")
        return found if isinstance(found, int) and 0 <= found < len(tokens) else None

    eos, bos = known("eos"), known("bos")
    named = [tokens.index(token) for token in PADS if token in tokens]
    pad = next((one for one in (known("padding"), *named, bos) if one not in (None, eos)), None)
    for name, found in (("eos_token_id", eos), ("padding_token_id other than its EOS", pad)):
        if found is None:
            fault = f"its tokenizer of {len(tokens):,} tokens lacks the special token"
            raise UserError(f"{file.path}: {fault} tokenizer.ggml.{name}; {OTHER}")
    ids = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
    return {name: number for name, number in ids.items() if number is not None}


def build_tokenizer(file: GgufFile) -> Any:
    """The tokenizer of a file: byte-pair encoding with its special tokens and chat template."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers as pre
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    tokens, split = file.of_tokenizer("tokens"), file.of_tokenizer("pre")
    kinds = file.of_tokenizer("token_type") or [1] * len(tokens)
    if len(kinds) != len(tokens) or not all(isinstance(token, str) for token in tokens):
        fault = f"its {len(tokens):,} tokens have {len(kinds):,} types, or are not all texts"
        raise UserError(f"{file.path}: {fault}; {AGAIN}")
    # Unused ones fill the embedding up; no text becomes one.
    vocabulary = {
        token: number
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind != UNUSED
    }
    merges = [tuple(merge.split(" ")) for merge in file.of_tokenizer("merges") or ()]
    is_llama = split == "llama-bpe"
    try:
        backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=is_llama))
    except Exception as error:  # Rust's is a plain one
        raise UserError(f"{file.path}: its tokenizer is damaged ({error}); {AGAIN}") from error
    if SPLITS[split] is None:
        parts = [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
    else:
        first = pre.Split(Regex(SPLITS[split]), "isolated")
        parts = [first, pre.ByteLevel(add_prefix_space=False, use_regex=False)]
    backend.pre_tokenizer = pre.Sequence(parts)
    if SPLITS[split] is _QWEN2:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(
        [
            AddedToken(token, normalized=False, special=kind == CONTROL)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (CONTROL, USER_DEFINED)
        ]
    )
    ids = special_ids(file)
    bos = ids.get("bos_token_id")
    adds_bos = file.of_tokenizer("add_bos_token")
    if bos is not None and (is_llama if adds_bos is None else adds_bos):
        backend.post_processor = TemplateProcessing(
            single=f"{tokens[bos]} $A",
            pair=f"{tokens[bos]} $A {tokens[bos]}:1 $B:1",
            special_tokens=[(tokens[bos], bos)],
        )
    longest = file.of_model("context_length")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        **{name.removesuffix("_id"): tokens[number] for name, number in ids.items()},
        **({"model_max_length": longest} if longest else {}),
    )
    tokenizer.chat_template = file.fields.get("tokenizer.chat_template")
    return tokenizer


def build_model(file: GgufFile) -> Any:
    """The model of a file, without what transformers notes of the file."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    quiet_transformers()
    folder, name, ids = file.path.parent, file.path.name, special_ids(file)
    with loading("model", str(file.path), "GGUF"):
        config = AutoConfig.from_pretrained(folder, gguf_file=name)
        if width := file.of_model("attention.key_length"):
            config.head_dim = width  # transformers 5.17 takes Qwen3's default
        loaded = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, config=config, dtype=getattr(torch, file.dtype())
        )
    # The loaded one counts as quantized, which no `save_pretrained` takes.
    values = loaded.config.to_dict() | {"bos_token_id": None} | ids
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "unk_token_id"):
        values.pop(key, None)
    with torch.device("meta"):
        model = type(loaded)(type(loaded.config)(**values))
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = GenerationConfig(**ids)
    return model


def check_disk(file: GgufFile, folder: Path) -> None:
    """Refuse a disk that is too small for the converted weights."""
    width = 4 if file.dtype() == "float32" else 2
    needed, free = width * file.count_types().total(), shutil.disk_usage(folder.parent).free
    if free < needed:
        fault = f"the converted model needs {size(needed)}, its disk has {size(free)} free"
        remedy = "free space, or set XDG_CACHE_HOME to another disk"
        raise UserError(f"{folder.parent}: {fault}; {remedy}")


CARD = """---
license: {licence}
---

Converted from `{file}` of {source}. {weights}
"""


def convert(path: Path, folder: Path, about: dict[str, str]) -> None:
    """Write the model, the tokenizer, a card and `origin.json` to a new folder.

    Args:
        about: what `origin.json` says besides the quantization, as `file`, `source`, `sha256`.
    """
    file = GgufFile(path)
    check(file)
    tokenizer = build_tokenizer(file)  # refuses a damaged one before the weights are read
    check_disk(file, folder)
    folder.mkdir()
    build_model(file).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    blocks = file.quantization()
    weights = f"Its weights were rounded to {blocks}." if blocks else ""
    licence = json.dumps(str(file.fields.get("general.license") or "unknown"))
    card = CARD.format(weights=weights, licence=licence, **about)
    (folder / "README.md").write_text(card, encoding="utf-8")
    manifest.write_json(folder / manifest.ORIGIN, about | {"quantization": blocks})


def main() -> None:
    path, folder, about = sys.argv[1:]
    convert(Path(path), Path(folder), json.loads(about))


if __name__ == "__main__":
    run_cli(main)
