"""Checkpoints that a recipe names: the files of their folders, checked before torch is imported.

python -m pipeline.models.checkpoints FOLDER

Whether the weights are those of the model is `pipeline.models.weights`' to ask.
"""

import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from safetensors import SafetensorError, safe_open

from pipeline import json_files, manifest
from pipeline.errors import UserError, run_cli
from pipeline.memory import memory_fault
from pipeline.models import smollm2
from pipeline.models.hub import is_hub_id
from pipeline.stages import TRAINED

MODEL_STAGES = ("base", *TRAINED)  # whose folders hold models
VOCABULARIES = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json")
INDEX = {"weight_map?": {str: str}}
MAPPING: json_files.Shape = {str: object}
MAX_CAUSE = 300  # characters of a library's message, which may list every weight


def read_json(path: Path, key: str, shape: json_files.Shape = MAPPING) -> dict[str, Any]:
    """A mapping of a checkpoint's file, {} where there is no such file; damage is a `UserError`."""
    if not path.is_file():
        return {}
    try:
        return json_files.parse(path.read_bytes(), shape, is_own=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{key}: {path} cannot be read ({error}); copy the file again") from error


def has_file(folder: Path, *patterns: str) -> bool:
    """Whether a folder has a file that one of the patterns names."""
    return any(any(folder.glob(pattern)) for pattern in patterns)


def check_checkpoint(path: str | None, key: str) -> None:
    """Refuse a local checkpoint that is missing or cut off; hub ids and short names pass.

    Args:
        key: the YAML key, for the message.
    """
    if not path:
        raise UserError(f"{key}: missing; set a checkpoint folder or a hub id owner/model")
    if is_hub_id(path) or smollm2.is_named(path):
        return
    if not has_file(Path(path), "config.json", "adapter_config.json"):
        remedy = "give a model's folder or hub id"
        if Path(path).name in MODEL_STAGES:
            remedy = f"run `make {Path(path).name}` first, or {remedy}"
        raise UserError(f"{key}: {path} holds no model; {remedy}")
    manifest.check_made(Path(path))
    base, adapter = base_and_adapter(path, key)
    if adapter and not is_hub_id(base) and "/" in base and not Path(base).is_dir():
        file = Path(adapter, "adapter_config.json")
        raise UserError(
            f"{key}: {file}: its base model {base} is not there; put it there, or correct "
            "base_model_name_or_path"
        )
    for folder in dict.fromkeys((path, base)):
        check_weights(Path(folder), key)
        if read_json(Path(folder, "config.json"), key).get("is_encoder_decoder") is True:
            raise UserError(
                f"{key}: {folder} has an encoder; use a model of a decoder alone, a causal LM"
            )
    if not is_hub_id(tokenizer_path(path)):
        check_vocabulary(Path(tokenizer_path(path)), key)


def check_weights(folder: Path, key: str) -> None:
    """Refuse a local folder without weights, or without a shard that its index names."""
    if not folder.is_dir():
        return
    shards: set[str] = set()
    for index in sorted(folder.glob("*.index.json")):
        shards.update(read_json(index, key, INDEX).get("weight_map", {}).values())
    missing = sorted(name for name in shards if not (folder / name).is_file())
    remedy = "copy or download the folder again"
    if missing:
        raise UserError(f"{key}: {folder} lacks {missing[0]}, which its index names; {remedy}")
    found = [file for kind in ("*.safetensors", "*.bin") for file in folder.glob(kind)]
    if all(file.name == "training_args.bin" for file in found):
        raise UserError(f"{key}: {folder} holds no weights; {remedy}")
    for file in sorted(folder.glob("*.safetensors")):
        if not reads(file):
            fault = "is cut off, or not the weights but Git LFS's pointer to them"
            remedy = "download it again, or run `git lfs pull` there"
            raise UserError(f"{key}: {file} {fault}; {remedy}")


def reads(file: Path) -> bool:
    """Whether a file of JSON, safetensors or `torch.save` is whole, as far as its format tells."""
    try:
        if file.is_dir():
            return False
        if file.suffix == ".json":
            json_files.parse(file.read_bytes(), object, is_own=False)
        elif file.suffix == ".safetensors":
            with safe_open(file, "numpy"):  # its header has the length
                return True
        elif file.suffix in (".pt", ".pth", ".bin"):
            with ZipFile(file) as parts:  # with the CRC-32 of each tensor
                return parts.testzip() is None
    except (ValueError, SafetensorError, BadZipFile):
        return False
    return True


def check_vocabulary(folder: Path, key: str) -> None:
    """Refuse a local folder without a vocabulary; the library would use an empty one."""
    if not has_file(folder, *VOCABULARIES):
        raise UserError(f"{key}: {folder} holds no tokenizer; copy the model's files there")


def base_and_adapter(checkpoint: str, key: str = "checkpoint") -> tuple[str, str | None]:
    """`(base model, adapter folder)` of a peft checkpoint, `(checkpoint, None)` of any other."""
    config = Path(checkpoint) / "adapter_config.json"
    if not config.is_file():
        return checkpoint, None
    base = read_json(config, key).get("base_model_name_or_path")
    if not isinstance(base, str):
        raise UserError(f"{key}: {config}: base_model_name_or_path is missing; set the base model")
    return base, checkpoint


def tokenizer_path(checkpoint: str) -> str:
    """Where the checkpoint's tokenizer is: an adapter folder may leave it to its base model."""
    base, adapter = base_and_adapter(checkpoint)
    if adapter and Path(adapter, "tokenizer_config.json").is_file():
        return adapter
    return base


@contextlib.contextmanager
def loading(what: str, checkpoint: str, key: str) -> Iterator[None]:
    """Turn an error of transformers over the files of a checkpoint into a `UserError`."""
    try:
        yield
    # Other people's files: what is wrong decides what is raised; Rust's is a plain Exception.
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        is_loading = {"from_pretrained", "from_config"} & {frame.name for frame in frames}
        if isinstance(error, UserError) or not is_loading or memory_fault(error):
            raise
        message = " ".join(str(error).split())[:MAX_CAUSE]
        if "custom code" in message:
            remedy = "set trust_remote_code: true (SFT and GRPO have it), or take another"
            raise UserError(
                f"{key}: {checkpoint}: its {what} runs Python code of its folder, which nobody has "
                f"allowed; if you trust it, {remedy}"
            ) from error
        fault = f"its {what} cannot be loaded ({type(error).__name__}: {message})"
        remedy = "check the name, the network and whether its files belong together"
        raise UserError(f"{key}: {checkpoint}: {fault}; {remedy}") from error


def main() -> None:
    """Check the folder of the command line."""
    (folder,) = sys.argv[1:]
    check_checkpoint(folder, "MODEL")


if __name__ == "__main__":
    run_cli(main)
