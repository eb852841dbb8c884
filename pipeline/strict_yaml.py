"""YAML of the project: no key twice, `1e-5` is a number, a date is a text, one line for a fault.

PyYAML keeps the last value of a key that is given twice: such a recipe would run, and be another
one. Every YAML of the project is read here, and the words of a command line.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import UserError

RUN = "{run}"  # in a value: the run folder
# Stands for `{run}`, which may be written without quotes, while YAML's signs are read.
_RUN_WORD = "\ue000run\ue001"
_EXPONENT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$", re.ASCII)
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """PyYAML's, which reads `1e-5` as a number and refuses a key that is given twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 PyYAML's own form
        first: [one for one in found if one[0] != _TIMESTAMP]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if str(key.value) in lines:
                fault = f"{key.value!r} is given in lines {lines[key.value]} and {line}; remove one"
                raise yaml.constructor.ConstructorError(problem=fault, problem_mark=key.start_mark)
            lines[str(key.value)] = line
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


def read(path: str | Path, run: str | None = None) -> Any:
    """What a YAML file says, with `run` in place of `{run}`; raises `UserError` with its line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid YAML ({error}); save it as UTF-8") from error
    return parse(text, str(path), run)


def parse(text: str, place: str, run: str | None = None) -> Any:
    """What a YAML text says; `place` names it in messages.

    Args:
        run: the folder that replaces `{run}` in keys and values. It is put in after the text has
            been read, so that no sign in its name is YAML.

    Raises:
        UserError: no YAML, or a key that is given twice.
    """
    try:
        value = yaml.load(text.replace(RUN, _RUN_WORD), _Loader)
    except (yaml.YAMLError, ValueError, KeyError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}" if mark else place
        fault = getattr(error, "problem", None) or " ".join(str(error).split())
        raise UserError(f"{where}: not valid YAML ({fault.replace(_RUN_WORD, RUN)})") from error
    except RecursionError as error:
        raise UserError(f"{place}: nested too deeply; write it flat") from error
    return _put_in(value, RUN if run is None else run)


def word(text: str) -> Any:
    """What a word of a command line says: `1e-5`, `true`, `[a, b]`, `{"a": 1}`, `'1'`.

    A word that begins with neither bracket nor quote is one plain value, whatever signs follow.
    What is no YAML is a text.
    """
    try:
        if text.startswith(("[", "{", "'", '"')):
            return yaml.load(text, _Loader)
        loader = _Loader("")
        tag = loader.resolve(yaml.ScalarNode, text, (True, False))
        value = loader.construct_object(yaml.ScalarNode(tag, text))
    except (yaml.YAMLError, ValueError):
        return text
    return text if value is None else value


def _put_in(value: Any, run: str) -> Any:
    """The same value with the run folder in its texts."""
    if isinstance(value, str):
        return value.replace(_RUN_WORD, run)
    if isinstance(value, list):
        return [_put_in(item, run) for item in value]
    if isinstance(value, dict):
        return {_put_in(key, run): _put_in(item, run) for key, item in value.items()}
    return value
