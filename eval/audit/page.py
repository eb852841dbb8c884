"""The audit as text, for the terminal and `audit.txt` alike: tables, failing rows, notes."""

import io
import itertools
import math
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.report.render import print_table
from pipeline.console import clean, one_line

MAX_LINES = 40  # failing rows shown; `audit.json` has all that were kept
MAX_CHARS = 200  # of a line about one of them

ABOUT = ("where", "gold", "verdict", "lenient", "stopped")  # of `parse_rows`, no parser's score
RATES = {"task": "think-aware task"}  # heads that are not the check's name


def percent(share: float | None) -> str:
    """A share in per cent, rounded down: 100 means all of them, and 98.99 is not 99."""
    if share is None:
        return "-"
    # Shares are quotients: 0.29 * 1000 is a little below 290.
    return f"{math.floor(1000 * share + 1e-6) / 10:.1f}"


def show(report: dict[str, Any], console: Console | None = None) -> None:
    """Print the tables, the first failing rows and the notes of `audit_recipe`'s report."""
    console = console or Console(highlight=False)
    sets, tricks = report["sets"].items(), report["tricks"].items()
    passed = [
        {"set": name, "golds": f"{found['num_rows']:,}"}
        | {RATES.get(check, check): percent(rate) for check, rate in found["rates"].items()}
        for name, found in sets
    ]
    scored = [
        {"set": name, "ending": ending} | {parser: percent(share) for parser, share in one.items()}
        for name, found in sets
        for ending, one in found["official"].items()
    ]
    rewarded = [
        {"exploit": name, "tried": f"{found['num_rows']:,}", "rewarded": str(found["num_paid"])}
        for name, found in tricks
        if found["num_paid"]
    ]
    for title, rows in (
        ("Gold answers that pass, %", passed),
        ("Correct answers that our parser and the harness's own count, %", scored),
        ("Incorrect answers and exploits that are rewarded", rewarded),
    ):
        if rows:
            # Narrow heads: six parsers must fit within 80 columns, uncut.
            header = [name.replace(" ", "\n").replace("_", "_\n") for name in rows[0]]
            console.print()
            print_table(console, title, header, [[*row.values()] for row in rows])
    console.print()
    failed = [
        shorten(one_line("failed: {set}, row {row}: {check}: {fault}".format(**one)))
        for one in report["failures"]
    ]
    if len(failed) > MAX_LINES:
        more = f"failed: {len(failed) - MAX_LINES:,} more are in audit.json"
        failed = [*failed[:MAX_LINES], more]
    for line in [*failed, *(one_line(f"note: {note}") for note in report["notes"])]:
        console.out(line, highlight=False)


def shorten(line: str) -> str:
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


def write(report: dict[str, Any], path: str) -> None:
    """Write the whole audit to a text file: the verdict, its faults, and what `show` prints."""
    text = io.StringIO()
    verdict = "passes" if report["passes"] else "fails:"
    text.write(f"Audit of {report['recipe']}: the recipe {verdict}\n")
    text.writelines(f"- {fault}\n" for fault in report["faults"])
    show(report, Console(file=text, width=120, highlight=False))
    tokenizer, limit = report["tokenizer"], report["max_new_tokens"]
    text.write(f"\nTokenizer: {tokenizer}; at most {limit} new tokens in the tasks.\n")
    Path(path).write_text(clean(text.getvalue()), encoding="utf-8")


def show_parsed(path: str, found: list[dict[str, Any]]) -> None:
    """Print how each parser scores a file's completions; `found` is of `parse_rows`."""
    scores = {
        "ours, in a box": [one["verdict"] == "right" for one in found],
        "ours, lenient": [one["lenient"] == "right" for one in found],
    }
    scores |= {name: [one[name] for one in found] for name in found[0] if name not in ABOUT}
    table = []
    for name, scored in scores.items():
        read = [*itertools.compress(scored, scores["ours, lenient"])]
        shares = sum(scored) / len(scored), sum(read) / len(read) if read else None
        table.append([name, f"{sum(scored):,}", *map(percent, shares)])
    console = Console(highlight=False)
    console.out(f"{len(found):,} completions of {path}", highlight=False)
    header = ["parser", "counted as correct", "%", "of those correct by the lenient reader, %"]
    print_table(console, "", header, table)
    stopped = [one["where"] for one in found if one["stopped"]]
    if stopped:
        console.out(
            f"{len(stopped):,} rows are too much for a parser of the harness and count as "
            f"incorrect, the first {stopped[0]}",
            highlight=False,
        )
