"""One flat YAML file per stage and its command line become typed values, once, without torch.

Keys and types come from our dataclass and from the *source text* of Hugging Face's, read by `ast`:
importing TRL takes seconds, too long for a typo. The command line beats the overlay, the overlay
the file, the file the default. Unknown keys fail; `null` gives a key its default again.

`{run}` in a value becomes the run folder, so that a recipe's stages find each other's output. It is
`--run_dir`, by default `runs/<name of the YAML's folder>`. `--model` is a folder or hub id to start
from, in place of the model that the recipe's files name.
"""

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pipeline import consent, strict_yaml
from pipeline.console import is_main_process
from pipeline.errors import UserError
from pipeline.folders import check_output
from pipeline.lock import claim
from pipeline.memory import memory_fault
from pipeline.models import smollm2
from pipeline.paths import plain
from pipeline.renamed import hint
from pipeline.values import fault


def setting(default: Any, text: str) -> Any:
    """A dataclass's field: its default, of which a list or a mapping is copied, and its help."""
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=default.copy, metadata={"help": text})
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass
class RecipeArguments:
    """Keys of the commands that read a whole recipe."""

    recipe: str = dataclasses.field(metadata={"help": "its folder, such as configs/grpo7b"})
    run: str = setting("", "the run's folder; runs/<name of the recipe> by default")

    def __post_init__(self) -> None:
        self.recipe = self.recipe.rstrip("/")
        self.run = self.run or f"runs/{Path(self.recipe).name}"


UNSET: Any = object()
COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Key:
    """The type of a key's value, and its default.

    Args:
        default: UNSET where the key is required, or its default cannot be read from the source.
        is_own: of our dataclass, not Hugging Face's.
        choices: all values, where the source lists them.
    """

    annotation: str
    default: Any = UNSET
    is_own: bool = False
    meaning: str = ""
    choices: tuple[str, ...] = ()

    @functools.cached_property
    def members(self) -> list[str]:
        """The types of the union: `float | None` has `float` and `None`."""
        return re.split(r" \| (?![^\[]*\])", self.annotation)  # not within brackets

    @functools.cached_property
    def item(self) -> str | None:
        """The type of a list's items, "Any" for a bare `list`; None where no list is taken."""
        for member in self.members:
            if member.startswith("list"):
                return member[len("list[") : -1] or "Any"
        return None


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


def find_source(package: str, file: str) -> Path:
    """A source file of an installed package, which is not imported."""
    return Path(importlib.util.find_spec(package).origin).parent / file


@functools.cache
def source_classes(package: str, file: str) -> dict[str, ast.ClassDef]:
    """The classes of an installed package's source file, by name."""
    tree = ast.parse(find_source(package, file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@functools.cache
def enum_values(annotation: str) -> list[str]:
    """The values of the transformers enum in an annotation such as `SchedulerType | str`, or []."""
    for file in ("trainer_utils.py", "training_args.py"):
        for name, node in source_classes("transformers", file).items():
            is_enum = any(ast.unparse(base) == "ExplicitEnum" for base in node.bases)
            if is_enum and name in Key(annotation).members:
                return [ast.literal_eval(n.value) for n in node.body if isinstance(n, ast.Assign)]
    return []


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


def _metadata_of(value: ast.expr | None) -> dict[str, Any]:
    """A field's metadata in its source, without what is not a literal."""
    found: dict[str, Any] = {}
    for keyword in getattr(value, "keywords", ()):
        if keyword.arg == "metadata" and isinstance(keyword.value, ast.Dict):
            for name, part in zip(keyword.value.keys, keyword.value.values, strict=True):
                with contextlib.suppress(ValueError):
                    found[ast.literal_eval(name)] = ast.literal_eval(part)
    return found


def _meaning_of(metadata: dict[str, Any]) -> str:
    """The first sentence of a field's help."""
    text = " ".join(metadata.get("help", "").split())
    return re.split(r"(?<=\w\w[.])\s", text)[0]


@functools.cache
def hf_keys(class_name: str) -> dict[str, Key]:
    """The keys of an installed Hugging Face dataclass, read from its source in milliseconds."""
    keys: dict[str, Key] = {}
    for package, file, name in HF_SOURCES[class_name]:
        for node in source_classes(package, file)[name].body:
            if isinstance(node, ast.AnnAssign) and not node.target.id.startswith("_"):
                metadata = _metadata_of(node.value)
                key = Key(
                    ast.unparse(node.annotation),
                    _default_of(node.value),
                    meaning=_meaning_of(metadata),
                    choices=tuple(metadata.get("choices", ())),
                )
                keys.setdefault(node.target.id, key)
    return keys


def own_keys(cls: type) -> dict[str, Key]:
    """The keys of one of our dataclasses."""
    keys = {}
    for field in dataclasses.fields(cls):
        kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        has_factory = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if has_factory else field.default
        if default is dataclasses.MISSING:
            default = UNSET
        keys[field.name] = Key(kind, default, True, field.metadata.get("help", ""))
    return keys


def known_keys(own: type, hf: tuple[str, ...] = ()) -> dict[str, Key]:
    """All keys that a stage's YAML may have; ours win."""
    keys: dict[str, Key] = {}
    for class_name in hf:
        keys |= hf_keys(class_name)
    return keys | own_keys(own)


def read_yaml(path: str, run_dir: str = "{run}") -> dict[str, Any]:
    """Read a flat YAML mapping; every fault is a `UserError` that names file and line."""
    if not Path(path).is_file():
        raise UserError(f"{path}: no such config file; recipes are in configs/<recipe>/")
    config = strict_yaml.read(path, run_dir)
    if not isinstance(config, dict):
        raise UserError(f"{path}: must be a mapping `key: value`, found {type(config).__name__}")
    return config


TAKE_JSON_FILES = ("accelerator_config", "deepspeed", "fsdp_config")
SWITCHES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
WANTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "dict": "a mapping {key: value}; on the command line write JSON",
}


def convert(name: str, value: Any, key: Key, where: str) -> Any:
    """A value of YAML or command line (True for a bare `--key`) as the type that its key takes."""
    typed = _typed_value(name, value, key, where)
    # What Hugging Face's classes are given is written by its loggers and into every checkpoint.
    if found := fault(name, typed, takes_secret_urls=key.is_own and where != COMMAND_LINE):
        raise UserError(f"{where}: {found}")
    return typed


def _typed_value(name: str, value: Any, key: Key, where: str) -> Any:
    members = key.members
    choices = enum_values(key.annotation) or key.choices
    if choices:
        word = "no" if value is False else value  # YAML reads a bare `no` as false
        if word not in choices:
            raise _refusal(where, name, value, f"one of {', '.join(choices)}")
        return word
    if "Any" in members:
        return value
    takes_mapping = any(member.startswith("dict") for member in members)
    if takes_mapping and not _stays_text(name, value, key):
        mapping = _as_mapping(value)
        if mapping is None:
            raise _refusal(where, name, value, WANTED["dict"])
        return mapping
    if isinstance(value, dict):
        raise _refusal(where, name, value, "one value")
    # A text for a key that takes texts and lists is one text.
    if key.item and (isinstance(value, list) or "str" not in members):
        return _typed_list(name, value, key, where)
    # YAML reads a bare `off` as false. `fsdp: true` of Hugging Face's is a switch, though.
    if isinstance(value, bool) and "bool" not in members and "str" in members:
        if where == COMMAND_LINE or (value and key.is_own):
            raise _refusal(where, name, value, "a text; quote it")
        return "off" if key.is_own else value
    if "bool" in members and str(value).lower() in SWITCHES:
        return SWITCHES[str(value).lower()]
    number = _as_number(value, members)
    if number is not None:
        return number
    if "str" not in members:
        raise _refusal(where, name, value, _wanted(members))
    if not isinstance(value, str):
        raise _refusal(where, name, value, "a text; quote it")
    return value


def _refusal(where: str, name: str, value: Any, wanted: str) -> UserError:
    return UserError(f"{where}: {name}: {value!r} is not {wanted}")


def _wanted(members: list[str]) -> str:
    """What a key of these types takes, for a message."""
    for member in members:
        kind = member.partition("[")[0]
        if kind in WANTED:
            return WANTED[kind]
    return "one value"


def _stays_text(name: str, value: Any, key: Key) -> bool:
    """Whether a key that takes a mapping gets this value as text: a word, or a JSON file's name."""
    if not isinstance(value, str):
        return False
    if key.is_own:  # ours may take a word or a mapping
        return "str" in key.members
    return name in TAKE_JSON_FILES and value.endswith(".json")


def _as_mapping(value: Any) -> dict[str, Any] | None:
    """A mapping, also one that is written as JSON; None for others."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    return value if isinstance(value, dict) else None


def _typed_list(name: str, value: Any, key: Key, where: str) -> list[Any]:
    # The command line gives a list of one as its item.
    if not isinstance(value, list) and (where == COMMAND_LINE or "None" in key.members):
        value = [value]
    if key.item == "str" and not _is_list_of_texts(value):
        raise _refusal(where, name, value, "a list of texts; write [a, b]")
    if not isinstance(value, list):
        raise _refusal(where, name, value, "a list of mappings; write - {key: value}")
    return [_typed_value(name, item, Key(key.item), where) for item in value]


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _as_number(value: Any, members: list[str]) -> int | float | None:
    """A number, or a text that is one, as the type that the members ask for; None for others."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if "int" not in members and "float" not in members:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if "float" in members:
        return number if isinstance(value, str) else value
    if not number.is_integer():
        return None
    try:
        return int(str(value))  # the float has rounded one of more than 15 digits
    except ValueError:  # 1e3
        return int(number)


class Settings(dict[str, Any]):
    """The keys that were given, and the value of every key.

    `"beta" in settings` is whether the key is given. `settings.get("beta")` is the given value, or
    None. `settings.beta` is the given value, else the default.

    Args:
        overrides: of overlay and command line; UNSET takes the file's value away.
        env: environment variables that the YAML sets for the stage.
        typed: the keys of the command line.
    """

    def __init__(
        self,
        file: dict[str, Any],
        overrides: dict[str, Any],
        known: dict[str, Key],
        path: str = COMMAND_LINE,
        env: Mapping[str, Any] | None = None,
        typed: Iterable[str] = (),
    ) -> None:
        self._file, self._overrides, self._known = file, overrides, known
        self.typed = frozenset(typed)
        self.left_out: list[str] = []  # lines on keys that a check has taken away
        self.path, self.env = path, {key: str(value) for key, value in (env or {}).items()}
        super().__init__({k: v for k, v in (file | overrides).items() if v is not UNSET})

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):  # not set yet: while it is copied
            raise AttributeError(key)
        value = self.get(key, self.default_of(key))
        if value is UNSET:
            raise AttributeError(f"{key}: neither given nor is its default known")
        return value

    def default_of(self, key: str) -> Any:
        """The default of a key; UNSET where it is not known."""
        return self._known[key].default if key in self._known else UNSET

    def replaced(self, **changes: Any) -> "Settings":
        """The same with other values; UNSET takes a key away."""
        overrides = self._overrides | changes
        return Settings(self._file, overrides, self._known, self.path, self.env, self.typed)

    def asks_for(self, key: str) -> bool:
        """Whether a key asks for something; `false` where that is the default does not."""
        return key in self and (bool(self[key]) or self[key] != self.default_of(key))

    def is_overruled(self, key: str) -> bool:
        """Whether overlay or command line may have made this key of the file pointless."""
        return bool(self._overrides) and key not in self._overrides


def _typed(values: Mapping[str, Any], known: dict[str, Key], where: str) -> dict[str, Any]:
    typed = {}
    for name, value in values.items():
        if name not in known:
            remedy = hint(str(name), known, "see --help for the known keys")
            raise UserError(f"{where}: unknown key {name!r}; {remedy}")
        key = known[name]
        if value is None or (where == COMMAND_LINE and value == "null"):
            # None only where it says something else than the default, as `max_length: null` does.
            is_value = "None" in key.members and key.default not in (None, UNSET)
            typed[name] = None if is_value else UNSET
        else:
            typed[name] = plain(name, convert(name, value, key, where), where)
    return typed


def _check_consent(values: Mapping[str, Any], typed: Mapping[str, Any], path: str) -> None:
    """Refuse what a YAML may not decide; what is typed on the command line counts in its place."""
    for name, value in values.items():
        if name not in typed:
            consent.check_value(name, value, path)
            consent.check_address(name, value, path)


def _command_line(argv: list[str]) -> dict[str, Any]:
    """Split argv: `--key value`, `--key=value`, `--key a b` (a list), `--switch` (True)."""
    values: dict[str, list[str]] = {}
    key = None  # the one that takes what follows
    for word in argv:
        if word.startswith("--"):
            key, has_equals, value = word[2:].partition("=")
            values[key] = [value] if has_equals else []
            key = None if has_equals else key
        elif key is None:
            raise UserError(f"{COMMAND_LINE}: unexpected {word!r}; write --key value")
        else:
            values[key].append(word)
    given: dict[str, Any] = {}
    for name, words in values.items():
        if not words:
            given[name] = True
        elif len(words) == 1:
            given[name] = words[0]
        else:
            given[name] = words
    return given


def _scaled(overlay: dict[str, Any], file: dict[str, Any], known: dict[str, Key]) -> dict[str, Any]:
    """An overlay in which `<key>_factor: 10` has become ten times the file's value of the key."""
    scaled = {}
    for name, value in overlay.items():
        key = name.removesuffix("_factor")
        if name in known or key == name or key not in known:
            scaled[name] = value
            continue
        factor = convert(name, value, Key("float"), "overlay")
        base = file.get(key, known[key].default)
        scaled[key] = float(Decimal(str(base)) * Decimal(str(factor)))  # 5e-7 x 10 is 5e-6
    return scaled


MODEL_KEYS = {"model_name_or_path", "checkpoints"}


def started_from(model: str, file: dict[str, Any], run_dir: str) -> dict[str, Any]:
    """The keys of a stage's file that name the recipe's starting model, with another model.

    These are `model_name_or_path`, unless it is a trained stage of the run, and the checkpoint
    `base`.
    """
    own = str(file.get("model_name_or_path", ""))
    is_trained = own.startswith(f"{run_dir}/") and own != f"{run_dir}/base"
    checkpoints = [
        f"base={model}" if str(entry).startswith("base=") else entry
        for entry in file.get("checkpoints") or []
    ]
    return {"model_name_or_path": own if is_trained else model, "checkpoints": checkpoints}


def with_models(settings: Settings, resolve: Callable[[str, str], str]) -> Settings:
    """The same with folders and hub ids in place of short names.

    Args:
        resolve: of a model and the key that names it, as `smollm2.resolve`.
    """
    changes: dict[str, Any] = {}
    key, checkpoints = "model_name_or_path", []
    if isinstance(settings.get(key), str) and settings.get("backend") != "openai":
        changes[key] = resolve(settings[key], key)
    for entry in settings.get("checkpoints") or []:
        name, equals, path = entry.partition("=")
        checkpoints.append(f"{name}{equals}{resolve(path, f'checkpoints: {name}')}")
    teachers = [dict(teacher) for teacher in settings.get("teachers") or []]
    for teacher in teachers:
        asked = {"backend": settings.get("backend")} | teacher
        if isinstance(teacher.get(key), str) and asked["backend"] != "openai":
            teacher[key] = resolve(teacher[key], f"teachers: {key}")
    changes |= {"checkpoints": checkpoints, "teachers": teachers}
    changes = {key: new for key, new in changes.items() if new and new != settings[key]}
    return settings.replaced(**changes) if changes else settings


def _take_path(key: str, shell: dict[str, Any], known: dict[str, Key]) -> str | None:
    """Take one of our own flags off the command line, unless the stage has a key of this name."""
    if key in known:
        return None
    path = shell.pop(key, None)
    if not isinstance(path, str | None):
        raise UserError(f"{COMMAND_LINE}: --{key} takes one path, found {path!r}")
    return plain(key, path, COMMAND_LINE)


def read_settings(
    own: type, hf: tuple[str, ...], argv: list[str], defaults: dict[str, Any] | None = None
) -> Settings:
    """Read `--config`, `--overlay` and the other keys of a command line; see `parse`."""
    known = known_keys(own, hf)
    shell = _command_line(argv)
    path = _take_path("config", shell, known)
    overlay = _take_path("overlay", shell, known)
    run_dir = _take_path("run_dir", shell, known)
    model = _take_path("model", shell, known) if MODEL_KEYS & known.keys() else None
    if run_dir is None:
        run_dir = f"runs/{Path(path).absolute().parent.name}" if path else "runs"
    config = (defaults or {}) | (read_yaml(path, run_dir) if path else {})
    if model:
        changes = started_from(model, config, run_dir)
        config |= {key: changes[key] for key in MODEL_KEYS & known.keys()}
    env = config.pop("env", None) or {}
    if not isinstance(env, dict):
        raise UserError(f"{path}: env: {env!r} is not a mapping; write {{NAME: value}}")
    for name, value in env.items():  # a bare `off` would be set as False, 1.10 as 1.1
        if type(value) not in (str, int):
            raise UserError(f"{path}: env: {name}: {value!r} is not a text; quote it")
    if found := fault("env", env, takes_secret_urls=True):
        raise UserError(f"{path}: env: {found}")
    consent.check_env(env, path or COMMAND_LINE)
    file = _typed(config, known, path or COMMAND_LINE)
    overrides = typed = _typed(shell, known, COMMAND_LINE)
    _check_consent(file, typed, path)
    if overlay:
        changes = _typed(_scaled(read_yaml(overlay, run_dir), file, known), known, overlay)
        _check_consent(changes, typed, overlay)
        overrides = changes | overrides
    settings = Settings(file, overrides, known, path or COMMAND_LINE, env, shell)
    for name, key in known.items():
        if key.is_own and key.default is UNSET and name not in settings:
            raise UserError(f"{settings.path}: missing key {name!r}; set it")
    return with_models(settings, lambda model, _: smollm2.find(model))


def run_check(settings: Settings, check: Callable[[Settings], Settings | None]) -> Settings:
    """Check settings; a check may return settings with other values.

    What it has left out is printed once all is well: a refusal is one line.
    """
    settings = check(settings) or settings
    if is_main_process():
        sys.stderr.write("".join(f"{line}\n" for line in settings.left_out))
    return settings


def build(settings: Settings, own: type, hf: tuple[str, ...] = ()) -> tuple:
    """An instance of `own`, then one of each `hf` class; their refusals become a `UserError`."""

    def make(cls: type) -> Any:
        known = [f.name for f in dataclasses.fields(cls)]
        return cls(**{name: settings[name] for name in known if name in settings})

    try:
        made = [make(own)]
    except ValueError as error:
        raise UserError(f"{settings.path}: {error}") from error
    # TRL comes late: everything before it answers in well under two seconds.
    classes = [getattr(importlib.import_module("trl"), name) for name in hf]
    try:
        return (*made, *map(make, classes))
    except UserError:
        raise
    # Theirs raise any of these over a value that they cannot use. They also start the process
    # group and the GPU, whose errors are no mistake in a value.
    except (ValueError, TypeError, LookupError, OSError, RuntimeError) as error:
        is_machines = type(error).__module__.startswith("torch") or "gloo" in str(error)
        if is_machines or memory_fault(error):
            raise
        raise UserError(f"{settings.path}: {' '.join(str(error).split())}") from error


def help_text(doc: str, own: type, hf: tuple[str, ...], defaults: dict[str, Any]) -> str:
    """Every key with type, default and meaning, in lines of at most 80 columns."""
    lines = []
    for block in doc.strip().split("\n\n"):
        is_laid_out = re.search(r"^( |- )", block, re.MULTILINE)
        lines += [*(block.splitlines() if is_laid_out else textwrap.wrap(block, 80)), ""]
    lines += ["Keys, in the YAML or as --key value:"]
    lines += ["  config, overlay, run_dir, model: paths, only on the command line"]
    lines += ["  json: one JSON object on stdout at the end, all other text on stderr"]
    lines += _help_of_keys(own_keys(own), defaults)
    for name in hf:
        lines += ["", f"Keys of {name}:", *_help_of_keys(hf_keys(name), defaults)]
    wrapped = [textwrap.fill(line, 80, subsequent_indent=" " * 6) for line in lines]
    return "\n".join(wrapped) + "\n"


def _help_of_keys(keys: dict[str, Key], defaults: dict[str, Any]) -> list[str]:
    """The lines of `--help` on some keys, not yet wrapped."""
    lines = []
    for name, key in keys.items():
        default = defaults.get(name, key.default)
        if default is not UNSET:
            shown = f"default {default!r}"
        elif key.is_own:
            shown = "required"
        else:
            shown = "default: the library's"
        lines.append(f"  {name}: {key.annotation}, {shown}")
        if key.meaning:
            lines.append(f"      {key.meaning}")
    return lines


def parse(
    doc: str,
    own: type,
    hf: tuple[str, ...] = (),
    check: Callable[[Settings], Settings | None] | None = None,
    argv: list[str] | None = None,
    defaults: dict[str, Any] | None = None,
    owns: str | None = None,
) -> tuple:
    """Parse one stage's YAML and command line into an instance of `own` and of each `hf` class.

    Args:
        doc: the entry point's module docstring, shown by `--help`.
        hf: names of the Hugging Face dataclasses (keys of `HF_SOURCES`) that share the YAML.
        check: of the settings, before torch is imported; raises `UserError`.
        argv: the command line without the program's name; `sys.argv[1:]` by default.
        defaults: ours where they are not Hugging Face's.
        owns: the key of the folder that this process alone may write to.
    """
    argv = sys.argv[1:] if argv is None else argv
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(help_text(doc, own, hf, defaults or {}))
        sys.exit(0)
    settings = with_models(read_settings(own, hf, argv, defaults), smollm2.resolve)
    if check:
        settings = run_check(settings, check)
    if owns:
        check_output(getattr(settings, owns), owns)
        claim(getattr(settings, owns))
    os.environ.update(settings.env)
    return build(settings, own, hf)
