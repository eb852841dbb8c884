"""What README and docs name exists: files, links, modules, make targets, recipe keys' pages."""

import importlib.util
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from pipeline import names as known
from tests.recipes import SCORING, SHIPPED

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / "configs" / name / "README.md" for name in (*SHIPPED, *SCORING)]
PACKAGES = (
    "pipeline", "grading", "data_prep", "stages", "eval", "benchmarks", "tests", "configs", "docs",
)  # fmt: skip
# The log speaks of what was there at its time.
PRESENT = [page for page in PAGES if page.name != "LOG.md"]


def names(page, pattern):
    return sorted({match[1] for match in re.finditer(pattern, page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_modules_and_targets_exist(page):
    files = names(page, rf"(?<![\w/.])((?:{'|'.join(PACKAGES)})/[\w./-]+\.(?:py|yaml|sh|md|png))\b")
    files = [name for name in files if not name.startswith("configs/my/")]
    missing = [name for name in files if not (ROOT / name).exists()]
    modules = names(page, r"-m ((?:pipeline|grading|data_prep|stages|eval|benchmarks)[\w.]*)")
    missing += [one for one in modules if importlib.util.find_spec(one) is None]
    targets = {*known.targets(), *BENCHMARKS}
    assert missing == [] and {*names(page, r"(?:^|`)make ([a-z][\w-]*)")} <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in names(page, r"\]\(((?!https?:)[^)]+)\)"):
        file, _, anchor = link.partition("#")
        target = page.parent / file
        heads = names(target if file else page, r"(?m)^#+ (.*)") if anchor else ()
        slugs = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}
        assert target.exists() and (not anchor or anchor in slugs), link
