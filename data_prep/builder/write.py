"""The files of a build: data files, the rows that were left out, and the counts that add up."""

import contextlib
import dataclasses
import json
import os
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from data_prep.builder.filters import NOTES, Dropped
from data_prep.builder.recipe import FILES, DataArguments, Source, find_files
from data_prep.decontamination.benchmarks import find_benchmark
from data_prep.decontamination.text import question_hash
from data_prep.schema import Problem
from pipeline import manifest
from pipeline.console import notice
from pipeline.errors import UserError
from pipeline.own_code import own_files

DROPPED, CONTAMINATION = "dropped.jsonl", "contamination.jsonl"
# What to do if a reason leaves no row; without an entry, choose another source.
_REMEDIES = {
    "no_answer no_boxed_answer empty_box unbalanced_box": "name the column of the answers, with "
    "`answer_key` if generic",
    "gold_not_parseable text_answer": "judge such golds by `grader: module:function` in data.yaml, "
    "or name another column",
    "sentinel_answer": "name a column of values",
    "gold_refused": "correct the grader, or the column of the answers",
    "no_solution": "name the column of the worked solutions in `solution_key`, or use `grpo`",
    "no_correct_solution": "correct `solution_if`",
    "solution_disagrees": "check the columns of the answers and the solutions",
    "empty_question unfilled_template repeated_text": "check the column of the question",
    "shows_answer": "check the column of the question, which holds the answer",
    "unknown_template": "name a column with the bare question",
    "multiple_choice": "name a column with the option's value, or choose another source",
    "level unknown_difficulty": "change `min_level`, `max_level` or the column of the level",
    "foreign_language": "change `languages`",
    "in_eval_set": "choose rows that are in no evaluation set",
    "conflicting_gold duplicate_question near_duplicate": "remove the copies of the question",
    "not_in_mix not_sampled": "change `mix` or `sample`",
    "several_thoughts unclosed_thought mixed_markup unknown_markup text_before_thought"
    " empty_thought no_answer_after_thought": "name a column of solutions with one whole thought "
    "each",
    "bad_row": "fix the rows",
}
REMEDIES = {reason: remedy for reasons, remedy in _REMEDIES.items() for reason in reasons.split()}
NAMES = (*FILES.values(), DROPPED, CONTAMINATION)
EXCERPT = 1000  # characters of a text in the two logs
SHOWN = 150  # characters of a text in an error
MARK = "build.partial"  # there while a build is under way, and after one was killed


def check_folder(folder: str, inputs: Iterable[Path]) -> None:
    """Refuse a folder with `inputs`, the files that are read, or files that no build wrote."""
    place = Path(folder)
    for path in inputs:
        if path.resolve().parent == place.resolve():
            fault = f"{folder} holds {path.name}, a file that the build reads"
            raise UserError(f"output_dir: {fault}; choose another folder")
    is_own = (manifest.read(place) or {}).get("stage") == "data" or (place / MARK).exists()
    found = [name for name in NAMES if (place / name).exists()]
    if found and not is_own:
        remedy = "choose another folder, or move the file away"
        raise UserError(f"output_dir: {folder} holds {found[0]}, which no build wrote; {remedy}")


class SetReport:
    """Rows in, rows out and named drops of one data file, for each of its sources."""

    def __init__(self, key: str, sources: list[Source]) -> None:
        self.key, self.sources = key, sources
        self.rows_in_of = [0] * len(sources)
        self.rows_out_of = [0] * len(sources)
        self.dropped_of: list[Counter[str]] = [Counter() for _ in sources]
        self.notes_of: list[Counter[str]] = [Counter() for _ in sources]
        self.first_of: dict[str, str] = {}  # the first row of each reason, as text
        self.repeated: Counter[str] = Counter()  # evaluation sets whose questions were dropped
        self.bands: dict[str, int] = {}

    def warn(self) -> None:
        """Say what there is to tell of rows that stay, and which sources lost over half of them."""
        for source, rows, notes in zip(self.sources, self.rows_in_of, self.notes_of, strict=True):
            for name, number in notes.items():
                notice(f"{self.key}: {source.name}: {number:,} of {rows:,} rows: {NOTES[name]}")
        chosen = ("not_sampled", "not_in_mix")  # the recipe's own wish
        counts = zip(self.sources, self.rows_in_of, self.dropped_of, strict=True)
        for source, num_rows, dropped in counts:
            lost = Counter({reason: n for reason, n in dropped.items() if reason not in chosen})
            if lost.total() > num_rows / 2:
                what = f"{lost.total():,} of {num_rows:,} rows are left out: {counts_text(lost)}"
                place = source.file or source.hub
                remedy = self.remedy_of(lost)
                notice(f"{self.key}: {source.name}: {place}: {what}; {remedy}; see {DROPPED}")

    def remedy_of(self, dropped: Counter[str]) -> str:
        """What to do about the commonest of the reasons."""
        ((reason, _),) = dropped.most_common(1)
        ((name, _),) = self.repeated.most_common(1) or [("", 0)]
        if reason == "in_eval_set" and name in FILES:  # rows that the recipe itself holds back
            return f"`{name}` holds them back: set a smaller `sample` there, or take other rows"
        return REMEDIES.get(reason, "choose another source")

    def nothing_left(self) -> UserError:
        """The error of a file without problems: the commonest reason, a row of it, the remedy."""
        dropped = sum(self.dropped_of, Counter())
        ((reason, _),) = dropped.most_common(1)
        remedy = self.remedy_of(dropped)
        fault = f"no problem is left of {sum(self.rows_in_of):,} rows: {counts_text(dropped)}"
        shown = f"; the first {reason}: {self.first_of[reason]}" if reason in self.first_of else ""
        return UserError(f"{self.key}: {fault}{shown}; {remedy}; all are in {DROPPED}")

    def summary(self) -> dict[str, Any]:
        """The manifest's entry of this file: its counts, and those of each source."""
        rows_in, rows_out, dropped = self.rows_in_of, self.rows_out_of, self.dropped_of
        sources = []
        for source, num_in, num_out, reasons in zip(
            self.sources, rows_in, rows_out, dropped, strict=True
        ):
            place = {"name": source.name, "split": source.split, "place": source.file or source.hub}
            sources.append(place | _counts(num_in, num_out, reasons))
        found = _counts(sum(rows_in), sum(rows_out), sum(dropped, Counter()))
        found["sources"] = sources
        if self.bands:
            found["bands"] = self.bands
        return found


def counts_text(dropped: Counter[str]) -> str:
    """Counts as text, the largest first: `no_answer 12, duplicate 3`."""
    return ", ".join(f"{reason} {count:,}" for reason, count in dropped.most_common()) or "none"


def _counts(rows_in: int, rows_out: int, dropped: Counter[str]) -> dict[str, Any]:
    assert rows_in == rows_out + dropped.total(), (rows_in, rows_out, dropped)
    return {"rows_in": rows_in, "rows_out": rows_out, "dropped": dict(sorted(dropped.items()))}


class Spool:
    """Rows of one data file on disk, in the order in which they came, read back by number.

    In memory, 860,000 problems with worked solutions would take gigabytes.
    """

    def __init__(self, file: IO[bytes], make_row: Callable[[Problem], dict[str, Any]]) -> None:
        self._file, self._make_row = file, make_row
        self._starts = array("Q")

    def append(self, problem: Problem, where: str) -> None:
        """Store a problem and its place; its number is that of the problems before it."""
        # Escaped: data may hold what UTF-8 cannot, and U+2028 in GSM8K breaks readers that split
        # lines as Unicode does.
        line = json.dumps(self._make_row(problem))
        self._starts.append(self._file.seek(0, os.SEEK_END))
        # Finding duplicates takes the problem without its solution.
        head = json.dumps([dataclasses.asdict(problem) | {"solution": ""}, where])
        self._file.write(f"{head}\n{line}\n".encode())

    def get(self, number: int) -> tuple[Problem, str]:
        """The problem with this number, without its solution, and its place."""
        self._file.seek(self._starts[number])
        fields, where = json.loads(self._file.readline())
        return Problem(**fields | {"answers": tuple(fields["answers"])}), where

    def line(self, number: int) -> bytes:
        """The line of the data file."""
        self.get(number)
        return self._file.readline()


class Outputs:
    """The build's files: written under temporary names and put in place together, or removed.

    Until then the former build's files stay; afterwards those that this one has not are removed.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._mark = self._folder / MARK
        self._open = contextlib.ExitStack()
        self._log_files = self._open.enter_context(contextlib.ExitStack())
        self._logs: dict[str, IO[str]] = {}
        self._written = {DROPPED, CONTAMINATION}

    def __enter__(self) -> "Outputs":
        self._mark.touch()
        self._remove()
        for name in (DROPPED, CONTAMINATION):
            file = manifest.open_whole(self._folder / name)
            self._logs[name] = self._log_files.enter_context(file)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        try:
            self._open.__exit__(kind, *rest)
        finally:
            if kind:
                self._remove()
            is_made = (self._folder / manifest.NAME).exists()
            if is_made or not any((self._folder / name).exists() for name in NAMES):
                self._mark.unlink(missing_ok=True)

    def _remove(self) -> None:
        for name in NAMES:
            (self._folder / f"{name}{manifest.PARTIAL}").unlink(missing_ok=True)

    def drop(self, report: SetReport, source: int, found: Dropped) -> None:
        """Count and log a row that is left out."""
        problem, drop, match = found.problem, found.drop, found.match
        origin = report.sources[source]
        question = (problem.question if problem else found.text)[:EXCERPT]
        report.dropped_of[source][drop.reason] += 1
        if match:
            report.repeated[match.benchmark] += 1
        row = {
            "file": FILES[report.key],
            "reason": drop.reason,
            "where": found.where,
            "detail": drop.detail[:EXCERPT],
            "id": problem.id if problem else "",
            "question": question,
            "answers": [gold[:EXCERPT] for gold in problem.answers] if problem else [],
        }
        length = EXCERPT if drop.reason == "bad_row" else SHOWN  # an error with its remedy
        shown = [" ".join(text.split())[:length] for text in (question, drop.detail) if text]
        report.first_of.setdefault(drop.reason, f"{found.where}: {': '.join(map(repr, shown))}")
        self._logs[DROPPED].write(json.dumps(row) + "\n")
        if match and problem:
            pair = {key: row[key] for key in ("file", "where", "id", "question", "answers")} | {
                "benchmark": match.benchmark,
                "benchmark_id": match.id,
                "benchmark_question": match.question[:EXCERPT],
                "source": origin.hub or Path(origin.file or origin.name).name,
                "question_sha256": question_hash(problem.question),
                "benchmark_sha256": question_hash(match.question),
                "score": round(match.score, 3),
                "kind": match.kind,
            }
            self._logs[CONTAMINATION].write(json.dumps(pair) + "\n")

    def keep_logs(self) -> None:
        """Put the two logs in place, whatever becomes of the build."""
        self._log_files.close()

    def path(self, key: str) -> Path:
        """Where a data file is until the build has finished."""
        return self._folder / f"{FILES[key]}{manifest.PARTIAL}"

    def write(self, key: str, lines: Iterable[bytes]) -> None:
        """Write one data file."""
        self._written.add(FILES[key])
        file = self._open.enter_context(manifest.open_whole(self._folder / FILES[key], "wb"))
        file.writelines(lines)
        file.flush()

    def finish(self) -> None:
        """Put every file in place."""
        (self._folder / manifest.NAME).unlink(missing_ok=True)
        self._open.close()
        for name in {*NAMES} - self._written:
            (self._folder / name).unlink(missing_ok=True)


def write_manifest(
    args: DataArguments, reports: dict[str, SetReport], benchmarks: dict[str, Any], started: float
) -> None:
    """Write the manifest with its totals, and say on one line what was done."""
    listed = [source for report in reports.values() for source in report.sources]
    read = [source for source in listed if source.name != "synthetic"]
    inputs: list[Any] = []
    for source in read:
        inputs += find_files(source, args.data_root) or [source.hub]
    for name, count in benchmarks.items():
        place = find_benchmark(name, args.data_root)
        # One that could not be read counts as soon as its file changes.
        if isinstance(count, int) or isinstance(place, Path):
            inputs.append(place)
    inputs += own_files([args.grader or ""])
    outputs = {FILES[key]: report.summary() for key, report in reports.items()}
    made = {name: file["rows_out"] for name, file in outputs.items()}
    rows_in, rows_out = sum(file["rows_in"] for file in outputs.values()), sum(made.values())
    dropped = sum((one for report in reports.values() for one in report.dropped_of), Counter())
    manifest.write(
        args.output_dir,
        "data",
        dataclasses.asdict(args),
        manifest.hash_inputs(inputs),
        {Path(name).stem: count for name, count in made.items()},
        started,
        [*outputs, DROPPED, CONTAMINATION],
        **_counts(rows_in, rows_out, dropped),
        outputs=outputs,
        decontamination=benchmarks,
    )
    files = ", ".join(f"{name} {count:,}" for name, count in made.items())
    sys.stdout.write(
        f"data: read {rows_in:,} rows of {len(listed)} sources, wrote {rows_out:,} problems "
        f"({files}) to {args.output_dir}; dropped {rows_in - rows_out:,}: {counts_text(dropped)}\n"
    )
