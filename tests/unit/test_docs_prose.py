"""How long pages and their sentences are.

The limits are thermometers: a page within them can still be hard to follow.
"""

import re

from tests import pages
from tests.pages import ROOT

README = ROOT / "README.md"


def sentences(text):
    """The sentences of a page's prose, without code, tables, headings and pictures."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", text)
    text = re.sub(r"<!--.*?-->|<[^>\n]*>", "", text, flags=re.S)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`\n]*`", "code", text)
    lines = [line for line in text.splitlines() if not re.match(r"\s*[|#]", line)]
    found = []
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", "\n".join(lines)):
        plain = " ".join(re.sub(r"[*_>]", "", block).split())
        found += re.split(r"(?<=[.!?]) +(?=[A-Z(\"'])", plain)
    return [one for one in found if len(words_in(one)) >= 4]


def words_in(sentence):
    return re.findall(r"[A-Za-z][A-Za-z'-]*", sentence)


def num_words(page):
    """As `wc -w` counts."""
    return len(page.read_text(encoding="utf-8").split())


def test_sentences_are_short_and_have_few_clauses():
    shown = [README, *pages.DOCS, *pages.RESULTS]
    found = [one for page in shown for one in sentences(page.read_text(encoding="utf-8"))]
    lengths = [len(words_in(one)) for one in found]
    assert sum(lengths) / len(found) <= 16
    assert sum(length > 30 for length in lengths) / len(found) <= 0.07
    assert sum(len(re.findall("[,;:]", one)) for one in found) / len(found) <= 1.5


def test_the_docs_are_short():
    assert sum(map(num_words, pages.DOCS)) <= 16_000
    assert sum(map(num_words, pages.RESULTS)) <= 8_000
    assert num_words(ROOT / "docs/decisions.md") <= 700
    assert len((ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines()) <= 25


def test_the_readme_fits():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    assert [line for line in lines if len(line) > 100] == []
