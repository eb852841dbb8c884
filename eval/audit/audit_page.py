"""The audit as text: Markdown for the file, rich tables for the terminal."""

import math
import re
from typing import Any

from eval.audit.audit_cases import TRICKS

Table = tuple[list[str], list[list[str]]]  # header, rows
MAX_LINES = 40  # failing rows shown; `audit.json` has all that were kept
MAX_CHARS = 200  # of a line about one of them


def percent(share: float | None) -> str:
    """A share in per cent, rounded down: only all of them are 100, and 98.99 is not 99."""
    # Shares are quotients: 0.29 * 1000 is a little below 290.
    return "-" if share is None else f"{math.floor(1000 * share + 1e-6) / 10:.1f}"


def gold_table(report: dict[str, Any]) -> Table:
    """Header and rows: the share of the golds that passes each check, a row for each set."""
    rows = [
        [name, f"{found['num_rows']:,}", *(percent(rate) for rate in found["rates"].values())]
        for name, found in report["sets"].items()
    ]
    return ["set", "golds", "template", "reward", "think-aware task"], rows


def official_table(report: dict[str, Any]) -> Table:
    """Header and rows: the share of the golds, ended as models end, that each parser reads."""
    read = {name: found["official"] for name, found in report["sets"].items() if found["official"]}
    rows = [
        [name, ending, *(percent(share) for share in shares.values())]
        for name, endings in read.items()
        for ending, shares in endings.items()
    ]
    parsers = list(next(iter(next(iter(read.values())).values()))) if read else []
    return ["set", "ending", *parsers], rows


def trick_table(report: dict[str, Any]) -> Table:
    """Header and rows: how often each trick was tried and paid."""
    found = report["tricks"]
    return ["trick", "tried", "paid"], [
        [name, f"{found[name]['num_rows']:,}", str(found[name]["num_paid"])] for name in TRICKS
    ]


def failure_lines(report: dict[str, Any]) -> list[str]:
    """One short line for each of the first failing rows."""
    lines = []
    for one in report["failures"][:MAX_LINES]:
        line = f"{one['set']}, row {one['row']}: {one['check']}: {one['fault']}"
        line = "".join(c if c.isprintable() else " " for c in line)  # ids are anybody's text
        lines.append(line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…")
    if (more := len(report["failures"]) - MAX_LINES) > 0:
        lines.append(f"{more:,} more are in audit.json")
    return lines


def _code(text: str) -> str:
    """A Markdown code span: what is written in it is shown as it is, tags and stars too."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"


def _cell(text: str) -> str:
    """A cell of a Markdown table."""
    return text.replace("|", "\\|")


TITLES = (
    ("Golds that pass, %", gold_table),
    ("Right answers that our parser and the harness's own read, %", official_table),
    ("Wrong answers and tricks that are paid", trick_table),
)


def to_markdown(report: dict[str, Any]) -> str:
    """The whole audit."""
    verdict = "passes." if report["passes"] else "**fails**:"
    parts = [f"# Audit of {report['recipe']}", f"The recipe {verdict}"]
    if not report["passes"]:
        parts.append("\n".join(f"- {_code(fault)}" for fault in report["faults"]))
    for title, make in TITLES:
        header, rows = make(report)
        if rows:
            lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
            table = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
            parts += [f"## {title}", table]
    for title, lines in (
        ("First failing rows", failure_lines(report)),
        ("Notes", report["notes"]),
    ):
        if lines:
            parts += [f"## {title}", "\n".join(f"- {_code(line)}" for line in lines)]
    tokenizer, limit = report["tokenizer"], report["max_new_tokens"]
    parts.append(f"Tokenizer: {tokenizer}; at most {limit} new tokens in the tasks.")
    return "\n\n".join(parts) + "\n"


def show(report: dict[str, Any]) -> None:
    """Print the tables, the first failing rows, and what could not be audited."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console(markup=False, highlight=False)
    is_unpaid = all(found["num_paid"] == 0 for found in report["tricks"].values())
    for title, make in TITLES:
        header, rows = make(report)
        if not rows or (make is trick_table and is_unpaid):  # one line says so at the end
            continue
        table = RichTable(
            title=title, title_justify="left", title_style="bold", box=SIMPLE,
            show_edge=False, padding=(0, 1, 0, 0),
        )  # fmt: skip
        for index, name in enumerate(header):
            is_text = index == 0 or name == "ending"
            # Narrow heads: six parsers must stand within 80 columns, uncut.
            head = name if is_text else name.replace(" ", "\n").replace("_", "_\n")
            table.add_column(head, justify="left" if is_text else "right", overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print()
        console.print(table)
    console.print()
    for line in failure_lines(report):
        console.print(f"failed: {line}", soft_wrap=True)
    for line in report["notes"]:
        console.print(f"note: {line}", soft_wrap=True)
