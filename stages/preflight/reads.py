"""Keys of the training stages whose objects note who reads them.

A key that was given and that nobody reads in a whole rehearsal has no effect. The classes are
subclasses, so that nothing of a library is patched; they are found by name when they are pickled.
"""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from pipeline.stages import load_keys
from stages.arguments import DEFAULTS, GrpoArguments, SftArguments
from stages.trainer.guards import GuardSettings

READ: set[str] = set()  # keys that somebody has read since it was cleared
# Functions that read every key, whether it has an effect or not.
COPIES = {
    *("__post_init__", "__setattr__", "to_dict", "to_sanitized_dict", "to_json_string", "replace"),
    *("asdict", "_asdict_inner", "__repr__", "__str__", "__getstate__", "__reduce_ex__"),
    *("guard_settings", "effective_config"),
}
# Keys that act where no rehearsal looks: on several processes, in a launch, with another beta.
UNSEEN = {
    *DEFAULTS,
    *("batch_for_gpus", "ddp_timeout", "local_rank", "average_tokens_across_devices"),
    "use_bias_correction_kl",
}
# A key -> prefixes of keys that are read at some of its steps only.
SELDOM = {"use_adaptive_entropy": ("entropy_coef_",), "sync_ref_model": ("ref_model_",)}


class Reads:
    """Notes in `READ` which of its attributes somebody reads."""

    prefix = ""

    def __getattribute__(self, name: str) -> Any:
        frame = sys._getframe(1)
        while frame.f_code.co_name.startswith("<") and frame.f_back:  # a comprehension's own
            frame = frame.f_back
        if frame.f_code.co_name not in COPIES:
            READ.add(object.__getattribute__(self, "prefix") + name)
        return super().__getattribute__(name)


class Guards(Reads, GuardSettings):
    """The guards' settings."""

    prefix = "guard_"


class SftKeys(Reads, SftArguments):
    """Our keys of SFT."""


class GrpoKeys(Reads, GrpoArguments):
    """Our keys of GRPO."""

    def guard_settings(self) -> GuardSettings:
        return Guards(**vars(super().guard_settings()))


def classes_of(stage: str) -> tuple[type, ...]:
    """The classes of a stage's keys, ours first, each noting who reads it."""
    own = SftKeys if stage == "sft" else GrpoKeys
    return (own, *(_class_of_trl(name) for name in load_keys(stage)[1]))


def _class_of_trl(name: str) -> type:
    """A class of TRL's that notes who reads it."""
    if name not in globals():
        import trl

        found = type(name, (Reads, getattr(trl, name)), {"__module__": __name__})
        globals()[name] = found
    return globals()[name]


def make(classes: tuple[type, ...], values: Mapping[str, Any]) -> list[Any]:
    """An instance of each class, of the keys that it has."""
    made = []
    for cls in classes:
        known = {one.name for one in dataclasses.fields(cls) if one.init}
        made.append(cls(**{key: value for key, value in values.items() if key in known}))
    return made
