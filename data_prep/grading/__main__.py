"""Grade a file of model outputs.

    python -m data_prep.grading outputs.jsonl --form completion --out verdicts.jsonl
    python -m data_prep.grading answers.jsonl.gz --form answer | head

A row is `{"prediction": ..., "gold": ...}`; the gold is a string or a list of strings of which any
may match, numbers are taken as text, other columns pass through. Every line in gives one line out,
in order: its columns and `verdict`, `extracted` (what was compared, or null), `seconds` of work.
A line that cannot be graded gets the verdict `unparseable` or `no_answer`, and an `error` that
names file and line. NaN and infinities, which JSON lacks, become null. The summary goes to standard
error. With --out the verdicts are written to FILE.partial, which becomes FILE at the end.
"""

import argparse
import contextlib
import functools
import gzip
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from data_prep.config import UserError, run_cli
from data_prep.grading.grade import grade_all, grade_short_all
from data_prep.grading.pool import logger as pool_logger
from data_prep.grading.rows import GradeTexts, Line, encode, grade_lines
from data_prep.manifest import PARTIAL, open_whole
from data_prep.quiet import quiet_loggers
from data_prep.reading.rows import Row, read_lines

# A chunk is graded at once, so that the workers run in parallel.
CHUNK_LINES, CHUNK_BYTES = 256, 1 << 24
FLAGS = {
    "think_prefilled": "the prompts already ended with <think>, so the completions lack it",
    "answer_tags": "the answer is between <answer> and </answer>, not in a box",
    "final_number": "where there is no box, the number that the text ends with counts",
}
HINT = (
    "  most rows lack a thought: bare answers go with --form answer, and completions of prompts\n"
    "  that end with <think> with --think_prefilled"
)
PIPE_CLOSED = 141  # what a shell reports of a tool that was ended by a closed pipe


def in_chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lists of up to `CHUNK_LINES` lines and, but for a longer line, `CHUNK_BYTES` bytes."""
    chunk: list[Line] = []
    num_bytes = 0
    for number, line in lines:
        if chunk and (len(chunk) == CHUNK_LINES or num_bytes + len(line) > CHUNK_BYTES):
            yield chunk
            chunk, num_bytes = [], 0
        chunk.append((number, line))
        num_bytes += len(line)
    if chunk:
        yield chunk


class Summary:
    """What is told at the end; adds up row by row."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.num_errors, self.first_error = 0, ""
        self.slowest = (0.0, 0, "")  # seconds, line, verdict

    def add(self, line: int, output: Row, error: str | None) -> None:
        self.verdicts[output["verdict"]] += 1
        self.slowest = max(self.slowest, (output["seconds"], line, output["verdict"]))
        self.num_errors += error is not None
        self.first_error = self.first_error or error or ""

    def render(self, path: str, seconds: float) -> str:
        """The summary as text of some lines; `seconds` is the wall-clock time."""
        total = self.verdicts.total()
        share = {name: f"{100 * num / total:.1f} %" for name, num in self.verdicts.items()}
        lines = [f"{path}: {total:,} rows, {share.get('right', '0.0 %')} right"]
        lines += [f"  {name:16} {num:9,} {share[name]:>8}"
                  for name, num in self.verdicts.most_common()]  # fmt: skip
        num_late = self.verdicts["timeout"]
        lines.append(f"  time-outs: {num_late:,}; rows with an error: {self.num_errors:,}")
        if self.first_error:
            lines.append(f"  the first: {self.first_error}")
        lines.append(f"  {seconds:.1f} s, {total / seconds:,.0f} rows/s")
        if total:
            spent, line, verdict = self.slowest
            lines[-1] += f"; slowest: line {line:,}, {spent:.3f} s ({verdict})"
        if self.verdicts["no_think"] > total / 2:
            lines.append(HINT)
        return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _open_output(out: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that gets its name only when it is complete."""
    if out is None:
        yield sys.stdout.buffer
        return
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(open_whole(out, "wb", keep_partial=True))
        except OSError as error:
            raise UserError(f"{out}{PARTIAL}: {error.strerror}; choose another --out") from error
        yield opened.enter_context(gzip.open(file, "wb")) if out.endswith(".gz") else file


def _grade_file(args: argparse.Namespace, grade_texts: GradeTexts, summary: Summary) -> None:
    from rich.console import Console  # late: --help needs none of it
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), console=console,
        transient=True, redirect_stdout=False, redirect_stderr=False,
        disable=not console.is_terminal or (args.out is None and sys.stdout.isatty()),
    )  # fmt: skip
    # What a packed file's bytes come to is not known before its end.
    total = None if args.file.endswith(".gz") else os.path.getsize(args.file)
    with _open_output(args.out) as file, progress:
        task = progress.add_task("grading", total=total)
        for chunk in in_chunks(read_lines(Path(args.file))):
            outputs = grade_lines(args.file, chunk, grade_texts)
            for (number, _), (output, error) in zip(chunk, outputs, strict=True):
                file.write(encode(output))
                summary.add(number, output, error)
            file.flush()
            num_rows = f"{summary.verdicts.total():,} rows"
            progress.update(task, advance=sum(len(line) for _, line in chunk), description=num_rows)


def _refuse(message: str) -> None:
    raise UserError(f"command line: {message}; see --help")


def _parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line; raises UserError where it cannot be carried out."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.grading", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.error = _refuse  # argparse would print its usage as well
    parser.add_argument("file", metavar="FILE", help="JSON lines, .gz or plain")
    forms = {"choices": ["completion", "answer"], "default": "completion"}
    parser.add_argument("--form", **forms, help="completion: texts with their thought "
                        "(default); answer: bare answers or short texts")  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="default: standard output")
    for flag, text in FLAGS.items():
        parser.add_argument(f"--{flag}", action="store_true", help=text)
    args = parser.parse_args(argv)
    for flag in FLAGS:
        if getattr(args, flag) and args.form == "answer":
            raise UserError(f"command line: --{flag} goes with --form completion; leave one out")
    if not os.path.exists(args.file):
        raise UserError(f"{args.file}: no such file; check the command line")
    if os.path.isdir(args.file) or not os.access(args.file, os.R_OK):
        raise UserError(f"{args.file}: not a file that can be read; check the command line")
    for path in (args.out, f"{args.out}{PARTIAL}") if args.out else ():
        if os.path.exists(path) and not os.path.isfile(path):
            raise UserError(f"{path}: not a file; choose another --out")
        if os.path.exists(path) and os.path.samefile(path, args.file):
            raise UserError(f"{path}: would overwrite the input; choose another --out")
    return args


def main(argv: list[str] | None = None) -> None:
    """Grade the file that the command line names."""
    args = _parse(argv)
    quiet_loggers(pool_logger.name)  # it tells of every time-out, and so do the rows
    grade_texts = grade_short_all
    if args.form == "completion":
        flags = {flag: getattr(args, flag) for flag in FLAGS}
        grade_texts = functools.partial(grade_all, **flags)
    summary, start = Summary(), time.perf_counter()
    try:
        _grade_file(args, grade_texts, summary)
        sys.stderr.write(summary.render(args.file, time.perf_counter() - start))
    except BrokenPipeError:
        # Python flushes standard output once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(PIPE_CLOSED)
    except KeyboardInterrupt:
        kept = f"; their verdicts are in {args.out}{PARTIAL}" if args.out else ""
        sys.stderr.write(f"\ninterrupted after {summary.verdicts.total():,} rows{kept}\n")
        sys.exit(130)


if __name__ == "__main__":
    run_cli(main)
