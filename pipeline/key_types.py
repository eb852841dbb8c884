"""Keys and the types of their values: which keys there are, and what a value must be.

Our own keys are the fields of our dataclasses, of which pydantic reads the types. Of TRL's keys
names and defaults are read from its source by `ast`, because importing TRL takes seconds. Their
values are checked by TRL's own type hints, once it is imported.
"""

import ast
import dataclasses
import enum
import functools
import importlib.util
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import TypeAdapter, ValidationError

from pipeline.names import nearest
from pipeline.values import OneOf

UNSET: Any = object()


@dataclass(frozen=True)
class Key:
    """What is known of a key before TRL is imported.

    Args:
        annotation: its type; of TRL's keys the source text.
        default: UNSET where the key is required, or its default cannot be read from the source.
        owner: the name of TRL's dataclass that has it; "" for our own.
        meaning: of our own.
    """

    annotation: Any
    default: Any = UNSET
    owner: str = ""
    meaning: str = ""

    @functools.cached_property
    def kinds(self) -> set[str]:
        """The words of its type: `list[str] | None` has list, str and None."""
        text = self.annotation if self.owner else shown_type(self.annotation)
        return set(re.findall(r"\w+", text))

    @property
    def takes_text(self) -> bool:
        """Whether a word that reads as a number is a text."""
        return not self.kinds & {"int", "float", "bool", "dict", "Any"}


# Where the fields of each Hugging Face dataclass are written: (package, file, class), bases last.
_TRAINING_ARGUMENTS = [
    ("trl", "trainer/base_config.py", "_BaseConfig"),
    ("transformers", "training_args.py", "TrainingArguments"),
]
HF_SOURCES = {
    "SFTConfig": [("trl", "trainer/sft_config.py", "SFTConfig"), *_TRAINING_ARGUMENTS],
    "GRPOConfig": [("trl", "trainer/grpo_config.py", "GRPOConfig"), *_TRAINING_ARGUMENTS],
    "ModelConfig": [("trl", "trainer/model_config.py", "ModelConfig")],
}


@functools.cache
def source_fields(package: str, file: str, name: str) -> list[ast.AnnAssign]:
    """The fields of a dataclass in an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    path = Path(spec.origin).parent / file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return [node for node in found[0].body if isinstance(node, ast.AnnAssign)]


def _default_of(value: ast.expr | None) -> Any:
    """The default that a field's source has; UNSET where it is not a literal."""
    if isinstance(value, ast.Call):  # field(default=..., metadata=...)
        arguments = {keyword.arg: keyword.value for keyword in value.keywords}
        if "default_factory" in arguments:
            return []
        value = arguments.get("default")
    try:
        return UNSET if value is None else ast.literal_eval(value)
    except ValueError:
        return UNSET


@functools.cache
def hf_keys(class_name: str) -> dict[str, Key]:
    """The keys of an installed Hugging Face dataclass, read from its source in milliseconds."""
    keys: dict[str, Key] = {}
    for source in HF_SOURCES[class_name]:
        for field in source_fields(*source):
            name = ast.unparse(field.target)
            if not name.startswith("_"):
                key = Key(ast.unparse(field.annotation), _default_of(field.value), class_name)
                keys.setdefault(name, key)
    return keys


@functools.cache
def own_keys(cls: type) -> dict[str, Key]:
    """The keys of one of our dataclasses."""
    keys, hints = {}, typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        default = UNSET if field.default is dataclasses.MISSING else field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        meaning = field.metadata.get("help", "")
        keys[field.name] = Key(hints[field.name], default, meaning=meaning)
    return keys


def known_keys(own: type, hf: tuple[str, ...] = ()) -> dict[str, Key]:
    """All keys that a stage's YAML may have; ours win."""
    keys: dict[str, Key] = {}
    for class_name in hf:
        keys |= hf_keys(class_name)
    return keys | own_keys(own)


def shown_type(annotation: Any) -> str:
    """A type as a reader writes it, without its limits: `off | warn`, `list[int] | None`."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        names = [name for one in inner if isinstance(one, OneOf) for name in one.names]
        return " | ".join(names) or shown_type(inner[0])
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(shown_type, inner))
    if origin:
        return f"{origin.__name__}[{', '.join(map(shown_type, inner))}]"
    return "None" if annotation is types.NoneType else getattr(annotation, "__name__", "Any")


@functools.lru_cache(maxsize=None, typed=True)
def _adapter(annotation: Any) -> TypeAdapter:
    return TypeAdapter(annotation)


def validated(annotation: Any, name: str, value: Any) -> Any:
    """A value as pydantic converts it to a type; one item alone is a list of one.

    Raises:
        ValueError: in one line that begins with the key's name.
    """
    members = [typing.get_origin(one) or one for one in typing.get_args(annotation)]
    is_list = typing.get_origin(annotation) is list or (list in members and str not in members)
    if is_list and not isinstance(value, list | None):
        value = [value]
    try:
        found = _adapter(annotation).validate_python(value)
    except ValidationError as error:
        raise ValueError(_refusal(name, value, error)) from error
    if isinstance(value, bool) and type(found) in (int, float):  # to pydantic true is 1
        raise ValueError(f"{name}: must be a number (got {value!r})")
    # A whole number stays one where it is a float, as manifests and logs of earlier runs have it.
    return value if type(value) is int and type(found) is float else found


def _refusal(name: str, value: Any, error: ValidationError) -> str:
    """What pydantic says of a value, in one line with the nearest name and what helps."""
    found = error.errors(include_url=False)
    wanted = []
    for one in found:
        text = re.sub(r"^(\w+ should|Value error,) |, (unable|got an?) .*", "", one["msg"])
        text = text.replace("greater than or equal to", "at least")
        wanted.append(" ".join(text.replace("less than or equal to", "at most").split()))
    line = f"{name}: must {' or '.join(dict.fromkeys(wanted))} (got {value!r:.80})"
    for one in found:
        names = re.findall("'([^']*)'", str(one.get("ctx", {}).get("expected", "")))
        if near := nearest(str(one["input"]), names):
            return f"{line}; did you mean {near!r}?"
    is_text = any(one["type"] == "string_type" for one in found)
    return f"{line}; quote it" if is_text and not isinstance(value, list | dict) else line


# What TRL's classes take beside their hints: true and false; the name of a JSON file.
_ALSO_SWITCHES = ("fsdp", "scale_rewards")
_ALSO_FILES = ("accelerator_config", "deepspeed", "fsdp_config")


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    """The types of a class's fields."""
    return typing.get_type_hints(cls)


def trl_value(cls: type, name: str, value: Any) -> Any:
    """The value of a key as the hint of TRL's class has it, checked for the field's choices too.

    Beside an enum or a mapping a hint's `str` is its text, which is checked as such.
    """
    if name in _ALSO_SWITCHES and isinstance(value, bool):
        return value
    hint, members = hints_of(cls)[name], typing.get_args(hints_of(cls)[name])
    is_enum = any(isinstance(one, type) and issubclass(one, enum.Enum) for one in members)
    is_mapping = any((typing.get_origin(one) or one) is dict for one in members)
    if name in _ALSO_FILES and str(value).endswith(".json"):
        return value
    if isinstance(value, dict) and not is_mapping:
        raise ValueError(f"{name}: must be one value (got {value!r:.80})")
    if is_enum or is_mapping:
        hint = typing.Union[tuple(one for one in members if one is not str)]  # noqa: UP007
    found = validated(hint, name, value)
    (field,) = (one for one in dataclasses.fields(cls) if one.name == name)
    choices = [*field.metadata.get("choices", ())]
    if choices and found not in choices:
        raise ValueError(f"{name}: must be one of {', '.join(choices)} (got {value!r})")
    return value if is_enum else found
