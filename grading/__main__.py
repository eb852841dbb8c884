"""Grade a file of model outputs.

    python -m grading outputs.jsonl --form completion --out verdicts.jsonl
    python -m grading answers.jsonl.gz --form answer | head

A row is `{"prediction": ..., "gold": ...}`. The gold is a string, or a list of strings of which any
may match. With a column `question` a copy of what it gives is incorrect. Numbers are taken as text;
other columns are copied. Each row gives one line, in order:
its columns, `verdict`, `extracted` (the value that was compared, or null) and `seconds` of work.
A row that cannot be graded gets the verdict `unparseable` or `no_answer`, and an `error` that names
its place. The summary goes to standard error. With --out the verdicts are written to FILE.partial,
which becomes FILE at the end.
"""

import argparse
import contextlib
import gzip
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from grading.equivalence.compare import is_parseable
from grading.grade import grade_all, grade_short_all
from grading.pool import logger as pool_logger
from pipeline.console import clean, one_line, open_results, quiet_loggers
from pipeline.errors import UserError, run_cli
from pipeline.manifest import PARTIAL, encodable, open_whole
from pipeline.prompts import ANSWER_FORMS
from pipeline.rows import BadRow, Row, read_rows_and_faults

CHUNK_ROWS = 256  # graded at once, so that the workers run in parallel
FLAGS = {
    "think_prefilled": "the prompts ended with <think>, so the completions do not open it",
    "final_number": "where there is no box, the number at the end of the text is the answer",
}
HINT = """  most rows have no thought: use --form answer for bare answers, and --think_prefilled for
  completions of prompts that end with <think>"""


def _text(row: Row, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        found = f"found {type(value).__name__}" if key in row else "there is no such column"
        raise ValueError(f"`{key}` must be a string or a number, {found}")
    return str(value)


def read_case(row: Row | BadRow) -> tuple[str, list[str], str]:
    """The prediction, its golds and its question; raises ValueError with what is wrong."""
    if isinstance(row, BadRow):
        raise ValueError(row.message)
    gold = row.get("gold")
    if gold == []:
        raise ValueError("`gold` is an empty list; give at least one answer")
    golds = [_text(row, "gold", one) for one in (gold if isinstance(gold, list) else [gold])]
    question = row.get("question")
    asked = question if isinstance(question, str) else ""
    return _text(row, "prediction", row.get("prediction")), golds, asked


def grade_rows(rows: Sequence[tuple[str, Row | BadRow]], grade_texts: Callable) -> list[Row]:
    """The output rows of some (place, row), in order; those that have an `error` name the place."""
    outputs: list[Row] = []
    cases: dict[int, tuple[str, list[str], str]] = {}
    for at, (where, row) in enumerate(rows):
        if isinstance(row, BadRow) and row.row is not None:
            row = row.row  # half a surrogate pair, which models write, harms no verdict
        outputs.append({} if isinstance(row, BadRow) else dict(row))
        outputs[at].pop("error", None)  # of an earlier run
        try:
            cases[at] = read_case(row)
        except ValueError as error:
            is_null = outputs[at].get("prediction", "") is None
            outputs[at] |= {"verdict": "no_answer" if is_null else "unparseable", "extracted": None}
            problem = str(error).removeprefix(f"{where}: ")
            outputs[at] |= {"seconds": 0.0, "error": f"{where}: {problem}"}
    texts, accepted, questions = zip(*cases.values(), strict=True) if cases else ((), (), ())
    grades = grade_texts(texts, accepted, questions)
    for (at, (_, golds, _)), grade in zip(cases.items(), grades, strict=True):
        outputs[at] |= {"verdict": grade.verdict, "extracted": grade.prediction}
        outputs[at]["seconds"] = round(grade.seconds, 6)
        if grade.verdict != "right" and not any(map(is_parseable, golds)):
            problem = f"the gold cannot be read: {', '.join(golds)[:100]!r}"
            outputs[at]["error"] = f"{rows[at][0]}: {problem}"
            if grade.verdict == "wrong":
                outputs[at]["verdict"] = "unparseable"
    return outputs


def summarise(path: str, verdicts: Counter[str], errors: list[str], seconds: float) -> str:
    """The lines of the summary; `seconds` is the wall-clock time."""
    total = verdicts.total()
    share = {name: f"{100 * num / total:.1f} %" for name, num in verdicts.items()}
    lines = [f"{one_line(path)}: {total:,} rows, {share.get('right', '0.0 %')} right"]
    for name, num in verdicts.most_common():
        lines.append(f"  {name:16} {num:9,} {share[name]:>8}")
    lines.append(f"  rows with an error: {len(errors):,}")
    if errors:
        lines.append(f"  the first: {one_line(errors[0])}")
    lines.append(f"  {seconds:.1f} s, {total / seconds:,.0f} rows/s")
    if verdicts["no_think"] > total / 2:
        lines.append(HINT)
    return "\n".join(lines) + "\n"


def _open_output(out: str | None, opened: contextlib.ExitStack) -> BinaryIO:
    """Standard output, or a file that gets its name only when it is complete."""
    if out is None:
        return opened.enter_context(open_results())
    try:
        file = opened.enter_context(open_whole(out, "wb", keep_partial=True))
    except OSError as error:
        raise UserError(f"{out}{PARTIAL}: {error.strerror}; choose another --out") from error
    if out.endswith(".gz"):
        return opened.enter_context(gzip.open(file, "wb"))
    return file


def _grade_file(args: argparse.Namespace, verdicts: Counter[str], errors: list[str]) -> None:
    flags = {flag: getattr(args, flag) for flag in FLAGS}
    flags["answer_form"] = args.form if args.form in ANSWER_FORMS else "box"
    grade_texts = grade_short_all if args.form == "answer" else partial(grade_all, **flags)
    rows = read_rows_and_faults(args.file)
    chunk = list(islice(rows, CHUNK_ROWS))  # first: a file that is refused leaves no --out
    with contextlib.ExitStack() as opened:
        file = _open_output(args.out, opened)
        while chunk:
            for output in grade_rows(chunk, grade_texts):
                line = json.dumps(output, ensure_ascii=False) + "\n"
                file.write(clean(encodable(line)).encode())
                verdicts[output["verdict"]] += 1
                if "error" in output:  # the first is printed, the others are counted
                    errors.append("" if errors else output["error"])
            file.flush()
            chunk = list(islice(rows, CHUNK_ROWS))


def _refuse(message: str) -> None:
    raise UserError(f"command line: {message}; see --help")


def _parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line; raises UserError where it cannot be carried out."""
    parser = argparse.ArgumentParser(
        prog="python -m grading",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.error = _refuse  # argparse would print its usage as well
    parser.add_argument("file", metavar="FILE", help="JSON lines (or a list, CSV, parquet)")
    text = (
        "completion: a thought, then a box (default); answer: bare answers; the others: a "
        "thought, then an answer in that form"
    )
    forms = ["completion", "answer", *ANSWER_FORMS[1:]]
    parser.add_argument("--form", choices=forms, default="completion", help=text)
    parser.add_argument("--out", metavar="FILE", help="default: standard output")
    for flag, text in FLAGS.items():
        parser.add_argument(f"--{flag}", action="store_true", help=text)
    args = parser.parse_args(argv)
    for flag in FLAGS:
        if getattr(args, flag) and args.form == "answer":
            raise UserError(f"command line: --{flag} needs --form completion; leave one out")
    if args.out and Path(args.out).exists():
        out = Path(args.out)
        if not out.is_file() or out.resolve() == Path(args.file).resolve():
            raise UserError(f"{out}: is the input file or a folder; choose another --out")
    return args


def main(argv: list[str] | None = None) -> None:
    args = _parse(argv)
    quiet_loggers(pool_logger.name)  # it logs every time-out, and so do the rows
    verdicts: Counter[str] = Counter()
    errors: list[str] = []
    start = time.perf_counter()
    try:
        _grade_file(args, verdicts, errors)
        sys.stderr.write(summarise(args.file, verdicts, errors, time.perf_counter() - start))
    except BrokenPipeError:
        sys.exit(141)  # what a shell reports of a tool that was ended by a closed pipe
    except KeyboardInterrupt:
        line = f"interrupted after {verdicts.total():,} rows"
        if args.out:
            line += f"; their verdicts are in {args.out}{PARTIAL}"
        sys.stderr.write(f"\n{line}\n")
        sys.exit(130)


if __name__ == "__main__":
    run_cli(main)
