"""Dropout of a loaded model: where its rates are, and how to turn it off.

A model with dropout gives other log-probs in each pass of training, and GRPO compares passes: its
ratio is not 1 and its KL not 0 before the first update. transformers keeps the rates in three
places: in `nn.Dropout`, as a number of a module, and in the configuration, which some models
(Falcon, GPT-Neo) read in each pass. A router's noise (`router_jitter_noise`) works alike.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

NOISE = ("drop", "jitter")  # parts of names


class Value(NamedTuple):
    """An attribute of a module or a configuration."""

    owner: Any
    name: str
    value: Any


def is_rate(name: str, value: Any) -> bool:
    """Whether a key or an attribute is the rate of a dropout that is on."""
    is_share = isinstance(value, float) and 0 < value <= 1
    return is_share and any(part in name for part in NOISE)


def find(model: Any) -> list[Value]:
    """The rates above 0 of a model's modules and of their configurations, adapters included."""
    owners = {}
    for module in model.modules():
        owners[id(module)] = module
        if config := getattr(module, "config", None):
            owners[id(config)] = config
    found = []
    for owner in owners.values():
        for name, value in vars(owner).items():
            kind = type(owner).__name__.lower() if name == "p" else ""  # of nn.Dropout
            if is_rate(kind + name, value):
                found.append(Value(owner, name, value))
    return found


def turn_off(model: Any) -> list[Value]:
    """Set the rates to 0, but those of LoRA's adapters; returns what they were."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapters = set()
    for layer in model.modules():
        if isinstance(layer, BaseTunerLayer):
            own = {*layer.modules()} - {*layer.get_base_layer().modules()}
            adapters |= {id(part) for part in own}
    before = [one for one in find(model) if id(one.owner) not in adapters]
    put(one._replace(value=0.0) for one in before)
    return before


def put(values: Iterable[Value]) -> None:
    """Give each attribute its value."""
    for owner, name, value in values:
        setattr(owner, name, value)


def of_configs(values: Iterable[Value]) -> list[Value]:
    """Those that a saved config.json holds."""
    return [one for one in values if hasattr(one.owner, "to_json_string")]


def describe(values: Iterable[Value]) -> str:
    """The rates by their keys in the config.json, where it has them: "attention_dropout 0.1"."""
    named = of_configs(values) or values
    return ", ".join(f"{name} {value:g}" for name, value in {one[1:]: None for one in named})


def is_asked(given: Mapping[str, Any] | None) -> bool:
    """Whether a recipe's `model_init_kwargs` have a rate."""
    return any(is_rate(name, value) for name, value in (given or {}).items())
