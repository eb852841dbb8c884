"""Print the changelog's section of a release; refuse a tag that is not the project's version.

python .github/release.py v0.3.0
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes(tag: str) -> str:
    """The section of the tag's version, without its head; raises `ValueError`."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = tomllib.loads(text)["project"]["version"]
    if tag != f"v{version}":
        raise ValueError(f"tag {tag}: pyproject.toml has version {version}; tag v{version}")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    head = rf"(?m)^## {re.escape(version)}, \d{{4}}-\d\d-\d\d\n"
    found = re.search(rf"{head}(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if not found or not found[1].strip():
        raise ValueError(f"CHANGELOG.md: has no section '## {version}, <date>'; write it")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: name one tag: python .github/release.py v0.3.0")
    try:
        sys.stdout.write(notes(sys.argv[1]))
    except ValueError as error:
        sys.exit(f"error: {error}")
