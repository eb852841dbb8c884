"""Where a stage may write, and how the runs of a training stage lie beside each other.

    runs/x/sft          a link to the last whole run; while there is none, to the one being made
    runs/x/sft-3f9a12/  a run, named by a hash of its keys and inputs; `-2` behind it: once more
    runs/x/tensorboard/sft-3f9a12/  its curves, which TensorBoard would find twice in the run

Later stages read `sft`. No start moves or replaces anything but the link. Version 0.2.0 had a
folder `sft` in its place, which stays as it is.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline import json_files
from pipeline.errors import UserError, nearest

REPOSITORY = Path(__file__).resolve().parents[1]
RUN_FILE = "run.json"  # of every run: what it was made from, and by
CURVES = "tensorboard"
NAMED = re.compile(r"(.+)-[0-9a-f]{6}(-[2-9]|-[1-9]\d+)?")


def place_named(run: Path) -> Path:
    """The place of a stage, such as runs/x/sft, whose run has this name; else the path itself."""
    named = NAMED.fullmatch(run.name)
    return run.with_name(named[1]) if named else run


def is_run_of(place: Path, path: Path) -> bool:
    """Whether a path is named as a run of a stage's place is."""
    return path.name != place.name and place_named(path).name == place.name


def is_link(place: Path) -> bool:
    """Whether a place is a link to a run beside it; any other link is a user's own."""
    if not place.is_symlink():
        return False
    target = place.readlink()
    return target.name == str(target) and is_run_of(place, target)


def place_of(folder: str | Path) -> Path:
    """The place of a stage that a path names, such as runs/x/sft; a user's own link is followed."""
    place = Path(folder)
    while place.is_symlink() and not is_link(place):
        place = place.parent / place.readlink()
    return place


def behind_link(path: str) -> str:
    """A path with the run in place of the link to it: what is written must outlast the link."""
    for one in (Path(path), *Path(path).parents):
        if is_link(one):
            return str(one.with_name(str(one.readlink())) / Path(path).relative_to(one))
    return path


def runs_of(place: Path) -> list[Path]:
    """The runs of a stage's place, the oldest first."""
    beside = place.parent.iterdir() if place.parent.is_dir() else ()
    found = [one for one in beside if is_run_of(place, one) and (one / RUN_FILE).is_file()]
    return sorted(found, key=lambda one: (time_of(one, "made"), one.name))


def time_of(run: Path, key: str) -> float:
    """A time that `run.json` has, "made" or "started", in seconds of `time.time()`; else 0."""
    with suppress(OSError, ValueError):
        return float(json_files.read(run / RUN_FILE, {key: float}, "")[key])
    return 0.0


def folders_in(run: Path) -> list[Path]:
    """The folders in a run's folder, each once: a link stands for the run that it names."""
    found = [path for path in sorted(run.iterdir()) if path.is_dir()] if run.is_dir() else []
    linked = {path.resolve() for path in found if is_link(path)}
    return [path for path in found if is_link(path) or path.resolve() not in linked]


def link(place: Path, run: Path) -> None:
    """Let a stage's place be a link to one of its runs, in one step.

    Raises:
        UserError: the disk has no links.
    """
    if place == run or (is_link(place) and str(place.readlink()) == run.name):
        return
    new = place.with_name(f"{place.name}.link")
    new.unlink(missing_ok=True)
    make_link(new, run.name)
    if place.is_dir() and not place.is_symlink():
        place.rmdir()  # it is empty
    new.replace(place)


def make_link(place: Path, target: str) -> None:
    """Make a link; a disk that has none is refused."""
    try:
        place.symlink_to(target, target_is_directory=True)
    except OSError as error:
        fault = f"no link can be made there ({error.strerror or error})"
        raise UserError(f"{place.parent}: {fault}; choose a RUN on another disk") from error


def check_links(run: str | Path) -> None:
    """Refuse a disk without links before anything runs."""
    probe = nearest(run) / f".link-{os.getpid()}"
    make_link(probe, "none")
    probe.unlink()


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
