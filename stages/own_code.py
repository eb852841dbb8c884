"""A user's own function, named `module:function` in a recipe or on the command line.

Imported only where the user has said so: with its name on the command line, or with ALLOW_CODE=1 in
the environment. A recipe may come from somebody else, and a YAML file must not run code.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import Settings


def check_own(settings: Settings, key: str) -> None:
    """Refuse functions of `key` that nobody has allowed, or that are not there."""
    for name in [name for name in getattr(settings, key) if ":" in name]:
        if key not in settings.typed and os.environ.get("ALLOW_CODE", "0") in ("", "0"):
            raise UserError(
                f"{settings.path}: {key}: {name} is code that would be run; read it, then set "
                f"ALLOW_CODE=1, or give --{key} on the command line"
            )
        load_own(name, key)


def load_own(name: str, key: str) -> Callable[..., Any]:
    """Import `module:function`; modules are looked for in the working folder too.

    Raises:
        UserError: the module is not there or fails, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # whatever the user's module raises
        raise UserError(
            f"{key}: {name} cannot be loaded ({type(error).__name__}: {error}); write "
            f"module:function, the module importable from {folder}"
        ) from error
    if not callable(function):
        raise UserError(f"{key}: {name} is {function!r}, no function")
    return function


def own_files(names: Sequence[str]) -> list[Path]:
    """The files of the modules of all `module:function` among `names`, for the manifest's hashes.

    Below the working folder as a relative path, so that a moved clone keeps its results.
    """
    modules = {name.partition(":")[0] for name in names if ":" in name}
    files = [Path(str(importlib.import_module(module).__file__)) for module in sorted(modules)]
    here = Path.cwd()
    return [file.relative_to(here) if file.is_relative_to(here) else file for file in files]
