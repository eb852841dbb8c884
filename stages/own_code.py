"""A user's own code: `module:function` or `module:Class` in a recipe or on the command line.

It is imported only with the user's consent: its name on the command line, or ALLOW_CODE=1 in the
environment. A recipe may come from somebody else, and a YAML file must not run code.
"""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline import consent
from pipeline.errors import UserError
from pipeline.memory import memory_fault
from pipeline.settings import Settings
from stages.restarts import is_lost_peer


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


class BadResultError(Exception):
    """The user's own code has returned what it must not; the text says what."""


@contextmanager
def blamed(
    key: str, name: str, code: Any, where: Callable[[], str], is_all_own: bool = True
) -> Iterator[None]:
    """Turn whatever the user's own code raises inside into one line with its file and line.

    `SystemExit` too: with code 0 the stage would look finished. Not Ctrl-C, a lost peer or a full
    memory, which are no mistake of that code.

    Args:
        code: the function, or the class of the object, that is called inside.
        where: gives the end of the line: step and last checkpoint.
        is_all_own: nothing else runs inside; False: an error that did not go through the user's
            file is raised as it is.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BadResultError as error:
        place, _ = place_of(error, code)
        raise UserError(f"{key}: {name} ({place}) {error}{where()}") from None
    except BaseException as error:
        place, is_inside = place_of(error, code)
        is_ours = not (is_all_own or is_inside)
        if is_ours or memory_fault(error) or is_lost_peer(error):
            raise
        fault = f"raised {type(error).__name__}: {error}"
        raise UserError(f"{key}: {name} ({place}) {fault}{where()}") from error


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


def own_files(names: Sequence[str]) -> list[Path]:
    """The files of the modules of all `module:name` among `names`, for the manifest's hashes.

    Below the working folder as a relative path, so that a moved clone keeps its results.
    """
    modules = {name.partition(":")[0] for name in names if ":" in name}
    files = [Path(str(importlib.import_module(module).__file__)) for module in sorted(modules)]
    here = Path.cwd()
    return [file.relative_to(here) if file.is_relative_to(here) else file for file in files]
