"""The walls of the house: imports point upstream only, and files stay readable."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = {
    "data_prep": {"data_prep"},
    "stages": {"data_prep", "stages"},
    "eval": {"data_prep", "eval"},
}
# They read every stage's keys to check a whole recipe; no stage imports them.
EXCEPT = {"stages/preflight.py", "eval/audit_checks.py", "eval/audit_inputs.py"}


def imported_packages(source: str) -> set[str]:
    """The project's own packages that a module imports anywhere in its text."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found & set(ALLOWED)


def modules():
    return [path for name in ALLOWED for path in sorted((ROOT / name).rglob("*.py"))]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_upstream_and_files_stay_short(path):
    name = str(path.relative_to(ROOT))
    source = path.read_text(encoding="utf-8")
    if name not in EXCEPT:
        assert imported_packages(source) <= ALLOWED[name.split("/")[0]]
    assert len(source.splitlines()) <= 300


def test_the_check_sees_every_form_of_import():
    assert imported_packages("def f():\n    from stages.run import say") == {"stages"}
    assert imported_packages("import eval.run as e, data_prep") == {"eval", "data_prep"}
    assert imported_packages("import torch\nfrom trl import SFTTrainer") == set()
