"""One flat YAML file per stage, checked before anything heavy is imported.

Every entry point calls `parse(...)` first. The YAML is read, its keys and simple types are checked
against our dataclasses and against the *source text* of the TRL config (parsed, not imported: TRL
and torch take seconds to load, and a typo should not cost them), and only then `TrlParser` builds
the objects. The command line beats the file, the file beats the default, unknown keys fail.

`{run}` in a YAML value becomes the run folder, `runs/<name of the YAML's folder>` unless
`--run_dir` says otherwise, so that a recipe's stages find each other's output.
"""

import ast
import dataclasses
import difflib
import functools
import importlib.util
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

# Both tell every stage of GPUs that are not there, as soon as transformers or accelerate find them.
for _name in ("torchao", "torch.utils._pytree"):
    logging.getLogger(_name).setLevel(logging.ERROR)
logging.getLogger("DeepSpeed").addFilter(lambda record: record.filename != "real_accelerator.py")


class UserError(ValueError):
    """A mistake in a file, key or command line: one line naming it, its value and the remedy."""


def run_cli(main: Callable[[], None]) -> None:
    """Run an entry point; a `UserError` becomes one line on stderr and exit code 2."""
    try:
        main()
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted: run the same command again to go on\n")
        sys.exit(130)


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
def _classes(package: str, file: str) -> dict[str, ast.ClassDef]:
    """The classes of an installed package's source file, by name."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(f"the package {package!r} is not installed; run `make .venv/ready`")
    tree = ast.parse((Path(spec.origin).parent / file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def enum_values(annotation: str) -> list[str]:
    """The values of the transformers enum that an annotation names, such as `SchedulerType | str`.

    Empty where it names none.
    """
    for file in ("trainer_utils.py", "training_args.py"):
        for name, node in _classes("transformers", file).items():
            is_enum = any(ast.unparse(base) == "ExplicitEnum" for base in node.bases)
            if is_enum and re.search(rf"\b{name}\b", annotation) and "list" not in annotation:
                return [ast.literal_eval(n.value) for n in node.body if isinstance(n, ast.Assign)]
    return []


def hf_fields(class_name: str) -> dict[str, str]:
    """Field names of an installed Hugging Face dataclass and their annotations as text.

    Read from the source by `ast`, in milliseconds and without importing torch.
    """
    fields: dict[str, str] = {}
    for package, file, name in HF_SOURCES[class_name]:
        for node in _classes(package, file)[name].body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                fields.setdefault(node.target.id, ast.unparse(node.annotation))
    return {name: kind for name, kind in fields.items() if not name.startswith("_")}


def own_fields(cls: type) -> dict[str, str]:
    """Field names of one of our dataclasses and their annotations as text."""
    return {
        f.name: f.type.__name__ if isinstance(f.type, type) else str(f.type)
        for f in dataclasses.fields(cls)
        if f.init
    }


def read_yaml(path: str) -> dict[str, Any]:
    """Read a flat YAML mapping; every fault is a `UserError` that names file and line."""
    if not Path(path).is_file():
        raise UserError(f"{path}: no such config file; recipes live in configs/<recipe>/")
    try:
        config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        raise UserError(f"{where}: not valid YAML ({getattr(error, 'problem', error)})") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: must be a mapping `key: value`, found {type(config).__name__}")
    return config


# Annotations of keys that hold one text and nothing else.
TEXT = ("str", "str | None", "None | str", "Optional[str]")


def _check_texts(key: str, value: Any, where: str) -> None:
    # The command line gives a list of one as text.
    values = value if isinstance(value, list) else [value] * (where == "command line")
    if (not values and value != []) or not all(isinstance(item, str) for item in values):
        raise UserError(f"{where}: {key}: {value!r} is not a list of texts; write [a, b]")


def check_value(key: str, value: Any, annotation: str, where: str) -> None:
    """Refuse a scalar that cannot be the number, switch or choice its annotation asks for."""
    if value is not None and re.search(r"\b[A-Z]\w+(Strategy|Type|Names)\b", annotation):
        choices = enum_values(annotation)
        # YAML reads a bare `no` as false.
        if choices and str(value) not in choices and not (value is False and "no" in choices):
            raise UserError(f"{where}: {key}: {value!r} is none of {', '.join(choices)}")
    takes_none = "None" in annotation or "Optional" in annotation or annotation == "Any"
    if value is None and not takes_none:
        raise UserError(f"{where}: {key}: is empty; give it a value or remove the key")
    if value is None:
        return
    # YAML reads a bare `off` as false; stages that know such a word take it.
    is_word = isinstance(value, bool) and where != "command line"
    if annotation in TEXT and not isinstance(value, str) and not is_word:
        raise UserError(f"{where}: {key}: {value!r} is not one text; quote it")
    if annotation == "list[str]":
        _check_texts(key, value, where)
    if "str" in annotation:
        return
    takes_many = "list" in annotation or "dict" in annotation or "tuple" in annotation
    if isinstance(value, list | dict):
        if not takes_many:
            raise UserError(f"{where}: {key}: {value!r} is not one value")
        return
    wanted = next((kind for kind in ("float", "int", "bool") if kind in annotation), None)
    switches = ("true", "false", "yes", "no", "1", "0")
    if wanted == "bool" and str(value).lower() not in switches:
        raise UserError(f"{where}: {key}: {value!r} is not true or false")
    if wanted in ("int", "float"):
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise UserError(f"{where}: {key}: {value!r} is not a number") from None
        if wanted == "int" and not number.is_integer():
            raise UserError(f"{where}: {key}: {value!r} is not a whole number")


def _command_line(
    argv: list[str], known: dict[str, str]
) -> tuple[str | None, str | None, dict[str, Any]]:
    """Split argv (`--key value`, `--key=value`, `--switch`) into config, run folder, values."""
    values: dict[str, Any] = {}
    index = 0
    while index < len(argv):
        if not argv[index].startswith("--"):
            raise UserError(f"command line: unexpected {argv[index]!r}; write --key value")
        key, has_equals, value = argv[index][2:].partition("=")
        index += 1
        if not has_equals:
            rest = []
            while index < len(argv) and not argv[index].startswith("--"):
                rest.append(argv[index])
                index += 1
            value = True if not rest else rest[0] if len(rest) == 1 else rest
        values[key] = value
    config, run_dir = values.pop("config", None), values.pop("run_dir", None)
    for key, value in (("config", config), ("run_dir", run_dir)):
        if not isinstance(value, str | None):
            raise UserError(f"command line: --{key} takes one path, found {value!r}")
    _check(values, known, "command line")
    return config, run_dir, values


def _check(values: dict[str, Any], known: dict[str, str], where: str) -> None:
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see --help for the known keys"
            raise UserError(f"{where}: unknown key {key!r}; {hint}")
        check_value(key, value, known[key], where)


def _fill(value: Any, run_dir: str) -> Any:
    if isinstance(value, str):
        return value.replace("{run}", run_dir)
    if isinstance(value, list):
        return [_fill(item, run_dir) for item in value]
    if isinstance(value, dict):
        return {key: _fill(item, run_dir) for key, item in value.items()}
    return value


def _refuse(message: str) -> None:
    raise UserError(f"command line: {message}")


def parse(
    doc: str,
    own: type,
    hf: tuple[str, ...] = (),
    check: Callable[[dict[str, Any]], None] | None = None,
    argv: list[str] | None = None,
    defaults: dict[str, Any] | None = None,
) -> tuple:
    """Parse one stage's YAML and command line.

    Args:
        doc: the entry point's module docstring, shown by `--help`.
        own: our dataclass for the stage.
        hf: names of the Hugging Face dataclasses (keys of `HF_SOURCES`) that share the YAML.
        check: extra check of the flat mapping, called before torch is imported; raises `UserError`.
        argv: the command line without the program's name; `sys.argv[1:]` by default.
        defaults: our defaults where they are not Hugging Face's.

    Returns:
        An instance of `own`, then one of each `hf` class.

    Raises:
        UserError: unknown key, wrong type, missing file; the message names file, key and remedy.
    """
    argv = sys.argv[1:] if argv is None else argv
    ours = own_fields(own)
    theirs = {name: hf_fields(name) for name in hf}
    known = {key: kind for fields in theirs.values() for key, kind in fields.items()} | ours
    if "-h" in argv or "--help" in argv:
        lines = [doc.strip(), "", "keys (YAML or --key value):", "  config, run_dir"]
        for field in dataclasses.fields(own):
            lines.append(f"  {field.name:28} {field.metadata.get('help', '')}")
        lines += [f"and {name}'s: {', '.join(fields)}" for name, fields in theirs.items()]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.exit(0)

    config_path, run_dir, overrides = _command_line(list(argv), known)
    config = (defaults or {}) | (read_yaml(config_path) if config_path else {})
    env = config.pop("env", None) or {}  # TrlParser's own convention
    if not isinstance(env, dict):
        raise UserError(f"{config_path}: env: {env!r} is not a mapping; write {{NAME: value}}")
    _check(config, known, str(config_path))
    if run_dir is None:
        run_dir = f"runs/{Path(config_path).absolute().parent.name}" if config_path else "runs"
    config = {key: _fill(value, run_dir) for key, value in config.items()}
    overrides = {key: _fill(value, run_dir) for key, value in overrides.items()}
    merged = config | overrides
    missing = [
        f.name
        for f in dataclasses.fields(own)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        and f.name not in merged
    ]  # fmt: skip
    if missing:
        raise UserError(f"{config_path or 'command line'}: missing key {missing[0]!r}; set it")
    if check:
        check(merged)
    os.environ.update({key: str(value) for key, value in env.items()})

    import trl  # late: everything above answers in well under two seconds

    parser = trl.TrlParser([own, *(getattr(trl, name) for name in hf)])
    parser.error = _refuse  # argparse would print its usage of 200 keys
    parser.set_defaults_with_config(**config)
    flags = []
    for key, value in overrides.items():
        flags += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
    try:
        return tuple(parser.parse_args_into_dataclasses(args=flags))
    except UserError:
        raise
    except ValueError as error:  # the dataclasses' own __post_init__ checks
        raise UserError(f"{config_path or 'command line'}: {error}") from error
