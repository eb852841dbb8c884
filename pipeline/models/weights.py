"""Weights of a checkpoint: are they those of its configuration, its tokenizer and a recipe's rows?

transformers is asked, which knows every architecture. On the meta device a model takes no memory,
and of its files the headers alone are read: 0.2 s for 7B parameters, 4 s for 128 experts a layer.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open

from pipeline import manifest
from pipeline.console import say
from pipeline.errors import UserError
from pipeline.models.checkpoints import base_and_adapter, loading

# As Llama, Qwen, Mistral and Gemma, GPT-2, GPT-NeoX, Falcon and BLOOM name it.
EMBEDDING = re.compile(r"(.+\.)?(embed_tokens|wte|embed_in|word_embeddings)\.weight")
HEAD = "lm_head.weight"
# Keys of a tokenizer's config that name places of images and sounds.
MEDIA_TOKENS = (
    *("image_token", "video_token", "audio_token", "boi_token", "eoi_token"),
    *("boa_token", "eoa_token", "vision_bos_token", "vision_eos_token"),
)
WRITERS = ("eos_token", "pad_token", "chat_template")  # attributes that put tokens into rows
OTHER = "copy the config.json that belongs to them, or copy or download the folder again"


def load(checkpoint: str, key: str, **settings: Any) -> Any:
    """Load a causal LM, and refuse one with weights that are missing or of another shape.

    transformers fills such weights with random numbers and only logs it.

    Args:
        checkpoint: a model's folder or hub id.
        key: the YAML key that names it, for messages.
        settings: of `from_pretrained`.
    """
    from transformers import AutoModelForCausalLM

    model, found = AutoModelForCausalLM.from_pretrained(
        checkpoint, output_loading_info=True, ignore_mismatched_sizes=True, **settings
    )
    check_found(found, f"{key}: {checkpoint}")
    return model


def load_shapes(
    checkpoint: str,
    key: str,
    config: Any,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """The same model on the meta device, from the headers of its files; refuses the same.

    `from_pretrained` of a path reads the numbers on that device, too: 7 s for 7B parameters.

    Args:
        config: the checkpoint's.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import load_state_dict

    shapes: dict[str, torch.Tensor] = {}
    for file in find_files(checkpoint, revision):
        shapes |= load_state_dict(file, map_location="meta")
    with torch.device("meta"):  # the class; `from_pretrained` of the Auto one asks for a path
        built = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    model, found = type(built).from_pretrained(
        None,
        config=built.config,  # of a model of several parts that of the text
        state_dict=shapes,
        device_map="meta",
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    check_found(found, f"{key}: {checkpoint}")
    return model


def find_files(checkpoint: str, revision: str | None = None) -> list[str]:
    """The files that transformers loads a model's weights from; of the hub they are downloaded."""
    from transformers import utils
    from transformers.utils.hub import get_checkpoint_shard_files

    names = (
        *(utils.SAFE_WEIGHTS_NAME, utils.SAFE_WEIGHTS_INDEX_NAME),
        *(utils.WEIGHTS_NAME, utils.WEIGHTS_INDEX_NAME),
    )
    for name in names:
        found = utils.cached_file(
            checkpoint, name, revision=revision, _raise_exceptions_for_missing_entries=False
        )
        if found and name.endswith(".index.json"):
            return get_checkpoint_shard_files(checkpoint, found, revision=revision)[0]
        if found:
            return [found]
    return []


def check_found(found: dict[str, Any], where: str) -> None:
    """Refuse what a load has found missing or of another shape; name what has no place.

    Args:
        found: the loading info of transformers.
        where: key and checkpoint, for messages.
    """
    fault = f"{where}: its weights are not those of its config.json"
    for name, shape, wanted in sorted(found["mismatched_keys"]):
        shapes = f"{name} has shape {[*shape]}, not {[*wanted]}"
        raise UserError(f"{fault}: {shapes}; {OTHER}")
    missing, unused = sorted(found["missing_keys"]), sorted(found["unexpected_keys"])
    if missing:
        lacks = f"{len(missing)} would start at random, first {missing[0]}"
        raise UserError(f"{fault}: {lacks}; {OTHER}")
    if unused:
        say(f"{where}: {len(unused)} weights are not used, first {unused[0]}")


def num_positions(model: Any) -> int | None:
    """The most tokens of a row, where a model learns its positions; None for RoPE and its like.

    They are an embedding with a row for each, and with `offset` more that no token gets (OPT).
    """
    from torch.nn import Embedding

    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for layer in model.modules():
        is_other = isinstance(layer, Embedding) and layer is not model.get_input_embeddings()
        if is_other and layer.num_embeddings - getattr(layer, "offset", 0) == most:
            return most
    return None


def check_start(
    checkpoint: str, key: str, tokenizer: Any, limits: Mapping[str, int | None], **settings: Any
) -> None:
    """Refuse a model that cannot be started from, without a look at the numbers of its weights.

    Weights are missing or of another shape, a token has no row, or the rows of a recipe are longer
    than the positions that the model has learned.

    Args:
        tokenizer: with the chat template of the training.
        limits: tokens of the longest row by the recipe's keys, as `max_length`; None: no limit.
        settings: revision, which is that of a base model, and trust_remote_code.
    """
    from transformers import AutoConfig

    base, adapter = base_and_adapter(checkpoint, key)
    if adapter:
        settings.pop("revision", None)
    with loading("model", base, key):
        config = AutoConfig.from_pretrained(base, **settings)
        if hasattr(config, "quantization_config"):
            return  # its names and shapes are those of another library
        model = load_shapes(base, key, config, **settings)
    check_tokens(tokenizer, model.get_input_embeddings().weight.shape[0], f"{key}: {checkpoint}")
    check_positions(limits, num_positions(model), checkpoint)


def check_positions(limits: Mapping[str, int | None], most: int | None, checkpoint: str) -> None:
    """Refuse rows that are longer than the positions that a model has learned, if it learns them.

    Args:
        limits: as in `check_start`. most: `num_positions`.
    """
    if most is None or not limits:
        return
    if None in limits.values() or sum(limit or 0 for limit in limits.values()) > most:
        rows = " with ".join(f"{key}: {limit}" for key, limit in limits.items())
        raise UserError(
            f"{rows}: {checkpoint} has learned {most:,} positions; set no more tokens in all"
        )


def check_tokens(tokenizer: Any, num_rows: int, where: str) -> None:
    """Refuse tokens without a row in the embedding; they would end in an IndexError at a batch.

    Places of images and sounds count only where the template writes them: Gemma 3 1B, which reads
    text alone, has no row for its `image_token`.

    Args:
        num_rows: of the model's embedding.
        where: key and model, for the message.
    """
    media = {getattr(tokenizer, name, None) for name in MEDIA_TOKENS}
    writers = {name: str(getattr(tokenizer, name)) for name in WRITERS}
    for token, number in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1]):
        if number < num_rows:
            continue
        places = [name for name, text in writers.items() if token in text]
        if places or token not in media:
            raise UserError(
                f"{where}: {places[0] if places else 'tokenizer'}: {token!r} is token {number:,}, "
                f"but the model's embedding has {num_rows:,} rows; use the tokenizer that belongs "
                "to the model"
            )


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
