"""What choosing problems would have saved a GRPO run, from the completions that it has logged.

    python -m benchmarks.replay completions/*.parquet --reward accuracy_reward

The files are what TRL's `log_completions: true` writes, of one run of any trainer. From the right
rollouts of every group follows how the pass rates of the problems are spread, and how they rise:

    logit p(problem, t) = ability(problem) + slope t        ability ~ any distribution

Each mode of this project then chooses problems of such a pool. A dead group is all right or all
wrong. "Saved" is what a mode spends less than uniform sampling for as many informative groups; how
much better the model gets is another question. First the fit is checked: of the first half of the
log, against the second half. Levels, topics and other hints of a prompt are not used.
"""

import collections
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from benchmarks.table import markdown
from data_prep.config import UserError, parse, run_cli
from stages.arguments import GrpoArguments
from stages.trainer.curriculum import PredictiveCurriculum

ABILITIES = np.linspace(-9, 9, 61)  # logits
NUM_SCORING = 4  # offline: completions a problem that the filter is made of
NEEDED = ("step", "prompt", "completion")


@dataclass
class ReplayArguments:
    """Keys of the command line."""

    files: list[str] = field(metadata={"help": "the run's completions_<step>.parquet"})
    reward: str | None = field(
        default=None, metadata={"help": "column that is above 0 where a completion is right"}
    )
    num_generations: int | None = field(
        default=None, metadata={"help": "rollouts in a group, where the log does not show it"}
    )
    pool_size: int | None = field(
        default=None, metadata={"help": "problems of the pool, where the log has not seen all"}
    )
    tokenizer: str | None = field(
        default=None, metadata={"help": "folder or hub id, to count tokens and not characters"}
    )
    num_simulations: int = field(default=5, metadata={"help": "over which the means are taken"})


@dataclass
class Log:
    """The groups of a run in order: problem, batch and right rollouts of each, shapes (N,)."""

    problem: np.ndarray
    batch: np.ndarray
    right: np.ndarray
    size: int  # G, rollouts in a group
    costs: tuple[float, float]  # mean length of a wrong completion and of a right one

    def part(self, keep: np.ndarray) -> "Log":
        """Some of the groups."""
        return Log(self.problem[keep], self.batch[keep], self.right[keep], self.size, self.costs)

    def dead(self) -> np.ndarray:
        """Which groups are all right or all wrong."""
        return np.isin(self.right, (0, self.size))


def text_of(value: Any) -> str:
    """A prompt or completion as text; conversations are lists of messages."""
    return value if isinstance(value, str) else "\n".join(str(m["content"]) for m in value)


def read_file(path: str) -> Any:
    """One file's rows as a data frame.

    Raises:
        UserError: it is none of TRL's; says why.
    """
    import pandas as pd

    if not Path(path).is_file():
        raise UserError(f"{path}: no such file; `log_completions: true` writes completions/")
    try:
        frame = pd.read_parquet(path)
    except (ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: not a Parquet file ({reason})") from error
    if missing := [name for name in NEEDED if name not in frame]:
        raise UserError(
            f"{path}: no column {missing[0]!r}; give files that TRL's log_completions has written"
        )
    return frame


def read_frames(paths: Sequence[str]) -> dict[str, Any]:
    """The frames by path, in the order of their steps; a generation that is logged again is not."""
    frames, steps, last = {}, {}, None
    for path in paths:
        frame = read_file(path)
        if len(frame):
            frames[path], step = frame, int(frame["step"].iloc[0])
            if step in steps:
                raise UserError(
                    f"{path}: step {step} is in {steps[step]} too; give one run's files"
                )
            steps[step] = path
    kept = {}
    for _, path in sorted(steps.items()):
        now = [*map(text_of, frames[path]["completion"])]
        if now != last:  # optimizer steps may share a generation
            kept[path] = frames[path]
        last = now
    return kept


def reward_column(frames: dict[str, Any], wanted: str | None) -> str:
    """The column that tells right from wrong: the only one with numbers, or the `wanted` one."""
    for path, frame in frames.items():
        names = [
            *frame.drop(columns=[*NEEDED, "advantage"], errors="ignore").select_dtypes("number")
        ]
        if wanted is None and len(names) != 1:
            found = ", ".join(names) or "none"
            raise UserError(f"{path}: --reward: name one of its columns with numbers ({found})")
        wanted = wanted or names[0]
        if wanted not in names:
            known = ", ".join(names) or "none"
            raise UserError(f"{path}: --reward: no column {wanted!r} with numbers (it has {known})")
    return str(wanted)


def read_log(args: ReplayArguments) -> Log:
    """The groups of the files; those with a completion that has no verdict are left out."""
    frames = read_frames(args.files)
    if len(frames) < 4:
        raise UserError(f"files: {len(frames)} generations; at least 4 are needed")
    column, count = reward_column(frames, args.reward), len
    if args.tokenizer:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
        count = functools.partial(count_tokens, tokenizer)
    # Runs of rows with one prompt: (file, first row, prompt, rows).
    runs = []
    for path, frame in frames.items():
        start = 0
        for prompt, rows in groupby(map(text_of, frame["prompt"])):
            runs.append((path, start, prompt, length := len(list(rows))))
            start += length
    size = args.num_generations or collections.Counter(run[-1] for run in runs).most_common(1)[0][0]
    if size < 2:
        raise UserError("files: most prompts have one row; --num_generations says how many a group")
    names: dict[str, int] = {}
    batches = {path: batch for batch, path in enumerate(frames)}
    groups, costs = [], {False: [], True: []}
    for path, start, prompt, length in runs:
        if length % size:
            raise UserError(
                f"{path}: row {start}: {length} rows of one prompt are no groups of {size}; "
                "--num_generations says how many rollouts a group has"
            )
        frame = frames[path].iloc[start : start + length]
        for at in range(0, length, size):
            rewards = frame[column].to_numpy(dtype=float)[at : at + size]
            if np.isnan(rewards).any():
                continue
            texts = map(text_of, frame["completion"].iloc[at : at + size])
            for reward, text in zip(rewards, texts, strict=True):
                costs[bool(reward > 0)].append(count(text))
            problem = names.setdefault(prompt, len(names))
            groups.append((problem, batches[path], int((rewards > 0).sum())))
    if not groups:
        raise UserError(f"{column}: no group has a number for every completion")
    every = np.mean([*costs[False], *costs[True]])
    means = tuple(float(np.mean(costs[is_right] or every)) for is_right in (False, True))
    return Log(*np.array(groups).T, size, means)


def count_tokens(tokenizer: Any, text: str) -> int:
    """Tokens of a completion, with the one that ends it."""
    return len(tokenizer.encode(text, add_special_tokens=False)) + 1


class Pool:
    """Pass rates of all problems at any time, as a log lets them be known.

    The abilities' distribution is the likeliest one on a grid (expectation maximisation), at the
    likeliest slope.
    """

    def __init__(self, log: Log, num_problems: int) -> None:
        self.log = log
        # A slope that the log cannot tell from none is small: N(0, 1 logit over the whole log).
        self._span = span = max(log.batch.max() - log.batch.min(), 1)
        found = optimize.minimize_scalar(
            lambda s: s**2 / 2 - self._fit(s / span)[2], bounds=(-4, 4), method="bounded"
        )
        self.slope = found.x / span
        prior, posterior, _ = self._fit(self.slope)
        # One row a problem; those that were never seen have the prior.
        self.abilities = np.vstack([posterior, np.tile(prior, (num_problems - len(posterior), 1))])

    def _fit(self, slope: float) -> tuple[np.ndarray, np.ndarray, float]:
        """The prior (K,), the posterior of every problem seen (N, K), and the log likelihood."""
        log = self.log
        seen, problem = np.unique(log.problem, return_inverse=True)
        rate = special.expit(ABILITIES + slope * log.batch[:, None])
        scores = np.zeros((len(seen), len(ABILITIES)))
        np.add.at(scores, problem, stats.binom.logpmf(log.right[:, None], log.size, rate))
        peak = scores.max(axis=1, keepdims=True)
        likelihood = np.exp(scores - peak)
        prior = np.full(len(ABILITIES), 1 / len(ABILITIES))
        for _ in range(100):
            joint = prior * likelihood
            posterior = joint / joint.sum(axis=1, keepdims=True)
            prior = posterior.mean(axis=0)
        whole = np.tile(prior, (log.problem.max() + 1, 1))
        whole[seen] = posterior
        return prior, whole, float((np.log((prior * likelihood).sum(axis=1)) + peak[:, 0]).sum())

    def dead_chance(self, problems: np.ndarray, batches: np.ndarray) -> np.ndarray:
        """Expected share of dead groups of these problems at these batches."""
        rate = special.expit(ABILITIES + self.slope * batches[:, None])
        dead = rate**self.log.size + (1 - rate) ** self.log.size
        return (self.abilities[problems] * dead).sum(axis=1)

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """One ability for each problem."""
        sums = self.abilities.cumsum(axis=1)
        return ABILITIES[(random.random((len(sums), 1)) * sums[:, -1:] > sums).sum(axis=1)]


def simulate(pool: Pool, mode: str, num_batches: int, count: int, seed: int) -> dict[str, float]:
    """One run: `dead`, share of the generated groups; `cost` of one informative group."""
    random, log = np.random.default_rng([seed, 1]), pool.log
    ability, size = pool.sample(random), log.size
    useful = generated = 0
    spent = 0.0

    def generate(problems: Sequence[int] | np.ndarray, time: float, num: int) -> np.ndarray:
        nonlocal spent
        right = random.binomial(num, special.expit(ability[problems] + pool.slope * time))
        spent += float(right.sum() * log.costs[1] + (num - right).sum() * log.costs[0])
        return right

    problems = np.arange(len(ability))
    if mode == "offline":  # the filter's default band
        right = generate(problems, 0, NUM_SCORING)
        low, high = GrpoArguments.min_pass_rate, GrpoArguments.max_pass_rate
        rate = right / NUM_SCORING
        problems = problems[(low <= rate) & (rate <= high)]
        if len(problems) < count:
            return {"dead": np.nan, "cost": np.inf}
    is_predictive = "predictive" in mode
    chooser = PredictiveCurriculum([0] * len(problems), size, seed, is_predictive=is_predictive)
    order: list[int] = []
    for batch in range(num_batches):
        if not (chosen := chooser.choose(count)):  # TRL's: all in turn
            while len(order) < count:
                order += random.permutation(len(problems)).tolist()
            chosen, order = order[:count], order[count:]
        taken = list(chosen)
        rounds = GrpoArguments.max_refill_rounds if "refill" in mode else 0
        for again in range(rounds + 1):
            right = generate(problems[chosen], batch, size)
            chooser.observe(chosen, right.tolist(), size)
            num_dead = int(np.isin(right, (0, size)).sum())
            useful, generated = useful + len(chosen) - num_dead, generated + len(chosen)
            if not num_dead or again == rounds:
                break
            chosen = chooser.draw(num_dead, taken)
            taken += chosen
    return {"dead": 1 - useful / generated, "cost": spent / useful if useful else np.inf}


def check_halves(log: Log) -> tuple[float, float]:
    """Share of dead groups in the second half of the log: predicted from the first, and seen."""
    is_first = log.batch < (log.batch.min() + log.batch.max() + 1) / 2
    pool, second = Pool(log.part(is_first), log.problem.max() + 1), log.part(~is_first)
    return float(pool.dead_chance(second.problem, second.batch).mean()), float(second.dead().mean())


def main() -> None:
    """Print what was logged, the check, and the table of the modes."""
    words = sys.argv[1:]
    files = list(takewhile(lambda word: not word.startswith("-"), words))
    (args,) = parse(
        __doc__, ReplayArguments, argv=(["--files", *files] if files else []) + words[len(files) :]
    )
    log = read_log(args)
    num_seen, num_batches = int(log.problem.max()) + 1, len(np.unique(log.batch))
    num_problems = args.pool_size or num_seen
    count = round(len(log.problem) / num_batches)
    if num_problems < max(num_seen, count):
        raise UserError(f"pool_size: {num_problems} problems; the log alone has {num_seen}")
    predicted, seen = check_halves(log)
    pool = Pool(log, num_problems)
    found = {
        mode: [simulate(pool, mode, num_batches, count, n) for n in range(args.num_simulations)]
        for mode in ("off", "offline", "refill", "predictive", "predictive+refill")
    }
    means = {
        mode: {key: float(np.mean([run[key] for run in runs])) for key in ("dead", "cost")}
        for mode, runs in found.items()
    }
    unit = "tokens" if args.tokenizer else "characters"
    num_right = int(log.right.sum())
    total = num_right * log.costs[1] + (len(log.right) * log.size - num_right) * log.costs[0]
    rows = []
    for mode, mean in means.items():
        share = mean["cost"] / means["off"]["cost"]
        row = {"curriculum": mode, "dead groups": f"{mean['dead']:.1%}"}
        row[f"{unit} for one informative group"] = f"{mean['cost']:,.0f}"
        row["saved"] = f"{1 - share:.0%}"
        row[f"of the log's {total:,.0f} {unit}"] = f"{total * (1 - share):,.0f}"
        rows.append(row)
    lines = [
        f"{len(log.problem):,} groups of {log.size} in {num_batches} generations, {num_seen:,} "
        f"problems of {num_problems:,}; dead: {log.dead().mean():.1%}",
        f"Check: of the second half's groups {predicted:.1%} dead by the first half, "
        f"{seen:.1%} in the log",
        "",
        markdown(rows),
        "",
        f"offline counts the {NUM_SCORING} completions a problem that its filter is made of.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    run_cli(main)
