"""The site of the documentation: every page, its links and pictures, and no other host."""

import re

import pytest

from docs import website
from pipeline.errors import UserError
from tests import pages
from tests.pages import ROOT

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("docs")
    website.build(folder)
    return folder / "site"


def html_of(site):
    return {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}


def test_each_page_is_there(site):
    for page in (*pages.PAGES, ROOT / "CHANGELOG.md"):
        name = page.relative_to(ROOT).with_suffix(".html")
        if page.name == "README.md":
            name = name.with_name("index.html")
        assert (site / name).is_file(), name
    assert "curriculum" in (site / "search.json").read_text(encoding="utf-8")


def test_links_and_pictures_lead_to_files(site):
    for path, text in html_of(site).items():
        if path.name == "404.html":
            continue
        for link in re.findall(r'(?:href|src|srcset)="?([^"\s>]+)', text):
            file = link.partition("#")[0]
            if file and not re.match(r"(?:https?|mailto|data):", link):
                assert (path.parent / file).exists(), (path, link)


def test_a_view_asks_no_other_host(site):
    for path, text in html_of(site).items():
        tags = re.findall(r"<(?:script|link|img|source|iframe)\b[^>]*>", text)
        assert [tag for tag in tags if "//" in tag] == [], path


def test_a_file_that_is_no_page_is_shown_as_text(tmp_path):
    path = ROOT / "configs/grpo7b/grpo.yaml"
    shown = website.Site(tmp_path).add(path).read_text(encoding="utf-8")
    assert f"```yaml\n{path.read_text(encoding='utf-8')}```" in shown


def test_a_link_that_leads_nowhere_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"README.md: docs/gone.md"):
        website.Site(tmp_path).follow("[x](docs/gone.md)", ROOT / "README.md")


def test_a_link_to_no_heading_is_refused(tmp_path, monkeypatch, capsys):
    pytest.importorskip("zensical")
    monkeypatch.setattr(website, "as_site", lambda text: f"{text}\n[x](#gone-heading)\n")
    with pytest.raises(UserError):
        website.build(tmp_path)
    assert "anchor does not exist" in capsys.readouterr().err


def test_lists_get_the_blank_line_that_they_need():
    text = "Two:\n- a\n  more\n- b\n\n```\nx:\n- a\n```\n"
    assert website.as_site(text) == text.replace("Two:\n", "Two:\n\n")


def test_a_picture_for_each_mode_follows_the_switch():
    text = '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="d.svg">\n'
    text += '  <img src="l.svg" width="9"\n    alt="x">\n</picture>\n'
    found = website.as_site(text)
    assert "picture" not in found and 'class="dark-only" src="d.svg" width="9"' in found
