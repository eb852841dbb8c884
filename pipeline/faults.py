"""Which errors are the system's, not our code's: a disk, a mount, a folder, a limit.

An `OSError` with a number is the system's, but for numbers that a wrong call gives, too. A missing
file is ours, a bug to be seen as such; a missing folder above it was removed by someone, since we
make the folders that we write to. Libraries that keep no number are known by their words.
"""

import errno
import os
import re
import resource
import ssl
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SPACE = "free space"
ACCESS = "give access to it"
MOUNT = "its disk or mount is gone or failing: bring it back"
IN_USE = "another process uses it: end that one"
REMOVED = "it was removed or is not mounted: bring it back"
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), SPACE),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), ACCESS),
    **dict.fromkeys((errno.EBUSY, errno.ETXTBSY, errno.ENOTEMPTY), IN_USE),
    errno.ENOENT: REMOVED,
    errno.EEXIST: "a file has the name of a folder: rename it",
    errno.ENOTDIR: "a part of its path is a file: rename that",
    errno.EISDIR: "a folder has the name of a file: rename it",
    errno.ELOOP: "its links point at each other: remove one",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENFILE: "raise the limit of this host, fs.file-max, or end other jobs",
}  # of all others the remedy is MOUNT
LIMITS = {  # of a shell: its flag of ulimit, its name in the module resource
    errno.EMFILE: ("-n", "RLIMIT_NOFILE"),
    errno.EFBIG: ("-f", "RLIMIT_FSIZE"),
    errno.EAGAIN: ("-u", "RLIMIT_NPROC"),
}
# What a call gives that is wrong, and what a network gives. Memory has a line of its own.
NOT_THE_SYSTEMS = {
    *(errno.EBADF, errno.EINVAL, errno.EFAULT, errno.ENOTTY, errno.ESPIPE, errno.EDOM),
    *(errno.ERANGE, errno.ECHILD, errno.ESRCH, errno.EINTR, errno.ENOEXEC, errno.E2BIG),
    *(errno.EPIPE, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EADDRINUSE),
    *(errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.EHOSTUNREACH),
    *(errno.EDESTADDRREQ, errno.ENOTSOCK, errno.EISCONN, errno.EINPROGRESS, errno.ENOMEM),
}
# Files of Python through which an error of a network comes; a mount has the same numbers.
NETWORKS = {"socket.py", "ssl.py", "selector_events.py"}
# A library's text may speak of a network with the words of the others.
IN_TEXTS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.ENAMETOOLONG, errno.ENOTDIR),
)
WORDS = {os.strerror(number): number for number in IN_TEXTS} | {
    "disk quota": errno.EDQUOT,
    "disk is full": errno.ENOSPC,  # sqlite
    "disk I/O error": errno.EIO,
    "read-only file": errno.EROFS,
    "readonly database": errno.EROFS,
    "unable to open database file": errno.EACCES,
    "inline_container": errno.ENOSPC,  # torch.save
    "writing file": errno.ENOSPC,
    "items of ancdata": errno.EMFILE,  # a DataLoader's workers
    "can't start new thread": errno.EAGAIN,
}
NUMBERED = re.compile(r"\[errno (\d+)\]|\(os error (\d+)\)", re.I)  # of Arrow, and of Rust
PARENT_DOES_NOT_EXIST = re.compile(r"Parent directory (.+) does not exist")  # torch.save
NO_TMPDIR = "No usable temporary directory"
PROGRAMMING = (LookupError, TypeError, AttributeError, NameError, AssertionError)

Kind = Callable[[BaseException], tuple[int | None, str]]


class Fault(NamedTuple):
    """Where the system failed (None: not known), why, and what to do."""

    place: Path | None
    why: str
    remedy: str


def find_fault(error: BaseException | None, folders: Iterable[Path]) -> Fault | None:
    """The system's fault behind an error; None where it is not the system's.

    Args:
        folders: those that this process writes to.
    """
    errors = list(_chain(error))
    found = (_fault(one, [*folders], kind) for kind in (_numbered, _in_words) for one in errors)
    return next(filter(None, found), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those behind it; a bug hides what it interrupted."""
    while error is not None:
        is_bug = isinstance(error, PROGRAMMING)
        if not is_bug:
            yield error
        is_told = error.__cause__ or error.__suppress_context__ or is_bug
        error = error.__cause__ if is_told else error.__context__


def _fault(error: BaseException, folders: list[Path], kind: Kind) -> Fault | None:
    number, why = kind(error)
    if NO_TMPDIR in why:
        tmpdir = Path(os.environ.get("TMPDIR", "/tmp"))
        return Fault(tmpdir, why, "set TMPDIR to a folder that can be written")
    if number is None or number in NOT_THE_SYSTEMS:
        return None
    paths = _paths(error)
    place = paths[0] if paths else None
    if number == errno.ENOENT:
        place = _missing_folder(paths or [folder / "file" for folder in folders])
    elif number == errno.EEXIST:
        place = next((path for path in paths if not os.path.isdir(path)), None)
    if place is None and number in (errno.ENOENT, errno.EEXIST):
        return None
    return Fault(place, why, _remedy(number))


def _numbered(error: BaseException) -> tuple[int | None, str]:
    """The number of an error of the system, and its meaning."""
    if not isinstance(error, OSError) or error.errno not in errno.errorcode:
        return None, ""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, ssl.SSLError) or NETWORKS & {Path(f.filename).name for f in frames}:
        return None, ""
    is_tempfiles = NO_TMPDIR in str(error)
    return error.errno, str(error) if is_tempfiles else os.strerror(error.errno)


def _in_words(error: BaseException) -> tuple[int | None, str]:
    """The number of an error whose library keeps none, and the line that tells it."""
    if isinstance(error, OSError) and error.errno is not None:
        return None, ""
    for line in str(error).strip().splitlines():
        number = _number_by_text(line)
        if number is not None or NO_TMPDIR in line:
            return number, line
    return None, ""


def _number_by_text(text: str) -> int | None:
    if PARENT_DOES_NOT_EXIST.search(text):
        return errno.ENOENT
    if found := NUMBERED.search(text):
        number = int(found[1] or found[2])
        return number if number in (*IN_TEXTS, errno.ENOENT) else None
    lower = text.lower()
    return next((WORDS[words] for words in WORDS if words.lower() in lower), None)


def _paths(error: BaseException) -> list[Path]:
    """The files that an error names: of a renaming both."""
    if found := PARENT_DOES_NOT_EXIST.search(str(error)):
        return [Path(found[1], "file")]
    names = [getattr(error, key, None) for key in ("filename", "filename2")]
    return [Path(os.fsdecode(name)) for name in names if isinstance(name, str | bytes)]


def working_folder() -> tuple[Path, bool]:
    """The working folder, and whether it is there; where it was removed, its last name."""
    try:
        return Path.cwd(), True
    except FileNotFoundError:
        return Path(os.environ.get("PWD", ".")), False


def _missing_folder(paths: list[Path]) -> Path | None:
    """The first folder above one of these files that is not there; None where all are."""
    here, is_there = working_folder()
    for path in paths:
        if path.is_absolute() or is_there:
            for folder in reversed((here / path).parents):
                if not os.path.isdir(folder):
                    return folder
    return None if is_there else here


def _remedy(number: int) -> str:
    if number not in LIMITS:
        return REMEDIES.get(number, MOUNT)
    flag, name = LIMITS[number]
    limit, _ = resource.getrlimit(getattr(resource, name))
    now = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"
    return f"raise the limit of this shell with `ulimit {flag}` (now {now}), or end other jobs"
