"""What a page is made of. `pages` fills these; `html_page` and `markdown_page` write
them out, so that the page and its Markdown twin cannot say different things.

Strings are plain text, in which a pair of backticks marks code. They are escaped where they are
written, not here.
"""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Text:
    """A paragraph; `lead` is the one that opens the page."""

    kind: ClassVar[str] = "text"
    text: str
    lead: bool = False


@dataclass(frozen=True)
class Warnings:
    """What a reader should doubt."""

    kind: ClassVar[str] = "warnings"
    items: list[str]


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Table:
    """A table: first column left, the others right; `facts` (name, value) all left and wrapped."""

    kind: ClassVar[str] = "table"
    header: list[str]
    rows: list[list[str]]
    facts: bool = False


@dataclass(frozen=True)
class Folded:
    """Tables behind a summary line that opens them: `{title: table}`."""

    kind: ClassVar[str] = "folded"
    summary: str
    tables: dict[str, Table]


@dataclass(frozen=True)
class Bars:
    """Counts of the kinds of one whole, as bars beside each other: `{title: [(label, count)]}`.

    Args:
        what: what a label names.
        panels: none is empty.
    """

    kind: ClassVar[str] = "bars"
    what: str
    panels: dict[str, list[tuple[str, int]]]


@dataclass(frozen=True)
class Excerpt:
    """Texts of others, each under its label; the last is narrow where it `ends_short`."""

    kind: ClassVar[str] = "excerpt"
    title: str
    facts: str
    texts: dict[str, str]
    ends_short: bool = False


@dataclass(frozen=True)
class Details:
    """Any blocks behind a summary line that opens them."""

    kind: ClassVar[str] = "details"
    summary: str
    blocks: list


@dataclass(frozen=True)
class Figure:
    """A figure: one PNG for Markdown, the same as one or more SVGs for the page.

    Args:
        file: the PNG's name beside `report.md`.
        svgs: SVG elements, drawn by `eval.report.plots` (trusted: no text of a model is in them).
    """

    kind: ClassVar[str] = "figure"
    caption: str
    file: str
    svgs: list[str]


@dataclass(frozen=True)
class Side:
    """One completion of a flip."""

    checkpoint: str
    outcome: str
    facts: str
    completion: str


@dataclass(frozen=True)
class Flip:
    """One problem and two completions of it, of which one is right; or one that is unread."""

    kind: ClassVar[str] = "flip"
    title: str
    facts: str
    question: str
    gold: str
    sides: list[Side]


@dataclass(frozen=True)
class Section:
    """A part of the page; `anchor` is its id, unique on the page."""

    anchor: str
    title: str
    blocks: list = field(default_factory=list)


@dataclass(frozen=True)
class Page:
    """The whole report: `opening` stands above the sections."""

    title: str
    subtitle: str
    opening: list
    sections: list[Section]
