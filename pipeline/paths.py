"""Paths as a user writes them, made plain once, before lock, manifest and run see them.

`~` is the home folder, as in a shell. A variable is refused: a recipe could put a secret of the
environment into the name of a folder, and another host may know another value.
"""

import os
import re
from pathlib import Path
from typing import Any

from pipeline.errors import UserError

# Before the path of an entry of `checkpoints`, as in `base=~/models/qwen`.
_HOME = re.compile(r"([\w.-]+=)?(~[^/=]*(?:/.*)?)", re.DOTALL)
_VARIABLE = re.compile(r"\$(\w+|\{\w+\})")
_IS_PATH = re.compile(r"(.*_)?(dir|file|files|path|root|recipe|run)|checkpoints|model|out|config|"
                      r"overlay|.*_config|.*_or_path|resume_from_checkpoint|deepspeed")  # fmt: skip
WRITTEN_TO = ("output_dir", "report_dir", "samples_dir", "run_dir", "run")


def plain(key: str, value: Any, where: str) -> Any:
    """A setting's value with the home folder in place of `~`, in lists and mappings too.

    Raises:
        UserError: a path has a variable, or the folder of a result leads through a dangling link.
    """
    if isinstance(value, list):
        return [plain(key, part, where) for part in value]
    if isinstance(value, dict):
        return {name: plain(str(name), part, where) for name, part in value.items()}
    if not isinstance(value, str):
        return value
    if _IS_PATH.fullmatch(key):
        if match := _HOME.fullmatch(value):
            value = (match[1] or "") + os.path.expanduser(match[2])
        check_variables(key, value, where)
    if key in WRITTEN_TO:
        check_links(value, f"{where}: {key}")
    return value


def is_same_place(one: str, other: str) -> bool:
    """Whether two texts are equal, or are two spellings of the path to one file or folder."""
    if one == other:
        return True
    return os.path.exists(one) and os.path.realpath(one) == os.path.realpath(other)


def is_same(key: str, one: Any, other: Any) -> bool:
    """Whether two values of a key are equal; of a key for paths, whether they name one place."""
    if isinstance(one, str) and isinstance(other, str) and _IS_PATH.fullmatch(key):
        return is_same_place(one, other)
    return bool(one == other)


def check_variables(key: str, value: str, where: str) -> None:
    """Refuse `$USER` as a part of a path, unless a file or folder has that very name."""
    parts = value.split("/")
    for at, part in enumerate(parts, start=1):
        if _VARIABLE.fullmatch(part) and not os.path.lexists("/".join(parts[:at])):
            remedy = "write its value; ~ stands for the home folder"
            raise UserError(f"{where}: {key}: {value}: {part} is not expanded here; {remedy}")


def check_links(folder: str | Path, what: str) -> None:
    """Refuse a folder for results whose path has a link that leads nowhere or in a circle.

    Such a link names a disk that is not mounted. Its folder would be made on another one.
    """
    place = Path(folder).absolute()
    for one in (*reversed(place.parents), place):
        if one.is_symlink() and not one.exists():
            remedy = "mount its disk or make its folder, or remove the link"
            fault = f"{one} is a link to {os.readlink(one)}, which is not there"
            raise UserError(f"{what}: {folder}: {fault}; {remedy}")
