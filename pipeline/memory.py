"""Out of memory: the errors that mean it, whoever raises them, and what the kernel has killed.

No import of torch, Arrow or vLLM: their errors are known by their base class or by their text.
"""

import errno
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

# torch (CUDA, CPU, the DataLoader), cuBLAS, C++, vLLM as it starts, numpy.
MEMORY_TEXTS = re.compile(
    r"out of (shared )?memory|can ?not allocate memory|can't allocate memory|std::bad_alloc"
    r"|unable to (allocate|mmap) .*(bytes|[KMGTP]iB)|_STATUS_ALLOC_FAILED"
    r"|no available memory for the cache blocks|available KV cache memory"
    r"|free memory on device .* is less than desired|dataloader worker .* killed by signal: killed",
    re.I | re.S,
)
# Of a control group of version 2, of version 1, of the whole machine.
OOM_COUNTERS = (
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
    "/proc/vmstat",
)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from or while handling."""
    while error is not None:
        yield error
        is_from = error.__cause__ or error.__suppress_context__
        error = error.__cause__ if is_from else error.__context__


def memory_fault(error: BaseException) -> str | None:
    """Why memory was not enough, in the words of the library that failed; None for other errors.

    Arrow's and numpy's errors are `MemoryError`s, torch's `RuntimeError`s, vLLM's `ValueError`s.
    """
    for one in causes(error):
        text = " ".join(str(one).split())
        is_full = isinstance(one, MemoryError) or getattr(one, "errno", None) == errno.ENOMEM
        if is_full or MEMORY_TEXTS.search(text):
            return ". ".join(text.split(". ")[:2]) or type(one).__name__
    return None


# The control groups of this process, and what holds the most that one may use.
GROUPS = "/proc/self/cgroup"
LIMITS = {
    "": "/sys/fs/cgroup/memory.max",  # of version 2
    "memory": "/sys/fs/cgroup/memory/memory.limit_in_bytes",  # of version 1
}


def group_limits() -> Iterator[Path]:
    """The files that may limit this process: of its control groups, and of those around them."""
    try:
        lines = Path(GROUPS).read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    # A line is `0::/user.slice/job` (version 2) or `4:memory:/job`.
    groups = dict([line.split(":", 2)[1:] for line in lines if line.count(":") >= 2])
    for controller, name in LIMITS.items():
        limit = Path(name)
        folder = limit.parent / groups.get(controller, "").strip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(limit.parent):
                yield group / limit.name


def total_memory() -> int:
    """Bytes of memory that all processes here can use: the machine's, or a control group's."""
    found = [psutil.virtual_memory().total]
    for file in group_limits():
        try:
            found.append(int(file.read_text(encoding="utf-8")))
        except (OSError, ValueError):  # no control group, or "max"
            continue
    return min(found)


def num_oom_kills() -> int | None:
    """How many processes the kernel has killed for memory so far; None where nothing tells."""
    for name in OOM_COUNTERS:
        try:
            lines = Path(name).read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, count = line.partition(" ")
            if key == "oom_kill":
                return int(count)
    return None
