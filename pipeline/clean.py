"""What a run holds on disk, and its removal."""

import contextlib
import re
import shutil
import sys
from pathlib import Path

from pipeline import manifest
from pipeline.errors import UserError, size
from pipeline.lock import claim
from pipeline.stages import ROOT, STAGES

# What tools write to a run beside the stages' folders.
OTHERS = ("sweep", "control", "completions", "samples", "merged")
# One of these is in every folder that a stage or a tool of ours has written.
MARKS = (
    manifest.NAME,
    "run.json",
    "checkpoint-*",
    "samples",
    "samples-*.jsonl",
    "audit.json",
    "table.json",
    "*.parquet",
    "*/completions.parquet",  # results of an evaluation, of earlier settings or unfinished
    "*/rows.arrow",
    "*/merged.json",  # the merged copy of an adapter that a stage has started from
    "*.partial/config.json",  # one that a kill has left half written
)


def find(run: str) -> list[Path]:
    """The folders in a run that stages and tools have written, and the locks beside them.

    `sft.1` is a superseded run of SFT, `eval.1` earlier results, `sft.next` a run that has not
    finished, `data.tokens` what SFT has tokenized.

    Raises:
        UserError: the folder may hold other files too, as a home folder does.
    """
    folder = Path(run)
    place = folder.resolve()
    if place in (Path.home(), Path.cwd(), ROOT, *Path.cwd().parents, *ROOT.parents):
        raise UserError(f"{run}: is not the folder of one run; give that folder as RUN")
    names = "|".join([*STAGES, *OTHERS])
    ours = re.compile(rf"({names})(\.(next|tokens|\d+))?")
    found = []
    for one in sorted(folder.iterdir()) if folder.is_dir() else ():
        if ours.fullmatch(one.name.removesuffix(".lock")) and is_ours(one):
            found.append(one)
    return found


def is_ours(place: Path) -> bool:
    """Whether a folder has a mark of ours, or a file is the lock of one."""
    if place.suffix == ".lock":
        return place.is_file()
    return place.is_dir() and any(next(place.glob(mark), None) for mark in MARKS)


def bytes_of(place: Path) -> int:
    """The size of a file, or of all files in a folder."""
    files = [place] if place.is_file() else place.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def show(run: str) -> None:
    """Print what a run holds, with sizes, and what is in each folder: some may be the user's."""
    sizes = {place: bytes_of(place) for place in find(run)}
    if not sizes:
        sys.stdout.write(f"clean: {run} has no files of a run\n")
        return
    for place, number in [*sizes.items(), ("total", sum(sizes.values()))]:
        sys.stdout.write(f"{size(number):>12}  {place}\n")
        if isinstance(place, Path) and place.is_dir() and not place.is_symlink():
            names = ", ".join(sorted(one.name for one in place.iterdir()))
            sys.stdout.write(f"{'':14}{names}\n")
    sys.stdout.write("clean: YES=1 removes these files; other seeds and recipes stay\n")


def remove(run: str) -> None:
    """Remove a run's files and print each; remove the run's folder too if nothing is left."""
    places = find(run)
    if not places:
        show(run)
        return
    for place in places:  # a stage that was started by itself holds its own lock
        if place.suffix != ".lock":
            claim(place)
    for place in places:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        sys.stdout.write(f"clean: removed {place}\n")
    for place in places:
        place.with_name(f"{place.name}.lock").unlink(missing_ok=True)  # this process's
    with contextlib.suppress(OSError):  # others' files are left in it
        Path(run).rmdir()
