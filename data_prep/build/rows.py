"""The rows of one source: read or generated, sampled, turned into problems and checked.

Reading is done in the main process, checking a chunk at a time in any: it depends on the row alone.
What depends on other rows is done by `data_prep.build.duplicates`, in the order of the rows.
"""

import dataclasses
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.build.duplicates import signature
from data_prep.build.filters import (
    Bands,
    Checked,
    Policies,
    check_language,
    check_lengths,
    check_problem,
)
from data_prep.build.recipe import DataArguments, Source, find_file
from data_prep.config import UserError
from data_prep.decontamination.index import EvalIndex, EvalQuestion
from data_prep.decontamination.text import question_key, tokenise
from data_prep.reading.rows import BadRow, Row, load_hub, read_rows_and_faults
from data_prep.schema import Problem
from data_prep.sources import synthetic
from data_prep.sources.base import Drop
from data_prep.sources.registry import BUILDERS

EXCERPT = 1000  # characters of a row that its source drops

Item = tuple[int, str, Row | BadRow | Problem]  # position from 0, where, what was read


@dataclass(frozen=True)
class Job:
    """What is to be done with the rows of one source; sent to the workers with every chunk.

    Args:
        name: of the source, with the options of its builder.
        part: middle of the ids, see `data_prep.build.recipe.id_parts`.
        bands: how its problems are sorted into easy, medium and hard, or None.
        checks_contamination: compare with the evaluation questions.
        skips_bad_rows: count bad rows instead of raising `UserError`.
    """

    name: str
    options: dict[str, Any]
    part: str
    policies: Policies
    bands: Bands | None = None
    checks_contamination: bool = False
    skips_bad_rows: bool = False
    finds_near_duplicates: bool = False


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
        rows = self._counted(rows)
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

    def _counted(self, rows: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        started = time.perf_counter()
        for where, row in rows:
            self.seconds += time.perf_counter() - started
            self.num_read += row.num_rows if isinstance(row, BadRow) else 1
            yield where, row
            started = time.perf_counter()


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


class Clock:
    """Seconds of each step, by laps."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._last = time.perf_counter()

    def lap(self, step: str) -> None:
        """Count the time since the last lap as `step`'s."""
        now = time.perf_counter()
        self.seconds[step] += now - self._last
        self._last = now


class Checker:
    """Checks rows against policies and evaluation questions.

    Args:
        questions: of evaluation sets, which must not occur in the training sets.
        pass_rates: `{id: rate}`, measured by `stages.difficulty`; they replace the rows' own.
    """

    def __init__(self, questions: Sequence[EvalQuestion], pass_rates: dict[str, float]) -> None:
        self._index = EvalIndex(questions) if questions else None
        self._pass_rates = pass_rates

    def check_rows(self, job: Job, items: Sequence[Item]) -> tuple[list[Checked], Counter[str]]:
        """One result for each row, in order; and the seconds of each step.

        Raises:
            UserError: a bad row, unless the job skips them.
        """
        clock = Clock()
        return [self._check(job, *item, clock) for item in items], clock.seconds

    def _check(
        self, job: Job, position: int, where: str, row: Row | BadRow | Problem, clock: Clock
    ) -> Checked:
        problem = self._build(job, position, where, row)
        clock.lap("build")
        if isinstance(problem, Checked):
            return problem
        is_rated = problem.id in self._pass_rates
        if is_rated:
            problem = dataclasses.replace(problem, pass_rate=self._pass_rates[problem.id])
        drop, match = None, None
        golds = check_problem(problem, job.policies)
        clock.lap("gold and kind")
        if isinstance(golds, Drop):
            drop = golds
        else:
            problem = dataclasses.replace(problem, answers=golds)
            drop = check_language(problem, job.policies)
            clock.lap("language")
            drop = drop or check_lengths(problem, job.policies)
            clock.lap("length")
        if drop is None and self._index and job.checks_contamination:
            match = self._index.find_repeated(problem)
            clock.lap("decontamination")
            if match:
                drop = Drop("in_eval_set", f"{match.benchmark} {match.id}")
        found = Checked(where, problem, drop, is_rated=is_rated, match=match)
        if drop:
            return found
        keys = signature(tokenise(problem.question)).tobytes() if job.finds_near_duplicates else b""
        found = dataclasses.replace(
            found,
            key=question_key(problem.question, problem.trace),
            signature=keys,
            band=job.bands.find(problem.level, problem.pass_rate) if job.bands else None,
        )
        clock.lap("signature")
        return found

    def _build(
        self, job: Job, position: int, where: str, row: Row | BadRow | Problem
    ) -> Problem | Checked:
        """The problem of a row, or why there is none."""
        if isinstance(row, Problem):
            return row
        try:
            if isinstance(row, BadRow):
                raise UserError(row.message)
            name = f"{job.name}-{job.part}-{position}"
            built = BUILDERS[job.name](row, name, where, **job.options)
        except UserError as error:
            if not job.skips_bad_rows:
                raise UserError(f"{error} (or leave it out: --on_bad_row skip)") from error
            num_rows = row.num_rows if isinstance(row, BadRow) else 1
            return Checked(where, None, Drop("bad_row", str(error)), num_rows=num_rows)
        if isinstance(built, Problem):
            return built
        text = json.dumps(row, ensure_ascii=False, default=str)
        return Checked(where, None, built, text[:EXCERPT])
