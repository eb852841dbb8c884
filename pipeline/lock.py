"""The lock of a run: one process at a time writes to a folder.

`<folder>.lock` has host, process id and start time of the process that writes to a folder. A second
start ends with one line before torch is imported. The lock of a dead process of this host is taken
over. Whether a process of another host lives cannot be seen here, so its lock is an error, unless
Slurm says that its job has ended. A job that is requeued on another host thus resumes by itself.
"""

import atexit
import contextlib
import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from pipeline import json_files
from pipeline.console import is_main_process
from pipeline.errors import UserError, nearest, note_folder
from pipeline.paths import check_links

SHAPE = {"host": str, "pid": int, "started": float, "job?": object}
SAME_START = 60  # seconds that the system's clock may be set by while a process lives


def claim(folder: str | Path) -> None:
    """Take a folder's lock until this process ends; raises `UserError` where another has it."""
    if not is_main_process():
        return
    check_links(folder, "folder")
    place = Path(folder).resolve()  # a link and what it names are one folder
    lock = place.with_name(f"{place.name}.lock")
    note_folder(place)
    if not nearest(lock.parent).is_dir():
        raise UserError(f"{folder}: {nearest(lock.parent)} is a file; choose another folder")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(lock.parent):
        owner = _read(lock)
        if owner.get("pid") == os.getpid() and owner.get("host") == socket.gethostname():
            return
        if owner and _may_live(owner):
            since = datetime.fromtimestamp(owner["started"]).strftime("%Y-%m-%d %H:%M:%S")
            user = f"process {owner['pid']} on {owner['host']} since {since}"
            remedy = f"wait for it; if it no longer runs there, remove {lock}"
            raise UserError(f"{folder}: in use by {user}; {remedy}")
        started = psutil.Process().create_time()
        me = {"host": socket.gethostname(), "pid": os.getpid(), "started": started, "job": _job()}
        lock.write_text(json.dumps(me), encoding="utf-8")
    atexit.register(_release, lock, os.getpid())


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process at a time into the block, by a lock on a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # NFS locks no folder
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(lock: Path) -> dict[str, Any]:
    """The lock's owner; {} where there is none, or a full disk has left no text."""
    try:
        owner = json_files.read(lock, SHAPE, "remove it")
        datetime.fromtimestamp(owner["started"])
        return owner | {"job": owner.get("job")} if owner["pid"] > 0 else {}
    except (ValueError, OverflowError, OSError):
        return {}


def _job() -> list[str]:
    """Of a Slurm job its number and how often it was requeued."""
    return [os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_RESTART_COUNT", "0")]


def _is_over(job: Any) -> bool:
    """Whether Slurm says that this start of a job has ended."""
    number = str(job[0]) if isinstance(job, list) and job else ""
    if not number.isdecimal():
        return False
    if number == _job()[0]:
        return job != _job()
    command = ["squeue", "--noheader", "--jobs", number]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    is_unknown = "Invalid job id" in done.stderr
    is_absent = done.returncode == 0 and not done.stdout.strip()
    return is_unknown or is_absent


def _may_live(owner: dict[str, Any]) -> bool:
    if owner["host"] != socket.gethostname():
        return not _is_over(owner["job"])
    try:
        process = psutil.Process(owner["pid"])
        is_dead = process.status() == psutil.STATUS_ZOMBIE
        return not is_dead and abs(process.create_time() - owner["started"]) < SAME_START
    except psutil.NoSuchProcess:
        return False


def _release(lock: Path, pid: int) -> None:
    with contextlib.suppress(
        OSError
    ):  # read-only disk: the lock stays, and counts as a dead process's
        if pid == os.getpid() and _read(lock).get("pid") == pid:
            lock.unlink(missing_ok=True)
