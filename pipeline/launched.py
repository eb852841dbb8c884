"""A process of a launch: it ends with its launcher, and leaves word of how it failed.

`stages.run.launch` starts the processes, and `stages.run.restarts` reads what they leave.
"""

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipeline.console import notice
from pipeline.errors import LOST
from pipeline.manifest import write_json
from pipeline.memory import memory_fault

PARENT_DEATH_SIGNAL = 1  # of Linux's prctl
FULL = "out of memory"  # as an error's signature


def is_lost_peer(error: BaseException) -> bool:
    """Whether a collective has failed because another process of the run is gone."""
    if not isinstance(error, RuntimeError) or memory_fault(error):
        return False
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error)


def in_launch(main: Callable[[], None]) -> Callable[[], None]:
    """The same entry point; in a launch it ends with its launcher, or where a peer is lost."""

    def run() -> None:
        if "LOCAL_RANK" in os.environ and sys.platform == "linux":
            ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        try:
            main()
        except Exception as error:
            note_for_launcher(error=signature_of(error))
            if not is_lost_peer(error):
                raise
            if os.environ.get("LOCAL_RANK", "0") == "0":
                notice(f"another process of the run is gone: {str(error).splitlines()[0]}")
            sys.stderr.flush()
            os._exit(LOST)  # the interpreter's end would wait for connections that are broken

    return run


def signature_of(error: BaseException) -> str:
    """What two errors have in common that are the same: their type and place, without numbers."""
    if memory_fault(error):
        return FULL
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {last.filename}, line {last.lineno}"


def note_for_launcher(**facts: str) -> None:
    """Leave facts about this process for its launcher: its `error`, the last `checkpoint` it made.

    They lie in the file that torch elastic reads when the process has failed.
    """
    name = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not name:
        return
    file, known = Path(name), {}
    with suppress(OSError, ValueError):  # without it the launcher knows less, nothing else
        if file.is_file():
            known = json.loads(file.read_text(encoding="utf-8"))
        known |= {"message": "", "timestamp": int(time.time())} | facts
        write_json(file, known)
