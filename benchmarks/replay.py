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

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from benchmarks.table import markdown
from pipeline.errors import UserError, run_cli
from pipeline.models.tokenizer import load_tokenizer
from pipeline.settings import parse, setting
from stages.arguments import GrpoArguments
from stages.trainer.curriculum import PredictiveCurriculum

ABILITIES = np.linspace(-9, 9, 61)  # logits
NUM_SCORING = 4  # offline: completions a problem that the filter is made of
MODES = ("off", "offline", "refill", "predictive", "predictive+refill")
NUM_SIMULATIONS = 5  # over which the means are taken


@dataclass
class ReplayArguments:
    """Keys of the command line."""

    files: list[str] = field(metadata={"help": "the run's completions_<step>.parquet"})
    reward: str | None = setting(None, "column that is above 0 where a completion is correct")
    pool_size: int | None = setting(None, "problems of the pool, where the log has not seen all")
    tokenizer: str | None = setting(None, "folder or hub id, to count tokens and not characters")


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


def read_frames(paths: Sequence[str]) -> list[pd.DataFrame]:
    """The files' rows in the order of their steps; a generation that is logged again is left out.

    Raises:
        UserError: a file is none of TRL's, or they are of several runs.
    """
    frames: dict[int, pd.DataFrame] = {}
    for path in paths:
        try:
            frame = pd.read_parquet(path)
            step = int(frame["step"].iloc[0]) if len(frame) else -1
            frame["prompt"], frame["completion"] = (
                frame[name].map(text_of) for name in ("prompt", "completion")
            )
        except KeyError as error:
            fault = f"no column {error}; give files that TRL's log_completions has written"
            raise UserError(f"{path}: {fault}") from None
        except (ValueError, OSError) as error:
            raise UserError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from None
        if step in frames:
            raise UserError(f"{path}: step {step} is in another file, too; give one run's files")
        if step >= 0:
            frames[step] = frame
    kept: list[pd.DataFrame] = []
    for _, frame in sorted(frames.items()):
        if not kept or kept[-1]["completion"].tolist() != frame["completion"].tolist():
            kept.append(frame)  # optimizer steps may share a generation
    return kept


def read_log(args: ReplayArguments) -> Log:
    """The groups of the files; those with a completion that has no verdict are left out."""
    frames = read_frames(args.files)
    if len(frames) < 4:
        raise UserError(f"files: {len(frames)} generations; at least 4 are needed")
    rows = pd.concat(frames, keys=range(len(frames)), names=["batch", None]).reset_index("batch")
    numbers = rows.drop(columns=["batch", "step", "advantage"], errors="ignore")
    names = [*numbers.select_dtypes("number")]
    if args.reward not in [*names, None] or (args.reward is None and len(names) != 1):
        found = ", ".join(names) or "none"
        raise UserError(f"--reward: name one of the columns with numbers ({found})")
    rows["reward"] = rows[args.reward or names[0]]
    # Rows of one prompt, one after the other, are a group or several of the same size.
    is_new = (rows["prompt"] != rows["prompt"].shift()) | (rows["batch"] != rows["batch"].shift())
    rows["run"] = is_new.cumsum()
    size = int(np.gcd.reduce(rows.groupby("run").size().to_numpy()))
    if size < 2:
        raise UserError("files: the rows of a prompt are no groups of several rollouts")
    rows["group"] = np.arange(len(rows)) // size
    rows = rows[rows.groupby("group")["reward"].transform("count") == size]
    is_right = rows["reward"] > 0
    groups = rows.assign(right=is_right).groupby("group")
    right = groups["right"].sum().to_numpy()
    if not np.any((right > 0) & (right < size)):
        raise UserError("files: no group is informative: nothing can be predicted from the log")
    costs = rows["completion"].map(length_counter(args.tokenizer))
    mean = costs.groupby(is_right).mean()
    problem = pd.factorize(groups["prompt"].first())[0]
    cost = mean.get(False, costs.mean()), mean.get(True, costs.mean())
    return Log(problem, groups["batch"].first().to_numpy(), right, size, cost)


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


def predict(
    log: Log, num_problems: int, num_simulations: int = NUM_SIMULATIONS
) -> dict[str, dict[str, float]]:
    """Mode -> means of what `simulate` finds, over as many generations as were logged."""
    pool, num_batches = Pool(log, num_problems), len(np.unique(log.batch))
    found = {}
    for mode in MODES:
        count = round(len(log.problem) / num_batches)
        runs = [simulate(pool, mode, num_batches, count, n) for n in range(num_simulations)]
        found[mode] = {key: fmean(run[key] for run in runs) for key in runs[0]}
    return found


def render(found: dict[str, dict[str, float]], unit: str) -> list[dict[str, str]]:
    """The rows of the table."""
    rows = []
    for mode, mean in found.items():
        saved = 1 - mean["cost"] / found["off"]["cost"] if mean["cost"] < np.inf else np.nan
        values = {
            "zero-variance groups": f"{mean['no_variance']:.1%}",
            f"{unit} for one informative group": f"{mean['cost']:,.0f}",
            "saved": f"{saved:.0%}",
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
    unit = "tokens" if args.tokenizer else "characters"
    rows = render(predict(log, num_problems), unit)
    lines = [
        f"{num_groups:,} groups of {log.size} in {len(np.unique(log.batch))} generations, "
        f"{num_seen:,} of {num_problems:,} problems; "
        f"zero-variance groups: {log.has_no_variance().mean():.1%}",
        f"Check: the first half predicts {predicted:.1%} zero-variance groups for the second; "
        f"it has {seen:.1%}; chance alone: {100 * margin:.1f} points",
        f"\n{markdown(rows, is_aligned=True)}\n",
        f"offline counts the {NUM_SCORING} completions a problem that its filter is made of",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    run_cli(main)
