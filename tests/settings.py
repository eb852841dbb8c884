"""Settings from a plain mapping, as a recipe's file would give them."""

from typing import Any

from pipeline.key_types import known_keys
from pipeline.settings import Settings, typed


def settings_of(values: dict[str, Any], own: type, hf: tuple[str, ...] = ()) -> Settings:
    """The settings that a mapping gives; unknown keys are kept as they are."""
    known = known_keys(own, hf)
    found = typed({k: v for k, v in values.items() if k in known}, known, "recipe")
    return Settings(values | found, {}, known, "recipe")
