"""The report as one HTML file: style and figures within, nothing to load, no script.

Texts of models are escaped by Jinja; a policy in the page's head forbids scripts and requests all
the same, should an escape ever be forgotten.
"""

import re
from pathlib import Path

import jinja2
from markupsafe import Markup

from eval.report.blocks import Page
from eval.report.text import clean

TEMPLATE = "page.html.jinja"


def render_html(page: Page) -> str:
    """The whole page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"clean": clean, "inline": inline, "slug": slug}
    return environment.get_template(TEMPLATE).render(page=page) + "\n"


def inline(text: str) -> Markup:
    """A line of plain text with code in backticks as `<code>`, everything else escaped."""
    pieces = re.split(r"`([^`]*)`", clean(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else piece
        for index, piece in enumerate(pieces)
    )


def slug(text: str) -> str:
    """A class name: "no answer" as "no-answer"."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
