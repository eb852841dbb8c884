"""Which of the project's own files a module imports."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def imported_files(path):
    """The project's own modules that a module imports anywhere in its text."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    files = {ROOT / f"{name.replace('.', '/')}.py" for name in names}
    packages = {ROOT / name.replace(".", "/") / "__init__.py" for name in names}
    return {file for file in files | packages if file.is_file()}
