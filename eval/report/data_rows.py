"""What `data_report` counts in a built data folder, file by file, in one pass over each.

Only counts and a few rows are held, so that memory does not grow with the rows.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from data_prep.reading.reading import read_rows

DROPPED, CONTAMINATION = "dropped.jsonl", "contamination.jsonl"
TEXTS = ("question", "completion")  # whose lengths are measured, where a row has them
BATCH = 512  # rows that are tokenized together
Measure = Callable[[Sequence[str]], list[int]]


@dataclass
class FileCounts:
    """Counts over the rows of one data file.

    Args:
        num_rows: in the file.
        lengths: `{"question" or "completion": {length: rows}}`, in what `measure` counts.
        sources, subjects: `{name: rows}`.
        levels: `{source: {level: rows}}` of the rows that have one, to three significant digits.
        solved: `{(right, samples): rows}` of the rows whose pass rate is known.
    """

    num_rows: int = 0
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    sources: Counter[str] = field(default_factory=Counter)
    subjects: Counter[str] = field(default_factory=Counter)
    levels: dict[str, Counter[float]] = field(default_factory=dict)
    solved: Counter[tuple[int, int]] = field(default_factory=Counter)


def count_characters(texts: Sequence[str]) -> list[int]:
    """The length of each text in characters."""
    return [len(text) for text in texts]


def count_tokens(tokenizer: Any) -> Measure:
    """A function that gives the length of each of some texts in tokens.

    Args:
        tokenizer: of the tokenizers library.
    """

    def measure(texts: Sequence[str]) -> list[int]:
        return [len(one) for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    return measure


def count_rows(
    path: Path, measure: Measure, rates: Mapping[str, tuple[int, int]], num_measured: int | None
) -> FileCounts:
    """Count the rows of one data file.

    Args:
        measure: gives the lengths of texts.
        rates: `{id: (num_right, num_samples)}` of the problems whose pass rate was measured.
        num_measured: how many of the rows are measured, counted from the first; None is all. The
            builder has shuffled training files, so the first are a random sample.

    Raises:
        UserError: the file is missing, or a row is damaged; names file and line.
    """
    found = FileCounts()
    waiting: dict[str, list[str]] = {}
    for where, row in _read(path):
        found.num_rows += 1
        source = _text(row, "source", where)
        found.sources[source] += 1
        found.subjects[_text(row, "subject", where)] += 1
        if (level := _level(row, where)) is not None:
            found.levels.setdefault(source, Counter())[level] += 1
        if (rate := rates.get(_text(row, "id", where))) is not None:
            found.solved[rate] += 1
        if num_measured is not None and found.num_rows > num_measured:
            continue
        for name in TEXTS:
            if name == "question" or name in row:
                waiting.setdefault(name, []).append(_text(row, name, where))
        if found.num_rows % BATCH == 0:
            _measure(found, waiting, measure)
    _measure(found, waiting, measure)
    return found


def _measure(found: FileCounts, waiting: dict[str, list[str]], measure: Measure) -> None:
    for name, texts in waiting.items():
        found.lengths.setdefault(name, Counter()).update(measure(texts))
    waiting.clear()


def quantile(counts: Mapping[int, int], share: float) -> int:
    """The smallest value that at least `share` of the counted ones do not exceed (nearest rank).

    Args:
        counts: `{value: number}`, at least one.
        share: within 0..1.
    """
    wanted, seen = share * sum(counts.values()), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return max(counts)


@dataclass
class DroppedRows:
    """Counts and samples of the rows that were left out.

    Args:
        counts: `{(file, reason): rows}`.
        samples: `{(file, reason): rows as the builder logs them}`, in the order of the log.
    """

    counts: Counter[tuple[str, str]]
    samples: dict[tuple[str, str], list[dict[str, str]]]


def sample_dropped(folder: Path, wanted: Iterable[tuple[str, str]], size: int) -> DroppedRows:
    """Count the dropped rows, and draw up to `size` of each kind in one pass (algorithm R).

    Args:
        wanted: the (file, reason) pairs to draw from. Those of the manifest: a log that does not
            belong to it could have any number.

    Raises:
        UserError: the log is missing, or a row is damaged; names file and line.
    """
    kinds = dict.fromkeys(wanted)
    counts: Counter[tuple[str, str]] = Counter()
    kept: dict[tuple[str, str], list[tuple[int, dict[str, str]]]] = {kind: [] for kind in kinds}
    draws = {kind: random.Random("-".join(kind)) for kind in kinds}
    columns = ("file", "reason", "where", "detail", "id", "question", "answer")
    for number, (where, row) in enumerate(_read(folder / DROPPED)):
        kind = (_text(row, "file", where), _text(row, "reason", where))
        if kind not in kinds:
            continue
        counts[kind] += 1
        place = len(kept[kind]) if counts[kind] <= size else draws[kind].randrange(counts[kind])
        if place < size:
            item = (number, {name: _text(row, name, where) for name in columns})
            kept[kind][place : place + 1] = [item]
    # Sorted by place alone: rows cannot be compared.
    samples = {
        kind: [row for _, row in sorted(items, key=lambda item: item[0])]
        for kind, items in kept.items()
        if items
    }
    return DroppedRows(counts, samples)


def read_matches(folder: Path, size: int) -> tuple[Counter, list[dict[str, Any]]]:
    """Counts of the matches with evaluation sets, and the `size` least certain of them.

    Returns:
        `{(benchmark, file, kind): pairs}`, and pairs as the builder logs them, lowest score first.

    Raises:
        UserError: the log is missing, or a row is damaged; names file and line.
    """
    counts: Counter[tuple[str, str, str]] = Counter()

    def pairs() -> Iterator[dict[str, Any]]:
        names = ("file", "where", "id", "question", "answer",
                 "benchmark", "benchmark_id", "benchmark_question", "kind")  # fmt: skip
        for where, row in _read(folder / CONTAMINATION):
            score = row.get("score")
            if type(score) not in (int, float):
                raise _damaged(where, "score", score, "a number")
            pair = {name: _text(row, name, where) for name in names} | {"score": float(score)}
            counts[pair["benchmark"], pair["file"], pair["kind"]] += 1
            yield pair

    least = heapq.nsmallest(size, pairs(), key=lambda pair: pair["score"])
    return counts, least


def _read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file, though the build has finished; run `make data`")
    yield from read_rows(path)


def _text(row: dict[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise _damaged(where, name, value, "text")
    return value


def _level(row: dict[str, Any], where: str) -> float | None:
    value = row.get("level")
    if value is not None and type(value) not in (int, float):
        raise _damaged(where, "level", value, "a number")
    # Scores of a model can all differ, and would be as many as there are rows.
    return None if value is None else float(f"{value:.3g}")


def _damaged(where: str, name: str, value: Any, wanted: str) -> UserError:
    return UserError(f"{where}: {name}: {value!r:.80} is not {wanted}; run `make data` again")
