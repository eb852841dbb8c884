"""Which problems the predictive curriculum visits, how often, and how long the others wait.

    python -m benchmarks.coverage --recipe_run runs/pools/topics --out docs/results/coverage.md

Nothing is generated: the problems of a pool keep pass rates drawn from what the start model has
shown of each (8 samples), and the curriculum chooses among them with the components of its prompts.
A policy that learns moves on; one that stands still is the worst case for those left out.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import table
from benchmarks.pools import read_pool
from pipeline.errors import run_cli
from pipeline.settings import parse
from stages.trainer.curriculum import PredictiveCurriculum

EDGES = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)  # of bands of pass rates
SIZE, COUNT, NUM_COMPONENTS = 8, 16, 16  # rollouts, problems a batch, components
LOOK = 200  # batches after which visits are counted
HOW = """`python -m benchmarks.coverage --recipe_run {run}`: {num} problems, {count} a batch,
{batches} batches, {seeds} seeds, `explore_share` 0.05. Visits: share of the choices of {look}
batches over share of the pool. Seen: problems chosen at least once. Longest wait: batches between
two choices of a problem, of any; the promise is {promise}."""


@dataclass
class CoverageArguments:
    """Keys of the command line."""

    recipe_run: str = field(metadata={"help": "run folder with data, sft and difficulty"})
    out: str = field(metadata={"help": "Markdown file to write, with .json next to it"})
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3])
    batches: int = field(default=1300, metadata={"help": "batches of each seed"})


def follow(
    components: np.ndarray, rates: np.ndarray, seed: int, batches: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Visits of each problem after `LOOK` batches and at the end, (N,), and the longest wait."""
    rng = np.random.default_rng(seed)
    curriculum = PredictiveCurriculum(
        [0] * len(rates), SIZE, seed, num_components=components.shape[1]
    )
    curriculum.see(components)
    visits, last, longest = np.zeros(len(rates)), np.zeros(len(rates), dtype=int), 0
    early = visits
    for batch in range(1, batches + 1):
        chosen = curriculum.choose(COUNT)
        curriculum.observe(chosen, rng.binomial(SIZE, rates[chosen]).tolist(), SIZE)
        longest = max(longest, int((batch - last[chosen]).max()))
        visits[chosen] += 1
        last[chosen] = batch
        if batch == min(LOOK, batches):
            early = visits.copy()
    return early, visits, max(longest, int((batches - last).max()))


def main() -> None:
    """Follow every seed, write the table."""
    (args,) = parse(__doc__, CoverageArguments)
    components, right, total = read_pool(Path(args.recipe_run), NUM_COMPONENTS)
    runs = []
    for seed in args.seeds:
        rng = np.random.default_rng(seed)
        rates = np.clip(rng.beta(right + 0.2, total - right + 0.2), 1e-4, 1 - 1e-4)
        band = np.digitize(rates, EDGES[1:-1])
        early, late, wait = follow(components, rates, seed, args.batches)
        shares = [(band == number).mean() for number in range(len(EDGES) - 1)]
        visits = [early[band == number].sum() / early.sum() for number in range(len(EDGES) - 1)]
        runs.append([shares, visits, (early > 0).mean(), (late > 0).mean(), wait])
    shares, visits = (np.mean([run[part] for run in runs], axis=0) for part in (0, 1))
    rows = [
        {
            "pass rate": f"{low:g} to {high:g}",
            "share of the pool": f"{share:.2f}",
            "visits": f"{part / share:.2f}",
        }
        for low, high, share, part in zip(EDGES, EDGES[1:], shares, visits, strict=False)
    ]
    promise = int(np.ceil(len(right) / (0.05 * COUNT)))
    how = HOW.format(
        run=args.recipe_run, num=len(right), count=COUNT, batches=args.batches,
        seeds=len(args.seeds), look=LOOK, promise=promise,
    )  # fmt: skip
    seen, end = (float(np.mean([run[part] for run in runs])) for part in (2, 3))
    note = (
        f"Seen after {LOOK} batches: {seen:.2f} of the pool; after {args.batches}: {end:.3f}. "
        f"Longest wait: {max(run[4] for run in runs)} batches."
    )
    table.publish(
        args.out, "Who is chosen", how, rows, {"about": table.about(), "runs": runs}, note
    )


if __name__ == "__main__":
    run_cli(main)
