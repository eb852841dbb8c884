"""Models of the hub: their names, the copies on this machine, downloads.

huggingface_hub is not asked where its cache is: it reads HF_HUB_OFFLINE once, as it is imported,
and a stage may set that later.
"""

import os
import re
from pathlib import Path

from pipeline.errors import UserError

# Without them a copy in the cache is not whole.
NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
# What a model's folder holds beside its weights; README.md has the licence.
TEXTS = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "README.md")


def is_hub_id(path: str) -> bool:
    """Whether `path` names a hub model: exactly `owner/model`, and no folder `owner` lies here."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", path)) and not Path(path).parent.is_dir()


def user_cache() -> Path:
    """The folder of the user's caches, as the XDG specification has it."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def hub_cache() -> Path:
    """The folder of huggingface_hub's cache."""
    home = os.environ.get("HF_HOME") or user_cache() / "huggingface"
    given = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(given or Path(home, "hub"))).expanduser()


def has_hub_copy(hub_id: str) -> bool:
    """Whether the hub's cache on this machine has all of a model."""
    found = hub_cache().glob(f"models--{hub_id.replace('/', '--')}/snapshots/*")
    return any(all((folder / name).is_file() for name in NEEDED) for folder in found)


def fetch(model: str, key: str, patterns: tuple[str, ...]) -> Path:
    """The folder of a model; that of a hub id is downloaded, of its files those that fit.

    Raises:
        UserError: there is no such folder, or the hub does not give it.
    """
    if Path(model).is_dir():
        return Path(model).resolve()
    if not is_hub_id(model):
        raise UserError(f"{key}: {model} is no folder; give a model's folder or hub id")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(model, allow_patterns=list(patterns)))
    except (HfHubHTTPError, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:300]
        remedy = "check the name and the network; a gated model needs `hf auth login`"
        raise UserError(f"{key}: {model}: {type(error).__name__} ({cause}); {remedy}") from error
