"""What a run may remove from its folder, and how everything else is kept.

A run removes files that it wrote and finished, by name, and never a folder with all that is in it:
a user's notes, a renamed checkpoint or a link stay where they are. What a run can no longer use is
set aside under a number. It is removed only when the user does so.
"""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

# As the Trainer names them: `checkpoint-8-keep` or `checkpoint-008` is the user's.
CHECKPOINT = re.compile(r"checkpoint-(0|[1-9]\d*)", re.ASCII)
# Before the number and the name of what was set aside, such as `damaged-1-checkpoint-8`.
DAMAGED, EARLIER = "damaged", "earlier"
TORN = re.compile(r"\.tmp[0-9A-Za-z]{6}")  # as Rust's tempfile names it


def checkpoints(folder: Path) -> dict[int, Path]:
    """The Trainer's checkpoints in a folder, by step."""
    paths = folder.iterdir() if folder.is_dir() else ()
    found = {path: CHECKPOINT.fullmatch(path.name) for path in paths}
    return {int(match[1]): path for path, match in found.items() if match}


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Remove files of a folder, and the folders that are empty then; all else stays.

    A link is never followed, whether it is the folder or lies below it.

    Args:
        names: paths within the folder; others, such as `../x`, are left alone.
    """
    if folder.is_symlink():
        return
    place, emptied = folder.resolve(), {folder}
    for name in names:
        file = folder / name
        # Another program may have written the list of names.
        if not file.parent.resolve().is_relative_to(place):
            continue
        with contextlib.suppress(OSError):  # a read-only disk: it stays
            file.unlink(missing_ok=True)
        emptied |= {folder / part for part in Path(name).parents}
    for one in sorted(emptied, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):  # the user's files are in it
            one.rmdir()


def remove_torn(folder: Path) -> None:
    """Remove what a kill has left of weights that safetensors was writing, here or in a checkpoint.

    It writes to such a name first and renames it; no reader takes the name for weights.
    """
    for place in (folder, *checkpoints(folder).values()):
        files = place.iterdir() if place.is_dir() else ()
        remove_files(place, [file.name for file in files if TORN.fullmatch(file.name)])


def set_aside(path: Path, kind: str, why: str, name: str = "") -> None:
    """Give something that a run cannot use a name of its own, and say how to free it.

    Args:
        kind: DAMAGED or EARLIER.
        name: what it is called behind the number, by default as it is.
    """
    number = 1
    while os.path.lexists(aside := path.with_name(f"{kind}-{number}-{name or path.name}")):
        number += 1
    path.rename(aside)
    freed = f"to free it: rm -r {shlex.quote(str(aside))}"
    sys.stdout.write(f"{path}: {why}; set aside as {aside.name}; {freed}\n")


def drop_replaced(replaced: Path, *successors: Path) -> None:
    """Remove the files of a folder whose successors are in others; keep those of the user.

    Args:
        successors: the folder in its place, and perhaps folders in that.
    """
    names = [
        path.relative_to(folder).as_posix()
        for folder in successors
        for path in folder.rglob("*")
        if path.is_file()
    ]
    remove_files(replaced, names)
    if os.path.lexists(replaced):
        set_aside(replaced, EARLIER, "holds files that no stage wrote", successors[0].name)
