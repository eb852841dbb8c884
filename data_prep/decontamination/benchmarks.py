"""Benchmarks: where each is, and evaluation sets as problems, from local files or the hub.

Unlike `data_prep.builder`, nothing is sampled, shuffled or cleaned: a score over part of a set is
no score of that set. A row that cannot be used is an error instead.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data_prep.schema import Problem
from data_prep.sources.base import Drop
from data_prep.sources.registry import BUILDERS
from grading.compare import is_parseable, is_same_value
from pipeline.errors import UserError
from pipeline.rows import load_hub, read_rows

# Source, set on the hub, and the local files below data_root, of which the first that exists is
# read. The evaluation scores them; the data builder keeps their problems out of training sets.
BENCHMARKS: dict[str, dict[str, Any]] = {
    "gsm8k": {"source": "gsm8k", "hub": "openai/gsm8k", "config": "main", "split": "test",
              "files": ["gsm8k/test.jsonl"]},
    "math500": {"source": "math", "hub": "HuggingFaceH4/MATH-500", "split": "test",
                "files": ["math/math500.jsonl", "math/math500_test.jsonl",
                          "math/math500_verl.parquet"]},
    "aime24": {"source": "aime", "hub": "HuggingFaceH4/aime_2024", "split": "train",
               "files": ["aime/aime24.jsonl", "aime/aime24_qwen.jsonl",
                         "aime/aime-2024_dapo.parquet"]},
    "aime25": {"source": "aime", "hub": "math-ai/aime25", "split": "test",
               "files": ["aime/aime25.jsonl", "aime/aime25_areal.jsonl",
                         "aime/aime25_structured_rl.jsonl"]},
    "hmmt25": {"source": "math", "hub": "MathArena/hmmt_feb_2025", "split": "train",
               "files": ["matharena/hmmt_feb_2025.jsonl", "matharena/hmmt_feb_2025.parquet"]},
    "brumo25": {"source": "math", "hub": "MathArena/brumo_2025", "split": "train",
                "files": ["matharena/brumo_2025.jsonl", "matharena/brumo_2025.parquet"]},
    "cmimc25": {"source": "math", "hub": "MathArena/cmimc_2025", "split": "train",
                "files": ["matharena/cmimc_2025.jsonl", "matharena/cmimc_2025.parquet"]},
    "amc23": {"source": "math", "hub": "math-ai/amc23", "split": "test",
              "files": ["amc/amc23.jsonl", "amc23/test.jsonl"]},
    "minerva": {"source": "minerva", "hub": "math-ai/minervamath", "split": "test",
                "files": ["minerva/minerva.jsonl", "minerva_math/test.jsonl"]},
    "olympiadbench": {"source": "olympiadbench", "hub": "math-ai/olympiadbench", "split": "test",
                      "files": ["olympiadbench/olympiadbench.jsonl", "olympiadbench/test.jsonl"]},
    # Gated: accept its terms on the hub and log in, or put the CSV below data_root.
    "gpqa_diamond": {"source": "gpqa", "hub": "Idavidrein/gpqa", "config": "gpqa_diamond",
                     "split": "train",
                     "files": ["gpqa/gpqa_diamond.csv", "gpqa/gpqa_diamond.jsonl"]},
    "arc_challenge": {"source": "arc", "hub": "allenai/ai2_arc", "config": "ARC-Challenge",
                      "split": "test",
                      "files": ["arc_challenge/test.jsonl", "arc_challenge/test.parquet"]},
}  # fmt: skip


def find_benchmark_file(files: Iterable[str], data_root: str) -> Path | None:
    """The first of `files` that exists below `data_root`, or None."""
    for name in files:
        if Path(data_root, name).is_file():
            return Path(data_root, name)
    return None


def find_benchmark(name: str, data_root: str | None) -> Path | str | None:
    """Where a benchmark is read from: its file below `data_root`, or the hub; None: nowhere."""
    place = BENCHMARKS[name]
    if data_root is None:
        return place.get("hub")
    return find_benchmark_file(place["files"], data_root)


def load_benchmark(place: dict[str, Any], data_root: str | None) -> list[Problem]:
    """The problems of one evaluation set, all in its order, with ids that are unique and stay.

    Exact repeats of a question are kept once: the DAPO file of AIME 2024 holds each of its 30
    problems 32 times. What else cannot be scored is a `UserError`.

    Args:
        place: where it is, as in `BENCHMARKS`; the split is also part of the ids.
        data_root: folder of the local files, or None for the hub.
    """
    name, split, files = place["source"], place["split"], place["files"]
    if data_root is None and not place.get("hub"):
        remedy = f"set DATA_ROOT to a folder with {' or '.join(files)}"
        raise UserError(f"{name}: data_root: the set is on no hub; {remedy}")
    if data_root is None:
        origin, rows = place["hub"], load_hub(place["hub"], split, place.get("config"))
    else:
        origin = find_benchmark_file(files, data_root)
        if origin is None:
            remedy = "put one of them there"
            if hub := place.get("hub"):
                remedy += f", or leave out data_root to download {hub}"
            fault = f"{data_root} has none of {', '.join(files)}"
            raise UserError(f"{name}: data_root: {fault}; {remedy}")
        rows = read_rows(origin)
    found: dict[str, tuple[str, Problem]] = {}
    ids: dict[str, str] = {}
    for position, (where, row) in enumerate(rows):
        problem = _build(name, row, f"{name}-{split}-{position}", where)
        first, known = found.setdefault(problem.question, (where, problem))
        gold, other = problem.answers[0], known.answers[0]
        if gold != other and not is_same_value(gold, other):
            fault = f"with another gold, {gold!r} instead of {other!r}"
            raise UserError(f"{where}: the question of {first} {fault}; correct or remove one")
        if known is problem and ids.setdefault(problem.id, where) != where:
            fault = f"the id {problem.id!r} is also that of {ids[problem.id]}"
            raise UserError(f"{where}: {fault}; correct or remove the ids")
    if not found:
        raise UserError(f"{name}: {origin} has no rows; check the file or the split")
    return [problem for _, problem in found.values()]


def _build(source: str, row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """The problem of a row, if it can be scored; raises `UserError`."""
    try:
        built = BUILDERS[source](row, problem_id, where)
        if not built.question.strip():
            raise Drop("the question is empty")
        if not is_parseable(built.answers[0]):
            raise Drop(f"the gold {built.answers[0]!r:.80} cannot be parsed")
    except Drop as drop:
        fault = f"unusable ({drop.reason}); an evaluation set is scored whole"
        remedy = "correct the row or take another copy of the set"
        raise UserError(f"{where}: {fault}: {remedy}") from drop
    return built
