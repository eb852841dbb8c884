"""The audit as text, for the terminal and `audit.txt` alike: tables, failing rows, notes."""

import io
import math
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.report.render import print_table
from pipeline.console import clean, one_line

MAX_LINES = 40  # failing rows shown; `audit.json` has all that were kept
MAX_CHARS = 200  # of a line about one of them

RATES = ("question", "template", "reward", "think-aware task")


def percent(share: float | None) -> str:
    """A share in per cent, rounded down: 100 means all of them, and 98.99 is not 99."""
    if share is None:
        return "-"
    # Shares are quotients: 0.29 * 1000 is a little below 290.
    return f"{math.floor(1000 * share + 1e-6) / 10:.1f}"


def show(report: dict[str, Any], console: Console | None = None) -> None:
    """Print the tables, the first failing rows and the notes of `audit_recipe`'s report."""
    console = console or Console(highlight=False)
    sets, tricks = report["sets"], report["tricks"]
    golds = [
        [name, f"{found['num_rows']:,}", *map(percent, found["rates"].values())]
        for name, found in sets.items()
    ]
    scored = [
        {"set": name, "ending": ending} | {parser: percent(share) for parser, share in one.items()}
        for name, found in sets.items()
        for ending, one in found["official"].items()
    ]
    rewarded = [
        [name, f"{found['num_rows']:,}", str(found["num_paid"])]
        for name, found in tricks.items()
        if found["num_paid"]
    ]
    parsers = [*scored[0]] if scored else []
    tables = {
        "Gold answers that pass, %": (["set", "golds", *RATES], golds),
        "Correct answers that our parser and the harness's own count, %": (
            parsers,
            [[*one.values()] for one in scored],
        ),
        "Incorrect answers and exploits that are rewarded": (
            ["exploit", "tried", "rewarded"],
            rewarded,
        ),
    }
    for title, (header, rows) in tables.items():
        if rows:
            # Narrow heads: six parsers must fit within 80 columns, uncut.
            header = [name.replace(" ", "\n").replace("_", "_\n") for name in header]
            console.print()
            print_table(console, title, header, rows)
    console.print()
    lines = []
    for one in report["failures"][:MAX_LINES]:
        line = one_line("failed: {set}, row {row}: {check}: {fault}".format(**one))
        lines.append(line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…")
    more = len(report["failures"]) - MAX_LINES
    if more > 0:
        lines.append(f"failed: {more:,} more are in audit.json")
    for line in [*lines, *(one_line(f"note: {note}") for note in report["notes"])]:
        console.out(line, highlight=False)


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
    keys = ("where", "gold", "verdict", "lenient", "stopped")
    scores |= {name: [one[name] for one in found] for name in found[0] if name not in keys}
    readable = scores["ours, lenient"]
    table = []
    for name, values in scores.items():
        both = sum(a and b for a, b in zip(values, readable, strict=True))
        shares = (sum(values) / len(found), both / sum(readable) if any(readable) else None)
        table.append([name, f"{sum(values):,}", *map(percent, shares)])
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
