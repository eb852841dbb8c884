"""What a build writes: data files, the rows that were left out, and the counts that add up."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from data_prep import manifest
from data_prep.build.clean import Collector
from data_prep.build.prepare import Dropped
from data_prep.build.recipe import FILES, Source
from data_prep.build.spool import Spool
from data_prep.config import UserError
from data_prep.schema import grpo_row, sft_row

DROPPED, CONTAMINATION = "dropped.jsonl", "contamination.jsonl"
NAMES = (*FILES.values(), DROPPED, CONTAMINATION)
EXCERPT = 1000  # characters of a text in the two logs
MARK = "build.partial"  # there while a build is under way, and after one was killed


def check_folder(folder: str, inputs: Iterable[Path]) -> None:
    """Refuse a folder in which the build would overwrite files that are not its own.

    Args:
        inputs: local files that are read.

    Raises:
        UserError: an input lies there, or a file of the build's names that no build wrote.
    """
    place = Path(folder)
    for path in inputs:
        if path.resolve().parent == place.resolve():
            raise UserError(
                f"output_dir: {folder} holds {path.name}, which is read; choose another folder"
            )
    is_own = (manifest.read(place) or {}).get("stage") == "data" or (place / MARK).exists()
    found = [name for name in NAMES if (place / name).exists()]
    if found and not is_own:
        raise UserError(
            f"output_dir: {folder} holds {found[0]}, which no build wrote; choose another folder, "
            "or move the file away"
        )


class SetReport:
    """Rows in, rows out and named drops of one data file, in all and for each source."""

    def __init__(self, key: str, sources: list[Source]) -> None:
        self.key, self._sources = key, sources
        self._rows_in = [0] * len(sources)
        self._rows_out = [0] * len(sources)
        self._dropped: list[Counter[str]] = [Counter() for _ in sources]
        self.bands: dict[str, int] = {}
        self.num_rated = 0  # rows whose pass rate was measured
        self.seconds: Counter[str] = Counter()

    def add_rows(self, source: int, number: int, not_sampled: int) -> None:
        """Count the rows that a source has, and those that its sample left out."""
        self._rows_in[source] += number
        if not_sampled:
            self._dropped[source]["not_sampled"] += not_sampled

    def add_drop(self, source: int, reason: str, num_rows: int) -> None:
        """Count rows that were left out."""
        self._dropped[source][reason] += num_rows

    def add_kept(self, source: int) -> None:
        """Count a row that was written."""
        self._rows_out[source] += 1

    @property
    def rows_in(self) -> int:
        """Rows of all sources."""
        return sum(self._rows_in)

    @property
    def rows_out(self) -> int:
        """Rows written."""
        return sum(self._rows_out)

    @property
    def dropped(self) -> Counter[str]:
        """Rows left out, by reason."""
        return sum(self._dropped, Counter())

    def check(self) -> None:
        """Every row of every source is written or dropped for a reason."""
        for rows_in, rows_out, dropped in zip(
            self._rows_in, self._rows_out, self._dropped, strict=True
        ):
            assert rows_in == rows_out + dropped.total(), (rows_in, rows_out, dropped)

    def summary(self) -> dict[str, Any]:
        """The manifest's entry of this file."""
        sources = [
            {
                "name": source.name, "split": source.split, "place": source.file or source.hub,
                "rows_in": rows_in, "rows_out": rows_out, "dropped": dict(sorted(dropped.items())),
            }
            for source, rows_in, rows_out, dropped in zip(
                self._sources, self._rows_in, self._rows_out, self._dropped, strict=True
            )
        ]  # fmt: skip
        found = {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "dropped": dict(sorted(self.dropped.items())),
            "sources": sources,
        }
        return found | ({"bands": self.bands} if self.bands else {})


class Outputs:
    """The build's files: written under temporary names, put in place together, or all removed.

    Args:
        folder: where they go; files of a former recipe are removed, other files are not touched.
        system_prompt: of the rows' prompts.
    """

    def __init__(self, folder: str, system_prompt: str) -> None:
        self._folder, self._system_prompt = Path(folder), system_prompt
        self._mark = self._folder / MARK
        self._logs: dict[str, IO[str]] = {}
        self._is_kept = False

    def __enter__(self) -> "Outputs":
        self._mark.touch()
        self._remove()
        for name in (DROPPED, CONTAMINATION):
            self._logs[name] = self._partial(name).open("w", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        for log in self._logs.values():
            log.close()
        if not self._is_kept:
            self._remove()
        self._mark.unlink(missing_ok=True)

    def _partial(self, name: str) -> Path:
        return self._folder / f"{name}.partial"

    def _remove(self) -> None:
        for name in NAMES:
            for path in (self._folder / name, self._partial(name), self._spool_path(name)):
                path.unlink(missing_ok=True)

    def _spool_path(self, name: str) -> Path:
        return self._folder / f"{name}.spool.partial"

    def path(self, key: str) -> Path:
        """Where one data file is until the build has finished."""
        return self._partial(FILES[key])

    @contextlib.contextmanager
    def spool(self, key: str) -> Iterator[Spool]:
        """A spool for one data file's problems, gone afterwards."""
        path = self._spool_path(FILES[key])
        spool = Spool(path)
        try:
            yield spool
        finally:
            spool.close()
            path.unlink(missing_ok=True)

    def drop(self, report: SetReport, source: int, found: Dropped) -> None:
        """Count and log a row that is left out."""
        report.add_drop(source, found.reason, found.num_rows)
        row = {
            "file": FILES[report.key],
            "reason": found.reason,
            "where": found.where,
            "detail": found.detail[:EXCERPT],
            "id": found.id,
            "question": found.question[:EXCERPT],
            "answer": found.answer[:EXCERPT],
        }
        self._logs[DROPPED].write(json.dumps(row) + "\n")
        if found.match:
            match = found.match
            pair = {key: row[key] for key in ("file", "where", "id", "question", "answer")} | {
                "benchmark": match.benchmark,
                "benchmark_id": match.id,
                "benchmark_question": match.question[:EXCERPT],
                "score": round(match.score, 3),
                "kind": match.kind,
            }
            self._logs[CONTAMINATION].write(json.dumps(pair) + "\n")

    def write(
        self, report: SetReport, collector: Collector, spool: Spool, order: list[int]
    ) -> None:
        """Write one data file."""
        make_row = sft_row if report.key == "sft" else grpo_row
        with self.path(report.key).open("w", encoding="utf-8") as file:
            for number in order:
                problem, _ = spool.get(number)
                # Escaped: U+2028 in GSM8K breaks readers that split lines as Unicode does.
                file.write(json.dumps(make_row(problem, self._system_prompt)) + "\n")
                report.add_kept(collector.source(number))

    def finish(self) -> None:
        """Put every file in place."""
        for log in self._logs.values():
            log.close()
        for name in NAMES:
            if self._partial(name).exists():
                self._partial(name).replace(self._folder / name)

    def keep(self) -> None:
        """The manifest is written: nothing is to be removed."""
        self._is_kept = True
