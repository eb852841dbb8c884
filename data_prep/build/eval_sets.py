"""The questions that must not occur in a training set: benchmarks, and the recipe's own sets."""

import json
import sys
from pathlib import Path
from typing import Any

from data_prep.build.data_arguments import DataArguments
from data_prep.config import UserError
from data_prep.decontamination.benchmarks import BENCHMARKS, find_benchmark_file, load_benchmark
from data_prep.decontamination.contamination import EvalQuestion
from data_prep.decontamination.normalise import without_options


def load_benchmarks(args: DataArguments) -> tuple[list[EvalQuestion], dict[str, Any]]:
    """The questions of the recipe's benchmarks, and for each how many, or why none.

    Raises:
        UserError: a benchmark of `decontaminate` cannot be had.
    """
    questions: list[EvalQuestion] = []
    counts: dict[str, Any] = {}
    for name in dict.fromkeys([*args.decontaminate, *args.decontaminate_if_found]):
        place = BENCHMARKS[name]
        try:
            problems = load_benchmark(
                place["source"], place["hub"], place.get("config"), place["split"],
                place["files"], args.data_root,
            )  # fmt: skip
        except UserError as error:
            if name in args.decontaminate:
                raise UserError(f"decontaminate: {name}: {error}") from error
            counts[name] = f"not checked: {error}"
            sys.stderr.write(f"notice: training sets are not checked against {name}: {error}\n")
            continue
        counts[name] = len(problems)
        for one in problems:
            question = without_options(one.question)
            questions.append(EvalQuestion(name, one.id, question, tuple(one.answers)))
    return questions, counts


def benchmark_files(args: DataArguments) -> list[Path]:
    """The local files of the recipe's benchmarks, those that are there."""
    if args.data_root is None:
        return []
    found = [
        find_benchmark_file(BENCHMARKS[name]["files"], args.data_root)
        for name in (*args.decontaminate, *args.decontaminate_if_found)
    ]
    return [path for path in found if path]


def find_benchmark_inputs(args: DataArguments, counts: dict[str, Any]) -> list[str | Path]:
    """The files or hub ids of the benchmarks that were loaded."""
    return [
        find_benchmark_file(BENCHMARKS[name]["files"], args.data_root)
        if args.data_root is not None
        else BENCHMARKS[name]["hub"]
        for name, count in counts.items()
        if isinstance(count, int)
    ]


def read_questions(key: str, path: Path) -> list[EvalQuestion]:
    """The questions of a test or validation file that the build has written."""
    questions = []
    with path.open("rb") as file:
        for row in map(json.loads, file):
            golds = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
            text = without_options(row["question"])
            questions.append(EvalQuestion(key, row["id"], text, tuple(golds)))
    return questions
