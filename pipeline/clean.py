"""What a run holds on disk, and its removal."""

import shutil
import sys
from pathlib import Path

from pipeline import manifest
from pipeline.errors import size
from pipeline.stages import STAGES

# What is written to a run beside the stages' folders.
OTHERS = ("sweep", "control", "completions")


def find(run: str) -> list[Path]:
    """What a run holds: all of it below runs/, else only what stages and tools have written.

    `<stage>.1` and `<stage>.next` are runs that were superseded or are not whole yet.
    """
    folder = Path(run)
    if run.startswith("runs/") and (folder / "data" / manifest.NAME).is_file():
        return [folder]
    found = []
    for name in (*STAGES, *OTHERS):
        found += sorted([*folder.glob(name), *folder.glob(f"{name}.*")])
    return found


def bytes_of(place: Path) -> int:
    """The size of a file, or of all files in a folder."""
    files = [place] if place.is_file() else place.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def show(run: str) -> None:
    """Print what a run holds, with sizes."""
    sizes = {place: bytes_of(place) for place in find(run)}
    if not sizes:
        sys.stdout.write(f"clean: {run} holds nothing of a run\n")
        return
    for place, number in [*sizes.items(), ("total", sum(sizes.values()))]:
        sys.stdout.write(f"{size(number):>12}  {place}\n")
    sys.stdout.write("clean: YES=1 removes these; other seeds and recipes stay\n")


def remove(run: str) -> None:
    """Remove what a run holds, and say what that was."""
    places = find(run)
    if not places:
        show(run)
        return
    for place in places:
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
        sys.stdout.write(f"clean: removed {place}\n")
