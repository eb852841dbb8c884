"""The rows of one source, read or generated, sampled, and counted."""

import random
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_prep.build.data_arguments import DataArguments
from data_prep.build.prepare import Item
from data_prep.build.recipe import Source, find_file
from data_prep.config import UserError
from data_prep.reading.reading import BadRow, load_hub, read_rows_and_faults
from data_prep.sources import synthetic


class SourceRows:
    """Iterates over (position, where, row, fault or ready problem) of one source, once.

    Args:
        part: middle of the ids, see `data_prep.build.recipe.id_parts`; part of the sample's seed.
        key: the file that they are for; as well.

    Attributes:
        num_read: rows of the source.
        num_taken: those of them that the sample has.
        seconds: spent reading.
    """

    def __init__(self, source: Source, part: str, key: str, args: DataArguments) -> None:
        self._source, self._part, self._key, self._args = source, part, key, args
        self.num_read = self.num_taken = 0
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Item]:
        source, key = self._source, self._key
        place: Any = source.name
        if source.name == "synthetic":
            rows = self._generate()
        else:
            path = find_file(source, self._args.data_root)
            place = path or source.hub
            if path is None and source.hub_file:
                path = fetch_hub_file(source.hub, source.hub_file)
            rows = (
                read_rows_and_faults(path)
                if path
                else load_hub(source.hub, source.split, source.config)
            )
        rows = self._count(self._timed(rows))
        size = None if source.name == "synthetic" else source.sample
        items: Iterable[Item]
        if size is None:
            items = ((position, *row) for position, row in enumerate(rows))
        else:
            # Seeded by what is sampled, not by its place in the list: adding another source
            # changes nothing.
            seed = f"{self._args.seed}-{key}-{source.name}-{self._part}"
            items = sample_rows(track(rows, f"{key}: sampling {source.name}"), size, seed)
        for item in track(items, f"{key}: {source.name}"):
            self.num_taken += item[2].num_rows if isinstance(item[2], BadRow) else 1
            yield item
        if not self.num_read:
            raise UserError(f"{key}: {source.name}: {place} has no rows; check the file")
        if size is not None and self.num_read < size:
            sys.stderr.write(
                f"notice: {key}: {source.name} has {self.num_read} rows, fewer than sample "
                f"{size}: all are taken\n"
            )

    def _generate(self) -> Iterator[tuple[str, Any]]:
        source = self._source
        try:
            found = synthetic.load(source.split, source.sample, self._args.seed, **source.options)
            yield from ((problem.id, problem) for problem in found)
        except (TypeError, ValueError) as error:  # an option unknown or out of range
            raise UserError(f"{self._key}: synthetic: {error}; fix its options or split") from error

    def _timed(self, rows: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        rows = iter(rows)
        while True:
            started = time.perf_counter()
            try:
                row = next(rows)
            except StopIteration:
                return
            finally:
                self.seconds += time.perf_counter() - started
            yield row

    def _count(self, rows: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        for where, row in rows:
            self.num_read += row.num_rows if isinstance(row, BadRow) else 1
            yield where, row


def fetch_hub_file(hub: str, name: str) -> Path:
    """The local copy of one file of a hub data set, downloaded where it is not cached.

    For sets whose files have no common columns, or are no tables: they are read as local ones are.

    Raises:
        UserError: no such set or file, or the hub cannot be reached.
    """
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(hub, name, repo_type="dataset"))
    except (OSError, ValueError) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"hub: {hub}: hub_file: {name}: {message}; check the names, or set --data_root to a "
            "folder that holds `file`"
        ) from error


def sample_rows(
    rows: Iterable[tuple[str, Any]], size: int, seed: str
) -> list[tuple[int, str, Any]]:
    """Draw `size` rows in one pass (reservoir sampling, Vitter's algorithm R).

    Returns:
        The rows as (position from 0, where, row), in file order.
    """
    rng = random.Random(seed)
    kept: list[tuple[int, str, Any]] = []
    for position, (where, row) in enumerate(rows):
        if position < size:
            kept.append((position, where, row))
        elif (slot := rng.randrange(position + 1)) < size:
            kept[slot] = (position, where, row)
    return sorted(kept, key=lambda item: item[0])


def track(items: Iterable, description: str) -> Iterator:
    """A progress bar on stderr; silent when that is not a terminal."""
    from rich.console import Console
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    if not console.is_terminal:
        return iter(items)
    return iter(rich_track(items, description, console=console, transient=True))
