"""The sources by name, and the source lists of a `data.yaml`, checked before anything is read.

`data_prep.build` documents the keys; here every mistake in them becomes a `UserError`.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from data_prep.prompts import SYSTEM_PROMPTS
from data_prep.reading import Row
from data_prep.schema import Problem
from data_prep.sources import Drop, aime, arc, gpqa, gsm8k, math, numinamath

BUILDERS = {
    "gsm8k": gsm8k.build_problem,
    "numinamath": numinamath.build_problem,
    "math": math.build_problem,
    "aime": aime.build_problem,
    "gpqa": gpqa.build_problem,
    "arc": arc.build_problem,
}
# Evaluation sets first: the training sets are checked against them.
FILES = {
    "test": "test.jsonl",
    "validation": "validation.jsonl",
    "sft": "sft_train.jsonl",
    "grpo": "grpo_train.jsonl",
}


@dataclass(frozen=True)
class Source:
    """One entry of a source list; see `data_prep.build`."""

    name: str
    hub: str | None = None
    config: str | None = None
    file: str | None = None
    split: str = "train"
    sample: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


def build_problems(
    name: str, split: str, rows: Iterable[tuple[int, str, Row]]
) -> Iterator[tuple[str, Problem | Drop]]:
    """Turn rows of one data set into `(where, problem or drop)`, in order.

    Args:
        name: a key of `BUILDERS`.
        split: part of the ids, which tells the problems of two splits apart.
        rows: (position in the set from 0, where, row).

    Raises:
        UserError: a row that its source refuses; names file and line.
    """
    for position, where, row in rows:
        yield where, BUILDERS[name](row, f"{name}-{split}-{position}", where)


def check_source(entry: Any, key: str) -> Source:
    """Turn one entry of list `key` into a `Source`; raises `UserError`."""
    if not isinstance(entry, dict) or "name" not in entry:
        raise UserError(f"{key}: {entry!r} is not a source; write {{name: …, file: …}}")
    known = [f.name for f in dataclasses.fields(Source)]
    for name in entry:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise UserError(f"{key}: unknown key {name!r} in source {entry['name']!r}; {hint}")
    source = Source(**entry)
    names = [*BUILDERS, "synthetic"]
    where = f"{key}: {source.name}"
    if source.name not in names:
        raise UserError(f"{key}: name: {source.name!r} is no source; choose {', '.join(names)}")
    for name in ("hub", "config", "file", "split"):
        if not isinstance(entry.get(name, ""), str):
            raise UserError(f"{where}: {name}: {entry[name]!r} is not text; quote it")
    if not isinstance(source.options, dict):
        raise UserError(f"{where}: options: {source.options!r} is not a mapping; write {{key: 1}}")
    if source.sample is not None and (type(source.sample) is not int or source.sample < 1):
        raise UserError(f"{where}: sample: {source.sample!r} is not a number of rows above 0")
    if source.name == "synthetic":
        if source.sample is None:
            raise UserError(f"{where}: missing key 'sample'; set the number of problems")
        if source.hub or source.file:
            raise UserError(f"{where}: is generated, so 'hub' and 'file' have no use; remove them")
    elif source.options:
        raise UserError(f"{where}: options: only synthetic has options; remove them")
    elif not source.hub and not source.file:
        raise UserError(f"{where}: set 'file' or 'hub'")
    return source


def find_file(source: Source, data_root: str | None) -> Path | None:
    """The local file a source is read from, or None where it comes from the hub or a generator."""
    if source.file is None or (data_root is None and source.hub):
        return None
    return Path(data_root or "", source.file)


def check_sources(values: dict[str, Any]) -> dict[str, list[Source]]:
    """The checked source lists `{key of FILES: sources}`; raises `UserError` before any reading."""
    root = values.get("data_root")
    if root is not None and not Path(root).is_dir():
        raise UserError(f"data_root: {root} is not a folder; set it to the folder of the data")
    prompt = values.get("system_prompt", "none")
    if prompt not in SYSTEM_PROMPTS:
        raise UserError(
            f"system_prompt: {prompt!r} is not known; choose {', '.join(SYSTEM_PROMPTS)}"
        )
    sources = {}
    for key in FILES:
        entries = values.get(key) or []
        if not isinstance(entries, list):
            raise UserError(f"{key}: {entries!r} is not a list of sources; write - {{name: …}}")
        if entries:
            sources[key] = [check_source(entry, key) for entry in entries]
    if not sources:
        raise UserError(f"no sources: set at least one of {', '.join(FILES)}")
    for key, entries in sources.items():
        for source in entries:
            path = find_file(source, root)
            if path is not None and not path.is_file():
                raise UserError(
                    f"{key}: {source.name}: file: {path} does not exist; check file and data_root"
                )
    return sources
