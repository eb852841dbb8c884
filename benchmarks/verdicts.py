"""Which verdicts has a change of the grader changed?

    make verdicts ARGS="record before.tsv"     before the change
    make verdicts ARGS="compare before.tsv"    after it

`record` writes kind, hash and verdict of each row of `verdict_rows`, and no text. `compare` makes
the rows again and lists each one whose verdict is another now. Rows that earn now and did not are
listed first: read each of them. A row that raises has the verdict `raised: NameOfError`. One that
takes over 2 s of processor time is marked as slow, one whose fault is logged as warned.
"""

import argparse
import hashlib
import json
import logging
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.table import markdown
from benchmarks.verdict_rows import ROOT, SOURCES, Row, make_rows, read_sources
from grading.grade import grade_all, grade_short_all
from pipeline.errors import UserError, run_cli
from pipeline.manifest import open_whole

SLOW, LONGEST = 2, 10  # seconds of processor time: one marks a row, the other ends it
SHOWN = 200  # characters of a text
Recorded = dict[tuple[str, str], str]  # kind and hash of a row -> its verdict


class TooSlow(BaseException):
    """A row took too long; no grader may catch it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the grader says to a row, what it read there, and `slow` or `warned`."""

    verdict: str
    prediction: str | None = None
    marks: str = ""


class Warnings(logging.Handler):
    """Counts what the grader logs, instead of printing it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.number = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.number += 1


def earns(verdict: str) -> bool:
    return verdict == "right"


def hash_of(row: Row) -> str:
    """16 hexadecimal digits of all that the grader is given."""
    given = [row.completion, row.gold, row.question, row.settings]
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


def unique(rows: Iterable[Row], kinds: list[str]) -> Iterator[tuple[tuple[str, str], Row]]:
    """Each row once, with its kind and hash; those of some kinds, or of all where none is named."""
    seen = set()
    for row in rows:
        key = row.kind, hash_of(row)
        if key not in seen and (not kinds or row.kind in kinds):
            seen.add(key)
            yield key, row


def call_grader(row: Row) -> Any:
    texts, golds, questions = [row.completion], [row.gold], [row.question]
    if row.settings.get("short"):
        return grade_short_all(texts, golds, questions)[0]
    return grade_all(texts, golds, questions, **row.settings)[0]


def judge(row: Row, warnings: Warnings) -> Verdict:
    """The grader's verdict on a row, whatever happens."""
    start, logged = time.process_time(), warnings.number
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        found = call_grader(row)
        verdict, prediction = found.verdict, found.prediction
    except (Exception, TooSlow) as error:
        verdict, prediction = f"raised: {type(error).__name__}", None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    marks = ["slow"] if time.process_time() - start > SLOW else []
    marks += ["warned"] if warnings.number > logged else []
    return Verdict(verdict, prediction, " ".join(marks))


def judge_all(rows: Iterable[tuple[Any, Row]]) -> Iterator[tuple[Any, Row, Verdict]]:
    """Each row with its verdict, graded one at a time."""

    def stop(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    logger, warnings = logging.getLogger("grading"), Warnings()
    logger.addHandler(warnings)
    logger.propagate = False
    try:
        for key, row in rows:
            yield key, row, judge(row, warnings)
    finally:
        signal.signal(signal.SIGVTALRM, before)
        logger.removeHandler(warnings)
        logger.propagate = True


# The tables


def count_rows(counts: dict[str, Counter[str]], row: Row, found: Verdict) -> None:
    """Add a row to the counts of its kind."""
    count, is_right = counts.setdefault(row.kind, Counter()), earns(found.verdict)
    count["rows"] += 1
    count["earn"] += is_right
    count["earn wrongly"] += is_right and row.earns is False
    count["refused wrongly"] += row.earns is True and not is_right
    for mark in ("slow", "warned"):
        count[mark] += mark in found.marks
    count["raised"] += found.verdict.startswith("raised")


COLUMNS = ("rows", "earn", "earn wrongly", "refused wrongly", "slow", "warned", "raised")


def table_of(counts: dict[str, Counter[str]], more: tuple[str, ...] = ()) -> str:
    """The counts of each kind, and of all."""
    total = sum(counts.values(), Counter())
    rows = []
    for kind, count in [*counts.items(), ("all", total)]:
        rows.append({"kind": kind} | {name: f"{count[name]:,}" for name in (*COLUMNS, *more)})
    return markdown(rows)


def end_of(text: str | None) -> str:
    """The end of a text, on one line."""
    text = repr(text or "")[1:-1]
    return text if len(text) <= SHOWN else f"...{text[-SHOWN:]}"


def show(row: Row, found: Verdict) -> str:
    """A row for a person to read."""
    label = {True: "should earn", False: "should not earn", None: "no label"}[row.earns]
    lines = [f"{row.kind} ({label})", f"gold       {end_of(row.gold)}"]
    if found.prediction:
        lines.append(f"prediction {end_of(found.prediction)}")
    lines += [f"completion {end_of(row.completion)}", f"question   {end_of(row.question)}"]
    return "\n    ".join(lines)


def list_changes(changes: dict[tuple[str, str], list[str]]) -> str:
    """Changed rows, grouped by old and new verdict: new accepts, then lost ones, then others."""

    def order(pair: tuple[str, str]) -> tuple[bool, bool, tuple[str, str]]:
        old, new = map(earns, pair)
        return not (new and not old), not (old and not new), pair

    parts = []
    for old, new in sorted(changes, key=order):
        shown = changes[old, new]
        parts.append("\n\n  ".join([f"## {old} -> {new}: {len(shown):,} rows", *shown]))
    return "\n\n".join(parts)


# The commands


def record(rows: Iterable[tuple[tuple[str, str], Row]], file: IO[str]) -> str:
    """Write a line for each row; returns the table of counts."""
    counts: dict[str, Counter[str]] = {}
    for (kind, key), row, found in judge_all(rows):
        file.write(f"{kind}\t{key}\t{found.verdict}\t{found.marks}\n")
        count_rows(counts, row, found)
    return table_of(counts)


def read_recorded(path: Path) -> Recorded:
    """The verdicts of a file that `record` wrote."""
    recorded = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.count("\t") != 3:
            raise UserError(f"{path}:{number}: not a line of `record`; record the file again")
        kind, key, verdict, _ = line.split("\t")
        recorded[kind, key] = verdict
    return recorded


def compare(rows: Iterable[tuple[tuple[str, str], Row]], recorded: Recorded) -> str:
    """The table of counts, and each row whose verdict is another than the recorded one."""
    counts: dict[str, Counter[str]] = {}
    changes: dict[tuple[str, str], list[str]] = {}
    for key, row, found in judge_all(rows):
        count_rows(counts, row, found)
        old = recorded.get(key)
        count = counts[row.kind]
        count["not recorded"] += old is None
        if old is None or old == found.verdict:
            continue
        changes.setdefault((old, found.verdict), []).append(show(row, found))
        count["changed"] += 1
        count["newly earn"] += earns(found.verdict) and not earns(old)
        count["earn no more"] += earns(old) and not earns(found.verdict)
    made = sum(count["rows"] - count["not recorded"] for count in counts.values())
    gone = sum(kind in counts for kind, _ in recorded) - made
    table = table_of(counts, ("changed", "newly earn", "earn no more", "not recorded"))
    listed = list_changes(changes) or "no verdict has changed"
    return f"{table}\n\nrecorded, but not made now: {gone:,}\n\n{listed}"


def main() -> None:
    """Record or compare, then print the tables."""
    parser = argparse.ArgumentParser("verdicts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--kinds", nargs="+", default=[], help="of rows, as the table names them")
    parser.add_argument("--data_root", type=Path, default=ROOT.parent / "shared/data")
    args = parser.parse_args()
    recorded = {}
    if args.command == "compare":
        if not args.file.is_file():
            raise UserError(f"{args.file}: no such file; write it with `record`")
        recorded = read_recorded(args.file)
    sources = read_sources(args.data_root)
    for name in sorted({*SOURCES} - {*sources}):
        sys.stdout.write(f"skipped {name}: no file {args.data_root / SOURCES[name]}\n")
    start, rows = time.process_time(), unique(make_rows(sources), args.kinds)
    if args.command == "compare":
        text = compare(rows, recorded)
    else:
        with open_whole(args.file) as file:
            text = record(rows, file)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    used = f"{time.process_time() - start:,.0f} s of processor time, {memory:,} MiB at most"
    sys.stdout.write(f"{text}\n\n{used}\n")


if __name__ == "__main__":
    run_cli(main)
