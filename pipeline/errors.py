"""Errors: a user's mistake is one line with place, value and remedy, and exit code 2."""

import contextlib
import errno
import json
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

from pipeline.console import (
    UnfailingFile,
    is_main_process,
    one_line,
    protect_output,
    quiet_imports,
    use_utf8,
)
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
_needed: dict[Path, float] = {}  # by folder of this process: bytes that it is known to need, or 0


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
    With `--json` stdout gets one object at the end: {"exit_code", "error", "output_dir", and the
    manifest's "stage", "counts", "wall_time_s", ...}. Everything else goes to stderr. Output that
    cannot be written changes neither the run nor its exit code.
    """
    use_utf8()
    protect_output()
    quiet_imports()
    ask_nobody()
    json_output = None
    if is_first:  # before, while modules are imported, Ctrl-C just ends the process
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.excepthook = _thread_error
        if "--json" in sys.argv:
            sys.argv.remove("--json")
            json_output = UnfailingFile(os.dup(1), "w")
            os.dup2(2, 1)  # of child processes too
    code, line = _run_to_end(main)
    if line:
        _tell(code, line)
    if json_output is not None and is_main_process():
        json_output.write(f"{json.dumps(_summary(code, line))}\n".encode())
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
        if end.code or not _needed:  # `--help` ends before a folder is claimed
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
    """Leave a disk's fault in a thread (TensorBoard's writer) to the main one, which meets it.

    Memory that is full gets a line: the main thread may have enough.
    """
    if disk_fault(args.exc_value):
        return
    if args.exc_value is not None and (why := memory_fault(args.exc_value)):
        sys.stderr.write(f"notice: out of memory in a thread of its own ({one_line(why)})\n")
        return
    threading.__excepthook__(args)


def _summary(code: int, line: str | None) -> dict[str, Any]:
    """The object of `--json`; after a success it has the short keys of the folder's manifest."""
    found: dict[str, Any] = {"exit_code": code, "error": line, "output_dir": None}
    if not _needed:
        return found
    folder = next(iter(_needed))
    found["output_dir"] = str(folder)
    manifest = folder / "manifest.json"
    if code == 0 and manifest.is_file():
        made: Any = {}
        with contextlib.suppress(ValueError, RecursionError):
            made = json.loads(manifest.read_text(encoding="utf-8"))
        left_out = ("config", "inputs", "files", "versions")
        if isinstance(made, dict):
            found |= {key: value for key, value in made.items() if key not in left_out}
    return found


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


def note_folder(folder: Path, needed: float = 0) -> None:
    """Remember where this process writes, and how much, for the message when a disk is full."""
    _needed[folder] = needed


def check_space(
    folder: str, needed: float, what: str, find_kept: Callable[[], list[str]] = list
) -> None:
    """Refuse a folder whose disk has less than `needed` bytes free for `what`.

    Args:
        find_kept: finds lines on files that the user may remove.
    """
    note_folder(Path(folder), needed)
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
        if any(words in str(error) for words in DISK_IS_FULL):
            most = max(_needed.values(), default=0)
            place = Path(os.fsdecode(name)) if name else next(reversed(_needed), Path("."))
            space = f"{_free(place)} free, {size(most) if most else 'more'} needed"
            return f"{place}: {error}; {space}: free space, then repeat the command"
        if isinstance(error, OSError) and error.errno and isinstance(name, str | bytes):
            return f"{os.fsdecode(name)}: {error.strerror}; correct that, then repeat the command"
        error = error.__cause__
    return None


def _free(place: Path) -> str:
    """The free space where a file is or would be; "?" where that cannot be found out."""
    try:
        return size(shutil.disk_usage(nearest(place)).free)
    except OSError:
        return "?"
