"""A user's own code: `module:function` or `module:Class` in a recipe or on the command line.

It is imported only with the user's consent: its name on the command line, or ALLOW_CODE=1 in the
environment. A recipe may come from somebody else, and a YAML file must not run code.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline import consent
from pipeline.errors import UserError
from pipeline.settings import Settings


def check_own(settings: Settings, key: str, base: type | None = None) -> None:
    """Refuse code of `key`, one name or a list, that is not allowed or does not fit."""
    value = getattr(settings, key)
    for name in [value] if isinstance(value, str) else value:
        if ":" not in name:
            continue
        if key not in settings.typed and not consent.is_given():
            raise UserError(
                f"{settings.path}: {key}: {name} is code that would run; read it, then set "
                f"ALLOW_CODE=1, or give --{key} on the command line"
            )
        load_own(name, key, base)


def load_own(name: str, key: str, base: type | None = None) -> Callable[..., Any]:
    """Import `module:name`; modules are looked for in the working folder too.

    Args:
        base: the object must be a subclass of this class; None: it must be a function.

    Raises:
        UserError: the module is missing or fails, or has no such function or class.
    """
    form = "module:Class" if base else "module:function"
    module_name, _, own_name = name.partition(":")
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)
    try:
        found = getattr(importlib.import_module(module_name), own_name)
    except Exception as error:  # whatever the user's module raises
        raise UserError(
            f"{key}: {name} cannot be loaded ({type(error).__name__}: {error}); write "
            f"{form}, the module importable from {folder}"
        ) from error
    if base is None:
        if not callable(found):
            raise UserError(f"{key}: {name} is {found!r}, not a function; name a function")
    elif not (isinstance(found, type) and issubclass(found, base)):
        wanted = f"{base.__module__}.{base.__name__}"
        raise UserError(
            f"{key}: {name} is not a subclass of {wanted}; write class {own_name}({base.__name__})"
        )
    else:
        check_constructor(name, key, found, base)
    return found


def check_constructor(name: str, key: str, found: type, base: type) -> None:
    """Refuse a class that does not take what its base class takes, before anything is loaded."""
    wanted = list(inspect.signature(base).parameters)
    try:
        inspect.signature(found).bind(*wanted)
    except TypeError as error:
        call = f"{found.__name__}({', '.join(wanted)})"
        raise UserError(f"{key}: {name}: {error}; it is built as {call}") from error


def own_files(names: Sequence[str]) -> list[Path]:
    """The files of the modules of all `module:name` among `names`, for the manifest's hashes.

    Below the working folder as a relative path, so that a moved clone keeps its results.
    """
    modules = {name.partition(":")[0] for name in names if ":" in name}
    files = [Path(str(importlib.import_module(module).__file__)) for module in sorted(modules)]
    here = Path.cwd()
    return [file.relative_to(here) if file.is_relative_to(here) else file for file in files]
