"""Saved models that transformers 4.57 reads as the same model, beside the installed version 5.

Version 5 writes some settings under new names alone. An older one does not find them and takes its
defaults: without `rope_theta` Qwen2 and Llama 3 write nonsense, without an error. The old names are
added here, with the same values. The tokenizer's class becomes the one that takes `tokenizer.json`
as it stands, in both versions.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline import json_files, manifest
from pipeline.weights import has_own_head

OLDEST = "4.57"
# Model types whose logits were found equal in both versions (tests/integration/test_older.py).
SAME_IN_4 = (
    "arcee", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "ernie4_5", "exaone4", "falcon",
    "gemma", "gemma2", "gemma3_text", "glm", "glm4", "gpt2", "gpt_neox", "gpt_oss", "granite",
    "granitemoe", "helium", "hunyuan_v1_dense", "lfm2", "llama", "mistral", "mixtral", "nemotron",
    "olmo", "olmo2", "olmo3", "olmoe", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
    "seed_oss", "smollm3", "stablelm", "starcoder2",
)  # fmt: skip
# Names of version 4 that only some model types have.
OTHER_NAMES = {
    "gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    "qwen3_moe": {"num_local_experts": "num_experts"},
}
# Where each type of layer has its own rotary embedding: the name of the theta of sliding attention,
# None where all layers share one.
SLIDING_THETA = {"gemma3_text": "rope_local_base_freq", "olmo3": None}
LONGEST = "original_max_position_embeddings"


def write_old_names(folder: Path, tokenizer: Any) -> None:
    """Add version 4's names to the JSON of a folder that version 5 saved, if it is there.

    Args:
        tokenizer: the one that was saved there; some of its settings are those of its class.
    """
    config = folder / "config.json"
    if config.is_file():
        said = with_old_names(_read(config))
        if said.get("tie_word_embeddings") and has_own_head(folder):
            # As version 5 finds out at load; version 4 and vLLM would tie them again.
            said["tie_word_embeddings"] = False
        _write(config, said)
    config = folder / "tokenizer_config.json"
    if config.is_file() and (folder / "tokenizer.json").is_file():
        _write(config, with_plain_class(_read(config), tokenizer))


def _read(file: Path) -> dict[str, Any]:
    return json_files.read(file, {str: object}, "copy the file again", is_own=False)


def _write(file: Path, config: dict[str, Any]) -> None:
    with manifest.open_whole(file) as out:
        out.write(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def with_old_names(config: dict[str, Any]) -> dict[str, Any]:
    """A `config.json`, or the part of one for a part of the model, with the names of both."""
    found = config | old_rope(config)
    for key, value in config.items():
        if isinstance(value, dict) and "model_type" in value:
            found[key] = with_old_names(value)
    if config.get("dtype"):
        found["torch_dtype"] = config["dtype"]
    for new, old in OTHER_NAMES.get(config.get("model_type", ""), {}).items():
        if new in found:
            found[old] = found[new]
    return found


def old_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_parameters` by version 4's names; {} where there are none, or they cannot say it."""
    rope, kind = config.get("rope_parameters") or {}, config.get("model_type")
    found = {}
    if "full_attention" in rope and kind in SLIDING_THETA:
        sliding, rope = rope.get("sliding_attention") or {}, rope["full_attention"]
        theta, name = sliding.get("rope_theta"), SLIDING_THETA[kind]
        if sliding.get("rope_type") != "default" or not (name or theta == rope["rope_theta"]):
            return {}
        if name:
            found[name] = theta
    if "rope_type" not in rope:
        return {}
    scaling = dict(rope)
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in scaling:
            found[key] = scaling.pop(key)
    if (
        scaling["rope_type"] == "yarn"
        and LONGEST in scaling
        and scaling[LONGEST] == config.get("max_position_embeddings")
    ):
        del scaling[LONGEST]  # filled in by version 5; version 4 would replace the factor by it
    if kind == "phi3" and scaling["rope_type"] == "longrope":  # version 4 refuses other keys
        factors = {key: scaling[key] for key in ("short_factor", "long_factor")}
        scaling = {"type": "longrope"} | factors
    found["rope_scaling"] = None if scaling == {"rope_type": "default"} else scaling
    return found


def with_plain_class(config: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """A `tokenizer_config.json` by which both versions take `tokenizer.json` as it stands.

    Version 4 does not know all of version 5's classes. Those that it knows change parts of the
    tokenizer as they load it: Llama's and Gemma's put a BOS before every text.
    """
    if "auto_map" in config:  # a class of the model's own code
        return config
    found = config | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "padding_side": tokenizer.padding_side,
        "truncation_side": tokenizer.truncation_side,
        "model_input_names": tokenizer.model_input_names,
    }
    if isinstance(found.get("extra_special_tokens"), list):  # a mapping in version 4
        found["additional_special_tokens"] = found.pop("extra_special_tokens")
    if found.get("add_prefix_space") is None:  # version 4 would take null as a value
        found.pop("add_prefix_space", None)
    # Version 5 ignores the key for BPE; version 4 takes spaces out of the text.
    if found.get("clean_up_tokenization_spaces") and is_bpe(tokenizer):
        found["clean_up_tokenization_spaces"] = False
    return found


def is_bpe(tokenizer: Any) -> bool:
    """Whether a tokenizer is byte-pair encoding."""
    return type(tokenizer.backend_tokenizer.model).__name__ == "BPE"


def least_version(folder: Path) -> str:
    """The oldest transformers that is known to read a saved model; "" without a `config.json`."""
    file = folder / "config.json"
    if not file.is_file():
        return ""
    config = _read(file)
    can_say = not config.get("rope_parameters") or old_rope(config)
    if config.get("model_type") in SAME_IN_4 and can_say:
        return OLDEST
    return config.get("transformers_version", "")
