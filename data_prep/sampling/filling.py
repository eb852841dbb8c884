"""Have every sample of a set in the store: what is missing is generated, by all processes."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from data_prep.sampling.processes import Processes
from data_prep.sampling.samples import Request, SampleStore

# Requests that an engine is handed at once: their token ids, some 2 KB each, are in memory.
WINDOW = 32_768


def fill(
    store: SampleStore,
    wanted: Sequence[Request],
    load: Callable[[], Any],
    processes: Processes,
    label: str,
) -> None:
    """Generate the samples that the store lacks; each is on disk as soon as it is finished.

    Every process comes here with the same `wanted` and generates its share. Afterwards the main
    process can get all of them.

    Args:
        load: loads the engine; called where there is something to generate.
        label: stands before what is said, and at the progress bar.
    """
    store.load()
    processes.meet()  # all have read the same before the first writes
    missing = store.missing(wanted)
    num_stored = len(set(wanted)) - len(missing)
    if num_stored and processes.is_main:
        sys.stdout.write(f"{label}: {num_stored:,} samples are there already\n")
        sys.stdout.flush()
    mine = processes.share(missing)
    if mine:
        engine = load()
        try:
            with progress_bar(label, len(missing), processes.is_main) as advance:
                for start in range(0, len(mine), WINDOW):
                    window = mine[start : start + WINDOW]
                    with closing(engine.complete(window)) as found:
                        for index, completion in found:
                            store.add(window[index], completion)
                            advance(processes.world_size)  # the others keep about the same pace
        finally:
            store.close()
            engine.close()
    processes.meet()
    if processes.world_size > 1 and processes.is_main:
        store.load()


@contextmanager
def progress_bar(label: str, total: int, is_shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that counts samples, silent where that is no terminal; yields `advance`."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (f"{label}:", BarColumn(), MofNCompleteColumn(), "samples,", TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (is_shown and console.is_terminal)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
