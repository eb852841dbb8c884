"""The user's own files that a module imports, found by reading its text: nothing is run.

What counts is the text, so that a run finds the same files each time it starts: also an import
within a function that nobody has called yet. A module that is imported by a name made at run time
is not found.
"""

import ast
import sys
from importlib.util import resolve_name
from pathlib import Path

from pipeline.stages import ROOT

PACKAGES = ("pipeline", "grading", "data_prep", "stages", "eval")  # this project's own


def find_imports(module: str, file: Path) -> list[Path]:
    """Files of the user's own modules that a module loads, directly or through each other.

    Those are below the working folder, but neither installed packages nor this project. The
    packages that the module is in are among them; `file`, its own, may be.
    """
    found = find_files(module)
    waiting = [(module, file), *found.items()]
    read: set[Path] = set()
    while waiting:
        name, path = waiting.pop()
        if path in read:
            continue
        read.add(path)
        for imported in names_in(path, name):
            new = find_files(imported)
            found |= new
            waiting += new.items()
    return sorted({*found.values()})


def names_in(file: Path, module: str) -> set[str]:
    """The full names that a module's file imports; some may be no modules but what is in them."""
    if file.suffix != ".py":
        return set()
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # in an import that the user's code catches
        return set()
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                try:
                    origin = resolve_name("." * node.level + origin, package)
                except ImportError:  # above the topmost package
                    continue
            found |= {origin} | {f"{origin}.{alias.name}" for alias in node.names}
    return found


def find_files(module: str) -> dict[str, Path]:
    """The user's own files of a module and of the packages around it, by name."""
    names = module.split(".")
    for root in own_roots():
        found, place = {}, root
        for end, name in enumerate(names, start=1):
            place /= name
            for file in (place / "__init__.py", place.parent / f"{name}.py"):
                if file.is_file() and is_users(file):
                    found[".".join(names[:end])] = file
                    break
        if found:
            return found
    return {}


def own_roots() -> list[Path]:
    """The working folder, and folders in it, in which Python looks for modules."""
    here = Path.cwd()
    roots = [Path(entry).resolve() for entry in sys.path]
    return [*dict.fromkeys(root for root in (*roots, here) if root.is_relative_to(here))]


def is_users(file: Path) -> bool:
    """Whether a file below the working folder is of no installed package and not this project's."""
    others = [ROOT / name for name in PACKAGES]
    environment = Path(sys.prefix)
    if Path.cwd() in environment.parents:
        others.append(environment)
    is_other = any(file.is_relative_to(other) for other in others)
    return not is_other and "site-packages" not in file.parts
