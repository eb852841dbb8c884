"""YAML that says what a person reads in it; all that is ambiguous is refused with its line.

YAML 1.1, which PyYAML reads, takes `010` for 8, `1:30` for 90 and `2024-01-01` for a date. Of a key
that is given twice it keeps the last value. Such a recipe would run, and be another one. Every YAML
of the project is read here.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import UserError

RUN = "{run}"  # in a value: the run folder
# Stands for `{run}`, which may be written without quotes, while YAML's signs are read.
_RUN_WORD = "\ue000run\ue001"
_CORE = "tag:yaml.org,2002:"
_KINDS = ("null", "bool", "int", "float", "str", "seq", "map")
_TAGS = {f"{_CORE}{kind}" for kind in _KINDS}
_NUMBERS = {f"{_CORE}int": int, f"{_CORE}float": float}
_EXPONENT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|nan)", re.IGNORECASE)
MAX_NODES = 100_000  # of a file with its aliases written out


class _Loader(yaml.SafeLoader):
    """PyYAML's, which also reads `1e-5` as a number, as JSON and YAML 1.2 do."""


_Loader.add_implicit_resolver(f"{_CORE}float", _EXPONENT, list("-+.0123456789"))


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
        UserError: no YAML, a key that is given twice or is no text, a value that reads as another
            one than is written, a tag, or aliases that stand for more than `MAX_NODES` values.
    """
    try:
        loader = _Loader(text.replace(RUN, _RUN_WORD))
        node = loader.get_single_node()
        if node is None:
            return None
        _Checks(place).check(node, (), "")
        value = loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}" if mark else place
        fault = getattr(error, "problem", None) or " ".join(str(error).split())
        raise UserError(f"{where}: not valid YAML ({fault})") from error
    except RecursionError as error:
        raise UserError(f"{place}: nested too deeply; write it flat") from error
    return _put_in(value, RUN if run is None else run)


def _put_in(value: Any, run: str) -> Any:
    """The same value with the run folder in its texts."""
    if isinstance(value, str):
        return value.replace(_RUN_WORD, run)
    if isinstance(value, list):
        return [_put_in(item, run) for item in value]
    if isinstance(value, dict):
        return {_put_in(key, run): _put_in(item, run) for key, item in value.items()}
    return value


class _Checks:
    """The checks of one text, node by node; an alias counts like what it stands for."""

    def __init__(self, place: str) -> None:
        self._place, self._key, self._num_nodes = place, "", 0

    def check(self, node: yaml.Node, above: tuple[yaml.Node, ...], key: str) -> None:
        """Refuse a node, or one below it; `above` are those that hold it, `key` is its key."""
        self._key = key
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise self._refusal(node, f"aliases stand for more than {MAX_NODES} values; write less")
        if any(node is one for one in above):
            raise self._refusal(node, "an alias stands for what holds it; write the value out")
        if node.tag not in _TAGS:
            kind = node.tag.removeprefix(_CORE)
            raise self._refusal(node, f"{self._shown(node)} is read as {kind}; quote a text")
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            for name, value in node.value:
                self.check(value, (*above, node), name.value)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self.check(item, (*above, node), key)
        else:
            self._check_scalar(node)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            is_text = key.tag in (f"{_CORE}str", f"{_CORE}merge")
            if not is_text or not isinstance(key, yaml.ScalarNode):
                raise self._refusal(key, f"the key {self._shown(key)} is not a text; quote it")
            line = key.start_mark.line + 1
            if key.value in lines:
                fault = f"{self._shown(key)} is given in lines {lines[key.value]} and {line}"
                raise self._refusal(key, f"{fault}; remove one")
            lines[key.value] = line

    def _check_scalar(self, node: yaml.ScalarNode) -> None:
        """Refuse a number that Python, like a person, reads in another way than YAML 1.1 does."""
        remedy = "write a number with decimal digits, and quote a text"
        as_python = _NUMBERS.get(node.tag)
        try:
            read_as = _Loader("").construct_object(node)
            if as_python is None or _NOT_FINITE.fullmatch(node.value):
                return
            number = as_python(node.value)
        except (ValueError, LookupError, OverflowError) as error:
            kind = node.tag.removeprefix(_CORE)
            fault = f"{self._shown(node)} is read as {kind}, but is no plain one"
            raise self._refusal(node, f"{fault}; {remedy}") from error
        if read_as != number:
            fault = f"{self._shown(node)} is {read_as} in YAML, and not {node.value}"
            raise self._refusal(node, f"{fault}; {remedy}")

    @staticmethod
    def _shown(node: yaml.Node) -> str:
        text = str(node.value) if isinstance(node, yaml.ScalarNode) else f"of kind {node.id}"
        return repr(text.replace(_RUN_WORD, RUN)[:60])

    def _refusal(self, node: yaml.Node, fault: str) -> UserError:
        key = f"{self._key}: " if self._key else ""
        return UserError(f"{self._place}:{node.start_mark.line + 1}: {key}{fault}")
