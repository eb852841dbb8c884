"""Cases as data: a test takes the rows of its table from the YAML file beside its module.

A table is named as its test is without `test_`, and its columns are the test's arguments:

    values_are_typed:
      columns: [kind, value, typed]
      rows:
      - [int, 20.0, 20]

Tags write what is no plain YAML: `!text` joins its parts, of which `[part, number]` is repeated,
`!bytes` encodes that text (`\\udcff` is the byte ff, which is no UTF-8), `!gzip` packs each part.
"""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


class Loader(yaml.SafeLoader):
    """A safe loader that knows the tags."""


def parts_of(loader: Loader, node: yaml.Node) -> list[str]:
    """The parts of a text: of a list its entries, the repeated ones in full."""
    if isinstance(node, yaml.ScalarNode):
        return [loader.construct_scalar(node)]
    parts = loader.construct_sequence(node, deep=True)
    return [part if isinstance(part, str) else part[0] * part[1] for part in parts]


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def pack(data: bytes) -> bytes:
    """The same bytes in each second, as names of tests must be."""
    return gzip.compress(data, mtime=0)


TAGS = {
    "!text": "".join,
    "!bytes": lambda parts: encode("".join(parts)),
    "!gzip": lambda parts: b"".join(pack(encode(part)) for part in parts),
}
for tag, build in TAGS.items():
    Loader.add_constructor(tag, lambda loader, node, build=build: build(parts_of(loader, node)))


def read_beside(module: str) -> dict[str, Any]:
    """The YAML beside a test module; `module` is its `__file__`: of `test_rows.py` `rows.yaml`."""
    path = Path(module)
    file = path.with_name(path.stem.removeprefix("test_") + ".yaml")
    return yaml.load(file.read_text(encoding="utf-8"), Loader)


def tables_beside(module: str) -> Callable[[Any], Any]:
    """The decorator of a module's tests that gives each the rows of its table."""
    tables = read_beside(module)

    def each_row(test: Any) -> Any:
        found = tables[test.__name__.removeprefix("test_")]
        return pytest.mark.parametrize(found["columns"], found["rows"])(test)

    return each_row
