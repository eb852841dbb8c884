"""Settings from a plain mapping, as a recipe's file would give them."""

import importlib
from typing import Any
from unittest import mock

from pipeline.key_types import known_keys
from pipeline.settings import Settings, typed


def settings_of(values: dict[str, Any], own: type, hf: tuple[str, ...] = ()) -> Settings:
    """The settings that a mapping gives; unknown keys are kept as they are."""
    known = known_keys(own, hf)
    found = typed({k: v for k, v in values.items() if k in known}, known, "recipe")
    return Settings(values | found, {}, known, "recipe")


class Parsed(Exception):
    """Carries what a command's `main` gives to `parse` out of it."""


def classes_of(module: str) -> tuple[type, tuple[str, ...]]:
    """The dataclass of a command's keys, and the names of Hugging Face's classes beside it."""

    def parse(doc: str, own: type, hf: tuple[str, ...] = (), *_: Any, **__: Any) -> None:
        raise Parsed(own, hf)

    loaded = importlib.import_module(module)
    with mock.patch.object(loaded, "parse", parse):
        try:
            loaded.main()
        except Parsed as parsed:
            return parsed.args
    raise AssertionError(f"{module} parses nothing")
