"""The text of a release is its section of the changelog."""

import re
import runpy
import tomllib

import pytest
import yaml

from tests.pages import ROOT

SCRIPT = ROOT / ".github/release.py"
CHANGELOG = "# Changelog\n\n## 0.3.0, 2030-01-02\n\n- New.\n\n## 0.2.0, 2029-01-02\n\n- Old.\n"


@pytest.fixture
def notes(tmp_path):
    """`notes(tag)` of a project with version 0.3.0."""

    def call(tag, changelog=CHANGELOG):
        (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.3.0"\n')
        (tmp_path / "CHANGELOG.md").write_text(changelog)
        found = runpy.run_path(str(SCRIPT))["notes"]
        found.__globals__["ROOT"] = tmp_path
        return found(tag)

    return call


def test_the_notes_are_the_section_of_the_version_or_refused(notes):
    assert notes("v0.3.0") == "- New.\n"
    with pytest.raises(ValueError, match=r"pyproject\.toml has version 0\.3\.0; tag v0\.3\.0"):
        notes("v0.2.0")
    unreleased = CHANGELOG.replace(", 2030-01-02", ", not yet released")
    for changelog in (unreleased, "# Changelog\n\n## 0.3.0, 2030-01-02\n"):
        with pytest.raises(ValueError, match="has no section"):
            notes("v0.3.0", changelog)


def test_the_changelog_begins_with_what_is_unreleased_and_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heads = re.findall(r"(?m)^## .*", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert heads[0] == "## Unreleased" and heads[1].startswith(f"## {version}, ")


def lines_of_workflows():
    """The commands of all workflows."""
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            yield from (step["run"] for step in job["steps"] if "run" in step)


def test_what_the_workflows_name_is_there():
    words = [word for line in lines_of_workflows() for word in line.split()]
    files = [word for word in words if word.startswith((".ci/", ".github/", "tests/"))]
    assert len(files) >= 4 and all((ROOT / file).exists() for file in files)
