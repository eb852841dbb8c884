"""Keys that have an effect only with some values of other keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.settings import PointlessKey, Settings

ON, OFF = "on", "off"  # any value but false, null, "" and 0; these


@dataclass(frozen=True)
class Switch:
    """Keys that have an effect only with some values of other keys.

    Args:
        on: of each switching key the values, or `ON` or `OFF`; one key that has one is enough.
        keys: those that have no effect otherwise, as one text.
        says: the values as a person would write them; those of `on` where it is empty.
    """

    on: Mapping[str, Any]
    keys: str
    says: str = ""

    def is_on(self, settings: Settings) -> bool:
        """Whether the keys have an effect."""
        found = ((getattr(settings, key, None), values) for key, values in self.on.items())
        return any(_is_one(value, values) for value, values in found)

    def wanted(self) -> str:
        """What would switch the keys on, for a message."""
        words = {ON: "true", OFF: "false"}
        return self.says or " or ".join(
            f"{key}: {words[values] if isinstance(values, str) else ' or '.join(map(str, values))}"
            for key, values in self.on.items()
        )


def _is_one(value: Any, values: Any) -> bool:
    """Whether a value, or an entry of a list, is one of `values`."""
    if values in (ON, OFF):
        return bool(value) is (values == ON)
    return any(item in values for item in (value if isinstance(value, list) else [value]))


def is_given(settings: Settings, key: str) -> bool:
    """Whether a recipe asks for something by a key; `false` where that is the default does not."""
    return key in settings and (bool(settings[key]) or settings[key] != settings.default_of(key))


def check_switched(settings: Settings, switches: Sequence[Switch]) -> None:
    """Refuse keys that would have no effect because of the value of another key.

    Raises:
        PointlessKey: of the first such key.
    """
    for switch in switches:
        given = [key for key in switch.keys.split() if is_given(settings, key)]
        if given and not switch.is_on(settings):
            why = f"{settings[given[0]]!r} would have no effect without {switch.wanted()}"
            raise PointlessKey(given[0], f"{why}; set that, or remove the key", tuple(switch.on))
