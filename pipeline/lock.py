"""The lock of a run: one process at a time writes to a folder.

The system holds a lock for a process on `<folder>.lock`, and lets it go however the process ends. A
second start ends with one line before torch is imported, with the owner that the file names.
"""

import atexit
import contextlib
import os
import socket
import time
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from pipeline.console import is_main_process
from pipeline.errors import UserError, nearest, note_folder
from pipeline.folders import place_of
from pipeline.paths import check_links

_held: dict[Path, FileLock] = {}


def claim(folder: str | Path) -> None:
    """Take a folder's lock until this process ends; raises `UserError` where another has it."""
    if not is_main_process():
        return
    check_links(folder, "folder")
    place = place_of(folder)  # the link of a stage stays, while what it names may change
    place = place.parent.resolve() / place.name
    file = place.with_name(f"{place.name}.lock")
    note_folder(place)
    if not nearest(file.parent).is_dir():
        raise UserError(f"{folder}: {nearest(file.parent)} is a file; choose another folder")
    if file in _held:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        owner = file.read_text(encoding="utf-8", errors="replace").strip()
        raise UserError(
            f"{folder}: in use by {owner or 'another process'}; wait for it, or end it"
        ) from error
    if not isinstance(lock, SoftFileLock):  # of a disk without locks: its text is the lock
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        owner = f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
        file.write_text(owner, encoding="utf-8")
    _held[file] = lock
    atexit.register(release, file, os.getpid())


def release(file: Path, pid: int) -> None:
    """Remove a lock's file and let the lock go, in the process that took it; not in its forks."""
    if pid == os.getpid() and (lock := _held.pop(file, None)):
        with contextlib.suppress(OSError):  # a read-only disk: the file stays, and locks nothing
            file.unlink(missing_ok=True)
        lock.release()


def one_at_a_time(folder: Path) -> FileLock:
    """Let one process at a time into a `with` block; others wait."""
    return FileLock(folder / ".lock")
