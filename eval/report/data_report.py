"""What a build kept and left out, and why, in at most 60 lines.

    python -m eval.report.data_report --data runs/tiny-cpu/data

Prints the rows of each file by source, the benchmarks that were not compared, and the reasons with
their counts and some rows of each, drawn at random. `dropped.jsonl` beside the data has all rows.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from data_prep.builder.recipe import FILES
from data_prep.builder.write import DROPPED
from data_prep.decontamination.benchmarks import BENCHMARKS
from pipeline import manifest
from pipeline.console import one_line
from pipeline.errors import run_cli
from pipeline.rows import read_rows
from pipeline.settings import parse

MAX_LINES, MAX_CHARACTERS = 60, 120  # of a line
NUM_ROWS = 3  # that are shown of each reason
# What is read of a build's manifest.
_ROWS = {"rows_in": int, "rows_out": int, "dropped": {str: int}}
BUILD = {
    **_ROWS,
    "outputs": {
        f"{file}?": {**_ROWS, "sources": [{**_ROWS, "name": str}]} for file in FILES.values()
    },
    "decontamination": {str: (int, str)},
}


@dataclass
class DataReportArguments:
    """Keys of the command line; there is no YAML for this one."""

    data: str = field(metadata={"help": "folder of a data build"})


def main() -> None:
    (args,) = parse(__doc__, DataReportArguments)
    build = manifest.read_made(args.data, "data", BUILD)
    lines = [*describe_files(build)]
    lines += describe_reasons(build, Path(args.data) / DROPPED, MAX_LINES - len(lines))
    if len(lines) > MAX_LINES:
        lines[MAX_LINES - 1 :] = [f"{len(lines) - MAX_LINES + 1} more reasons"]
    sys.stdout.writelines(f"{line}\n" for line in lines)


def describe_files(build: dict[str, Any]) -> Iterator[str]:
    """Rows of the build and of each file by source, and what was not kept out of them."""
    yield f"{build['rows_in']:,} rows in, {build['rows_out']:,} problems out"
    for name, file in build["outputs"].items():
        kept = ", ".join(f"{one['rows_out']:,} of {one['name']}" for one in file["sources"])
        yield short(f"{name}: {file['rows_out']:,} of {file['rows_in']:,} rows ({kept})")
    found = build["decontamination"]
    missing = [name for name in BENCHMARKS if not isinstance(found.get(name), int)]
    if missing:
        yield f"not compared with: {', '.join(missing)}"


def describe_reasons(build: dict[str, Any], dropped: Path, num_lines: int) -> list[str]:
    """Each file's reasons, most frequent first, with as many rows as `num_lines` leave room for."""
    counts = {
        (file, reason): count
        for file, made in build["outputs"].items()
        for reason, count in made["dropped"].items()
    }
    num_rows = min(NUM_ROWS, num_lines // max(len(counts), 1) - 1)
    logged = [(row["file"], row["reason"], show(row)) for _, row in read_rows(dropped)]
    table = pd.DataFrame(logged, columns=["file", "reason", "text"]).sample(frac=1, random_state=0)
    rows = table.groupby(["file", "reason"])["text"].apply(lambda one: [*one[: max(num_rows, 0)]])
    lines = []
    for key in sorted(counts, key=lambda one: -counts[one]):
        lines += [f"{key[0]}: {key[1]} {counts[key]:,}", *rows.get(key, [])]
    return lines


def show(row: dict[str, Any]) -> str:
    """A dropped row: its place, what is wrong with it, its question."""
    detail = row["detail"].removeprefix(f"{row['where']}: ")
    return short(f"    {': '.join(filter(None, (row['where'], detail, row['question'])))}")


def short(text: str) -> str:
    """A text as one line of the terminal."""
    text = one_line(text)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


if __name__ == "__main__":
    run_cli(main)
