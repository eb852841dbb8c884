"""Seconds of the grader on real solutions, in this checkout and in another one, interleaved.

    python -m benchmarks.grader_speed --data_root DIR --tree DIR [--questions true]

2,000 solutions of MATH and NuminaMath are the completions: each with its own gold, then with the
gold of another. Both checkouts grade the same blocks in turns, in an order drawn each time; seconds
are of the processor, those of the workers included. Each pass has new processes, so that no cache
helps. The ratio is of the summed seconds, its interval 95 % bootstrap over the blocks.
"""

import gzip
import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.table import markdown, show_interval, sum_ratio_interval, tell
from grading.extract import last_boxed
from pipeline.errors import run_cli
from pipeline.settings import parse

NUM_PASSES, BLOCK = 3, 50
# Runs in the tree that it times: blocks of rows on standard input, seconds on standard output.
TIME = r"""
import inspect, json, os, sys, time
def cpu():
    # Seconds of this process and of those it started; /proc, as living workers are not in rusage.
    parents, seconds = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(words[1])
        seconds[int(name)] = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    todo, total = [os.getpid()], -seconds[os.getpid()] + time.process_time() + sum(os.times()[2:4])
    while todo:
        at = todo.pop()
        total += seconds[at]
        todo += [child for child, parent in parents.items() if parent == at]
    return total
if __name__ == "__main__":
    if os.path.exists("data_prep/answers.py"):
        from data_prep.answers import grade_all
    else:
        from grading.grade import grade_all
    takes_questions = "questions" in inspect.signature(grade_all).parameters
    grade_all([r"<think>a</think> \boxed{\int_0^1 x dx}"], ["1"])  # starts a worker
    print("ready", flush=True)
    for line in sys.stdin:
        texts, golds, questions = json.loads(line)
        more = {"questions": questions} if takes_questions and questions else {}
        start = cpu()
        grade_all(texts, golds, **more)
        print(cpu() - start, flush=True)
"""


@dataclass
class SpeedArguments:
    """Keys of the command line, or of a YAML file."""

    data_root: str = field(metadata={"help": "with MATH and NuminaMath"})
    tree: str = field(metadata={"help": "the other checkout"})
    questions: bool = field(
        default=False, metadata={"help": "give them to a grader that takes them"}
    )


Row = tuple[str, str, str]  # question, solution, gold


def read_solutions(data_root: Path) -> list[Row]:
    """1,000 solutions of MATH and 1,000 of NuminaMath, each with the content of its last box."""
    found = []
    for name, question, solution in (
        ("math/test_minus_math500_4500.jsonl.gz", "problem", "solution"),
        ("numinamath_cot/numina_cot_2k.jsonl", "instruction", "response"),
    ):
        path = data_root / name
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            rows: list[dict[str, Any]] = [json.loads(line) for line in file]
        mine = [(row[question], row[solution], last_boxed(row[solution])) for row in rows]
        found += random.Random(0).sample([row for row in mine if row[2]], 1_000)
    random.Random(0).shuffle(found)
    return found


def start(tree: Path) -> subprocess.Popen:
    """A process that times the grader of `tree`, ready to go."""
    child = subprocess.Popen(
        [sys.executable, "-c", TIME], cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)},
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdout.readline() == "ready\n", f"{tree}: its grader did not start"
    return child


def seconds(child: subprocess.Popen, rows: list[Row], questions: bool) -> float:
    asked = [question for question, _, _ in rows] if questions else None
    texts = [f"<think>\nI work it out.\n</think>\n\n{solution}" for _, solution, _ in rows]
    child.stdin.write(json.dumps([texts, [gold for *_, gold in rows], asked]) + "\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def main() -> None:
    """Time both checkouts; print the table."""
    (args,) = parse(__doc__, SpeedArguments)
    rows, rng = read_solutions(Path(args.data_root)), random.Random(0)
    golds = rng.sample([gold for *_, gold in rows], len(rows))
    others = [
        (question, solution, gold)
        for (question, solution, _), gold in zip(rows, golds, strict=True)
    ]
    lines = []
    for name, mine in (("own gold", rows), ("gold of another", others)):
        blocks = [mine[at : at + BLOCK] for at in range(0, len(mine), BLOCK)]
        spent = [[0.0] * len(blocks), [0.0] * len(blocks)]
        for _ in range(NUM_PASSES):
            children = [start(Path(__file__).parents[1]), start(Path(args.tree))]
            for at, block in enumerate(blocks):
                for which in rng.sample((0, 1), 2):
                    spent[which][at] += seconds(children[which], block, args.questions) / NUM_PASSES
            for child in children:
                child.stdin.close()
                child.wait()
        line = {"completions with": name, "rows": f"{len(mine):,}", "s": f"{sum(spent[0]):.2f}"}
        line["s, other tree"] = f"{sum(spent[1]):.2f}"
        lines.append(line | {"ratio": show_interval(sum_ratio_interval(*spent))})
    tell(markdown(lines))


if __name__ == "__main__":
    run_cli(main)
