"""Tiny GGUF files, as llama.cpp's converter writes them; `gguf` and NumPy alone are imported."""

import gguf
import numpy

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "1 2", "12 3", "Ġ a", "i n", "Ġ in"]


def alphabet():
    """The letters by which byte-level BPE writes the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [256 + number for number in range(256 - len(shown))]
    return [chr(code) for code in [*shown, *others]]


TOKENS = [*SPECIAL, *alphabet(), *(merge.replace(" ", "") for merge in MERGES), "<tool>", "[PAD0]"]
CONTROL, NORMAL, USER_DEFINED, UNUSED = 3, 1, 4, 5
KINDS = [CONTROL] * 3 + [NORMAL] * (len(TOKENS) - 5) + [USER_DEFINED, UNUSED]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENIZER = {
    "model": "gpt2", "pre": "smollm", "tokens": TOKENS, "token_type": KINDS, "merges": MERGES,
    "bos_token_id": 1, "eos_token_id": 2, "padding_token_id": 2, "add_bos_token": False,
}  # fmt: skip


def write_gguf(path, architecture="llama", tensors=None, shape=None, kind="F32", **changes):
    """Write a GGUF file.

    Args:
        tensors: arrays by GGUF name; those with rows of 32 numbers are written as `kind`.
        shape: keys below the architecture's name.
        changes: of the tokenizer's keys, None to leave one out; `template`, `alignment`.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("general.license", "mit")
    for key, value in (shape or {}).items():
        add(writer, f"{architecture}.{key}", value)
    template = changes.pop("template", TEMPLATE)
    if template:
        writer.add_string("tokenizer.chat_template", template)
    for key, value in (TOKENIZER | changes).items():
        if value is not None:
            add(writer, f"tokenizer.ggml.{key}", value)
    for name, tensor in (tensors or {"output_norm.weight": numpy.ones(4)}).items():
        tensor = numpy.asarray(tensor, numpy.float32)
        wanted = gguf.GGMLQuantizationType[kind if tensor.ndim > 1 else "F32"]
        writer.add_tensor(name, gguf.quantize(tensor, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer, key, value):
    """Add a value by its Python type."""
    kinds = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32,
             float: writer.add_float32, list: writer.add_array}  # fmt: skip
    kinds[type(value)](key, value)
