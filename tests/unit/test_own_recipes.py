"""A user's own folder under `configs/` fails no test: tests name the recipes that they read."""

import re
from pathlib import Path

# Whatever is there: of `CONFIGS` or `"configs"` itself, not of a recipe's folder.
ALL = re.compile(r"""configs["')]*\.(r?glob|iterdir)\(""", re.IGNORECASE)


def test_no_test_reads_all_folders_of_configs():
    """`tests.recipes` lists what the project ships."""
    here = Path(__file__)
    files = sorted({*here.parents[1].rglob("*.py")} - {here})
    found = [path.name for path in files if ALL.search(path.read_text(encoding="utf-8"))]
    assert len(files) > 100 and found == []
    assert ALL.search('(ROOT / "configs").glob("*/grpo.yaml")')
