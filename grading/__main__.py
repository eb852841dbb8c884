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
from collections.abc import Callable
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

from grading.compare import is_parseable
from grading.grade import grade_all, grade_short_all
from pipeline.console import clean, one_line, open_results
from pipeline.errors import UserError, run_cli
from pipeline.manifest import PARTIAL, encodable, open_whole
from pipeline.prompts import ANSWER_FORMS
from pipeline.rows import BadRow, Row, read_rows_and_faults

FLAGS = {
    "think_prefilled": "the prompts ended with <think>, so the completions do not open it",
    "final_number": "where there is no box, the number at the end of the text is the answer",
}


# One row


def _text(row: Row, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        found = f"found {type(value).__name__}" if key in row else "there is no such column"
        raise ValueError(f"`{key}` must be a string or a number, {found}")
    return str(value)


def read_case(row: Row) -> tuple[str, list[str], str]:
    """The prediction, its golds and its question; raises ValueError with what is wrong."""
    gold = row.get("gold")
    if gold == []:
        raise ValueError("`gold` is an empty list; give at least one answer")
    golds = [_text(row, "gold", one) for one in (gold if isinstance(gold, list) else [gold])]
    question = row.get("question")
    asked = question if isinstance(question, str) else ""
    return _text(row, "prediction", row.get("prediction")), golds, asked


def grade_row(where: str, row: Row | BadRow, grade_texts: Callable) -> Row:
    """The output row of one row; its `error`, if it has one, names the place."""
    if isinstance(row, BadRow) and row.row is None:
        return _ungraded({}, "unparseable", row.message)
    # Half a surrogate pair, which models write, harms no verdict.
    given: Row = (row.row or {}) if isinstance(row, BadRow) else row
    output = {key: value for key, value in given.items() if key != "error"}  # of an earlier run
    try:
        text, golds, question = read_case(given)
    except ValueError as error:
        is_null = given.get("prediction", "") is None
        return _ungraded(output, "no_answer" if is_null else "unparseable", f"{where}: {error}")
    grade = grade_texts([text], [golds], [question])[0]
    output |= {"verdict": grade.verdict, "extracted": grade.prediction}
    output["seconds"] = round(grade.seconds, 6)
    if grade.verdict != "right" and not any(map(is_parseable, golds)):
        output["error"] = f"{where}: the gold cannot be read: {', '.join(golds)[:100]!r}"
        output["verdict"] = "unparseable" if grade.verdict == "wrong" else grade.verdict
    return output


def _ungraded(output: Row, verdict: str, error: str) -> Row:
    return output | {"verdict": verdict, "extracted": None, "seconds": 0.0, "error": error}


# The file


def summarise(path: str, verdicts: Counter[str], errors: list[str], seconds: float) -> str:
    """The lines of the summary; `seconds` is the wall-clock time."""
    total = verdicts.total()
    percent = 100 / max(total, 1)
    lines = [f"{one_line(path)}: {total:,} rows, {percent * verdicts['right']:.1f} % right"]
    for name, num in verdicts.most_common():
        lines.append(f"  {name:16} {num:9,} {percent * num:6.1f} %")
    lines.append(f"  rows with an error: {len(errors):,}")
    if errors:
        lines.append(f"  the first: {one_line(errors[0])}")
    lines.append(f"  {seconds:.1f} s, {total / seconds:,.0f} rows/s")
    return "\n".join(lines) + "\n"


def _grade_file(args: argparse.Namespace, verdicts: Counter[str], errors: list[str]) -> None:
    flags = {flag: getattr(args, flag) for flag in FLAGS}
    flags["answer_form"] = args.form if args.form in ANSWER_FORMS else "box"
    grade_texts = grade_short_all if args.form == "answer" else partial(grade_all, **flags)
    outputs = (grade_row(*row, grade_texts) for row in read_rows_and_faults(args.file))
    first = list(islice(outputs, 1))  # a file that is refused leaves no --out
    with contextlib.ExitStack() as opened:
        whole = open_whole(args.out, "wb", keep_partial=True) if args.out else open_results()
        file = opened.enter_context(whole)
        if args.out and args.out.endswith(".gz"):
            file = opened.enter_context(gzip.open(file, "wb"))
        for output in chain(first, outputs):
            line = json.dumps(output, ensure_ascii=False) + "\n"
            file.write(clean(encodable(line)).encode())
            verdicts[output["verdict"]] += 1
            errors += [output["error"]] if "error" in output else []


# The command


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise UserError; argparse would print its usage as well."""
        raise UserError(f"command line: {message}; see --help")


def _parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line; raises UserError where it cannot be carried out."""
    parser = _Parser(
        prog="python -m grading",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
    if args.out:
        out = Path(args.out)
        is_file = out.parent.is_dir() and (out.is_file() or not out.exists())
        if not is_file or out.resolve() == Path(args.file).resolve():
            raise UserError(
                f"{out}: is the input file or a folder, or in none; choose another --out"
            )
    return args


def main(argv: list[str] | None = None) -> None:
    args = _parse(argv)
    verdicts: Counter[str] = Counter()
    errors: list[str] = []
    start = time.perf_counter()
    try:
        _grade_file(args, verdicts, errors)
        sys.stderr.write(summarise(args.file, verdicts, errors, time.perf_counter() - start))
    except BrokenPipeError:
        sys.exit(141)  # what a shell reports of a tool that was ended by a closed pipe
    except KeyboardInterrupt:
        place = f"; their verdicts are in {args.out}{PARTIAL}" if args.out else ""
        sys.stderr.write(f"\ninterrupted after {verdicts.total():,} rows{place}\n")
        sys.exit(130)


if __name__ == "__main__":
    run_cli(main)
