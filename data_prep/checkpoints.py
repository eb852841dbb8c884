"""Checkpoints as a recipe names them: is there a model, before torch is imported; its tokenizer."""

import json
import re
from pathlib import Path
from typing import Any

from data_prep.config import UserError


def is_hub_id(path: str) -> bool:
    """Whether `path` names a hub model: exactly `owner/model`, and no folder `owner` lies here."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", path)) and not Path(path).parent.is_dir()


def check_checkpoint(path: str | None, key: str, target: str | None) -> None:
    """Refuse a local checkpoint (whole model or adapter) that is missing; hub ids pass.

    Args:
        key: the YAML key, for the message.
        target: the make target that writes the checkpoint; None where it is brought along.
    """
    if not path:
        raise UserError(f"{key}: missing; set a checkpoint folder or a hub id owner/model")
    if is_hub_id(path):
        return
    if not any((Path(path) / name).is_file() for name in ("config.json", "adapter_config.json")):
        remedy = f"run `make {target}` first" if target else "give a model's folder or hub id"
        raise UserError(f"{key}: {path} holds no model; {remedy}")


def base_and_adapter(checkpoint: str) -> tuple[str, str | None]:
    """`(base model, adapter folder)` of a peft checkpoint, `(checkpoint, None)` of any other."""
    config = Path(checkpoint) / "adapter_config.json"
    if not config.is_file():
        return checkpoint, None
    return json.loads(config.read_text(encoding="utf-8"))["base_model_name_or_path"], checkpoint


def tokenizer_path(checkpoint: str) -> str:
    """Where the checkpoint's tokenizer is: an adapter folder may leave it to its base model."""
    base, adapter = base_and_adapter(checkpoint)
    has_own = adapter and (Path(adapter) / "tokenizer_config.json").is_file()
    return adapter if has_own else base


def load_tokenizer(
    checkpoint: str, key: str, needs: tuple[str, ...] = ("chat_template",), **kwargs: Any
) -> Any:
    """Load the tokenizer of a model folder, adapter folder or hub id.

    Args:
        key: the YAML key that names the checkpoint, for messages.
        needs: attributes that it must have, such as `eos_token`.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_path(checkpoint), **kwargs)
    # Other people's files: what is wrong decides what is raised; Rust's is a plain Exception.
    except Exception as error:
        message = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"{key}: {checkpoint}: its tokenizer cannot be loaded ({type(error).__name__}: "
            f"{message}); check the name, the files or the network"
        ) from error
    for need in needs:
        if not getattr(tokenizer, need):
            raise UserError(
                f"{key}: the tokenizer of {checkpoint} has no {need}; use an instruct checkpoint, "
                "or save one with its tokenizer"
            )
    return tokenizer
