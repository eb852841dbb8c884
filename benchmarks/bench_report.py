"""Figures of the grader's benchmark: statistics, the table, the targets, and the page.

Used by `benchmarks.bench_grader`, which measures.
"""

import importlib.metadata
import math
import os
import platform
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.bench_completions import HOSTILE, NUM_HOSTILE
from data_prep import manifest
from data_prep.grading.grading_pool import TIMEOUT_SECONDS

SINGLE, BASELINE = "ours, single", "math-verify"
MIN_RATIO = {"integers": 10, "mix": 3, "mix without hostile input": 3}
MAX_P99_MS = 50
MAX_OVER_LIMIT = 1.2
HEADER = (
    "grader", "rows", "per s", "p50 ms", "p99 ms", "max ms", "labels %", "none", "speed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """One grader on one set in one turn."""

    is_single: bool  # one call per completion, else one for all
    wall: float  # seconds for all
    seconds: list[float]  # of each completion
    found: list[bool | None]  # right or wrong; None where it raised or was killed
    labels: list[bool]


@dataclass(frozen=True, slots=True)
class Limit:
    """One call that is over the time limit: what, what became of it, wall-clock seconds."""

    what: str
    verdict: str
    seconds: float


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def ratio_interval(
    above: Sequence[float], below: Sequence[float], num_samples: int = 4_000
) -> tuple[float, float, float]:
    """Ratio of two sums with one term per turn, and its 95 % interval over the turns.

    The interval is the bootstrap's: turns drawn with replacement, 2.5 and 97.5 % of the ratios. A
    call that takes seconds sits in one turn only; Student's t on so few and so skewed turns gives
    intervals over ten powers of ten.
    """
    rng = random.Random(0)
    turns = range(len(above))
    draws = [rng.choices(turns, k=len(turns)) for _ in range(num_samples)]
    ratios = [sum(above[at] for at in draw) / sum(below[at] for at in draw) for draw in draws]
    return sum(above) / sum(below), percentile(ratios, 0.025), percentile(ratios, 0.975)


def cost(measured: Measured, num: int) -> float:
    """Seconds per completion: of the first `num` where each was timed, else of the batch."""
    if measured.is_single:
        return sum(measured.seconds[:num]) / num
    return measured.wall / len(measured.seconds)


def speed_ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> tuple[float, float, float]:
    """How many times as fast ours is, with its interval; on the completions both had."""
    nums = [min(len(a.seconds), len(b.seconds)) for a, b in zip(ours, theirs, strict=True)]
    return ratio_interval(
        [cost(measured, num) for measured, num in zip(theirs, nums, strict=True)],
        [cost(measured, num) for measured, num in zip(ours, nums, strict=True)],
    )


def half_and_half(first: Sequence[Measured], second: Sequence[Measured]) -> list[Measured]:
    """As if a turn's completions came from two sets in equal parts."""
    mixed = []
    for a, b in zip(first, second, strict=True):
        each = [cost(measured, len(measured.seconds)) for measured in (a, b)]
        mixed.append(Measured(True, sum(each), each, [], []))
    return mixed


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def _interval(ratio: tuple[float, float, float]) -> str:
    mean, low, high = map(_number, ratio)
    return f"{mean} ({low} to {high})"


def _row(grader: str, found: dict[str, list[Measured]]) -> list[str]:
    turns = found[grader]
    seconds = [1000 * s for measured in turns for s in measured.seconds]
    verdicts = [v for measured in turns for v in measured.found]
    labels = [label for measured in turns for label in measured.labels]
    agreeing = sum(v is not None and v == label for v, label in zip(verdicts, labels, strict=True))
    latency = (percentile(seconds, 0.5), percentile(seconds, 0.99), max(seconds))
    is_reference = grader == BASELINE or BASELINE not in found
    return [
        grader,
        f"{len(seconds):,}",
        _number(len(seconds) / sum(measured.wall for measured in turns)),
        *map(_number, latency),
        f"{100 * agreeing / len(labels):.1f}",
        str(verdicts.count(None)),
        "1" if is_reference else _interval(speed_ratio(turns, found[BASELINE])),
    ]


def tables(results: dict[str, dict[str, list[Measured]]]) -> dict[str, list[list[str]]]:
    """For each set one row per grader, in the order of `HEADER`."""
    return {name: [_row(grader, found) for grader in found] for name, found in results.items()}


def targets(
    results: dict[str, dict[str, list[Measured]]], limits: Sequence[Limit]
) -> list[tuple[str, str, bool]]:
    """(target, figure, whether it is met): a ratio is met where its whole interval is."""
    pairs = {name: (found[SINGLE], found[BASELINE]) for name, found in results.items()}
    plain = zip(pairs["integers"], pairs["expressions"], strict=True)
    pairs["mix without hostile input"] = tuple(half_and_half(*both) for both in plain)
    lines = []
    for name, least in MIN_RATIO.items():
        ratio = speed_ratio(*pairs[name])
        target = f"{least} times as fast as math-verify: {name}"
        lines.append((target, _interval(ratio), ratio[1] >= least))
    for name, found in results.items():
        p99 = 1000 * percentile([s for m in found[SINGLE] for s in m.seconds], 0.99)
        lines.append((f"p99 under {MAX_P99_MS} ms: {name}", f"{_number(p99)} ms", p99 < MAX_P99_MS))
    # A call that ended in time does not show what the limit does.
    late = [limit for limit in limits if limit.verdict == "timeout"]
    longest = max((limit.seconds for limit in late), default=math.nan) / TIMEOUT_SECONDS
    figure = f"{longest:.3f} times, {len(late)} time-outs"
    target = f"no call past {MAX_OVER_LIMIT} times its limit of {TIMEOUT_SECONDS:g} s"
    lines.append((target, figure, longest <= MAX_OVER_LIMIT))
    return lines


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int) -> str:
    rule = ["---"] * num_left + ["---:"] * (len(header) - num_left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def _limit_rows(limits: Sequence[Limit]) -> list[list[str]]:
    return [[f"`{limit.what}`", limit.verdict, f"{limit.seconds:.3f}"] for limit in limits]


def _target_rows(
    results: dict[str, dict[str, list[Measured]]], limits: Sequence[Limit]
) -> list[list[str]]:
    return [[*line, "met" if met else "**not met**"] for *line, met in targets(results, limits)]


def render_page(
    results: dict[str, dict[str, list[Measured]]],
    limits: Sequence[Limit],
    command: str,
    source: str,
    seconds: float,
) -> str:
    """The results as Markdown.

    Args:
        command: that made them.
        source: where the golds of the expressions come from.
        seconds: how long it took.
    """
    num_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = ("trl", "math-verify", "latex2sympy2_extended", "sympy", "mpmath")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    num_rounds = len(next(iter(results["mix"].values())))
    notes = NOTES.format(
        source=source, num_rounds=num_rounds, num_hostile=NUM_HOSTILE, num_kinds=len(HOSTILE)
    )
    sets = "\n\n".join(
        f"**{name}**\n\n{_markdown(HEADER, rows, 1)}" for name, rows in tables(results).items()
    )
    return f"""# The grader: speed and accuracy

`{command}`

{time.strftime("%d %B %Y", time.gmtime())}, {num_cpus} CPU cores, {seconds:.0f} s, commit
`{manifest.git_commit()}`.
Python {platform.python_version()}, {versions}.

{_markdown(("target", "figure", ""), _target_rows(results, limits), 1)}

{sets}

Calls over the time limit of {TIMEOUT_SECONDS:g} s:

{_markdown(("call", "verdict", "wall-clock s"), _limit_rows(limits), 2)}

{notes}"""


NOTES = """How it was measured:

- Completions: a thought of 15 to 60 lines, then one to three sentences with the answer in a box.
  *integers*: eight completions to each gold, five of them right. *expressions*: each gold of
  {source} once, with other print, a rewriting where one is easy (both right), and a wrong one.
  *hostile*: towers of powers, huge factorials and sums, thousands of brackets, code, …; all wrong.
  *mix*: 45 % integers, 45 % expressions, 10 % hostile. The labels follow from how a completion was
  made.
- {num_rounds} rounds. The graders take turns, in a new order each time: *integers* and
  *expressions* have five turns a round, the others one. Each has a process of its own. No
  completion is given to a grader twice, and no gold of *expressions* serves in two rounds, so that
  caches help within a gold's group only, as in training.
- *ours, single* grades one completion at a time, as TRL and math-verify do, and has one worker; its
  latency is wall-clock. *1 worker* and *2 workers* grade the completions of a set in one call;
  their latency is the work of each completion, without waiting for the others.
- TRL: `reasoning_accuracy_reward`. math-verify: `verify(parse(gold), parse(text after </think>))`.
  Both with their defaults, in a main thread, and with the gold in `$…$`, which both read better.
- A baseline gets the first {num_hostile} completions of *hostile* and the first twenty of *mix*, as
  hostile ones cost it seconds; over five rounds it meets each of the {num_kinds} kinds once. Two
  kinds are made to take math-verify's whole time in our worker: they are the 2 s of our lines.
- *labels*: share of verdicts that agree with the label. Ours was developed with golds like these,
  so that its share is no held-out figure. *none*: no verdict, as the grader raised or its call was
  killed after 20 s.
- *speed*: with math-verify as 1, the ratio of the summed seconds; for single calls over the
  completions that both graded, for whole batches over all of ours. Its interval is 95 % over the
  turns (bootstrap; a little narrow where they are few).
"""


def show(results: dict[str, dict[str, list[Measured]]], limits: Sequence[Limit]) -> None:
    """Print the tables."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    limit_header = ("call", "verdict", "s")
    titled = [(name, HEADER, rows) for name, rows in tables(results).items()]
    titled.append(("", limit_header, _limit_rows(limits)))
    titled.append(("", ("target", "figure", ""), _target_rows(results, limits)))
    for title, header, rows in titled:
        grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for at, name in enumerate(header):
            grid.add_column(name.replace(" ", "\n"), justify="right" if at else "left")
        for row in rows:
            grid.add_row(*(cell.replace("[", r"\[") for cell in row))
        console.print(grid)
