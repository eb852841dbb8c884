"""What preflight finds, and how it is shown: the worst last, where it is seen."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from data_prep.config import UserError

ERROR, WARNING, UNCHECKED, OK = "error", "warning", "not checked", "ok"
STYLES = {ERROR: "bold red", WARNING: "yellow", UNCHECKED: "cyan", OK: "green"}  # worst first
WIDTH = 120  # columns, also where the terminal is wider or is a file


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        level: one of `STYLES`.
        topic: the file or the subject, such as `grpo.yaml` or `memory`.
        text: what was found, with its numbers.
        remedy: what to change; empty where nothing has to be.
    """

    level: str
    topic: str
    text: str
    remedy: str = ""


def from_error(topic: str, error: UserError, level: str = ERROR) -> Finding:
    """The finding of a refusal: `UserError`s end with their remedy, after the last semicolon."""
    text, _, remedy = str(error).rpartition("; ")
    return Finding(level, topic, text or remedy, remedy if text else "")


def attempt(topic: str, check: Callable, *args: Any) -> list[Finding]:
    """Run a check; a refusal, or a value that it cannot work with, becomes a finding."""
    try:
        return check(*args)
    except UserError as error:
        return [from_error(topic, error)]
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        text = f"cannot be checked: {type(error).__name__}: {error}"
        return [Finding(ERROR, topic, text, "correct the value; other findings may name its key")]


def show(heading: str, found: list[Finding], console: Console | None = None) -> None:
    """Print a heading, one row for each finding, and a line that counts them."""
    console = console or Console(width=min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    levels = list(STYLES)
    for one in sorted(found, key=lambda one: -levels.index(one.level)):
        text = Text(one.text)
        if one.remedy:
            text.append(f"\n→ {one.remedy}", "bold")
        table.add_row(Text(one.level, STYLES[one.level]), one.topic, text)
    counts = [
        f"{number} {name}{'s' if number != 1 and name in (ERROR, WARNING) else ''}"
        for name in levels
        if (number := sum(one.level == name for one in found))
    ]
    console.print(Text(heading, "bold"))
    console.print(table)
    console.print(Text(f"preflight: {', '.join(counts)}", "bold"))
