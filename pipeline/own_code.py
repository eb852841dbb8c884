"""A user's own code: `module:function` or `module:Class` in a recipe or on the command line.

TRL's dotted `module.function` is the same. It is imported only with the user's consent: its name
on the command line, or ALLOW_CODE=1 in the environment. A recipe may come from somebody else, and a
YAML file must not run code.
"""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from pipeline import consent
from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.stages import ROOT

PACKAGES = ("pipeline", "grading", "data_prep", "stages", "eval")  # this project's own


def is_own(name: str) -> bool:
    """Whether a name is that of code: one of ours has neither a colon nor a dot."""
    return ":" in name or "." in name


def _check_name(name: str) -> str:
    if not is_own(name):
        raise ValueError("be your own code, as module:name")
    return name


OwnCode = Annotated[str, AfterValidator(_check_name)]  # the type of a key's field


def split_name(name: str) -> tuple[str, str]:
    """The module and the function, or class, of `module:name` or `module.name`."""
    if ":" in name:
        module, _, own_name = name.partition(":")
    else:
        module, _, own_name = name.rpartition(".")
    return module, own_name


def check_own(settings: Settings, key: str, base: type | None = None) -> None:
    """Refuse code of `key`, one name or a list, that is not allowed or does not fit."""
    value = getattr(settings, key)
    for name in [value] if isinstance(value, str) else value:
        if not is_own(name):
            continue
        if key not in settings.typed:
            where = f"{settings.place_of(key)}: {key}"
            check_consent(name, where, f", or type {key} on the command line")
        load_own(name, key, base)


def check_consent(name: str, where: str, otherwise: str = "") -> None:
    """Refuse code that a file names, without ALLOW_CODE=1 in the user's environment."""
    if not consent.is_given():
        remedy = f"read it, then set ALLOW_CODE=1{otherwise}"
        raise UserError(f"{where}: {name} is code that would run; {remedy}")


def load_own(name: str, key: str, base: type | None = None) -> Callable[..., Any]:
    """Import `module:name`; modules are looked for in the working folder too.

    Args:
        base: the object must be a subclass of this class; None: it must be a function.

    Raises:
        UserError: the module is missing or fails, or has no such function or class.
    """
    form = "module:Class" if base else "module:function"
    module_name, own_name = split_name(name)
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)
    try:
        found = getattr(importlib.import_module(module_name), own_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module raises, SystemExit too
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


def place_of(error: BaseException, code: Any) -> tuple[str, bool]:
    """The last line of the user's own file that an error went through, and whether it did.

    Where it did not, the line where the code begins.
    """
    unwrapped = inspect.unwrap(code)
    defined = unwrapped if inspect.isroutine(unwrapped) or isinstance(code, type) else type(code)
    try:
        file = str(inspect.getsourcefile(defined))
        line = inspect.getsourcelines(defined)[1]
    except (TypeError, OSError):  # it is built in
        file, line = str(getattr(code, "__module__", code)), 0
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{file}, line {lines[-1] if lines else line}", bool(lines)


def own_files(names: Iterable[str]) -> list[Path]:
    """The files of all own code among `names`, for the manifest's hashes.

    These are the modules that the names are in, and below the working folder the Python files
    beside them, which they may import. Below the working folder as a relative path, so that a moved
    clone keeps its results.
    """
    files: list[Path] = []
    here = Path.cwd()
    for module in sorted({split_name(name)[0] for name in names if is_own(name)}):
        file = Path(str(importlib.import_module(module).__file__))
        files.append(file)
        is_users = file.is_relative_to(here) and "site-packages" not in file.parts
        if is_users and not any(file.is_relative_to(ROOT / one) for one in PACKAGES):
            files += sorted(file.parent.glob("*.py"))
    relative = [file.relative_to(here) if file.is_relative_to(here) else file for file in files]
    return [*dict.fromkeys(relative)]
