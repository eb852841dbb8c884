"""How long pages and their sentences are, and which words stand in them.

The limits are thermometers: a page within them can still be hard to follow.
"""

import ast
import re

import pytest

from tests import pages
from tests.pages import ROOT

README = ROOT / "README.md"
PACKAGES = ("pipeline", "grading", "data_prep", "stages", "eval", "benchmarks", "examples")
# Words of our own that a reader cannot know, and what the field says in their place.
OURS = {
    r"paid|pays? for": "earns the reward",
    r"right answers?": "correct answer",
    r"coin's toss": "random reward",
    r"dead groups?": "zero-variance group",
    r"anew": "from scratch",
    r"mend(?:s|ed|ing)?": "fix",
    r"for want of": "out of",
    r"twins?": "control run",
    r"(?:is|are) told": "sees",
    r"start models?": "starting model",
}


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


def all_sentences():
    shown = [README, *pages.DOCS, *pages.RESULTS]
    return [one for page in shown for one in sentences(page.read_text(encoding="utf-8"))]


def test_sentences_are_what_a_reader_sees():
    text = "# A head\n\nOne two three, `a, b` four. It is five; six!\n\n| a | b, c, d, e, f |\n"
    text += "- An item of [a link](x, y) is one.\n- Short.\n\n```\nno words of code here.\n```\n"
    assert sentences(text) == [
        "One two three, code four.", "It is five; six!", "- An item of a link is one."
    ]  # fmt: skip


def test_sentences_are_short():
    found = [len(words_in(one)) for one in all_sentences()]
    assert sum(found) / len(found) <= 16
    assert sum(length > 30 for length in found) / len(found) <= 0.07


def test_sentences_have_few_clauses():
    found = all_sentences()
    assert sum(len(re.findall("[,;:]", one)) for one in found) / len(found) <= 1.5


def test_the_docs_are_short():
    assert sum(map(num_words, pages.DOCS)) <= 20_000
    assert sum(map(num_words, pages.RESULTS)) <= 8_500
    assert num_words(ROOT / "docs/decisions.md") <= 2_000
    assert len((ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines()) <= 25


def test_the_readme_fits():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    assert [line for line in lines if len(line) > 100] == []


def texts_of(path):
    """The docstrings of a Python file, and its texts of more than three words."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {part for node in formatted for part in node.values}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            shown = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            text = "".join(shown)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            text = node.value
        if len(text.split()) > 3:
            yield " ".join(text.split())


def own_words(text):
    """The words of `OURS` in a text, each with what it is among."""
    pattern = rf"\b(?:{'|'.join(OURS)})\b"
    return [text[max(0, m.start() - 40) : m.end() + 40] for m in re.finditer(pattern, text, re.I)]


@pytest.mark.parametrize("page", [*pages.PAGES, ROOT / "CHANGELOG.md"], ids=pages.name_of)
def test_a_page_has_the_words_of_the_field(page):
    text = re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    assert own_words(" ".join(text.split())) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_messages_have_the_words_of_the_field(package):
    files = sorted((ROOT / package).rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}: {one}"
        for path in files
        for text in texts_of(path)
        for one in own_words(text)
    ]
    assert found == [], "\n".join(found)


def test_own_words_are_found():
    assert len(own_words("A right answer is paid, the dead group is not; twinned, mended.")) == 4
