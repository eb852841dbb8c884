"""Do a checkpoint's files belong together? Weights against configuration, tokenizer against both.

`check_files` reads headers of safetensors and JSON, without torch. `whole` watches the load itself:
transformers fills weights that the files lack with random numbers and only logs it.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open

from pipeline import json_files, manifest
from pipeline.console import say
from pipeline.errors import UserError

REMEDY = "copy or download the folder again"
# As Llama, Qwen, Mistral and Gemma, GPT-2, GPT-NeoX, Falcon and BLOOM name it.
EMBEDDING = re.compile(
    r"(model|language_model|transformer|gpt_neox)\.(embed_tokens|wte|embed_in|word_embeddings)"
    r"\.weight"
)
HEAD = "lm_head.weight"
# Learned positions, and how many rows of them no token gets.
POSITIONS = re.compile(r"(.*\.)?(wpe|embed_positions|position_embeddings|embed_pos)\.weight")
OFFSETS = {"opt": 2, "xglm": 2, "biogpt": 2}
LAYER = re.compile(r"(?:model|language_model|transformer|gpt_neox)\.(?:layers|h)\.(\d+)\.")
SIZES = ("vocab_size", "hidden_size"), ("vocab_size", "n_embd")


def check_files(folder: Path, key: str, config: dict[str, Any]) -> None:
    """Refuse a local folder whose weights' names or shapes contradict its index or `config.json`.

    Args:
        key: the YAML key, for the message.
        config: the content of `config.json`.
    """
    shapes = read_shapes(folder)
    check_index(folder, key, shapes)
    config = config.get("text_config", config)
    if not shapes or not isinstance(config, dict) or "quantization_config" in config:
        return
    where = f"{key}: {folder}: its weights are not those of its config.json"
    remedy = f"copy the config.json that belongs to them, or {REMEDY}"
    for name, shape in shapes.items():
        for names in SIZES:
            wanted = [config.get(one) for one in names]
            if EMBEDDING.fullmatch(name) and None not in wanted and shape != wanted:
                sizes = ", ".join(f"{one}: {size}" for one, size in zip(names, wanted, strict=True))
                raise UserError(f"{where}: {name} has shape {shape}, not {sizes}; {remedy}")
    layers = {int(found[1]) for name in shapes if (found := LAYER.match(name))}
    wanted_layers = config.get("num_hidden_layers", config.get("n_layer"))
    if layers and isinstance(wanted_layers, int) and len(layers) < wanted_layers:
        fault = f"they have {len(layers)} layers, not num_hidden_layers: {wanted_layers}"
        raise UserError(f"{where}: {fault}; {remedy}")


def read_shapes(folder: Path) -> dict[str, list[int]]:
    """The shape of each weight, from the headers of a folder's safetensors files."""
    shapes: dict[str, list[int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                shapes[name] = tensors.get_slice(name).get_shape()
    return shapes


def num_positions(folder: Path) -> int | None:
    """The most tokens of a row, where positions are learned; None for RoPE and its like."""
    rows = [shape[0] for name, shape in read_shapes(folder).items() if POSITIONS.fullmatch(name)]
    if not rows:
        return None
    return min(rows) - OFFSETS.get(str(read_json(folder / "config.json").get("model_type")), 0)


def has_own_head(folder: Path) -> bool:
    """Whether a folder's LM head has other weights than its embedding.

    A sharded model that ties them is saved with both, which are equal.
    """
    places: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "numpy") as tensors:
            places |= dict.fromkeys(tensors.keys(), file)
    embedding = next(filter(EMBEDDING.fullmatch, places), None)
    if embedding is None or HEAD not in places:
        return False
    import torch

    found = []
    for name in (embedding, HEAD):
        with safe_open(places[name], "pt") as tensors:
            found.append(tensors.get_tensor(name))
    return not torch.equal(*found)


def keep_own_head(folder: Path) -> None:
    """Say in a saved `config.json` that the LM head is no copy of the embedding, where it is none.

    transformers 5 finds that out as it loads; vLLM and version 4 would tie them again.
    """
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if config.get("tie_word_embeddings") and has_own_head(folder):
        config["tie_word_embeddings"] = False
        with manifest.open_whole(file) as out:
            out.write(json.dumps(config, indent=2, sort_keys=True) + "\n")


def check_index(folder: Path, key: str, shapes: dict[str, list[int]]) -> None:
    """Refuse an index that names weights which no file holds."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file() or not shapes:
        return
    listed = read_json(index).get("weight_map") or {}
    missing = sorted(listed.keys() - shapes.keys())
    if missing:
        fault = f"names {len(missing)} weights that no file holds, first {missing[0]}"
        raise UserError(f"{key}: {index} {fault}; {REMEDY}")


def check_token_ids(folder: Path, key: str, config: dict[str, Any], template: str = "") -> None:
    """Refuse special tokens without a row in the embedding: end, padding, those of the template.

    Their ids would end in an IndexError at the first batch.

    Args:
        folder: that of the tokenizer.
        config: the content of the model's `config.json`.
        template: the chat template's text.
    """
    config = config.get("text_config", config)
    rows = config.get("vocab_size") if isinstance(config, dict) else None
    if not isinstance(rows, int):
        return
    pad = config.get("pad_token_id")
    if isinstance(pad, int) and pad >= rows:
        remedy = f"set it below {rows:,} in config.json"
        raise UserError(
            f"{key}: {folder}: pad_token_id: {pad} has no row in the embedding; {remedy}"
        )
    names = read_json(folder / "special_tokens_map.json") | read_json(
        folder / "tokenizer_config.json"
    )
    ids = read_token_ids(folder)
    used = {
        content: name for name in ("eos_token", "pad_token") if (content := text(names.get(name)))
    }
    used |= {content: "chat_template" for content in read_added(folder) if content in template}
    next_id = max(ids.values(), default=-1) + 1  # of a token that the tokenizer adds as it loads
    for content, name in used.items():
        number = ids.get(content, next_id)
        if number >= rows:
            fault = f"{content!r} is token {number:,}, the embedding has {rows:,} rows"
            remedy = "use the tokenizer that belongs to the model, or a model with a row for it"
            raise UserError(f"{key}: {folder}: {name}: {fault}; {remedy}")


def read_json(file: Path) -> dict[str, Any]:
    """A file's mapping, {} for any other; `pipeline.models.checkpoints` refuses damage by name."""
    with contextlib.suppress(OSError, ValueError):
        return json_files.parse(file.read_bytes(), {str: object}, is_own=False)
    return {}


def text(token: Any) -> str:
    """A special token's text; a file has it by itself or in a mapping."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def read_added(folder: Path) -> dict[str, int]:
    """Ids of the tokens that were added to a vocabulary."""
    found = {}
    added = read_json(folder / "tokenizer.json").get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            found[text(token)] = token["id"]
    decoder = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder")
    for number, token in decoder.items() if isinstance(decoder, dict) else []:
        if str(number).isdecimal():
            found[text(token)] = int(number)
    return {content: number for content, number in found.items() if content}


def read_token_ids(folder: Path) -> dict[str, int]:
    """Ids of a tokenizer's tokens by text, as far as its JSON files say."""
    model = read_json(folder / "tokenizer.json").get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # Unigram: [text, score]
        vocabulary = {pair[0]: number for number, pair in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict):
        vocabulary = read_json(folder / "vocab.json")
    return vocabulary | read_added(folder)


@contextlib.contextmanager
def whole(checkpoint: str, key: str) -> Iterator[None]:
    """Refuse a model that is loaded in the block with weights missing, or of another shape.

    Weights that the model has no place for are named in one line.
    """
    from transformers import modeling_utils

    report = modeling_utils.log_state_dict_report

    def refuse(model: Any, loading_info: Any, **kwargs: Any) -> None:
        where = f"{key}: {checkpoint}: its weights are not those of its config.json"
        remedy = f"copy the config.json that belongs to them, or {REMEDY}"
        missing, unused = sorted(loading_info.missing_keys), sorted(loading_info.unexpected_keys)
        for name, found, wanted in sorted(loading_info.mismatched_keys):
            shapes = f"{name} has shape {[*found]}, not {[*wanted]}"
            raise UserError(f"{where}: {shapes}; {remedy}")
        if missing:
            lacks = f"{len(missing)} would start at random, first {missing[0]}"
            raise UserError(f"{where}: {lacks}; {remedy}")
        if unused:
            say(f"{key}: {checkpoint}: {len(unused)} weights are not used, first {unused[0]}")
        report(model=model, loading_info=loading_info, **kwargs)

    modeling_utils.log_state_dict_report = refuse
    try:
        yield
    finally:
        modeling_utils.log_state_dict_report = report
