"""The text of a release, and that the workflows run what CONTRIBUTING tells people to run."""

import re
import runpy
import subprocess
import sys
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


def test_the_section_of_the_version(notes):
    assert notes("v0.3.0") == "- New.\n"


@pytest.mark.parametrize(
    ("tag", "changelog", "line"),
    [
        ("v0.2.0", CHANGELOG, "pyproject.toml has version 0.3.0; tag v0.3.0"),
        ("v0.3.0", CHANGELOG.replace(", 2030-01-02", ", not yet released"), "has no section"),
        ("v0.3.0", "# Changelog\n\n## 0.3.0, 2030-01-02\n", "has no section"),
    ],
)
def test_what_cannot_be_released_is_refused(notes, tag, changelog, line):
    with pytest.raises(ValueError, match=line.replace(".", r"\.")):
        notes(tag, changelog)


@pytest.mark.parametrize("given", [[], ["v1", "v2"]])
def test_a_call_without_one_tag_is_one_line(given):
    done = subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: name one tag")


def test_the_changelog_begins_with_what_is_unreleased_and_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heads = re.findall(r"(?m)^## .*", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert heads[0] == "## Unreleased" and heads[1].startswith(f"## {version}, ")


def lines_of_workflows():
    """The commands of all workflows."""
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            yield from (step["run"] for step in job["steps"] if "run" in step)


def test_contributing_tells_the_commands_of_the_workflows():
    told = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = [line for line in lines_of_workflows() if re.match(r"(make|bash) (?!\.venv)", line)]
    assert len(lines) == 5 and [line for line in lines if line not in told] == []
    goals = re.findall(r"(?m)^make (\w+)$", (ROOT / ".ci/run").read_text())
    assert goals and f"\nmake {' '.join(goals)} " in told


def test_what_the_workflows_name_is_there():
    words = [word for line in lines_of_workflows() for word in line.split()]
    files = [word for word in words if word.startswith((".ci/", ".github/", "tests/"))]
    assert len(files) >= 4 and all((ROOT / file).exists() for file in files)
