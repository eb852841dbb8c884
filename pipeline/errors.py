"""Errors: a user's mistake is one line with place, value and remedy, and exit code 2."""

import errno
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.console import one_line, protect_output, quiet_imports
from pipeline.memory import memory_fault, num_oom_kills
from pipeline.stages import stage_of_process
from pipeline.values import redact
from pipeline.venv import missing

OUT_OF_MEMORY = 71  # EX_OSERR of sysexits.h
INTERRUPTED = 130  # as a shell has it: 128 and the signal's number
LOST = 75  # EX_TEMPFAIL of sysexits.h: the same command may succeed later
# Of a full disk, a quota, a limit for one file, and a full disk in torch.save's words.
DISK_IS_FULL = (
    *map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    "inline_container",
)
_folders: list[Path] = []  # that this process writes to


class UserError(ValueError):
    """A mistake in a file, key or command line: one line naming it, its value and the remedy.

    `others` are further mistakes, of which `lines` has the first, too: who checks ahead tells all.
    """

    exit_code = 2

    def __init__(self, message: str, *others: str) -> None:
        super().__init__(redact(message))
        self.lines = [redact(line) for line in (message, *others)]


class LostError(UserError):
    """A server or engine that the run needs is gone and may come back; no mistake of the user."""

    exit_code = LOST


class KilledError(UserError):
    """A process was ended by SIGKILL, from outside; a signal's number is added to 128."""

    exit_code = 128 + signal.SIGKILL


class OutOfMemoryError(UserError):
    """The memory of this machine, or of its GPU, does not hold what the settings ask for."""

    exit_code = OUT_OF_MEMORY


def run_cli(main: Callable[[], None], is_first: bool = True) -> None:
    """Run an entry point and turn its error into one line on stderr and an exit code.

    A `UserError` or a disk's error gives exit code 2, a `LostError` 75, memory that is full 71,
    Ctrl-C 130. A stage that something ends with `sys.exit(0)` has not finished: exit code 2.
    Output that cannot be written changes neither the run nor its exit code.
    """
    protect_output()
    quiet_imports()
    ask_nobody()
    if is_first:  # before, while modules are imported, Ctrl-C just ends the process
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.excepthook = _thread_error
    code, line = _run_to_end(main)
    if line:
        _tell(code, line)
    if code:
        sys.exit(code)


def ask_nobody() -> None:
    """Let no library or child process wait for an answer on the terminal.

    transformers asks whether to run a model's code, wandb for a key, git for a password.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    os.environ.setdefault("GIT_TERMINAL_PROMPT", "0")
    os.environ.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")


def _run_to_end(main: Callable[[], None]) -> tuple[Any, str | None]:
    """The exit code of an entry point, and the line that says why it is not 0."""
    try:
        main()
    except KeyboardInterrupt:
        return INTERRUPTED, "interrupted: run the same command again to resume"
    except SystemExit as end:
        if end.code or not _folders:  # `--help` ends before a folder is claimed
            return end.code or 0, None
        last = traceback.extract_tb(end.__traceback__)[-1]
        fault = f"sys.exit() in {last.filename}, line {last.lineno}, before the work was finished"
        return 2, f"error: {one_line(fault)}; remove that call, then run the same command again"
    except UserError as error:
        return error.exit_code, f"error: {one_line(error)}"
    except Exception as error:
        if why := memory_fault(error):
            return OUT_OF_MEMORY, f"error: {one_line(memory_line(why))}"
        line = disk_fault(error)
        if isinstance(error, ModuleNotFoundError):
            line = missing(error) or None
        if line is None:
            raise
        return 2, f"error: {one_line(line)}"
    return 0, None


def _tell(code: int, line: str) -> None:
    """Write the last line of a process; of several on a host the first one speaks first."""
    is_first_here = os.environ.get("LOCAL_RANK", "0") == "0"
    if not is_first_here:
        if code == INTERRUPTED:
            return  # the first one says it
        time.sleep(1)  # where the first one fails, too, the launcher ends this one before it speaks
    sys.stderr.write(f"{line}\n")


def _thread_error(args: threading.ExceptHookArgs) -> None:
    """Leave a fault of disk or memory in a thread, such as TensorBoard's, to the main thread.

    That one meets it, too.
    """
    error = args.exc_value
    if error is None or not (disk_fault(error) or memory_fault(error)):
        threading.__excepthook__(args)


def memory_line(why: str) -> str:
    """The line of memory that is full where no training step tells more."""
    name, remedy = stage_of_process()
    kept = "what is finished is kept: the same command resumes"
    return f"{name}: out of memory ({why}); {remedy}; {kept}"


def killed(what: str, num_before: int | None) -> UserError:
    """The error of a process that was ended by SIGKILL, with the cause as far as it is known.

    Args:
        what: the process.
        num_before: `num_oom_kills()` as it started.
    """
    line, now = f"{what} was ended by SIGKILL", num_oom_kills()
    resumes = "the same command resumes"
    if num_before is None or now is None:
        return KilledError(f"{line}, by a person or for lack of main memory; {resumes}")
    if now == num_before:
        return KilledError(f"{line}, from outside; {resumes}")
    remedy = "lower batch sizes or numbers of workers, or use a machine with more memory"
    return OutOfMemoryError(f"{line}: out of main memory, says the kernel; {remedy}; {resumes}")


def note_folder(folder: Path) -> None:
    """Remember where this process writes, for the message when a disk is full."""
    _folders.append(folder)


def check_space(
    folder: str, needed: float, what: str, find_kept: Callable[[], list[str]] = list
) -> None:
    """Refuse a folder whose disk has less than `needed` bytes free for `what`.

    Args:
        find_kept: finds lines on files that the user may remove.
    """
    note_folder(Path(folder))
    free = shutil.disk_usage(folder).free
    if free < needed:
        fault = f"{what} needs {size(needed)}, its disk has {size(free)} free"
        remedy = "; ".join(["free some space, or choose another output_dir", *find_kept()])
        raise UserError(f"{folder}: {fault}; {remedy}")


def nearest(folder: str | Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    place = Path(folder).absolute()
    return next(one for one in (place, *place.parents) if os.path.exists(one))


def size(number: float) -> str:
    """Bytes as a person reads them."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:,.1f} MiB"


def disk_fault(error: BaseException | None) -> str | None:
    """The line for an error that the system caused; None for others.

    That is an `OSError` with the name of a file, and every error that says that a disk is full: a
    write knows no name, and libraries keep the words alone.
    """
    while error is not None:
        name = getattr(error, "filename", None) if isinstance(error, OSError) else None
        place = os.fsdecode(name) if isinstance(name, str | bytes) else ""
        if any(words in str(error) for words in DISK_IS_FULL):
            place = place or f"{_folders[-1] if _folders else '.'}"
            return f"{place}: {error}; free space, then repeat the command"
        if place and isinstance(error, OSError) and error.errno:
            return f"{place}: {error.strerror}; correct that, then repeat the command"
        error = error.__cause__
    return None
