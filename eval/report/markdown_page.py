"""The report as Markdown: the twin of `eval.report.html_page`, for a repository or a terminal.

A model's text stands in fences that are longer than any run of backticks within it, so that no
completion can end its own block and be rendered.
"""

import re

from eval.report.blocks import Bars, Excerpt, Flip, Page, Table
from eval.report.text import clean


def render_markdown(page: Page) -> str:
    """The whole page."""
    parts = [f"# {escape(page.title)}", escape(page.subtitle)]
    parts += [part for block in page.opening for part in RENDER[block.kind](block)]
    for section in page.sections:
        parts.append(f"## {escape(section.title)}")
        parts += [part for block in section.blocks for part in RENDER[block.kind](block)]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """A line of plain text that Markdown shows as it is; code in backticks stays code."""
    # Single backticks only: in a run of them Markdown may see other pairs than we do.
    pieces = re.split(r"((?<!`)`[^`]+`(?!`))", clean(text).replace("\n", " "))
    return "".join(
        piece if index % 2 else _escape_plain(piece) for index, piece in enumerate(pieces)
    )


def _escape_plain(text: str) -> str:
    """A line without any code: what a model wrote could pair its backticks to get out of one."""
    text = (
        clean(text)
        .replace("\n", " ")
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace("\\", "\\\\")
    )
    text = re.sub(r"([*`])", r"\\\1", text)
    text = text.replace("](", "]\\(")  # a link, or an image that a viewer would fetch
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def fence(text: str) -> str:
    """A text as a block of code."""
    text = clean(text)
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}text\n{text}\n{ticks}"


def to_table(table: Table) -> str:
    """A Markdown table."""
    lines = [[escape(cell).replace("|", "\\|") for cell in row] for row in table.rows]
    header = [escape(cell).replace("|", "\\|") for cell in table.header]
    rest = "---" if table.facts else "---:"
    lines = [header, ["---"] + [rest] * (len(header) - 1), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _flip(flip: Flip) -> list[str]:
    parts = [
        f"### {escape(flip.title)}",
        _escape_plain(flip.facts),
        "Question:",
        fence(flip.question),
    ]
    parts += ["Gold:", fence(flip.gold)]
    for side in flip.sides:
        facts = f" ({_escape_plain(side.facts)})" if side.facts else ""
        parts += [f"**{escape(side.checkpoint)}: {side.outcome}**{facts}", fence(side.completion)]
    return parts


def _folded(folded) -> list[str]:
    parts = [f"<details><summary>{escape(folded.summary)}</summary>"]
    for title, table in folded.tables.items():
        parts += [f"**{escape(title)}**", to_table(table)]
    return [*parts, "</details>"]


def _bars(bars: Bars) -> list[str]:
    parts = []
    for title, rows in bars.panels.items():
        total = sum(count for _, count in rows)
        cells = [[label, f"{count:,}", f"{100 * count / total:.1f}"] for label, count in rows]
        parts += [f"**{_escape_plain(title)}**", to_table(Table([bars.what, "rows", "%"], cells))]
    return parts


def _details(details) -> list[str]:
    inner = [part for block in details.blocks for part in RENDER[block.kind](block)]
    return [f"<details><summary>{escape(details.summary)}</summary>", *inner, "</details>"]


def _excerpt(excerpt: Excerpt) -> list[str]:
    parts = [f"**{_escape_plain(excerpt.title)}**", _escape_plain(excerpt.facts)]
    for label, text in excerpt.texts.items():
        parts += [f"{_escape_plain(label)}:", fence(text)]
    return [part for part in parts if part]


RENDER = {
    "text": lambda block: [escape(block.text)],
    "warnings": lambda block: [
        "**Warnings**\n\n" + "\n".join(f"- {escape(w)}" for w in block.items)
    ],
    "heading": lambda block: [f"### {escape(block.text)}"],
    "table": lambda block: [to_table(block)],
    "figure": lambda block: [f"![{escape(block.caption)}]({block.file})", f"*{block.caption}*"],
    "folded": _folded,
    "flip": _flip,
    "bars": _bars,
    "details": _details,
    "excerpt": _excerpt,
}
