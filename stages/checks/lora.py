"""Modules that LoRA may train: none of which the merged weights would be another model.

LoRA on one of two tied weights trains that one alone. Merged, it changes both (peft#2777).
"""

import ast
import functools
import importlib.util
import re
from pathlib import Path
from typing import Any

from pipeline.checkpoints import base_and_adapter, is_hub_id, read_json
from pipeline.errors import UserError
from pipeline.settings import Settings

# Paths that transformers gives the input embedding and the LM head.
EMBEDDINGS = (
    "model.embed_tokens",
    "model.language_model.embed_tokens",
    "model.decoder.embed_tokens",
    "model.tok_embeddings",
    "model.embeddings",
    "backbone.embeddings",
    "gpt_neox.embed_in",
    "transformer.wte",
    "transformer.word_embeddings",
    "transformer.embedding",
)
HEADS = ("lm_head", "embed_out", "output")
ALL = "all-linear"


def is_pattern(asked: Any) -> bool:
    """Whether targets are a pattern of a module's whole path; TRL makes a text of a list of one."""
    return isinstance(asked, str) or len(asked) == 1


def fits(asked: Any, path: str) -> bool:
    """Whether peft puts LoRA on the module of this path; None and all-linear take other ways."""
    if asked is None:
        return False
    if not is_pattern(asked):
        return any(f".{path}".endswith(f".{name}") for name in asked)
    pattern = str(asked if isinstance(asked, str) else asked[0])
    try:
        return pattern != ALL and re.fullmatch(pattern, path) is not None
    except re.error as error:
        raise UserError(
            f"lora_target_modules: {pattern!r} is not a pattern ({error}); correct it"
        ) from error


def check_lora(settings: Settings) -> None:
    """Refuse targets of LoRA that are wrong for every model."""
    if not settings.use_peft:
        return
    asked = settings.lora_target_modules
    if asked and not is_pattern(asked) and ALL in asked:
        why = "stands for all linear layers only where it is the one entry; remove it or the others"
        raise UserError(f"lora_target_modules: {ALL} {why}")
    for key, name in targets(settings, HEADS):
        raise UserError(
            f"{key}: {name}: TRL takes the LM head's weights without an adapter, which would never "
            "be trained; leave it out, or train the head whole: lora_modules_to_save: [lm_head]"
        )


def check_tied(settings: Settings, config: dict[str, Any] | None = None) -> None:
    """Refuse targets of LoRA that are wrong for a model whose embedding is its LM head.

    `config` is the model's config.json; without it that of `model_name_or_path` is read.
    """
    if not settings.use_peft:
        return
    if config is None:
        config = read_config(settings.model_name_or_path, settings.model_revision)
    if not config or not is_tied(config):
        return
    model = settings.model_name_or_path
    why = f"the embedding of {model} is its LM head, too (tie_word_embeddings)"
    for key, name in targets(settings, EMBEDDINGS):
        raise UserError(
            f"{key}: {name}: {why}; LoRA would train one, and merged it would change both; leave "
            "it out, or train it whole: lora_modules_to_save"
        )
    for name in settings.lora_modules_to_save or ():
        if settings.get("use_vllm") and any(path.endswith(name) for path in EMBEDDINGS + HEADS):
            raise UserError(
                f"lora_modules_to_save: {name}: {why}; trained, the two differ, and vLLM has one "
                "for both; leave it out, or set use_vllm: false"
            )


def targets(settings: Settings, paths: tuple[str, ...]) -> list[tuple[str, str]]:
    """`(key, entry or path)` of each of these modules that LoRA is asked to train."""
    asked = settings.lora_target_modules
    found = [("lora_target_modules", path) for path in paths if fits(asked, path)]
    for name in settings.lora_target_parameters or ():
        if any(f".{path}.weight".endswith(f".{name}") for path in paths):
            found.append(("lora_target_parameters", name))
    return found


def read_config(model: str, revision: str) -> dict[str, Any]:
    """The config.json of a model, or of an adapter's base; {} where it is not on this machine."""
    base, adapter = base_and_adapter(model, "model_name_or_path")
    file: Any = Path(base, "config.json")
    if is_hub_id(base):
        from huggingface_hub import try_to_load_from_cache

        file = try_to_load_from_cache(base, file.name, revision=None if adapter else revision)
    return read_json(Path(file), "model_name_or_path") if isinstance(file, str | Path) else {}


def is_tied(config: dict[str, Any]) -> bool:
    """Whether the embedding is the LM head: by config.json, else by default of its class."""
    for part in (config, config.get("text_config") or {}):
        if part.get("tie_word_embeddings") is not None:
            return bool(part["tie_word_embeddings"])
    return ties_by_default(str(config.get("model_type")))


@functools.cache
def ties_by_default(model_type: str) -> bool:
    """What the source of a transformers configuration says; its import would bring in torch."""
    package = importlib.util.find_spec("transformers")
    if package is None or package.origin is None:
        return False
    mark = f'model_type = "{model_type}"'
    for file in sorted(Path(package.origin).parent.glob("models/*/configuration_*.py")):
        text = file.read_text(encoding="utf-8")
        if mark not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                lines = [ast.unparse(line) for line in node.body]
                if f"model_type = {model_type!r}" in lines:
                    return any(re.fullmatch(r"tie_word_embeddings:.* = True", one) for one in lines)
    return False
