"""Is there a model where a recipe says one is? Asked by every stage before torch is imported."""

import re
from pathlib import Path

from data_prep.config import UserError


def is_hub_id(path: str) -> bool:
    """Whether `path` names a hub model: exactly `owner/model`, and no folder `owner` lies here."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", path)) and not Path(path).parent.is_dir()


def check_checkpoint(path: str | None, key: str, target: str | None) -> None:
    """Refuse a local checkpoint that is missing or unfinished; hub ids pass.

    Args:
        path: a folder (whole model or adapter) or a hub id.
        key: the YAML key, for the message.
        target: the make target that writes the checkpoint; None where it is brought along.

    Raises:
        UserError: naming key, path and remedy.
    """
    if not path:
        raise UserError(f"{key}: missing; set a checkpoint folder or a hub id owner/model")
    if is_hub_id(path):
        return
    if not any((Path(path) / name).is_file() for name in ("config.json", "adapter_config.json")):
        remedy = f"run `make {target}` first" if target else "give a model's folder or hub id"
        raise UserError(f"{key}: {path} holds no model; {remedy}")
