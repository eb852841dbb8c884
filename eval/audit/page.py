"""The audit as text: tables, failing rows and notes, for the terminal and `audit.txt` alike."""

import io
import math
from pathlib import Path
from typing import Any

from rich.console import Console

from data_prep.manifest import encodable
from eval.report.render import print_table

MAX_LINES = 40  # failing rows shown; `audit.json` has all that were kept
MAX_CHARS = 200  # of a line about one of them


def percent(share: float | None) -> str:
    """A share in per cent, rounded down: only all of them are 100, and 98.99 is not 99."""
    # Shares are quotients: 0.29 * 1000 is a little below 290.
    return "-" if share is None else f"{math.floor(1000 * share + 1e-6) / 10:.1f}"


def show(report: dict[str, Any], console: Console | None = None) -> None:
    """Print the tables, the first failing rows, and what could not be audited.

    Args:
        report: `eval.audit.checks.audit_recipe`.
        console: the terminal by default.
    """
    console = console or Console(highlight=False)
    sets, tricks = report["sets"], report["tricks"]
    golds = [
        [name, f"{found['num_rows']:,}", *map(percent, found["rates"].values())]
        for name, found in sets.items()
    ]
    read = [
        {"set": name, "ending": ending} | {parser: percent(share) for parser, share in one.items()}
        for name, found in sets.items()
        for ending, one in found["official"].items()
    ]
    paid = [
        [name, f"{found['num_rows']:,}", str(found["num_paid"])]
        for name, found in tricks.items()
        if found["num_paid"]
    ]
    tables = {
        "Golds that pass, %": (["set", "golds", "template", "reward", "think-aware task"], golds),
        "Right answers that our parser and the harness's own read, %": (
            [*read[0]] if read else [], [[*one.values()] for one in read]),
        "Wrong answers and tricks that are paid": (["trick", "tried", "paid"], paid),
    }  # fmt: skip
    for title, (header, rows) in tables.items():
        if rows:
            # Narrow heads: six parsers must fit within 80 columns, uncut.
            header = [name.replace(" ", "\n").replace("_", "_\n") for name in header]
            console.print()
            print_table(console, title, header, rows)
    console.print()
    for line in [*failure_lines(report), *(f"note: {note}" for note in report["notes"])]:
        console.out(printable(line), highlight=False)


def printable(line: str) -> str:
    """A line that a terminal only shows: ids are anybody's text."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def failure_lines(report: dict[str, Any]) -> list[str]:
    """One short line for each of the first failing rows."""
    lines = []
    for one in report["failures"][:MAX_LINES]:
        line = f"failed: {one['set']}, row {one['row']}: {one['check']}: {one['fault']}"
        lines.append(line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…")
    if (more := len(report["failures"]) - MAX_LINES) > 0:
        lines.append(f"failed: {more:,} more are in audit.json")
    return lines


def write(report: dict[str, Any], path: str) -> None:
    """Write the whole audit to a text file: the verdict, its faults, and what `show` prints."""
    text = io.StringIO()
    verdict = "passes" if report["passes"] else "fails:"
    text.write(f"Audit of {report['recipe']}: the recipe {verdict}\n")
    text.writelines(f"- {fault}\n" for fault in report["faults"])
    show(report, Console(file=text, width=120, highlight=False))
    tokenizer, limit = report["tokenizer"], report["max_new_tokens"]
    text.write(f"\nTokenizer: {tokenizer}; at most {limit} new tokens in the tasks.\n")
    Path(path).write_text(encodable(text.getvalue()), encoding="utf-8")
