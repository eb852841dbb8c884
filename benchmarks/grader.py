"""Speed, latency and accuracy of the grader, and of TRL's and math-verify on the same completions.

    make bench-grader

Each grader lives in a child process, warmed up before a clock starts. They take turns, so that
whatever else the machine does hits all alike. The baselines run as their users run them, in a main
thread under their own alarms; a call that those do not end is killed by a guard.
"""

import itertools
import logging
import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Annotated

import numpy as np
from pydantic import Field

from benchmarks.grader_cases import NUM_HOSTILE, Case, make_round
from benchmarks.table import Interval, about, publish, sum_ratio_interval
from grading.grade import grade_all
from pipeline.errors import run_cli
from pipeline.settings import parse
from pipeline.values import Count

Outcome = tuple[float, bool | None]  # seconds; None: the grader raised or was killed
GUARD_SECONDS = 20.0  # TRL's own alarms end a call after 15 s
START_SECONDS = 300.0
SINGLE, BASELINE = "ours, single", "math-verify"
# One completion per call, or the whole batch at once.
GRADERS = {
    SINGLE: True,
    "ours, a batch": False,
    "TRL": True,
    BASELINE: True,
}
NUM_TURNS = 5  # per round, of a set without hostile completions
WARM_UP = (r"\sqrt{2}", r"\int_0^1 x dx")
HOW = """`make bench-grader` gives the same completions to this grader, to TRL's reward and to
math-verify. They have 15 to 60 lines of thought, then one to three sentences with a boxed answer.
In {num_rounds} rounds, no grader gets a completion twice."""
MEANING = """- `integers`: eight completions to each gold, five of them correct.
- `expressions`: golds of MATH-500 and others, in other print and rewritten (both correct), and with
  an incorrect answer. Ours refuses what is left to work out, such as `1252 + 8`.
- `hostile`: towers of powers, huge factorials, thousands of brackets, code. All are incorrect. TRL
  and math-verify get the first {num_hostile} of them, because these cost them seconds.
- `ours, single` grades one completion a call, as TRL and math-verify do. The other rows grade a set
  in one call, and their latency is the work of each completion.
- TRL is `reasoning_accuracy_reward`, math-verify is
  `verify(parse(gold), parse(text after </think>))`. Both have their defaults and the gold in `$…$`.
- Labels: share of the verdicts that agree with how the completion was made. A grader that raises,
  or is killed after 20 s, does not agree. Ours was developed with golds like these.
- Speed: ratio of seconds to math-verify's on the completions that both graded, with a 95 %
  bootstrap over the turns."""


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    out: str = field(metadata={"help": "the page to write"})
    rounds: Annotated[int, Field(ge=2)] = field(default=5, metadata={"help": "2 or more"})
    rows: Count = field(default=240, metadata={"help": "of a set and round; 4 times the integers"})


@dataclass(frozen=True, slots=True)
class Measured:
    """One grader on one set in one turn."""

    is_single: bool  # one call per completion, else one for all
    wall: float  # seconds for all
    seconds: list[float]  # of each completion
    found: list[bool | None]  # correct or not; None where it raised or was killed
    labels: list[bool]


Results = dict[str, dict[str, list[Measured]]]  # set -> grader -> turns


def cost(measured: Measured, num: int) -> float:
    """Seconds per completion: of the first `num` where each was timed, else of the batch."""
    if measured.is_single:
        return sum(measured.seconds[:num]) / num
    return measured.wall / len(measured.seconds)


def speed_ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> Interval:
    """How many times as fast ours is, with its interval; on the completions both had."""
    nums = [min(len(a.seconds), len(b.seconds)) for a, b in zip(ours, theirs, strict=True)]
    return sum_ratio_interval(list(map(cost, theirs, nums)), list(map(cost, ours, nums)))


def show_number(value: float) -> str:
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def render(results: Results) -> list[dict[str, str]]:
    """A row of the table for each set and grader."""
    rows = []
    for name, found in results.items():
        for grader, turns in found.items():
            verdicts = [v for measured in turns for v in measured.found]
            labels = [label for measured in turns for label in measured.labels]
            agreeing = sum(v == label for v, label in zip(verdicts, labels, strict=True))
            rate = len(verdicts) / sum(measured.wall for measured in turns)
            millis = [1000 * second for measured in turns for second in measured.seconds]
            median, p99 = np.quantile(millis, (0.5, 0.99), method="inverted_cdf")
            speed, low, high = map(show_number, speed_ratio(turns, found[BASELINE]))
            row = {"set": name, "grader": grader, "rows": f"{len(verdicts):,}"}
            row["per second"] = show_number(rate)
            row["median ms"] = show_number(median)
            row["99th percentile ms"] = show_number(p99)
            row["labels, %"] = f"{100 * agreeing / len(labels):.1f}"
            rows.append(row | {"speed": f"{speed} [{low}, {high}]"})
    return rows


def load(name: str) -> Callable[[Sequence[Case]], list[Outcome]]:
    """A grader by its name in `GRADERS`, ready to go."""
    if name not in ("TRL", BASELINE):

        def ours(cases: Sequence[Case]) -> list[Outcome]:
            grades = grade_all([c.completion for c in cases], [c.gold for c in cases])
            return [(grade.seconds, grade.verdict == "right") for grade in grades]

        return ours
    from math_verify import parse, verify
    from trl.rewards import reasoning_accuracy_reward

    def is_right(case: Case) -> bool:
        if name == BASELINE:
            answer = case.completion.rpartition("</think>")[2]
            return verify(parse(f"${case.gold}$"), parse(answer))
        completion = [{"role": "assistant", "content": case.completion}]
        return reasoning_accuracy_reward([completion], [f"${case.gold}$"]) == [1.0]

    def baseline(cases: Sequence[Case]) -> list[Outcome]:
        (case,) = cases
        start = time.perf_counter()
        try:
            found = is_right(case)
        except Exception:  # a figure of its own: in a trainer it ends the run
            found = None
        return [(time.perf_counter() - start, found)]

    return baseline


def serve(name: str, pipe: Connection) -> None:
    """What a child runs: batches of cases in, (wall-clock seconds, outcomes) out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    logging.disable(logging.CRITICAL)  # every time-out is logged
    grade = load(name)
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
        self._process = context.Process(target=serve, args=(self._name, theirs))
        self._process.start()
        theirs.close()
        assert self._pipe.poll(START_SECONDS), f"{self._name} did not start"
        self._pipe.recv()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def measure(self, cases: Sequence[Case]) -> Measured:
        """Grade cases as this grader is called: one by one, or all at once."""
        is_single = GRADERS[self._name]
        batches = [[case] for case in cases] if is_single else [list(cases)]
        walls, outcomes = [], []
        for batch in batches:
            self._pipe.send(batch)
            if self._pipe.poll(GUARD_SECONDS * len(batch)):
                wall, graded = self._pipe.recv()
            else:
                wall, graded = GUARD_SECONDS * len(batch), [(GUARD_SECONDS, None)] * len(batch)
                self.stop()
                self._start()
            walls.append(wall)
            outcomes += graded
        # A batch's wall clock includes waiting for the others.
        seconds = walls if is_single else [seconds for seconds, _ in outcomes]
        found, labels = [right for _, right in outcomes], [case.is_right for case in cases]
        return Measured(is_single, sum(walls), seconds, found, labels)


def measure_rounds(rounds: Sequence[dict[str, list[Case]]]) -> Results:
    """`{set: {grader: [of each turn]}}`; the graders take turns in an order drawn each time."""
    rng = random.Random(0)
    children: dict[str, Child] = {}
    results: Results = {}
    try:
        for name in GRADERS:
            children[name] = Child(name)
        for number, sets in enumerate(rounds, 1):
            for name, cases in sets.items():
                sys.stderr.write(f"round {number} of {len(rounds)}: {name}\n")
                found = results.setdefault(name, {grader: [] for grader in GRADERS})
                # In parts of a second at most, but where one completion may take longer.
                num_turns = 1 if name == "hostile" else NUM_TURNS
                bounds = [len(cases) * at // num_turns for at in range(num_turns + 1)]
                for start, end in itertools.pairwise(bounds):
                    for grader in rng.sample([*GRADERS], len(GRADERS)):
                        is_cut = name == "hostile" and grader in ("TRL", BASELINE)
                        num = NUM_HOSTILE if is_cut else None
                        found[grader].append(children[grader].measure(cases[start:end][:num]))
    finally:
        for child in children.values():
            child.stop()
    return results


def main() -> None:
    """Measure, then write the table."""
    (args,) = parse(__doc__, BenchArguments)
    rounds = [make_round(at, args.rounds, args.rows) for at in range(args.rounds)]
    results = measure_rounds(rounds)
    how, meaning = HOW.format(num_rounds=args.rounds), MEANING.format(num_hostile=NUM_HOSTILE)
    rows = render(results)
    title, figures = "The grader: speed and accuracy", {"about": about(), "rows": rows}
    publish(args.out, title, how, rows, figures, meaning)


if __name__ == "__main__":
    run_cli(main)
