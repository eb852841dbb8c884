"""Browse completions of a run, finished or still running: one page with filters.

    python -m eval.report.browse --run runs/tiny-cpu

Reads the tables that TRL's `log_completions: true` writes (`<stage>/completions/*.parquet`, of any
GRPO run) and those of the evaluation (`eval/<checkpoint>/completions.parquet`). Writes
`<run>/completions.html`, which needs nothing else and has at most `MAX_SHOWN` completions.
"""

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyarrow.dataset import dataset

from eval.report.numbers import COMPLETIONS, shorten
from eval.report.render import render
from pipeline.console import clean, notice, one_line
from pipeline.errors import UserError, run_cli
from pipeline.folders import folders_in
from pipeline.manifest import finite, open_whole
from pipeline.settings import parse

PAGE = "completions.html"
MAX_FILES = 400  # that a training has logged
MAX_SHOWN, MAX_CHARACTERS = 2_000, 6_000_000  # of a page; the texts share the characters
TEXTS = ("prompt", "completion")
FACTS = ("task", "mode", "id", "sample", "prediction", "outcome", "num_tokens", "gold")


@dataclass
class BrowseArguments:
    """Keys of the command line; there is no YAML for this one."""

    run: str = field(metadata={"help": "folder of a run, or of a TRL trainer's output"})


def main() -> None:
    (args,) = parse(__doc__, BrowseArguments)
    run = Path(args.run)
    files = find_files(run)
    if not files:
        raise UserError(
            f"{run}: has no completions; `log_completions: true` in grpo.yaml (with "
            "`num_completions_to_print: 0`) logs those of training, `make eval` writes its own"
        )
    shown, total = write(run / PAGE, files, run.resolve().name)
    text = f"completions: {shown:,} of {total:,} from {len(files)} files -> {run / PAGE}"
    sys.stdout.write(f"{one_line(text)}\n")


def find_files(run: Path) -> dict[Path, str]:
    """`{file: name of its stage or checkpoint}`; of a long training every n-th file, and the last.

    Looks in the folder, in its stages, and one level below, where evaluation and sweeps write.
    """
    found = {}
    inner = folders_in(run)
    for folder in (run, *inner, *(one for place in inner for one in folders_in(place))):
        files = sorted(folder.glob("completions/*.parquet"))
        every = -(-len(files) // MAX_FILES) or 1
        found |= dict.fromkeys(files[::-every][::-1], folder)
        found |= dict.fromkeys(folder.glob(COMPLETIONS), folder)
    return {
        file: str(folder.relative_to(run)) if folder != run else run.resolve().name
        for file, folder in found.items()
    }


def write(path: Path, files: dict[Path, str], title: str) -> tuple[int, int]:
    """Write the page on `{file: name}`; returns how many completions it shows, and of how many."""
    index = [entry for file, name in files.items() for entry in read_index(file, name)]
    chosen = choose(index)
    limit = MAX_CHARACTERS // max(len(chosen), 1) // len(TEXTS)
    rows = []
    for file, found in groupby(chosen, key=lambda one: one["file"]):
        entries = list(found)
        places = [entry["place"] for entry in entries]
        texts = dataset(file, format="parquet").take(places, columns=list(TEXTS)).to_pylist()
        rows += [describe(one | text, limit) for one, text in zip(entries, texts, strict=True)]
    summary = f"{len(rows):,} of {len(index):,} completions"
    if len(rows) < len(index):
        summary += ", drawn at random in equal numbers from files and verdicts: counts are no rates"
    report = {"title": f"Completions of {title}", "summary": f"{summary}.", "warnings": []}
    with open_whole(path) as file:
        file.write(render("browse", report=report, rows=finite(rows)))
    return len(rows), len(index)


def is_fact(column: pa.Field) -> bool:
    """Whether the page shows a column besides the texts: a known one, or a number of TRL's."""
    if column.name in (*FACTS, "verdict", "step"):
        return True
    return column.name not in TEXTS and pa.types.is_floating(column.type)


def read_index(file: Path, name: str) -> Iterator[dict[str, Any]]:
    """One entry for each completion of a file, without its texts, which may be gigabytes."""
    try:
        with parquet.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            keys = [column.name for column in schema if is_fact(column)]
            table = opened.read(keys)
    except (pa.ArrowInvalid, OSError) as error:  # a trainer writes it at this moment
        notice(f"{file}: left out, cannot be read ({error})")
        return
    for place, row in enumerate(table.to_pylist()):
        if file.name != COMPLETIONS or row["verdict"] is not None:  # else a log-likelihood
            yield {"file": file, "place": place, "from": name} | row


def choose(index: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Up to `MAX_SHOWN` random entries, in turn of every file, task, mode and verdict."""

    def draw(entry: dict[str, Any]) -> str:
        key = f"{entry['from']}/{entry['file'].name}/{entry['place']}"
        return hashlib.sha256(key.encode()).hexdigest()

    groups: dict[tuple, list] = defaultdict(list)
    for at, entry in enumerate(index):
        kind = (entry["file"], *(entry.get(key) for key in ("task", "mode", "verdict")))
        groups[kind].append((draw(entry), at))
    turns = [(turn, *one) for found in groups.values() for turn, one in enumerate(sorted(found))]
    return [index[at] for at in sorted(at for *_, at in sorted(turns)[:MAX_SHOWN])]


def as_text(value: Any) -> str:
    """A prompt or completion as TRL logs it: a text, or messages, named where there are several."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    contents = [message["content"] for message in value]
    parts = [one if isinstance(one, str) else json.dumps(one) for one in contents]
    if len(parts) == 1:
        return parts[0]
    named = zip(value, parts, strict=True)
    return "\n\n".join(f"[{one['role']}]\n{part}" for one, part in named)


def describe(row: dict[str, Any], limit: int) -> dict[str, Any]:
    """A completion's row on the page: texts cleaned, each of at most `limit` characters."""
    texts = {key: as_text(row[key]) for key in TEXTS}
    others = row.keys() - {"file", "place", "from", "step", "verdict", *TEXTS}
    facts = {key: row[key] for key in row if key in others and row[key] is not None}
    facts = {key: value for key, value in facts.items() if value == value}  # TRL's NaN: no reward
    return {
        "from": clean(row["from"]),
        "step": row.get("step"),
        "verdict": clean(row.get("verdict") or "not graded"),
        "length": len(texts["completion"]),
        "facts": clean(", ".join(f"{key} {show(value)}" for key, value in facts.items())),
    } | {key: clean(shorten(text, limit)) for key, text in texts.items()}


def show(value: Any) -> str:
    """A fact as text."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return shorten(" or ".join(map(str, value)), 200)
    return shorten(str(value), 200)


if __name__ == "__main__":
    run_cli(main)
