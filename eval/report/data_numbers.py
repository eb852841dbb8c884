"""The data report's numbers: a data build's manifest, checked, and counts over its files and logs.

One pass over each file; only counts and a few rows are held, so that memory does not grow with the
rows.
"""

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import manifest
from data_prep.build.recipe import FILES, TRAINING
from data_prep.config import UserError
from data_prep.decontamination.benchmarks import BENCHMARKS
from data_prep.reading.rows import read_rows

KEYS = ("config", "rows_in", "rows_out", "dropped", "outputs", "decontamination", "seconds")
NOT_LISTED = "not listed"
ORDER = [FILES[key] for key in ("sft", "grpo", "validation", "test")]
DROPPED, CONTAMINATION = "dropped.jsonl", "contamination.jsonl"
TEXTS = ("question", "completion")  # whose lengths are measured, where a row has them
BATCH = 512  # rows that are tokenized together
NUM_BINS = 32  # of a histogram
SKEWED = 8  # a text that is so many times the median's length: a log axis
MAX_SUBJECTS, MAX_LEVELS, MAX_SAMPLES = 15, 12, 16  # rows of a chart
Measure = Callable[[Sequence[str]], list[int]]

# Why rows are left out, in the order of the builder's steps, and in plain words.
READING = {
    "not_sampled": "the source's `sample` did not draw it",
    "bad_row": "cannot be read, or lacks a column; skipped by `on_bad_row: skip`",
    "invalid_problem": "its source says that the problem is not valid",
    "unknown_template": "the prompt holds tokens of a chat template that is not known",
    "not_math": "its source says that it is another task",
    "no_answer": "its source has no gold for it",
    "no_boxed_answer": "the solution boxes nothing",
    "unbalanced_box": "the solution's last box never closes",
    "empty_box": "the solution's last box is empty",
    "text_answer": "the gold is words, which no algebra can compare",
}
CLEANING = {
    "empty_question": "nothing is asked",
    "no_solution": "no worked text, which would teach empty thoughts",
    "sentinel_answer": "the gold says that there is none",
    "image": "the question points to a picture that is not in the row",
    "proof": "it asks for a proof: a right final line proves nothing",
    "multiple_choice": "the gold is an option, or the question shows options: guesses would pay",
    "shows_answer": "the question ends with its own answer",
    "gold_not_parseable": "the grader cannot read the gold, so nothing could ever match it",
    "level": "the level is out of the source's bounds, or unknown",
    "pass_rate": "the pass rate is out of the source's bounds, or unknown",
    "foreign_language": "the question is in none of the recipe's `languages`",
    "long_question": "more tokens than `max_question_tokens`",
    "long_solution": "more tokens than `max_solution_tokens`",
    "in_eval_set": "it is in an evaluation set, in the same or in other words",
    "duplicate_question": "the same question apart from case, spacing and punctuation",
    "conflicting_gold": "the same question has another gold elsewhere, and one of them is wrong",
    "near_duplicate": "another edition of a question, with the same numbers and the same gold",
    "unknown_difficulty": "the mix needs its difficulty, and it has none",
    "not_in_mix": "more than the mix takes of its difficulty",
}
REASONS = READING | CLEANING
# Rows that are good but not wanted: what is left without them is no loss.
ON_PURPOSE = ("not_sampled", "not_in_mix")


def in_order(reasons: Iterable[str]) -> list[str]:
    """Reasons in the order of the builder's steps; unknown ones are some source's own."""
    found = sorted(set(reasons))
    known = [*READING, *(reason for reason in found if reason not in REASONS), *CLEANING]
    return [reason for reason in known if reason in found]


def read_build(folder: Path) -> dict[str, Any]:
    """The manifest of the data build in `folder`.

    Raises:
        UserError: no build has finished there, another stage has, or one too old to be shown.
    """
    if not folder.is_dir():
        raise UserError(f"data: {folder} is not a folder; run `make data`, or set --data to one")
    path = folder / manifest.NAME
    try:
        found = manifest.read(folder)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); run `make data` again") from error
    if found is None:
        raise UserError(f"data: {folder} has no {manifest.NAME}: no build has finished there; run "
                        "`make data`")  # fmt: skip
    stage = found.get("stage") if isinstance(found, dict) else None
    if stage != "data":
        raise UserError(
            f"{path}: stage: {stage!r} is not 'data'; set --data to the folder of a data build"
        )
    outputs = found.get("outputs", {})
    counts = ("rows_in", "rows_out", "dropped", "sources")
    missing = [key for key in KEYS if key not in found]
    missing += [name for name in outputs if name not in ORDER]
    missing += [key for file in outputs.values() for key in counts if key not in file]
    if missing or not outputs:
        raise UserError(
            f"{path}: {missing[0] if missing else 'outputs'}: missing or unknown, as in builds of "
            "another version; run `make data` again"
        )
    return found


def describe_files(build: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The counts of every data file, and of each of its sources, drops in the builder's order.

    Returns:
        `{file: {key, is_training, rows_in, rows_out, dropped, sources, adds_up, bands, shares,
        size}}`; a source has `label`, unique in its file, and the manifest's keys.
    """

    def in_order_of(dropped: dict[str, int]) -> dict[str, int]:
        return {reason: dropped[reason] for reason in in_order(dropped)}

    keys = {name: key for key, name in FILES.items()}
    files = {}
    for name, found in sorted(build["outputs"].items(), key=lambda item: ORDER.index(item[0])):
        mix = (build["config"].get("mix") or {}).get(keys[name]) or {}
        sources = [
            one | {"label": label, "dropped": in_order_of(one["dropped"])}
            for one, label in zip(found["sources"], labels(found["sources"]), strict=True)
        ]
        files[name] = {
            "key": keys[name],
            "is_training": keys[name] in TRAINING,
            "rows_in": found["rows_in"],
            "rows_out": found["rows_out"],
            "dropped": in_order_of(found["dropped"]),
            "sources": sources,
            "adds_up": adds_up(found, sources) and all(adds_up(one) for one in sources),
            "bands": found.get("bands") or {},
            "shares": {band: share for band, share in mix.items() if band != "size"},
            "size": mix.get("size"),
        }
    return files


def adds_up(counts: dict[str, Any], parts: Iterable[dict[str, Any]] | None = None) -> bool:
    """Whether rows in are rows out and named drops, and the sums over the parts, if given."""
    is_whole = counts["rows_in"] == counts["rows_out"] + sum(counts["dropped"].values())
    if parts is None:
        return is_whole
    parts = list(parts)
    dropped = sum((Counter(part["dropped"]) for part in parts), Counter())
    return (
        is_whole
        and dropped == Counter(counts["dropped"])
        and all(counts[key] == sum(part[key] for part in parts) for key in ("rows_in", "rows_out"))
    )


def labels(sources: list[dict[str, Any]]) -> list[str]:
    """A name for each source of one file: as much of name, split and place as tells them apart."""
    kinds = [
        [one["name"] for one in sources],
        [f"{one['name']} {one['split']}" for one in sources],
        [f"{one['name']} {one['split']} {one['place']}" for one in sources],
        [f"{one['name']} {number}" for number, one in enumerate(sources, 1)],
    ]
    return next(names for names in kinds if len(set(names)) == len(names))


def describe_benchmarks(build: dict[str, Any]) -> dict[str, Any]:
    """`{benchmark: its number of questions, or why it was not compared}`, own sets included."""
    found = dict(build["decontamination"])
    for key in ("test", "validation"):
        if FILES[key] in build["outputs"]:
            found[key] = build["outputs"][FILES[key]]["rows_out"]
    return found | {name: NOT_LISTED for name in BENCHMARKS if name not in found}


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
) -> tuple[dict[str, Any], dict[str, Counter[int]]]:
    """Count the rows of one data file.

    Args:
        measure: gives the lengths of texts.
        rates: `{id: (num_right, num_samples)}` of the problems whose pass rate was measured.
        num_measured: how many of the rows are measured, counted from the first; None is all. The
            builder has shuffled training files, so the first are a random sample.

    Returns:
        The counts as `data-report.json` has them; and `{"question" or "completion": {length:
        rows}}`, in what `measure` counts.

    Raises:
        UserError: the file is missing, or a row is damaged; names file and line.
    """
    num_rows = 0
    sources, subjects, solved = Counter[str](), Counter[str](), Counter[tuple[int, int]]()
    levels: dict[str, Counter[float]] = defaultdict(Counter)
    lengths: dict[str, Counter[int]] = defaultdict(Counter)
    waiting: dict[str, list[str]] = defaultdict(list)

    def measure_waiting() -> None:
        for name, texts in waiting.items():
            lengths[name].update(measure(texts))
        waiting.clear()

    for where, row in _read(path):
        num_rows += 1
        source = _text(row, "source", where)
        sources[source] += 1
        subjects[_text(row, "subject", where)] += 1
        level = row.get("level")
        if level is not None:
            # Scores of a model can all differ, and would be as many as there are rows.
            levels[source][float(f"{_number(row, 'level', where):.3g}")] += 1
        if (rate := rates.get(_text(row, "id", where))) is not None:
            solved[rate] += 1
        if num_measured is not None and num_rows > num_measured:
            continue
        for name in TEXTS:
            if name == "question" or name in row:
                waiting[name].append(_text(row, name, where))
        if num_rows % BATCH == 0:
            measure_waiting()
    measure_waiting()
    return {
        "num_rows": num_rows,
        "lengths": {name: _describe_lengths(found) for name, found in lengths.items()},
        "by_source": dict(sources.most_common()),
        "subjects": largest(subjects),
        "levels": {source: sorted(map(list, found.items())) for source, found in
                   sorted(levels.items())},
        "solved": sorted([*rate, number] for rate, number in solved.items()),
    }, lengths  # fmt: skip


def _describe_lengths(counts: Counter[int]) -> dict[str, float]:
    return {
        "num": counts.total(),
        "mean": sum(length * number for length, number in counts.items()) / counts.total(),
        "median": quantile(counts, 0.5),
        "p95": quantile(counts, 0.95),
        "longest": max(counts),
    }


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


def sample_dropped(
    folder: Path, wanted: Iterable[tuple[str, str]], size: int
) -> tuple[Counter[tuple[str, str]], dict[tuple[str, str], list[dict[str, str]]]]:
    """Count the dropped rows, and draw up to `size` of each kind in one pass (algorithm R).

    Args:
        wanted: the (file, reason) pairs to draw from. Those of the manifest: a log that does not
            belong to it could have any number.

    Returns:
        `{(file, reason): rows}`, and `{(file, reason): rows as the builder logs them}` in the order
        of the log.

    Raises:
        UserError: the log is missing, or a row is damaged; names file and line.
    """
    counts: Counter[tuple[str, str]] = Counter()
    kept: dict[tuple[str, str], list[tuple[int, dict]]] = {kind: [] for kind in wanted}
    draws = {kind: random.Random("-".join(kind)) for kind in kept}
    columns = ("file", "reason", "where", "detail", "id", "question")
    for number, (where, row) in enumerate(_read(folder / DROPPED)):
        kind = (_text(row, "file", where), _text(row, "reason", where))
        if kind not in kept:
            continue
        counts[kind] += 1
        place = len(kept[kind]) if counts[kind] <= size else draws[kind].randrange(counts[kind])
        if place < size:
            texts = {name: _text(row, name, where) for name in columns}
            item = (number, texts | {"answers": _texts(row, "answers", where)})
            kept[kind][place : place + 1] = [item]
    # Sorted by place alone: rows cannot be compared.
    return counts, {
        kind: [row for _, row in sorted(items, key=lambda item: item[0])]
        for kind, items in kept.items()
        if items
    }


def read_matches(folder: Path, size: int) -> tuple[Counter, list[dict[str, Any]]]:
    """Counts of the matches with evaluation sets, and the `size` least certain of them.

    Returns:
        `{(benchmark, file, kind): pairs}`, and pairs as the builder logs them, lowest score first.

    Raises:
        UserError: the log is missing, or a row is damaged; names file and line.
    """
    counts: Counter[tuple[str, str, str]] = Counter()

    def pairs() -> Iterator[dict[str, Any]]:
        names = ("file", "where", "id", "question",
                 "benchmark", "benchmark_id", "benchmark_question", "kind")  # fmt: skip
        for where, row in _read(folder / CONTAMINATION):
            pair = {"score": float(_number(row, "score", where))}
            pair["answers"] = _texts(row, "answers", where)
            pair = {name: _text(row, name, where) for name in names} | pair
            counts[pair["benchmark"], pair["file"], pair["kind"]] += 1
            yield pair

    least = heapq.nsmallest(size, pairs(), key=lambda pair: pair["score"])
    return counts, least


def _read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file, though the build has finished; run `make data`")
    yield from read_rows(path)


def _text(row: dict[str, Any], name: str, where: str) -> str:
    return _typed(row, name, where, (str,), "text")


def _texts(row: dict[str, Any], name: str, where: str) -> list[str]:
    values = _typed(row, name, where, (list,), "a list of texts")
    return [_typed({name: value}, name, where, (str,), "text") for value in values]


def _number(row: dict[str, Any], name: str, where: str) -> float:
    return _typed(row, name, where, (int, float), "a number")


def _typed(row: dict[str, Any], name: str, where: str, kinds: tuple[type, ...], wanted: str) -> Any:
    value = row.get(name)
    if type(value) not in kinds:
        raise UserError(f"{where}: {name}: {value!r:.80} is not {wanted}; run `make data` again")
    return value


def largest(subjects: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest subjects, then the rest and what has none (""); empty where none is named."""
    named = [(name, n) for name, n in Counter(subjects).most_common() if name]
    rows, rest = named[:MAX_SUBJECTS], named[MAX_SUBJECTS:]
    if rest:
        rows.append((f"{len(rest):,} others", sum(number for _, number in rest)))
    if named and subjects.get(""):
        rows.append(("(none)", subjects[""]))
    return rows


def group_levels(levels: list[list[float]]) -> list[tuple[str, int]]:
    """Levels with their counts, in ranges of one width where they are many.

    Args:
        levels: [level, rows], lowest first.
    """
    if len(levels) <= MAX_LEVELS:
        return [(f"{level:g}", number) for level, number in levels]
    low, high = levels[0][0], levels[-1][0]
    width = (high - low) / MAX_LEVELS
    counts = [0] * MAX_LEVELS
    for level, number in levels:
        counts[min(MAX_LEVELS - 1, int((level - low) / width))] += number
    edges = [f"{low + width * place:.4g}" for place in range(MAX_LEVELS + 1)]
    return [(f"{a} to {b}", n) for (a, b), n in zip(pairwise(edges), counts, strict=True)]


def group_rates(counts: Mapping[int, int], samples: int) -> list[tuple[str, int]]:
    """How many problems have 0, 1, … right samples; in tenths where there are many samples.

    None and all are kept apart: groups without variance teach GRPO nothing.

    Args:
        counts: `{right: problems}`.
        samples: of each problem.
    """
    if samples <= MAX_SAMPLES:
        return [(f"{right}", counts.get(right, 0)) for right in range(samples + 1)]
    tenths = [0] * 10
    for right, number in counts.items():
        if 0 < right < samples:
            tenths[10 * right // samples] += number
    middle = [(f"{10 * i} to {10 * i + 10} %", number) for i, number in enumerate(tenths)]
    return [("none", counts.get(0, 0)), *middle, ("all", counts.get(samples, 0))]


def bin_edges(counts: Mapping[int, int]) -> tuple[np.ndarray, bool]:
    """Edges of a histogram of whole numbers, and whether they belong on a log axis.

    Edges are at halves, so that every bin has a whole number in it.

    Args:
        counts: `{value: number}` of values >= 0, at least one.
    """
    low, high = min(counts), max(counts)
    is_log = high >= SKEWED * max(1, quantile(counts, 0.5))
    if is_log:  # empty texts have no logarithm; they are counted with those of length 1
        edges = np.unique(np.geomspace(max(1, low), high + 1, NUM_BINS + 1).round())
    else:
        width = -(-(high + 1 - low) // NUM_BINS)
        edges = np.arange(low, high + width + 1, width)
    return edges - 0.5, is_log
