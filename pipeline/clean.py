"""What a run holds on disk, and its removal."""

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from pipeline import json_files, manifest
from pipeline.errors import UserError, size
from pipeline.folders import CURVES, RUN_FILE, is_link, place_named, time_of
from pipeline.lock import claim
from pipeline.stages import ROOT, STAGES

# What tools write to a run beside the stages' folders.
OTHERS = ("sweep", "control", "completions", "samples", "merged", CURVES)
OURS = re.compile(
    rf"({'|'.join([*STAGES, *OTHERS])})(-[0-9a-f]{{6}}(-\d+)?)?(\.(next|tokens|link|\d+))?(\.lock)?"
)
# One of these is in every folder that a stage or a tool of ours has written.
MARKS = (
    manifest.NAME,
    RUN_FILE,
    "checkpoint-*",
    "samples",
    "samples-*.jsonl",
    "audit.json",
    "table.json",
    f"*/*/{RUN_FILE}",  # of a sweep that no run has ended of
    "*.parquet",
    "*/completions.parquet",  # results of an evaluation, of earlier settings or unfinished
    "*/rows.arrow",
    "*/merged.json",  # the merged copy of an adapter that a stage has started from
    "*.partial/config.json",  # one that a kill has left half written
    "*/events.out.tfevents*",
)
# Of checkpoints, as torch, FSDP and DeepSpeed name what only a resume needs.
OPTIMIZER_FILES = (
    *("optimizer*", "scheduler.pt", "scaler.pt", "rng_state*"),
    "global_step*optim_states*",  # the weights are beside them
)


def find(run: str) -> list[Path]:
    """The folders in a run that stages and tools have written, their links and locks.

    `eval.1` has results that version 0.2.0 kept, `data.tokens` what SFT has tokenized.

    Raises:
        UserError: the folder may hold other files too, as a home folder does.
    """
    folder = Path(run)
    place = folder.resolve()
    if place in (Path.home(), Path.cwd(), ROOT, *Path.cwd().parents, *ROOT.parents):
        raise UserError(f"{run}: is not the folder of one run; give that folder as RUN")
    beside = sorted(folder.iterdir()) if folder.is_dir() else ()
    return [one for one in beside if OURS.fullmatch(one.name) and is_ours(one)]


def is_ours(place: Path) -> bool:
    """Whether a folder has a mark of ours, or a file or link is one that stages make."""
    if place.suffix == ".lock":
        return place.is_file()
    if is_link(place) or (place.suffix == ".link" and place.is_symlink()):
        return True
    return place.is_dir() and any(next(place.glob(mark), None) for mark in MARKS)


def bytes_of(place: Path) -> int:
    """The size of a file, or of all files in a folder; a link has none."""
    if place.is_symlink():
        return 0
    files = [place] if place.is_file() else place.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def earlier_runs(run: str) -> list[Path]:
    """The runs of stages that no link names, also of a sweep, the oldest first."""
    found = [file.parent for file in Path(run).rglob(RUN_FILE)]
    others = [one for one in found if place_named(one).resolve() != one.resolve()]
    return sorted(others, key=lambda one: time_of(one, "made"))


def states_of(run: Path) -> Iterator[Path]:
    """The files of a whole run's checkpoints that only a resume would need."""
    if not (run / manifest.NAME).is_file():
        return
    for seal in run.glob("checkpoint-*/files.json"):
        with contextlib.suppress(ValueError):  # damaged: it names no file
            for name in json_files.read(seal, {"files": {str: str}}, "")["files"]:
                file = seal.parent / name
                is_within = file.resolve().is_relative_to(run.resolve())
                is_state = any(fnmatch(name, kind) for kind in OPTIMIZER_FILES)
                if is_within and is_state and file.is_file():
                    yield file


def show(run: str) -> None:
    """Print what a run holds, with sizes, and what is in each folder: some may be the user's."""
    sizes = {place: bytes_of(place) for place in find(run)}
    if not sizes:
        sys.stdout.write(f"clean: {run} has no files of a run\n")
        return
    for place, number in sizes.items():
        target = f" -> {place.readlink()}" if is_link(place) else ""
        sys.stdout.write(f"{size(number):>12}  {place}{target}\n")
        if place.is_dir() and not place.is_symlink():
            names = ", ".join(sorted(one.name for one in place.iterdir()))
            sys.stdout.write(f"{'':14}{names}\n")
    sys.stdout.write(f"{size(sum(sizes.values())):>12}  total\n")
    if earlier := earlier_runs(run):
        sys.stdout.write("clean: the runs that no link names, the oldest first:\n")
    for one in earlier:
        state = "finished" if (one / manifest.NAME).is_file() else "unfinished"
        states = size(sum(map(bytes_of, states_of(one))))
        sys.stdout.write(f"{size(bytes_of(one)):>12}  {one}: {state}, YES=states frees {states}\n")
    sys.stdout.write("clean: YES=1 removes all of these files; other seeds and recipes stay\n")


def remove_states(run: str) -> None:
    """Remove the optimizers' states of whole runs that no link names; their weights stay."""
    for file in [file for one in earlier_runs(run) for file in states_of(one)]:
        sys.stdout.write(f"clean: removed {file} ({size(bytes_of(file))})\n")
        file.unlink()


def remove(run: str) -> None:
    """Remove a run's files and print each; remove the run's folder too if nothing is left."""
    places = find(run)
    if not places:
        show(run)
        return
    for place in places:  # a stage that was started by itself holds its own lock
        if place.suffix != ".lock":
            claim(place_named(place))
    for place in places:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        sys.stdout.write(f"clean: removed {place}\n")
    for lock in Path(run).glob("*.lock"):  # of this process
        if OURS.fullmatch(lock.name):
            lock.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others' files are left in it
        Path(run).rmdir()
