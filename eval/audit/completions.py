"""What the harness's own parsers make of a file of completions, next to our grade.

Rows are JSON lines, JSON or parquet with a `completion` (or `prediction`) and its `gold` (or
`answer`): a string, a number or a list of which any may match; a `prompt` that ends with `<think>`
has opened the thought. `completions.parquet` of an evaluation is such a file. `python -m
data_prep.grading` has our grader alone, in every form. Nothing in the file is run or trusted.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from data_prep.config import UserError
from data_prep.grading.grade import grade_all, grade_leniently
from data_prep.prompts import THINK_OPEN, prefills_think
from data_prep.quiet import quiet_evaluation
from data_prep.reading.rows import read_rows
from data_prep.sampling.store import Completion
from eval.audit.page import percent
from eval.audit.parsers import PARSERS, parse_officially
from eval.report.render import print_table

COLUMNS = (("completion", "prediction"), ("gold", "answer"))  # either of two names


def read_completions(path: str) -> Iterator[dict[str, Any]]:
    """Rows of `where, completion, golds, prefilled`.

    Raises:
        UserError: a row lacks a completion or a gold.
    """
    for where, row in read_rows(path):
        if row.get("completion", "") is None:
            continue  # a log-likelihood of an evaluation: nothing was written
        completion, gold = (_get(row, names, where) for names in COLUMNS)
        if not isinstance(completion, str):
            raise UserError(f"{where}: the completion is {completion!r:.60}, not text; fix the row")
        golds = [_as_text(one, where) for one in (gold if isinstance(gold, list) else [gold])]
        if not golds or not all(one.strip() for one in golds):
            raise UserError(f"{where}: the gold is empty; fix or remove the row")
        prompt = row.get("prompt")
        prefilled = isinstance(prompt, str) and prefills_think(prompt)
        yield {"where": where, "completion": completion, "golds": golds, "prefilled": prefilled}


def _get(row: dict, columns: tuple[str, ...], where: str) -> Any:
    found = next((row[name] for name in columns if row.get(name) is not None), None)
    if found is None:
        raise UserError(
            f"{where}: neither {' nor '.join(columns)} is there, found "
            f"{', '.join(map(str, row)) or 'nothing'}; rename the column"
        )
    return found


def _as_text(gold: Any, where: str) -> str:
    """One gold; a table's column of whole numbers with gaps comes as 72.0 and NaN."""
    is_number = isinstance(gold, int | float) and not isinstance(gold, bool)
    if is_number and math.isfinite(gold):
        return str(int(gold)) if gold == int(gold) else repr(gold)
    if not isinstance(gold, str):
        raise UserError(f"{where}: the gold is {gold!r:.60}, neither text nor a number; fix it")
    return gold


def parse_rows(rows: list[dict]) -> list[dict[str, Any]]:
    """What everybody makes of each row.

    Returns:
        For each row `where`, `gold`, our `verdict`, our `lenient` one, `stopped` (whether a parser
        of the harness had to be, or could not read the gold), and for each parser of the harness
        whether it scores the completion.
    """
    completions, golds = [row["completion"] for row in rows], [row["golds"] for row in rows]
    official, stopped = parse_officially(
        [gold[0] for gold in golds], completions, lambda text, _: Completion(text, 0, cut_off=False)
    )
    grades = grade_all([THINK_OPEN * row["prefilled"] + row["completion"] for row in rows], golds)
    lenient, stopped = grade_leniently(completions, golds), {*stopped}
    return [
        {
            "where": row["where"],
            "gold": row["golds"],
            "verdict": grades[place].verdict,
            "lenient": lenient[place],
            "stopped": place in stopped,
        }
        | {name: scores[place] for name, scores in official.items()}
        for place, row in enumerate(rows)
    ]


def audit_completions(path: str, folder: Path) -> None:
    """Print what each parser makes of the file; write it for each row to `folder`.

    Raises:
        UserError: the file has no completions, or a row cannot be used.
    """
    quiet_evaluation()
    rows = list(read_completions(path))
    if not rows:
        raise UserError(f"{path}: has no completions; check the file")
    sys.stderr.write(
        f"audit: {len(rows):,} completions; the harness's own parsers take up to 0.2 s for each\n"
    )
    found = parse_rows(rows)
    scores = {"ours, in a box": [one["verdict"] == "right" for one in found]}
    readable = scores["ours, lenient"] = [one["lenient"] == "right" for one in found]
    scores |= {name: [one[name] for one in found] for name in PARSERS.values()}
    table = []
    for name, values in scores.items():
        both = sum(a and b for a, b in zip(values, readable, strict=True))
        shares = (sum(values) / len(rows), both / sum(readable) if any(readable) else None)
        table.append([name, f"{sum(values):,}", *map(percent, shares)])
    console = Console(highlight=False)
    console.out(f"{len(rows):,} completions of {path}", highlight=False)
    header = ["parser", "reads as right", "%", "of the readable ones, %"]
    print_table(console, "", header, table)
    if stopped := [one["where"] for one in found if one["stopped"]]:
        sys.stdout.write(
            f"{len(stopped):,} rows are too much for a parser of the harness, and count as not "
            f"read, the first {stopped[0]}\n"
        )
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{Path(path).name}.parsed.jsonl"
    out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    sys.stdout.write(f"audit: each row's verdicts are in {out}\n")
