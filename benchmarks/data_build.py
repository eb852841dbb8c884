"""How fast the data build is, how much memory it takes, and where the time goes.

    python -m benchmarks.bench_data --data_root DIR --sizes 106000 300000 860000 --out FILE.md

Writes a file in AReaL-boba's shape out of the questions of DAPO, DeepScaleR, ORZ and MATH below
`data_root`: every round over them gets other numbers, one row in 50 repeats an earlier one and one
in 50 is another edition of it, so that there is something to find. Then it builds the file in a
process of its own, as `make data` does, with every step switched on, and reads the build's own
seconds for each step. Peak memory is that of all processes together, sampled every 50 ms.
"""

import argparse
import json
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from data_prep import manifest
from data_prep.config import UserError, run_cli
from data_prep.reading.reading import read_rows
from data_prep.schema import Problem
from data_prep.sources.builders import build_problems

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


def load_questions(data_root: str) -> list[tuple[str, str]]:
    """(question, gold) of the real rows below `data_root`."""
    found = []
    for name, source in FILES.items():
        rows = enumerate(read_rows(Path(data_root, name)))
        numbered = ((position, where, row) for position, (where, row) in rows)
        for _, problem in build_problems(source, "train", numbered):
            if isinstance(problem, Problem):
                found.append((problem.question, problem.answer))
    return found


def vary(question: str, rng: random.Random) -> str:
    """The question with other numbers of as many digits."""
    return re.sub(r"\d+", lambda m: "".join(rng.choice("123456789") for _ in m[0]), question)


def make_rows(questions: list[tuple[str, str]], size: int, seed: int) -> Iterator[dict[str, Any]]:
    """`size` rows in AReaL-boba's shape, the first round over the questions as they are."""
    rng = random.Random(seed)
    earlier: list[tuple[str, str]] = []
    for number in range(size):
        turn = rng.random()
        if earlier and turn < 0.04:
            question, gold = rng.choice(earlier)
            if turn < 0.02:
                question = f"Problem {number % 40 + 1}. {question.rstrip('.')} ."
        else:
            question, gold = questions[number % len(questions)]
            question = question if number < len(questions) else vary(question, rng)
            if len(earlier) < 20_000:
                earlier.append((question, gold))
        newline, tail = rng.choice(("", "\n")), rng.choice(TAILS)
        yield {
            "prompt": f"{newline}{USER}\n{question} {INSTRUCTION}{ASSISTANT}{tail}",
            "task": "math",
            "query_id": f"{number:08x}",
            "solutions": [f"\\boxed{{{gold}}}"],
        }


def train_tokenizer(questions: list[tuple[str, str]], folder: Path) -> None:
    """Save a byte-level BPE of 8,000 tokens: no hub is asked."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator((question for question, _ in questions[:5000]), vocab_size=8000)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))


def run_build(config: Path, folder: Path, num_workers: int) -> dict[str, Any]:
    """Build once in a process of its own; seconds, MiB at the peak and the build's manifest."""
    import psutil

    command = [sys.executable, "-m", "data_prep.build", "--config", str(config)]
    command += ["--output_dir", str(folder), "--num_workers", str(num_workers)]
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
    built = manifest.read(folder)
    assert built is not None
    return {
        "seconds": time.perf_counter() - started,
        "peak_mib": peak / 2**20,
        "rows_in": built["rows_in"],
        "rows_out": built["rows_out"],
        "dropped": built["dropped"],
        "steps": built["seconds"],
        "sha256": manifest.sha256(folder / "grpo_train.jsonl"),
    }


def render(results: list[dict[str, Any]], command: str) -> str:
    """The result as Markdown."""
    lines = [
        "# Speed and memory of the data build",
        "",
        f"`{command}` at commit {manifest.git_commit()}, {platform.platform()}, "
        f"CPython {platform.python_version()}. One build a line, each in a process of its own; "
        "the input is made of real rows (see `benchmarks/bench_data.py`), and every step is on: "
        "golds and kinds, language, length in tokens, decontamination against "
        f"{', '.join(BENCHMARKS)}, exact and near duplicates. Peak memory is the sum over all "
        "processes.",
        "",
        "| rows | workers | minutes | rows per s | ms per row | peak MiB | KiB per row | kept |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in results:
        rows = one["rows_in"]
        lines.append(
            f"| {rows:,} | {one['workers']} | {one['seconds'] / 60:.1f} | "
            f"{rows / one['seconds']:,.0f} | {1000 * one['seconds'] / rows:.2f} | "
            f"{one['peak_mib']:,.0f} | {1024 * one['peak_mib'] / rows:.1f} | {one['rows_out']:,} |"
        )
    steps = sorted({step for one in results for step in one["steps"]})
    largest = max(results, key=lambda one: one["rows_in"])
    steps.sort(key=lambda step: -largest["steps"].get(step, 0))
    lines += [
        "", "Share of each step in their seconds, added over the processes, %:", "",
        "| rows | workers | " + " | ".join(steps) + " |",
        "| ---: | ---: |" + " ---: |" * len(steps),
    ]  # fmt: skip
    for one in results:
        total = sum(one["steps"].values())
        shares = " | ".join(f"{100 * one['steps'].get(step, 0) / total:.1f}" for step in steps)
        lines.append(f"| {one['rows_in']:,} | {one['workers']} | {shares} |")
    lines += ["", "Dropped:", "", "| rows | reasons |", "| ---: | --- |"]
    for one in results:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in one["dropped"].items())
        lines.append(f"| {one['rows_in']:,} | {reasons} |")
    by_two = [one for one in results if one["workers"] == 2]
    per_row = [one["seconds"] / one["rows_in"] for one in by_two]
    median = statistics.median(per_row)
    lines += [
        "",
        f"Time per row with 2 workers, between the sizes: {min(per_row) / median:.2f} to "
        f"{max(per_row) / median:.2f} of the median. The same bytes with 1 and 2 workers: "
        f"{same_bytes(results)}.",
    ]
    return "\n".join(lines) + "\n"


def same_bytes(results: list[dict[str, Any]]) -> str:
    """Whether builds of one size gave one file; "not compared" where no size was built twice."""
    by_size: dict[int, set[str]] = {}
    for one in results:
        by_size.setdefault(one["rows_in"], set()).add(one["sha256"])
    is_twice = len({one["rows_in"] for one in results}) < len(results)
    if not is_twice:
        return "not compared"
    return "yes" if all(len(found) == 1 for found in by_size.values()) else "NO"


def main() -> None:
    """Make the files, build each, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_root", required=True, help="folder of the real rows")
    parser.add_argument("--sizes", type=int, nargs="+", default=[106_000, 300_000, 860_000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True, help="Markdown file; figures go beside it as .json")
    args = parser.parse_args()
    questions = load_questions(args.data_root)
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        train_tokenizer(questions, folder / "tokenizer")
        config = folder / "data.yaml"
        config.write_text(
            yaml.safe_dump({
                "output_dir": str(folder / "out"), "data_root": str(Path(args.data_root).resolve()),
                "grpo": [{"name": "areal_boba", "file": str(folder / "boba.jsonl")}],
                "decontaminate": BENCHMARKS, "languages": ["en"],
                "tokenizer": str(folder / "tokenizer"), "max_question_tokens": 1024,
            })
        )  # fmt: skip
        # The smallest with one worker as well: its bytes must be the same.
        for size, workers in [(min(args.sizes), 1), *((size, 2) for size in sorted(args.sizes))]:
            with (folder / "boba.jsonl").open("w", encoding="utf-8") as file:
                for row in make_rows(questions, size, args.seed):
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
            found = run_build(config, folder / "out", workers) | {"workers": workers}
            sys.stdout.write(
                f"{size:,} rows, {workers} workers: {found['seconds']:.0f} s, "
                f"{found['peak_mib']:,.0f} MiB\n"
            )
            sys.stdout.flush()
            results.append(found)
    sizes = " ".join(map(str, args.sizes))
    text = render(results, f'make bench-data DATA_ROOT=… SIZES="{sizes}"')
    Path(args.out).write_text(text, encoding="utf-8")
    manifest.write_json(Path(args.out).with_suffix(".json"), results)
    sys.stdout.write(f"bench-data: {args.out}\n")


if __name__ == "__main__":
    run_cli(main)
