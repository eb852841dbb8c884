"""Benchmark of the grader: speed, latency and accuracy beside those of TRL and math-verify.

    make bench-grader DATA_ROOT=DIR
    python -m benchmarks.bench_grader --data_root DIR --out docs/results/grader.md

Each grader lives in a child process, loaded and warmed up before a clock starts. They take turns
round by round, so that whatever else the machine does hits all alike, and every round brings
completions that none has seen (`bench_completions`). The baselines run as their users run
them, in a main thread under their own alarms; a call that those do not end is killed by a guard.
`benchmarks.bench_report` makes the figures and the page.
"""

import argparse
import itertools
import logging
import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.bench_completions import MIX_BLOCK, NUM_HOSTILE, PAIRS, Case, make_round
from benchmarks.bench_report import BASELINE, SINGLE, Limit, Measured, render_page, show
from data_prep.config import UserError, run_cli
from data_prep.grading import grading_pool
from data_prep.grading.answers import grade_all
from data_prep.grading.grading_pool import FUNCTION, TIMEOUT_SECONDS, GradingPool
from data_prep.reading.reading import read_rows

Outcome = tuple[float, bool | None]  # seconds; None: the grader raised or was killed
GUARD_SECONDS = 20.0  # TRL's own alarms end a call after 15 s
START_SECONDS = 300.0
# One completion per call, or the whole batch at once; and how many workers, 0 for a baseline.
GRADERS = {
    SINGLE: (True, 1),
    "ours, 1 worker": (False, 1),
    "ours, 2 workers": (False, 2),
    "TRL": (True, 0),
    BASELINE: (True, 0),
}
NUM_FOR_BASELINES = {"hostile": NUM_HOSTILE, "mix": MIX_BLOCK}
NUM_TURNS = 5  # per round, of a set without hostile completions
# Sane to look at, and over the time limit in math-verify.
OVER_LIMIT = (
    r"\sum_{k=1}^{\infty} \frac{\sin(k)}{k^3+k+11}",
    r"\sum_{k=1}^{\infty} \frac{\cos(k)}{k^4+k+13}",
    r"\int_0^{\infty} \frac{\sin(x^3) \ln(1+x)}{\sqrt{1+x^5}} dx",
    r"\int_0^{\infty} \frac{\cos(x^3) \ln(2+x)}{\sqrt{3+x^7}} dx",
)
# Only math-verify can read these; the second makes a second worker start.
WARM_UP = (r"\int_0^1 x dx", r"\int_0^2 x dx")
# A single instruction of Python, which no handler of a signal can interrupt.
ONE_INSTRUCTION = ("3 ** 10 ** 9", "7 ** 10 ** 9")


def _load(name: str) -> Callable[[Sequence[Case]], list[Outcome]]:
    """A grader by its name in `GRADERS`, ready to go."""
    num_workers = GRADERS[name][1]
    if num_workers:
        grading_pool._shared = GradingPool(FUNCTION, num_workers, TIMEOUT_SECONDS)

        def ours(cases: Sequence[Case]) -> list[Outcome]:
            grades = grade_all([c.completion for c in cases], [c.gold for c in cases])
            return [(grade.seconds, grade.verdict == "right") for grade in grades]

        return ours
    if name == "TRL":
        from trl.rewards import reasoning_accuracy_reward

        def is_right(case: Case) -> bool:
            completion = [{"role": "assistant", "content": case.completion}]
            return reasoning_accuracy_reward([completion], [f"${case.gold}$"]) == [1.0]
    else:
        from math_verify import parse, verify

        def is_right(case: Case) -> bool:
            answer = case.completion.rpartition("</think>")[2]
            return verify(parse(f"${case.gold}$"), parse(answer))

    def baseline(cases: Sequence[Case]) -> list[Outcome]:
        (case,) = cases
        start = time.perf_counter()
        try:
            found = is_right(case)
        except Exception:  # a figure of its own: in a trainer it ends the run
            found = None
        return [(time.perf_counter() - start, found)]

    return baseline


def _serve(name: str, pipe: Connection) -> None:
    """What a child runs: batches of cases in, (wall-clock seconds, outcomes) out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    logging.disable(logging.CRITICAL)  # every time-out is logged
    grade = _load(name)
    for answer in WARM_UP:
        grade([Case(rf"<think>a</think> \boxed{{{answer}}}", "x", False)])
    pipe.send(None)
    while True:
        cases = pipe.recv()
        start = time.perf_counter()
        outcomes = grade(cases)
        pipe.send((time.perf_counter() - start, outcomes))


class Child:
    """A grader in a process of its own, restarted when it hangs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # as fresh as a user's
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._name, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._is_ready = False

    def wait_ready(self) -> None:
        """Wait for imports and warm-up."""
        if not self._is_ready:
            assert self._pipe.poll(START_SECONDS), f"{self._name} did not start"
            self._pipe.recv()
            self._is_ready = True

    def stop(self) -> None:
        """End the process; our workers end with it."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def measure(self, cases: Sequence[Case]) -> Measured:
        """Grade cases as this grader is called: one by one, or all at once."""
        is_single = GRADERS[self._name][0]
        batches = [[case] for case in cases] if is_single else [list(cases)]
        walls, outcomes = [], []
        for batch in batches:
            self.wait_ready()
            self._pipe.send(batch)
            if self._pipe.poll(GUARD_SECONDS * len(batch)):
                wall, graded = self._pipe.recv()
            else:
                wall, graded = GUARD_SECONDS * len(batch), [(GUARD_SECONDS, None)] * len(batch)
                self.stop()
                self._start()
            walls.append(wall)
            outcomes += graded
        # In a batch a call's own wall clock says nothing: it includes waiting for the others.
        seconds = walls if is_single else [seconds for seconds, _ in outcomes]
        found, labels = [right for _, right in outcomes], [case.is_right for case in cases]
        return Measured(is_single, sum(walls), seconds, found, labels)


def _in_turns(name: str, cases: list[Case]) -> list[list[Case]]:
    """A set in parts that take a second at most, where no completion takes longer by itself."""
    if name in NUM_FOR_BASELINES:
        return [cases]
    bounds = [len(cases) * at // NUM_TURNS for at in range(NUM_TURNS + 1)]
    return [cases[start:end] for start, end in itertools.pairwise(bounds)]


def measure_rounds(
    graders: Sequence[str], rounds: Sequence[dict[str, list[Case]]], log: Callable[[str], None]
) -> dict[str, dict[str, list[Measured]]]:
    """`{set: {grader: [of each turn]}}`; the graders take turns, in an order drawn each time."""
    rng = random.Random(0)
    children = {name: Child(name) for name in graders}
    results: dict[str, dict[str, list[Measured]]] = {}
    try:
        for child in children.values():
            child.wait_ready()
        for number, sets in enumerate(rounds, 1):
            for name, cases in sets.items():
                log(f"round {number} of {len(rounds)}: {name}")
                found = results.setdefault(name, {grader: [] for grader in graders})
                for turn in _in_turns(name, cases):
                    for grader in rng.sample(graders, len(graders)):
                        is_baseline = not GRADERS[grader][1]
                        num = NUM_FOR_BASELINES.get(name) if is_baseline else None
                        found[grader].append(children[grader].measure(turn[:num]))
    finally:
        for child in children.values():
            child.stop()
    return results


def measure_limits(num: int) -> list[Limit]:
    """How long calls take that are over the time limit, `num` of each kind."""
    limits = []
    grade_all([rf"<think>a</think> \boxed{{{WARM_UP[0]}}}"], ["x"])
    for text in OVER_LIMIT[:num]:
        start = time.perf_counter()
        (grade,) = grade_all([rf"<think>a</think> \boxed{{{text}}}"], ["1"])
        limits.append(Limit(f"grade: {text}", grade.verdict, time.perf_counter() - start))
    with GradingPool("builtins:eval", 1, TIMEOUT_SECONDS) as pool:
        pool.call("1")
        for text in ONE_INSTRUCTION[:num]:
            start = time.perf_counter()
            outcome = pool.call(text)
            limits.append(Limit(f"pool: {text}", outcome.status, time.perf_counter() - start))
    return limits


def read_golds(data_root: str | None) -> list[tuple[str, str | None]]:
    """The different golds of MATH-500 where there is a `data_root`, else `PAIRS`; shuffled."""
    golds: list[tuple[str, str | None]] = list(PAIRS)
    if data_root:
        rows = read_rows(Path(data_root) / "math" / "math500_test.jsonl")
        golds = [(answer, None) for answer in dict.fromkeys(row["answer"] for _, row in rows)]
    random.Random("golds").shuffle(golds)
    return golds


def _refuse(message: str) -> None:
    raise UserError(f"command line: {message}; see --help")


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_grader", allow_abbrev=False)
    parser.error = _refuse  # argparse would print its usage as well
    parser.add_argument(
        "--data_root", help="folder with math/math500_test.jsonl; else golds of ours"
    )
    parser.add_argument("--out", metavar="FILE", help="page to write, as Markdown")
    parser.add_argument("--rounds", type=int, default=5, help="2 to 10; default 5")
    parser.add_argument(
        "--rows",
        type=int,
        default=240,
        help="per set and round (four times as many integers); default 240",
    )
    args = parser.parse_args(argv)
    if not 2 <= args.rounds <= 10 or args.rows < MIX_BLOCK:
        raise UserError(f"command line: --rounds takes 2 to 10, --rows {MIX_BLOCK} or more")
    return args


def main(argv: list[str] | None = None) -> None:
    """Measure, show, and write the page."""
    args = _parse(argv)
    grading_pool.logger.setLevel(logging.ERROR)  # it tells of every time-out
    golds = read_golds(args.data_root)
    rounds = [make_round(at, args.rounds, golds, args.rows) for at in range(args.rounds)]
    start = time.perf_counter()
    results = measure_rounds(list(GRADERS), rounds, lambda text: sys.stderr.write(f"{text}\n"))
    limits = measure_limits(num=4)
    source = "MATH-500" if args.data_root else "the embedded list"
    seconds = time.perf_counter() - start
    show(results, limits)
    if args.out:
        given = " ".join(sys.argv[1:] if argv is None else argv)
        command = f"python -m benchmarks.bench_grader {given}".replace(str(args.data_root), "DIR")
        page = render_page(results, limits, command, source, seconds)
        Path(args.out).write_text(page, encoding="utf-8")
        sys.stderr.write(f"page: {args.out}\n")


if __name__ == "__main__":
    run_cli(main)
