"""How reports look: HTML from Jinja templates, tables for the terminal.

A page is one HTML file with its style and figures, and loads nothing. Jinja escapes all text, in
which a pair of backticks marks code. A policy in the page's head forbids requests and every script
but the page's own, should an escape ever be forgotten.
"""

import base64
import hashlib
import re
import textwrap
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from pipeline.console import clean

Table = tuple[list[str], list[list[str]]]  # header, rows
WIDTH = 100  # columns, also where the terminal is wider or is a file


def inline(text: str | int) -> Markup:
    """Plain text with code in backticks as `<code>`, or a whole number; escaped, "5 %" unbroken."""
    if isinstance(text, int):
        text = f"{text:,}"
    parts: list[str | Markup] = []
    for index, piece in enumerate(re.split(r"`([^`]*)`", clean(text))):
        if index % 2:  # between backticks
            parts.append(Markup("<code>{}</code>").format(piece))
        else:
            parts.append(piece.replace(" %", "\xa0%"))
    return Markup("").join(parts)


def csp_hash(script: str) -> str:
    """The hash by which a page's policy allows a script."""
    digest = hashlib.sha256(str(script).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def flatten(value: dict[str, Any], prefix: str = "") -> list[list[str]]:
    """Nested counts as `[["dropped, too long", "12"], ...]`."""
    rows = []
    for key, item in value.items():
        name = f"{prefix}, {key}" if prefix else str(key)
        if isinstance(item, dict):
            rows += flatten(item, name)
        else:
            rows.append([name, str(item)])
    return rows


def _show(value: Any) -> Any:
    """A value as a template writes it: text from outside is cleaned, in whichever field."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean(value)
    return value


def render(name: str, **values: Any) -> str:
    """The page of `<name>.html.jinja`, in which `values` are known."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_show,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inline": inline, "flatten": flatten, "csp_hash": csp_hash}
    environment.filters["named"] = lambda key, names: names.get(key, key)
    return environment.get_template(f"{name}.html.jinja").render(values)


def show(report: dict[str, Any], tables: dict[str, Table], path: str) -> None:
    """Print a report's short form: `{title: table}`, the summary, the warnings, the path.

    Names and numbers only: no text of a model reaches the terminal.
    """
    terminal = Console()
    width = min(WIDTH, terminal.width) if terminal.is_terminal else WIDTH
    console = Console(width=width)
    console.print(f"[bold]{escape(report['title'])}[/bold]", highlight=False)
    for name, table in tables.items():
        print_table(console, name, *table)
    for line in report["summary"].splitlines():
        text = line.replace(" %", "\xa0%")  # a number and its unit stay on one line
        text = textwrap.fill(text, console.width, break_on_hyphens=False).replace("\xa0", " ")
        console.print(escape(text), highlight=False)
    for warning in report["warnings"]:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}", highlight=False)
    for note in report.get("notes", ()):
        console.print(f"note: {escape(note)}", highlight=False)
    # Not wrapped: a broken path cannot be clicked or copied.
    console.print(f"Report: {escape(path)}", highlight=False, soft_wrap=True)


def print_table(console: Console, title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print a table: first column left, the others right; headers wrap, numbers are not cut."""
    table = RichTable(
        title=escape(title) or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for index, cell in enumerate(header):
        min_width = None
        if index > 0 and console.width >= WIDTH:
            min_width = max(len(row[index]) for row in rows)
        table.add_column(
            escape(cell),
            justify="right" if index else "left",
            overflow="fold",
            min_width=min_width,
        )
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
