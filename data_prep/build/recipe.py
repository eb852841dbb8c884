"""The source lists of a `data.yaml`, checked before anything is read.

`data_prep.build` documents the keys; here every mistake in them becomes a `UserError`.
"""

import dataclasses
import difflib
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.build.mixing import Bands, check_bands
from data_prep.config import UserError
from data_prep.sources.builders import BUILDERS, known_options

# Evaluation sets first: the training sets are checked against them.
FILES = {
    "test": "test.jsonl",
    "validation": "validation.jsonl",
    "sft": "sft_train.jsonl",
    "grpo": "grpo_train.jsonl",
}
TRAINING = ("sft", "grpo")


@dataclass(frozen=True)
class Source:
    """One entry of a source list; see `data_prep.build`."""

    name: str
    hub: str | None = None
    config: str | None = None
    hub_file: str | None = None
    file: str | None = None
    split: str = "train"
    sample: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    difficulty: str | dict[str, Any] | None = None
    min_level: float | None = None
    max_level: float | None = None
    min_pass_rate: float | None = None
    max_pass_rate: float | None = None
    # Options of single builders, which name them as keyword-only arguments.
    prompt_key: str | None = None
    answer_key: str | None = None
    solution_key: str | None = None
    level_key: str | None = None
    apply_chat_template: bool | None = None
    trace: int | None = None

    def builder_options(self) -> dict[str, Any]:
        """The options that are set, for the builder."""
        options = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in options.items() if value is not None}

    def bands(self) -> Bands | None:
        """How its problems are sorted into easy, medium and hard, or None."""
        return check_bands(self.difficulty, self.name) if self.difficulty is not None else None


TEXTS = (
    "hub", "hub_file", "config", "file", "split", "prompt_key", "answer_key", "solution_key",
    "level_key",
)  # fmt: skip
NUMBERS = ("min_level", "max_level", "min_pass_rate", "max_pass_rate")
OPTIONS = (
    "prompt_key", "answer_key", "solution_key", "level_key", "apply_chat_template", "trace",
)  # fmt: skip


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
    for name in TEXTS:
        if not isinstance(entry.get(name, ""), str):
            raise UserError(f"{where}: {name}: {entry[name]!r} is not text; quote it")
    for name in NUMBERS:
        if type(entry.get(name, 0)) not in (int, float) or not math.isfinite(entry.get(name, 0)):
            raise UserError(f"{where}: {name}: {entry[name]!r} is not a number")
    for name in ("level", "pass_rate"):
        low, high = entry.get(f"min_{name}"), entry.get(f"max_{name}")
        if low is not None and high is not None and low > high:
            raise UserError(f"{where}: min_{name}: {low} is above max_{name}: {high}; swap them")
    if not isinstance(source.options, dict):
        raise UserError(f"{where}: options: {source.options!r} is not a mapping; write {{key: 1}}")
    if source.sample is not None and (type(source.sample) is not int or source.sample < 1):
        raise UserError(f"{where}: sample: {source.sample!r} is not a number of rows above 0")
    source.bands()
    if source.name == "synthetic":
        if source.sample is None:
            raise UserError(f"{where}: missing key 'sample'; set the number of problems")
        if source.hub or source.file:
            raise UserError(f"{where}: is generated, so 'hub' and 'file' have no use; remove them")
        unknown = source.builder_options()
    else:
        if source.options:
            raise UserError(f"{where}: options: only synthetic has options; remove them")
        if not source.hub and not source.file:
            raise UserError(f"{where}: set 'file' or 'hub'")
        if source.hub_file and (source.config or not source.hub):
            raise UserError(f"{where}: hub_file: needs 'hub', and no 'config': it is one file")
        unknown = source.builder_options().keys() - known_options(source.name)
        _check_options(source, where)
    if unknown:
        raise UserError(f"{where}: {min(unknown)}: has no effect on this source; remove it")
    return source


def _check_options(source: Source, where: str) -> None:
    for name, is_needed in known_options(source.name).items():
        value = getattr(source, name)
        if is_needed and value is None:
            raise UserError(f"{where}: missing key {name!r}; set it to the name of the column")
        if name == "apply_chat_template" and value not in (None, True, False):
            raise UserError(f"{where}: {name}: {value!r} is not true or false")
        if name == "trace" and value is not None and value not in (1, 2, 3):
            raise UserError(f"{where}: {name}: {value!r} is none of 1, 2, 3")


def id_parts(sources: list[Source]) -> list[str]:
    """The middle of each source's ids: its split, numbered where two share name and split."""
    seen: Counter[tuple[str, str]] = Counter()
    parts = []
    for source in sources:
        seen[source.name, source.split] += 1
        number = seen[source.name, source.split]
        parts.append(source.split if number == 1 else f"{source.split}{number}")
    return parts


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
