"""The audit of a file: what each parser makes of completions that somebody has already.

Rows are JSON lines, JSON or parquet with a completion (`completion`, `prediction`, `response`,
`output`, `text`) and its gold (`gold`, `answer`, `answers`, `label`, `target`: a string, a number
or a list of which any may match); a `prompt` that ends with `<think>` has opened the thought.
`completions.parquet` of an evaluation is such a file. Nothing in it is run or trusted.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from data_prep.grading.answers import Grade, grade_all, is_well_formed
from data_prep.grading.lenient import grade_leniently
from data_prep.prompts import prefills_think
from data_prep.reading.reading import read_rows
from data_prep.sampling.samples import Completion, Settings
from eval.audit.audit_page import percent
from eval.audit.parsers import PARSERS, parse_officially
from eval.harness.outcomes import OUTCOMES, outcome

COMPLETION_COLUMNS = ("completion", "prediction", "response", "output", "text")
GOLD_COLUMNS = ("gold", "answer", "answers", "label", "target")
NUM_EXAMPLES = 3


def read_completions(path: str) -> list[dict[str, Any]]:
    """Rows of `where, completion, golds, prefilled, cut_off`.

    Raises:
        UserError: a row lacks a completion or a gold, or the file has none.
    """
    rows = []
    for where, row in read_rows(path):
        if row.get("completion", "") is None:
            continue  # a log-likelihood of an evaluation: nothing was written
        completion = _get(row, COMPLETION_COLUMNS, where)
        if not isinstance(completion, str):
            raise UserError(f"{where}: the completion is {completion!r:.60}, not text; fix the row")
        gold = _get(row, GOLD_COLUMNS, where)
        golds = [_as_text(one, where) for one in (gold if isinstance(gold, list) else [gold])]
        if not golds or not all(one.strip() for one in golds):
            raise UserError(f"{where}: the gold is empty; fix or remove the row")
        prompt = row.get("prompt")
        rows.append(
            {
                "where": where,
                "completion": completion,
                "golds": golds,
                "prefilled": isinstance(prompt, str) and prefills_think(prompt),
                "cut_off": row.get("cut_off") is True,
            }
        )
    if not rows:
        raise UserError(f"{path}: has no completions; check the file")
    return rows


def _get(row: dict, columns: tuple[str, ...], where: str) -> Any:
    found = next((row[name] for name in columns if row.get(name) is not None), None)
    if found is None:
        raise UserError(
            f"{where}: none of {', '.join(columns)} is there, found "
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


def grade_rows(rows: list[dict], form: dict[str, bool]) -> list[Grade]:
    """The project's grades; a prompt that ends with `<think>` has opened the thought."""
    grades: dict[int, Grade] = {}
    for prefilled in (False, True):
        places = [place for place, row in enumerate(rows) if row["prefilled"] == prefilled]
        found = grade_all(
            [rows[place]["completion"] for place in places],
            [rows[place]["golds"] for place in places],
            think_prefilled=prefilled,
            **form,
        )
        grades |= zip(places, found, strict=True)
    return [grades[place] for place in range(len(rows))]


def _as_is(text: str, settings: Settings) -> Completion:
    """No stop rule: what was written is written."""
    return Completion(text, 0, cut_off=False)


def parse_rows(rows: list[dict]) -> dict[str, list[Any]]:
    """What everybody makes of each row.

    Returns:
        `verdict` and `tagged` (ours for a box, and for `<answer>` tags), `final_number` (ours where
        a plain number at the end counts), `well_formed`, `lenient`, `outcome`, `stopped` (whether a
        parser of the harness had to be, or could not read the gold), and a list of bools for each
        of the harness's parsers.
    """
    completions = [row["completion"] for row in rows]
    found: dict[str, list[Any]] = {}
    forms = {"verdict": {}, "tagged": {"answer_tags": True}}
    for name, form in (forms | {"final_number": {"final_number": True}}).items():
        found[name] = [grade.verdict for grade in grade_rows(rows, form)]
    found["well_formed"] = [
        is_well_formed(row["completion"], think_prefilled=row["prefilled"]) for row in rows
    ]
    found["lenient"] = grade_leniently(completions, [row["golds"] for row in rows])
    found["outcome"] = [
        outcome(
            {
                "completion": row["completion"],
                "verdict": verdict,
                "lenient": lenient,
                "cut_off": row["cut_off"],
            },
            is_right=verdict == "right",
        )
        for row, verdict, lenient in zip(rows, found["verdict"], found["lenient"], strict=True)
    ]
    golds = [row["golds"][0] for row in rows]
    official, stopped = parse_officially(golds, completions, _as_is)
    found["stopped"] = [place in {*stopped} for place in range(len(rows))]
    return found | official


READERS: dict[str, Callable[[dict[str, list], int], bool]] = {
    "ours, in a box": lambda found, place: found["verdict"][place] == "right",
    "ours, in <answer> tags": lambda found, place: found["tagged"][place] == "right",
    "ours, final_number": lambda found, place: found["final_number"][place] == "right",
    "a patient reader": lambda found, place: found["lenient"][place] == "right",
}


def audit_file(args: Any) -> None:
    """Print what each parser makes of the file, and write it beside each row."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from eval.run import quiet

    quiet()
    rows = read_completions(args.completions)
    sys.stderr.write(
        f"audit: {len(rows):,} completions; the harness's own parsers take up to 0.2 s for each\n"
    )
    found = parse_rows(rows)
    scores = {name: [read(found, at) for at in range(len(rows))] for name, read in READERS.items()}
    scores |= {name: found[name] for name in PARSERS.values()}
    readable = scores["a patient reader"]

    console = Console(markup=False, highlight=False)
    console.print(f"{len(rows):,} completions of {args.completions}", soft_wrap=True)
    table = Table(box=SIMPLE, show_edge=False, padding=(0, 1, 0, 0))
    for index, name in enumerate(["parser", "reads as right", "%", "of the readable ones, %"]):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for name, values in scores.items():
        both = sum(a and b for a, b in zip(values, readable, strict=True))
        share = percent(both / sum(readable) if any(readable) else None)
        table.add_row(name, f"{sum(values):,}", percent(sum(values) / len(rows)), share)
    console.print(table)
    counts = ((name, found["outcome"].count(name)) for name in OUTCOMES)
    shares = ", ".join(f"{name} {count:,}" for name, count in counts if count)
    well = sum(found["well_formed"])
    console.print(f"ours, in a box: {shares}; {well:,} well formed")
    if any(found["stopped"]):
        console.print(
            f"{sum(found['stopped']):,} rows are too much for a parser of the harness, and count "
            f"as not read, the first {rows[found['stopped'].index(True)]['where']}"
        )
    _show_unread(rows, scores)

    folder = Path(args.run, "audit")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(args.completions).name}.parsed.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for place, row in enumerate(rows):
            parsed = {name: values[place] for name, values in found.items()}
            file.write(json.dumps({"where": row["where"], "gold": row["golds"]} | parsed) + "\n")
    sys.stdout.write(f"audit: each row's verdicts are in {path}\n")


def _show_unread(rows: list[dict], scores: dict[str, list[bool]]) -> None:
    """Print, for each parser, the first right answers that it does not read."""
    shown = set()
    for name, values in scores.items():
        unread = [
            place
            for place, (patient, is_read) in enumerate(
                zip(scores["a patient reader"], values, strict=True)
            )
            if patient and not is_read and place not in shown
        ]
        for place in unread[:NUM_EXAMPLES]:
            shown.add(place)
            row = rows[place]
            end = " ".join(row["completion"].split())[-70:]
            sys.stdout.write(
                f"not read by {name}: {row['where']}: gold {row['golds'][0]!r:.60}, ends {end!r}\n"
            )
