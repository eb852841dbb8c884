"""Figures of the source tree: `make house` prints them and compares with tests/house.json.

Counts files, lines and code lines (by AST: no docstrings, comments or blank lines), modules that
exactly one other module imports, and circular imports. tests/house.json holds the ceiling of each
figure, that of the last release; lower it whenever a figure falls.
"""

import ast
import io
import json
import sys
import tokenize
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("data_prep", "stages", "eval")
CEILINGS = ROOT / "tests/house.json"
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def module_name(path: Path) -> str:
    """`stages/trainer/__init__.py` -> `stages.trainer`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(*folders: str) -> dict[str, Path]:
    """Every Python module below the folders, by dotted name."""
    return {module_name(p): p for name in folders for p in sorted((ROOT / name).rglob("*.py"))}


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Names of the `known` modules that a file imports, function bodies included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known.keys() or {node.module}
    return (found & known.keys()) - {module_name(path)}


def code_lines(text: str) -> int:
    """Lines that hold code: not blank, comment or docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if is_doc and isinstance(first.value.value, str):
                lines -= set(range(first.lineno, first.end_lineno + 1))
    return len(lines)


def circles(graph: dict[str, set[str]]) -> list[str]:
    """A circle of modules that import each other, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def figures() -> dict[str, int]:
    """Every figure of the tree, smaller is better."""
    product, tests = modules(*PRODUCT), modules("tests")
    texts = {name: path.read_text(encoding="utf-8") for name, path in product.items()}
    graph = {name: imports(path, product) for name, path in product.items()}
    importers = {name: [m for m, targets in graph.items() if name in targets] for name in product}
    bench = modules("benchmarks").values()
    return {
        "product files": sum(bool(text.strip()) for text in texts.values()),
        "product lines": sum(len(text.splitlines()) for text in texts.values()),
        "product code lines": sum(map(code_lines, texts.values())),
        "modules imported by one other": sum(len(found) == 1 for found in importers.values()),
        "circular imports": len(circles(graph)),
        "benchmark lines": sum(len(p.read_text(encoding="utf-8").splitlines()) for p in bench),
        "test lines": sum(len(p.read_text(encoding="utf-8").splitlines()) for p in tests.values()),
    }


def main() -> None:
    """Print each figure beside its ceiling; exit with 1 where one is above."""
    ceilings = json.loads(CEILINGS.read_text(encoding="utf-8"))
    found = figures()
    above = [name for name, value in found.items() if value > ceilings[name]]
    for name, value in found.items():
        mark = "  ABOVE the ceiling" if name in above else ""
        sys.stdout.write(f"{name:32}{value:8,}  (at most {ceilings[name]:,}){mark}\n")
    sys.exit(bool(above))


if __name__ == "__main__":
    main()
