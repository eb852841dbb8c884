"""How fast the data build is, how much memory it takes, and where the time goes.

    make bench-data DATA_ROOT=DIR SIZES="106000 300000 860000"

Writes a file in AReaL-boba's shape out of the questions of DAPO, DeepScaleR, ORZ and MATH below
`data_root`: every round over them gets other numbers, one row in 50 repeats an earlier one and one
in 50 is another edition of it. Then it builds the file in a process of its own, as `make data`
does, and reads the build's own seconds for each step.
"""

import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.table import about, publish, tell
from data_prep.sources.base import Drop
from data_prep.sources.registry import BUILDERS
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.rows import read_rows
from pipeline.settings import parse

FILES = {
    "dapo/dapo_math_17k.parquet": "dapo",
    "deepscaler/rllm_train_math.json": "deepscaler",
    "deepscaler/deepscaler_preview_1209.jsonl.gz": "deepscaler",
    "orz/orz_math_57k_collected.head.json": "orz",
    "orz/orz_math_72k_collection_extended.head.json": "orz",
}
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
USER, ASSISTANT = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"  # fullwidth bars
TAILS = ("<think>\n", "<think>", "")
BENCHMARKS = ["gsm8k", "math500", "aime24", "aime25"]
INTERVAL = 0.05  # seconds between two looks at the memory
HOW = f"""`make bench-data DATA_ROOT=… SIZES="…"`. One build a row, each in a process of its own.
Every step is on: golds and kinds, language, decontamination against {", ".join(BENCHMARKS)},
exact and near duplicates. Peak memory is the sum over all processes, sampled every 50 ms. One
worker and two write the same bytes. The columns in % are each step's share of the seconds, added
over the processes."""


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    data_root: str = field(metadata={"help": "folder of the real rows"})
    out: str = field(metadata={"help": "Markdown file to write, with .json next to it"})
    sizes: list[int] = field(
        default_factory=lambda: [106_000, 300_000, 860_000], metadata={"help": "rows of each build"}
    )


def load_questions(data_root: str) -> list[tuple[str, str]]:
    """(question, gold) of the real rows below `data_root`."""
    found = []
    for name, source in FILES.items():
        for position, (where, row) in enumerate(read_rows(Path(data_root, name))):
            with contextlib.suppress(Drop):
                problem = BUILDERS[source](row, f"{source}-train-{position}", where)
                found.append((problem.question, problem.answers[0]))
    return found


def make_rows(questions: list[tuple[str, str]], size: int) -> Iterator[dict[str, Any]]:
    """`size` rows in AReaL-boba's shape, the first round over the questions as they are."""
    rng = random.Random(0)
    earlier: list[tuple[str, str]] = []
    for number in range(size):
        turn = rng.random()
        if earlier and turn < 0.04:
            question, gold = rng.choice(earlier)
            if turn < 0.02:
                question = f"Problem {number % 40 + 1}. {question.rstrip('.')} ."
        else:
            question, gold = questions[number % len(questions)]
            if number >= len(questions):  # other numbers of as many digits
                question = re.sub(r"\d", lambda _: rng.choice("123456789"), question)
            if len(earlier) < 20_000:
                earlier.append((question, gold))
        newline, tail = rng.choice(("", "\n")), rng.choice(TAILS)
        yield {
            "prompt": f"{newline}{USER}\n{question} {INSTRUCTION}{ASSISTANT}{tail}",
            "task": "math",
            "query_id": f"{number:08x}",
            "solutions": [f"\\boxed{{{gold}}}"],
        }


def run_build(config: Path, folder: Path, num_workers: int) -> dict[str, Any]:
    """Build once in a process of its own; seconds, MiB at the peak and the build's manifest."""
    import psutil

    command = [sys.executable, "-m", "data_prep.build", "--config", str(config)]
    command += ["--num_workers", str(num_workers)]
    started = time.perf_counter()
    process = psutil.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        try:
            family = [process, *process.children(recursive=True)]
            peak = max(peak, sum(one.memory_info().rss for one in family))
        except psutil.Error:
            continue  # one of them has just ended
        time.sleep(INTERVAL)
    if process.returncode:
        raise UserError(f"the build of {config} failed; see above")
    seconds, built = time.perf_counter() - started, manifest.read(folder) or {}
    return {key: built[key] for key in ("rows_in", "rows_out", "dropped")} | {
        "seconds": seconds,
        "peak_mib": peak / 2**20,
        "steps": built["seconds"],
        "sha256": manifest.sha256(folder / "grpo_train.jsonl"),
    }


def render(results: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The rows of the table, the slowest step of the largest build first."""
    largest = max(results, key=lambda one: one["rows_in"])["steps"]
    steps = sorted(largest, key=lambda step: -largest[step])
    table = []
    for one in results:
        rows, total = one["rows_in"], sum(one["steps"].values())
        row = {
            "rows": f"{rows:,}",
            "workers": str(one["workers"]),
            "minutes": f"{one['seconds'] / 60:.1f}",
            "rows per s": f"{rows / one['seconds']:,.0f}",
            "peak MiB": f"{one['peak_mib']:,.0f}",
            "kept": f"{one['rows_out']:,}",
        }
        row |= {f"{step}, %": f"{100 * one['steps'].get(step, 0) / total:.1f}" for step in steps}
        table.append(row)
    return table


def main() -> None:
    """Make the files, build each, write the table."""
    (args,) = parse(__doc__, BenchArguments)
    questions = load_questions(args.data_root)
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = folder / "data.yaml"
        config.write_text(
            yaml.safe_dump({
                "output_dir": str(folder / "out"), "data_root": str(Path(args.data_root).resolve()),
                "grpo": [{"name": "areal_boba", "file": str(folder / "boba.jsonl")}],
                "decontaminate": BENCHMARKS, "languages": ["en"],
            })
        )  # fmt: skip
        # The smallest with one worker as well.
        for size, workers in [(min(args.sizes), 1), *((size, 2) for size in sorted(args.sizes))]:
            with (folder / "boba.jsonl").open("w", encoding="utf-8") as file:
                for row in make_rows(questions, size):
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
            results.append(run_build(config, folder / "out", workers) | {"workers": workers})
            tell(f"{size:,} rows, {workers} workers: {results[-1]['seconds']:.0f} s")
    assert results[0]["sha256"] == results[1]["sha256"], "one worker and two wrote other bytes"
    figures = {"about": about(), "builds": results}
    publish(args.out, "Speed and memory of the data build", HOW, render(results), figures)


if __name__ == "__main__":
    run_cli(main)
