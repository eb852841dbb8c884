"""The sampling defaults of a checkpoint, `generation_config.json`: repaired, and kept apart.

transformers warns of a contradiction (a `temperature` without `do_sample`) at load, and refuses it
at every save. Where a key is missing in the arguments of `generate`, the checkpoint's value counts:
a `min_new_tokens` of a base model would change every rollout.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NAME = "generation_config.json"
ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")
# Of the file, not of the sampling.
ABOUT = ("transformers_version", "_from_model_config", "_commit_hash", "do_sample")


def is_id(value: Any) -> bool:
    """Whether a value is a token's id."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_valid(values: Mapping[str, Any]) -> bool:
    """Whether transformers loads these values and saves them again."""
    from transformers import GenerationConfig

    for name in ENDS:
        value = values.get(name)
        many = value if name == "eos_token_id" and isinstance(value, list) else [value]
        if value is not None and not all(map(is_id, many)):
            return False
    try:
        config = GenerationConfig.from_dict(dict(values))
        config.validate(strict=True)
        json.dumps(config.to_dict())
    # Another owner's values: what is wrong decides what is raised.
    except Exception:
        return False
    return True


def keep_valid(values: Mapping[str, Any]) -> dict[str, Any]:
    """As many of the values as are valid together, the earlier ones first."""
    kept: dict[str, Any] = {}
    while True:  # a key may need another that comes after it
        before = len(kept)
        for key, value in values.items():
            if key not in kept and is_valid(kept | {key: value}):
                kept[key] = value
        if len(kept) == before:
            return kept


def repair(values: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Values that can be saved, and what was changed; an empty text where nothing was.

    `do_sample`, where it is missing, is switched on if that keeps keys: they mean nothing else.
    """
    if is_valid(values):
        return dict(values), ""
    changes, kept = [], keep_valid(values)
    if values.get("do_sample") is None:
        sampled = keep_valid({**values, "do_sample": True})
        if len(sampled.keys() & values.keys()) > len(kept):
            kept = sampled
            changes.append("do_sample is now true")
    dropped = sorted(values.keys() - kept.keys())
    if dropped:
        changes.append(f"without {', '.join(dropped)}")
    return kept, ", ".join(changes)


def read_repaired(checkpoint: str, revision: str | None = None) -> tuple[Any, str]:
    """The `GenerationConfig` to load a checkpoint with, and what was changed in its file.

    None and an empty text where the file is missing, or is as transformers takes it.
    """
    from transformers import GenerationConfig
    from transformers.utils import cached_file

    try:
        file = cached_file(checkpoint, NAME, revision=revision)
    except OSError:  # as most base models: there is none
        return None, ""
    try:
        values = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError:
        return GenerationConfig(), "it is not JSON and counts as empty"
    if not isinstance(values, dict):
        return GenerationConfig(), "it is not a JSON object and counts as empty"
    kept, changes = repair(values)
    return (GenerationConfig.from_dict(kept), changes) if changes else (None, "")


def describe_ignored(config: Any) -> str:
    """The checkpoint's sampling defaults by name, but for its end and padding tokens."""
    return ", ".join(sorted(config.to_diff_dict().keys() - {*ENDS, *ABOUT}))


@contextlib.contextmanager
def only_ends(model: Any) -> Iterator[None]:
    """Let a model generate without the checkpoint's defaults; only its end tokens stay."""
    from transformers import GenerationConfig

    before = model.generation_config
    model.generation_config = GenerationConfig(**{name: getattr(before, name) for name in ENDS})
    try:
        yield
    finally:
        model.generation_config = before
