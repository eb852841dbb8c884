"""Browse completions of a run, finished or still running: one page with filters.

    python -m eval.report.browse --run runs/tiny-cpu

Reads the tables that TRL's `log_completions: true` writes (`<stage>/completions/*.parquet`, of any
GRPO run) and those of the evaluation (`eval/<checkpoint>/completions.parquet`). Writes
`<run>/completions.html`, which needs nothing else and has at most `MAX_SHOWN` completions.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import parquet
from pyarrow.dataset import dataset

from eval.report.numbers import COMPLETIONS, shorten
from eval.report.render import render
from pipeline.console import notice, one_line
from pipeline.errors import UserError, run_cli
from pipeline.folders import folders_in
from pipeline.manifest import open_whole
from pipeline.settings import parse

PAGE = "completions.html"
MAX_FILES = 400  # that a training has logged
MAX_SHOWN, MAX_CHARACTERS = 2_000, 6_000_000  # of a page; the texts share the characters
TEXTS = ("prompt", "completion")
KIND = ["file", "task", "mode", "verdict"]  # of which the page has equal numbers


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
    found: dict[Path, str] = {}
    inner = folders_in(run)
    for folder in (run, *inner, *(one for place in inner for one in folders_in(place))):
        name = str(folder.relative_to(run)) if folder != run else run.resolve().name
        files = sorted(folder.glob("completions/*.parquet"))
        every = -(-len(files) // MAX_FILES) or 1
        found |= dict.fromkeys([*files[::-every][::-1], *folder.glob(COMPLETIONS)], name)
    return found


def write(path: Path, files: dict[Path, str], title: str) -> tuple[int, int]:
    """Write the page on `{file: name}`; returns how many completions it shows, and of how many."""
    index = pd.concat([read_index(file) for file in files], ignore_index=True)
    chosen = choose(index)
    limit = MAX_CHARACTERS // max(len(chosen), 1) // len(TEXTS)
    rows = []
    for file, found in chosen.groupby("file", sort=False):
        read = dataset(file, format="parquet").take([*found["place"]]).to_pylist()
        rows += [describe(row, files[Path(file)], limit) for row in read]
    summary = f"{len(rows):,} of {len(index):,} completions"
    if len(rows) < len(index):
        summary += ", drawn at random in equal numbers from files and verdicts: counts are no rates"
    report = {"title": f"Completions of {title}", "result": f"{summary}."}
    with open_whole(path) as file:
        file.write(render("browse", report=report | {"warnings": [], "notes": []}, rows=rows))
    return len(rows), len(index)


def read_index(file: Path) -> pd.DataFrame:
    """The kind and the place of each completion of a file, whose texts may be gigabytes."""
    try:
        with parquet.ParquetFile(file) as opened:
            names = [name for name in KIND if name in opened.schema_arrow.names]
            table = opened.read(names).to_pandas()
    except (pa.ArrowInvalid, OSError) as error:  # a trainer writes it at this moment
        notice(f"{file}: left out, cannot be read ({error})")
        return pd.DataFrame(columns=[*KIND, "place"])
    table = table.assign(file=str(file), place=range(len(table))).reindex(columns=[*KIND, "place"])
    # Of an evaluation, a row without a verdict is a log-likelihood.
    return table[table["verdict"].notna()] if file.name == COMPLETIONS else table


def choose(index: pd.DataFrame) -> pd.DataFrame:
    """Up to `MAX_SHOWN` random rows, in turn of every file, task, mode and verdict."""
    drawn = index.sample(frac=1, random_state=0)
    turn = drawn.groupby(KIND, dropna=False, sort=False).cumcount()
    return index.loc[turn.sort_values(kind="stable").index[:MAX_SHOWN]].sort_index()


def describe(row: dict[str, Any], origin: str, limit: int) -> dict[str, Any]:
    """A completion's article on the page; its texts have at most `limit` characters each."""
    texts = {key: as_text(row.pop(key)) for key in TEXTS}
    step, verdict = row.pop("step", None), row.pop("verdict", None)
    row.pop("question", None)  # the prompt has it
    facts = [
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {shorten(str(value), 200)}"
        for key, value in row.items()
        if value is not None and value == value  # no reward is NaN
    ]
    return {
        "from": origin,
        "step": step,
        "verdict": verdict or "not graded",
        "length": len(texts["completion"]),
        "facts": ", ".join(facts),
    } | {key: shorten(text, limit) for key, text in texts.items()}


def as_text(value: str | list[dict[str, Any]] | None) -> str:
    """A prompt or completion as TRL logs it: a text, or messages, named where there are several."""
    if value is None or isinstance(value, str):
        return value or ""
    contents = [message["content"] for message in value]
    parts = [one if isinstance(one, str) else json.dumps(one) for one in contents]
    if len(parts) == 1:
        return parts[0]
    named = zip(value, parts, strict=True)
    return "\n\n".join(f"[{one['role']}]\n{part}" for one, part in named)


if __name__ == "__main__":
    run_cli(main)
