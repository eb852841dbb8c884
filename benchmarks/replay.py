"""What choosing problems would have saved a GRPO run, from the completions that it has logged.

    python -m benchmarks.replay completions/*.parquet --reward accuracy_reward

The files are those of TRL's `log_completions: true`, of one run of any trainer. From the number of
correct rollouts of every group follows how the pass rates are spread, and how they rise:

    logit p(problem, t) = ability(problem) + slope t        ability ~ any distribution

Each mode of this project then chooses problems of such a pool. A zero-variance group is all-correct
or all-wrong; the others are informative. "Saved" is what a mode spends less than uniform sampling
for as many informative groups. How much better the model gets is another question. First the fit to
the first half of the log is checked against the second half. Levels, topics and other hints of a
prompt are not used.
"""

import collections
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from benchmarks.table import markdown
from pipeline.errors import UserError, run_cli
from pipeline.models.tokenizer import load_tokenizer
from pipeline.settings import parse
from stages.arguments import GrpoArguments
from stages.trainer.curriculum import PredictiveCurriculum

ABILITIES = np.linspace(-9, 9, 61)  # logits
NUM_SCORING = 4  # offline: completions a problem that the filter is made of
MODES = ("off", "offline", "refill", "predictive", "predictive+refill")
NEEDED = ("step", "prompt", "completion")


@dataclass
class ReplayArguments:
    """Keys of the command line."""

    files: list[str] = field(metadata={"help": "the run's completions_<step>.parquet"})
    reward: str | None = field(
        default=None, metadata={"help": "column that is above 0 where a completion is correct"}
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
    """The groups of a run in order: problem, batch and correct rollouts of each, shapes (N,)."""

    problem: np.ndarray
    batch: np.ndarray
    right: np.ndarray
    size: int  # G, rollouts in a group
    costs: tuple[float, float]  # mean length of an incorrect completion and of a correct one

    def part(self, keep: np.ndarray) -> "Log":
        """Some of the groups."""
        return Log(self.problem[keep], self.batch[keep], self.right[keep], self.size, self.costs)

    def has_no_variance(self) -> np.ndarray:
        """Which groups are all-correct or all-wrong."""
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
    """The column that says what is correct: the only one with numbers, or the `wanted` one."""
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


@dataclass
class Run:
    """Rows of one file, one after the other, that have the same prompt."""

    path: str
    batch: int
    start: int
    prompt: str
    rewards: np.ndarray
    texts: list[str]


def find_runs(frames: dict[str, Any], column: str) -> list[Run]:
    """The rows of all files, cut where the prompt changes."""
    runs = []
    for batch, (path, frame) in enumerate(frames.items()):
        rewards, texts = frame[column].to_numpy(dtype=float), [*map(text_of, frame["completion"])]
        start = 0
        for prompt, rows in groupby(map(text_of, frame["prompt"])):
            end = start + len(list(rows))
            runs.append(Run(path, batch, start, prompt, rewards[start:end], texts[start:end]))
            start = end
    return runs


def read_log(args: ReplayArguments) -> Log:
    """The groups of the files; those with a completion that has no verdict are left out."""
    frames = read_frames(args.files)
    if len(frames) < 4:
        raise UserError(f"files: {len(frames)} generations; at least 4 are needed")
    column = reward_column(frames, args.reward)
    runs, count = find_runs(frames, column), length_counter(args.tokenizer)
    lengths = collections.Counter(len(run.texts) for run in runs)
    size = args.num_generations or lengths.most_common(1)[0][0]
    if size < 2:
        raise UserError("files: most prompts have one row; --num_generations says how many a group")
    names: dict[str, int] = {}
    groups: list[tuple[int, int, int]] = []
    costs: dict[bool, list[int]] = {False: [], True: []}
    for run in runs:
        if len(run.texts) % size:
            raise UserError(
                f"{run.path}: row {run.start}: {len(run.texts)} rows of one prompt are no groups "
                f"of {size}; --num_generations says how many rollouts a group has"
            )
        for at in range(0, len(run.texts), size):
            rewards = run.rewards[at : at + size]
            if np.isnan(rewards).any():
                continue
            for reward, text in zip(rewards, run.texts[at : at + size], strict=True):
                costs[bool(reward > 0)].append(count(text))
            problem = names.setdefault(run.prompt, len(names))
            groups.append((problem, run.batch, int((rewards > 0).sum())))
    if not groups:
        raise UserError(f"{column}: no group has a number for every completion")
    if {right for *_, right in groups} <= {0, size}:
        raise UserError(f"{column}: no group is informative: nothing can be predicted from the log")
    mean = fmean([*costs[False], *costs[True]])
    wrong, right = (fmean(found) if found else mean for found in costs.values())
    return Log(*np.array(groups).T, size, (wrong, right))


def length_counter(tokenizer_path: str | None) -> Callable[[str], int]:
    """What gives a completion's length: tokens with the one that ends it, or characters."""
    if not tokenizer_path:
        return len
    tokenizer = load_tokenizer(tokenizer_path, "--tokenizer", needs=())
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False)) + 1


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

    def no_variance_chance(self, problems: np.ndarray, batches: np.ndarray) -> np.ndarray:
        """Probability that a group of these problems at these batches has zero variance."""
        rate = special.expit(ABILITIES + self.slope * batches[:, None])
        chance = rate**self.log.size + (1 - rate) ** self.log.size
        return (self.abilities[problems] * chance).sum(axis=1)

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """One ability for each problem."""
        sums = self.abilities.cumsum(axis=1)
        return ABILITIES[(random.random((len(sums), 1)) * sums[:, -1:] > sums).sum(axis=1)]


def simulate(pool: Pool, mode: str, num_batches: int, count: int, seed: int) -> dict[str, float]:
    """One run: `no_variance`, a share of the generated groups; `cost` of one informative group."""
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
            return {"no_variance": np.nan, "cost": np.inf}
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
            missing = int(np.isin(right, (0, size)).sum())
            useful += len(chosen) - missing
            generated += len(chosen)
            if not missing or again == rounds:
                break
            chosen = chooser.draw(missing, taken)
            taken += chosen
    return {"no_variance": 1 - useful / generated, "cost": spent / useful if useful else np.inf}


def check_halves(log: Log) -> tuple[float, float, float]:
    """Share of zero-variance groups in the log's second half: predicted from the first, and seen.

    The third number is how far the two may be apart by chance alone (95 %), as of two samples.
    """
    is_first = log.batch < (log.batch.min() + log.batch.max() + 1) / 2
    pool, second = Pool(log.part(is_first), log.problem.max() + 1), log.part(~is_first)
    predicted = float(pool.no_variance_chance(second.problem, second.batch).mean())
    sizes = 1 / is_first.sum() + 1 / (~is_first).sum()
    margin = 1.96 * (predicted * (1 - predicted) * sizes) ** 0.5
    return predicted, float(second.has_no_variance().mean()), float(margin)


def predict(log: Log, num_problems: int, num_simulations: int) -> dict[str, dict[str, float]]:
    """Mode -> means of what `simulate` finds, over as many generations as were logged."""
    pool, num_batches = Pool(log, num_problems), len(np.unique(log.batch))
    found = {}
    for mode in MODES:
        count = round(len(log.problem) / num_batches)
        runs = [simulate(pool, mode, num_batches, count, n) for n in range(num_simulations)]
        found[mode] = {key: fmean(run[key] for run in runs) for key in runs[0]}
    return found


def render(found: dict[str, dict[str, float]], total: float, unit: str) -> list[dict[str, str]]:
    """The rows of the table."""
    rows = []
    for mode, mean in found.items():
        saved = 1 - mean["cost"] / found["off"]["cost"] if mean["cost"] < np.inf else np.nan
        values = {
            "zero-variance groups": f"{mean['no_variance']:.1%}",
            f"{unit} for one informative group": f"{mean['cost']:,.0f}",
            "saved": f"{saved:.0%}",
            f"of the log's {total:,.0f} {unit}": f"{total * saved:,.0f}",
        }
        for key, text in values.items():
            if "nan" in text or text == "inf":
                values[key] = "none"
        rows.append({"curriculum": mode} | values)
    return rows


def main() -> None:
    """Print what was logged, the check, and the table of the modes."""
    words = sys.argv[1:]
    files = list(takewhile(lambda word: not word.startswith("-"), words))
    if not files and not {"-h", "--help"} & {*words}:
        raise UserError("no files; give the completions_<step>.parquet of one run")
    argv = ["--files", *files, *words[len(files) :]] if files else words
    (args,) = parse(__doc__, ReplayArguments, argv=argv)
    log = read_log(args)
    num_seen, num_groups = int(log.problem.max()) + 1, len(log.problem)
    num_problems = args.pool_size or num_seen
    if num_problems < num_seen:
        raise UserError(f"--pool_size: {num_problems}, but the log has {num_seen} problems")
    predicted, seen, margin = check_halves(log)
    num_right = int(log.right.sum())
    total = num_right * log.costs[1] + (num_groups * log.size - num_right) * log.costs[0]
    unit = "tokens" if args.tokenizer else "characters"
    rows = render(predict(log, num_problems, args.num_simulations), total, unit)
    lines = [
        f"{num_groups:,} groups of {log.size} in {len(np.unique(log.batch))} generations, "
        f"{num_seen:,} of {num_problems:,} problems; "
        f"zero-variance groups: {log.has_no_variance().mean():.1%}",
        f"Check: the first half predicts {predicted:.1%} zero-variance groups for the second; "
        f"it has {seen:.1%}; chance alone: {100 * margin:.1f} points",
        f"\n{markdown(rows)}\n",
        f"offline counts the {NUM_SCORING} completions a problem that its filter is made of",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    run_cli(main)
