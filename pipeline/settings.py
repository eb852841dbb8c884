"""One flat YAML file per stage and its command line become typed values.

Our own keys are checked at once, by pydantic and the types on their dataclass's fields, without
torch. Of TRL's keys the names and defaults are read by `ast`, because importing TRL takes seconds.
Their values are checked by TRL's own type hints in `build`. The command line beats the overlay, the
overlay the file, the file those that it `extends`, these the default (pipeline/recipe_files.py).
Unknown keys fail; `null` gives a key its default again.

`{run}` in a value becomes the run folder, so that a recipe's stages find each other's output. It is
`--run_dir`, by default `runs/<name of the YAML's folder>`. `--model` is a folder or hub id to start
from, in place of the model that the recipe's files name.
"""

import dataclasses
import importlib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import StrictInt, StrictStr

from pipeline import consent, manifest, strict_yaml
from pipeline.console import is_main_process
from pipeline.errors import UserError
from pipeline.folders import check_output
from pipeline.key_types import (
    UNSET,
    Key,
    hints_of,
    known_keys,
    own_keys,
    shown_type,
    trl_value,
    validated,
)
from pipeline.lock import claim
from pipeline.memory import memory_fault
from pipeline.models import smollm2
from pipeline.paths import plain
from pipeline.recipe_files import merged, read_layers, read_yaml
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


COMMAND_LINE = "command line"


def convert(name: str, value: Any, key: Key, where: str) -> Any:
    """The value of a key of ours as its type has it; of TRL's as it is, checked for its range."""
    if value is False:  # as YAML reads a bare `off` and `no`
        if not key.owner and isinstance(key.default, str):
            value = "off"
        elif key.owner and name.endswith("_strategy"):
            value = "no"
    is_text = "dict" not in key.kinds and not isinstance(key.default, int | float)
    if key.owner and isinstance(value, str) and not is_text:
        value = strict_yaml.word(value)  # a switch, a number or a mapping in quotes
    if not key.owner:
        try:
            value = validated(key.annotation, name, value)
        except ValueError as error:
            raise UserError(f"{where}: {error}") from error
    # What Hugging Face's classes are given is written by its loggers and into every checkpoint.
    if found := fault(name, value, takes_secret_urls=not key.owner and where != COMMAND_LINE):
        raise UserError(f"{where}: {found}")
    return value


class Settings(dict[str, Any]):
    """The keys that were given, and the value of every key.

    `"beta" in settings` is whether the key is given. `settings.get("beta")` is the given value, or
    None. `settings.beta` is the given value, else the default.

    Args:
        overrides: of overlay and command line; UNSET takes the file's value away.
        env: environment variables that the YAML sets for the stage.
        typed: the keys of the command line.
        overlay: the overlay's path.
        origins: the file that gives each key of the file: itself, or one that it extends.
    """

    def __init__(
        self,
        file: dict[str, Any],
        overrides: dict[str, Any],
        known: dict[str, Key],
        path: str = COMMAND_LINE,
        env: Mapping[str, Any] | None = None,
        typed: Iterable[str] = (),
        overlay: str = "",
        origins: Mapping[str, str] | None = None,
    ) -> None:
        self._file, self._overrides, self._known = file, overrides, known
        self.typed, self.overlay, self._origins = frozenset(typed), overlay, origins or {}
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
        return self._copy(self._file, self._overrides | changes)

    def _copy(self, file: dict[str, Any], overrides: dict[str, Any]) -> "Settings":
        copy = Settings(
            file, overrides, self._known, self.path, self.env, self.typed, self.overlay,
            self._origins,
        )  # fmt: skip
        copy.left_out = self.left_out
        return copy

    def as_trl_types(self) -> "Settings":
        """The same with the values of TRL's keys as TRL's type hints have them.

        Imports TRL, in seconds.

        Raises:
            UserError: a line for each value of another type, with its file.
        """
        trl, faults, changes = importlib.import_module("trl"), [], {}
        for name, value in self.items():
            owner = self._known[name].owner if name in self._known else ""
            if owner and value is not None:
                try:
                    changes[name] = trl_value(getattr(trl, owner), name, value)
                    found = fault(name, changes[name])
                except ValueError as error:
                    found = str(error)
                faults += [f"{self.place_of(name)}: {found}"] if found else []
        if faults:
            raise UserError(*faults)
        parts = (self._file, self._overrides)
        return self._copy(*({k: changes.get(k, v) for k, v in part.items()} for part in parts))

    def place_of(self, key: str) -> str:
        """Where the value of a key comes from, for a message."""
        if key in self.typed:
            return COMMAND_LINE
        if self.overlay and key in self._overrides:
            return self.overlay
        return self._origins.get(key, self.path)

    def places(self) -> list[str]:
        """Where values come from; an earlier place overrides a later one."""
        return list(dict.fromkeys([COMMAND_LINE, self.overlay, *self._origins.values(), self.path]))

    def given(self) -> dict[str, Any]:
        """The keys that are given; None where `null` asks for the default."""
        return {key: self.get(key) for key in self._file | self._overrides}

    def asks_for(self, key: str) -> bool:
        """Whether a key asks for something; `false` where that is the default does not."""
        return key in self and (bool(self[key]) or self[key] != self.default_of(key))

    def is_overruled(self, key: str) -> bool:
        """Whether overlay or command line may have made this key of the file pointless."""
        return bool(self._overrides) and key not in self._overrides


def typed(
    values: Mapping[str, Any],
    known: dict[str, Key],
    where: str,
    origins: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The values as their keys' types; UNSET is the default.

    Args:
        where: the values are from; origins: those that are from elsewhere.

    Raises:
        UserError: with a line for each key that is not known, and each value that is wrong.
    """
    found, faults = {}, []
    for name, value in values.items():
        place = (origins or {}).get(name, where)
        if name not in known:
            remedy = hint(str(name), known, "see --help for the known keys")
            faults.append(f"{place}: unknown key {name!r}; {remedy}")
            continue
        key = known[name]
        if value is None:
            # None only where it says something else than the default, as `max_length: null` does.
            is_value = "None" in key.kinds and key.default not in (None, UNSET)
            found[name] = None if is_value else UNSET
            continue
        try:
            found[name] = plain(name, convert(name, value, key, place), place)
        except UserError as error:
            faults += error.lines
    if faults:
        raise UserError(*faults)
    return found


def _check_consent(
    values: Mapping[str, Any], given: Mapping[str, Any], path: str, origins: Mapping[str, str]
) -> None:
    """Refuse what a YAML may not decide; what is typed on the command line counts in its place."""
    for name, value in values.items():
        if name not in given:
            place = origins.get(name, path)
            consent.check_value(name, value, place)
            consent.check_address(name, value, place)


def _check_env(env: Any, place: str) -> None:
    """Refuse environment variables that are no texts or numbers, or that a YAML may not set."""
    try:
        for name, value in validated(dict[str, Any], "env", env).items():
            # A bare `off` would be set as False, 1.10 as 1.1.
            validated(StrictStr | StrictInt, f"env: {name}", value)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from error
    if found := fault("env", env, takes_secret_urls=True):
        raise UserError(f"{place}: env: {found}")
    consent.check_env(env, place)


def _command_line(argv: list[str]) -> dict[str, list[str]]:
    """Split argv into the words behind each key: `--key value`, `--key=value`, `--key a b`."""
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
    return values


def value_of(words: Sequence[str], key: Key | None) -> Any:
    """What the words behind a key mean: YAML's values, several are a list, none is true.

    A word in neither brackets nor quotes is a text where the key takes texts: a folder may be
    named 2024. None is the key's default.
    """
    if [*words] in ([], ["null"]):
        return None if words else True
    is_text = key is not None and key.takes_text
    values = [
        word if is_text and not word.startswith(("[", "{", "'", '"')) else strict_yaml.word(word)
        for word in words
    ]
    return values[0] if len(values) == 1 else values


def _scaled(overlay: dict[str, Any], file: dict[str, Any], known: dict[str, Key]) -> dict[str, Any]:
    """An overlay in which `<key>_factor: 10` has become ten times the file's value of the key."""
    scaled = {}
    for name, value in overlay.items():
        key = name.removesuffix("_factor")
        if name in known or key == name or key not in known:
            scaled[name] = value
            continue
        factor = convert(name, value, Key(float), "overlay")
        given = file.get(key, UNSET)
        base = known[key].default if given is UNSET else given
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


def _take_path(key: str, shell: dict[str, list[str]], known: dict[str, Key]) -> str | None:
    """Take one of our own flags off the command line, unless the stage has a key of this name."""
    if key in known or key not in shell:
        return None
    words = shell.pop(key)
    if len(words) != 1:
        raise UserError(f"{COMMAND_LINE}: --{key} takes one path, found {' '.join(words)!r}")
    return plain(key, words[0], COMMAND_LINE)


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
    layers = read_layers(path, run_dir) if path else []
    config = (defaults or {}) | merged(layers)
    origins: dict[str, str] = {}
    for at, keys in layers:
        origins |= {key: at for key in keys if key not in origins}
    by_model: set[str] = set()  # keys that --model has changed
    if model:
        changes = started_from(model, config, run_dir)
        by_model = {
            key for key in MODEL_KEYS & known.keys() if changes[key] not in ([], config.get(key))
        }
        config |= {key: changes[key] for key in MODEL_KEYS & known.keys()}
    env, place = config.pop("env", None) or {}, path or COMMAND_LINE
    _check_env(env, origins.get("env", place))
    file = typed(config, known, place, origins)
    given = {name: value_of(words, known.get(name)) for name, words in shell.items()}
    overrides = typed(given, known, COMMAND_LINE)
    _check_consent(file, given, place, origins)
    if overlay:
        changes = typed(_scaled(read_yaml(overlay, run_dir), file, known), known, overlay)
        _check_consent(changes, given, overlay, {})
        overrides = changes | overrides
    typed_keys = {*shell, *by_model}
    settings = Settings(file, overrides, known, place, env, typed_keys, overlay or "", origins)
    for name, key in known.items():
        if not key.owner and key.default is UNSET and name not in settings:
            raise UserError(f"{settings.path}: missing key {name!r}; set it")
    return with_models(settings, lambda model, _: smollm2.find(model))


def with_types_if_needed(settings: Settings, use: Callable[[Settings], Any]) -> Any:
    """What `use` makes of settings; once more with TRL's types where a value's type breaks it."""
    try:
        return use(settings)
    except UserError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return use(settings.as_trl_types())


def run_check(settings: Settings, check: Callable[[Settings], Settings | None]) -> Settings:
    """Check settings; a check may return settings with other values."""
    return with_types_if_needed(settings, lambda given: check(given) or given)


def build(settings: Settings, own: type, hf: tuple[str, ...] = ()) -> tuple:
    """An instance of `own`, then one of each `hf` class; their refusals become a `UserError`.

    What a check has left out is printed once all values are well: a refusal is one line.
    """

    def make(cls: type) -> Any:
        known = [f.name for f in dataclasses.fields(cls)]
        return cls(**{name: settings[name] for name in known if name in settings})

    try:
        made = [make(own)]
    except ValueError as error:
        raise UserError(f"{settings.path}: {error}") from error
    settings = settings.as_trl_types() if hf else settings
    if is_main_process():
        sys.stderr.write("".join(f"{line}\n" for line in settings.left_out))
    if not hf:
        return tuple(made)
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
    for name, key in own_keys(own).items():
        default = defaults.get(name, key.default)
        shown = "required" if default is UNSET else f"default {default!r}"
        lines += [f"  {name}: {shown_type(key.annotation)}, {shown}", f"      {key.meaning}"]
    for class_name in hf:
        lines += ["", f"Keys of {class_name}:"]
        cls = getattr(importlib.import_module("trl"), class_name)
        for field in dataclasses.fields(cls):
            default, kind = defaults.get(field.name, field.default), hints_of(cls)[field.name]
            shown = "the library's" if default is dataclasses.MISSING else repr(default)
            lines.append(f"  {field.name}: {shown_type(kind)}, default {shown}")
            meaning = " ".join(field.metadata.get("help", "").split())
            lines.append("      " + re.split(r"(?<=\w\w[.])\s", meaning)[0])
    wrapped = [textwrap.fill(line, 80, subsequent_indent=" " * 6) for line in lines]
    return "\n".join(wrapped) + "\n"


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
    manifest.note_request(settings, settings.typed)
    if check:
        settings = run_check(settings, check)
    if owns:
        check_output(getattr(settings, owns), owns)
        claim(getattr(settings, owns))
    os.environ.update(settings.env)
    return build(settings, own, hf)
