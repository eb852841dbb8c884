"""Keys of a recipe's YAML files for a whole command: KEYS="grpo.top_p=0.8 learning_rate=1e-5"."""

import functools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from pipeline.errors import UserError
from pipeline.key_types import Key, known_keys
from pipeline.names import nearest
from pipeline.stages import STAGES, TRAINED, config_name, has_file, load_keys

# RUN and RECIPE say them.
TAKEN = ("output_dir", "run_dir", "config", "overlay")
Values = dict[str, list[str]]  # by key


def split(entries: Sequence[str], recipe: str) -> dict[str, Values]:
    """Keys by their YAML file: `{"grpo": {"top_p": ["0.8"]}}`.

    `grpo.top_p=0.8` is `top_p` of grpo.yaml. A key without a file's name goes to sft.yaml and
    grpo.yaml, as far as they have it, else to the one other file that has it. Commas part the
    values of a list. The stage checks all values.

    Args:
        entries: such as `grpo.top_p=0.8`.
        recipe: the recipe's folder.

    Raises:
        UserError: no key=value, a file that the recipe lacks, a key that none or several have.
    """
    known, found = _known(recipe) if entries else {}, defaultdict(dict)
    for entry in entries:
        name, equals, value = entry.partition("=")
        named, dot, key = name.rpartition(".")
        if not equals or not key or not value:
            raise UserError(f"keys: {entry!r} is not key=value, such as grpo.top_p=0.8")
        if key in TAKEN:
            raise UserError(f"keys: {key}: the command sets it; leave it out, or give RUN")
        if dot and named not in known:
            raise UserError(f"keys: {entry}: {recipe} has no {named}.yaml, only {_files(known)}")
        having = [file for file in ([named] if dot else known) if key in known[file]]
        if not dot:
            having = [file for file in having if file in TRAINED] or having
        if not having:
            near = nearest(key, [*dict.fromkeys(one for keys in known.values() for one in keys)])
            remedy = f"did you mean {near}?" if near else "see --help of a stage"
            place = _files([named] if dot else known)
            raise UserError(f"keys: {entry}: no key {key} in {place}; {remedy}")
        if len(having) > 1 and not {*having} <= {*TRAINED}:
            choices = " or ".join(f"{file}.{entry}" for file in having)
            raise UserError(f"keys: {entry}: {_files(having)} have {key}; write {choices}")
        for file in having:
            is_several = "list" in known[file][key].kinds and not value.startswith("[")
            found[file][key] = value.split(",") if is_several else [value]
    return dict(found)


def flags(entries: Sequence[str], recipe: str, file: str) -> list[str]:
    """The keys of a YAML file, such as "grpo", as words of its stage's command line."""
    return as_flags(split(entries, recipe).get(file, {}))


def as_flags(values: Values) -> list[str]:
    """Keys as words of a command line: `{"top_p": ["0.8"]}` as `["--top_p", "0.8"]`."""
    words = []
    for key, value in values.items():
        words += [f"--{key}", *value]
    return words


@functools.cache
def _known(recipe: str) -> dict[str, dict[str, Key]]:
    """The keys of each YAML file that the recipe has."""
    found = {}
    for stage, row in STAGES.items():
        if row.arguments and has_file(stage, recipe):
            own, hf, _ = load_keys(stage)
            found[config_name(stage)] = known_keys(own, hf)
    return found


def _files(names: Iterable[str]) -> str:
    return ", ".join(f"{name}.yaml" for name in names)
