"""Where a stage may write: only to a folder of its own, as runs are moved and set aside.

A training run with other settings than the one in its folder is in `<folder>.next` until it has
finished.
"""

from pathlib import Path
from typing import Any

from pipeline.errors import UserError

REPOSITORY = Path(__file__).resolve().parents[1]
NEXT = ".next"


def next_of(folder: Path) -> Path:
    """The folder beside a run's where one with other settings trains until it has finished."""
    return folder.with_name(f"{folder.name}{NEXT}")


def without_next(folder: Path) -> Path:
    """The folder of a run, of itself or of the `<folder>.next` beside it."""
    return folder.with_name(folder.name.removesuffix(NEXT))


def check_output(folder: Any, key: str) -> None:
    """Refuse an output folder that is none, is a file, or holds much more than a stage's output.

    Args:
        folder: as the recipe names it.
        key: its key, for the message.

    Raises:
        UserError: it is empty or a file, or the root, the home folder, the current folder, the
            repository or a folder that holds one of them.
    """
    remedy = "name a folder for this stage alone, such as runs/mine/sft"
    if not folder or not str(folder).strip():
        raise UserError(f"{key}: missing; {remedy}")
    place = Path(folder).expanduser().resolve()
    if place.exists() and not place.is_dir():
        raise UserError(f"{key}: {folder} is a file; {remedy}")
    for name, held in (
        ("the current folder", Path.cwd()),
        ("your home folder", Path.home()),
        ("the project's own folder", REPOSITORY),
    ):
        if place == held or place in held.parents:
            verb = "is" if place == held else "holds"
            raise UserError(f"{key}: {folder} {verb} {name}; {remedy}")
