"""The choice of the problems that GRPO trains on, made before it generates. No torch.

A group teaches only where its rollouts differ: with pass rate p, all G rollouts agree with
probability p^G + (1-p)^G. Resampling such groups (DAPO, arXiv:2503.14476) costs generated
tokens; here a posterior of each pass rate picks problems whose group will likely differ.

The posterior is a Rasch model followed over time (item response theory; the filter is that of
Glicko, Glickman 1999). The logit of problem i's pass rate is a sum of two normals,

    eta_i = weights . features_i + offset_i        p_i = 1 / (1 + exp(-eta_i))

A group with k of G correct is a binomial observation of eta. Weights and offset share its
correction by their variances, so one group teaches about every similar problem. Knowledge fades:
the weights drift by `DRIFT` a batch, an offset returns to its prior with a half-life
(docs/curriculum.md).

The choice follows raw correctness, never the summed reward. All processes hold the same state and
draw the same numbers: their results are gathered, and the random stream is keyed on (seed, batch).
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from data_prep.sampling.problems import load_pass_counts
from pipeline.errors import UserError
from pipeline.own_code import is_own, load_own
from stages.blame import blamed

if TYPE_CHECKING:
    from stages.arguments import GrpoArguments
    from stages.trainer.rollouts import Groups

PRIOR_WEIGHT = 1.5  # prior standard deviation of a feature's weight, logits
PRIOR_OFFSET = 3.0  # prior standard deviation of a problem's offset, logits
PRIOR_COUNT = 20.0  # problems that the prior of the offsets' variance counts as
DRIFT = 0.1  # walk of a weight per batch, logits: in a hundred batches 1 logit (50 to 73 %)
SHARPNESS = 8  # problems are drawn with weight (chance of a useful group)^8

FIRST_READ = 3  # prompts read before the first batch: times its problems, or the components if more
NEXT_READ = 2  # prompts read before a later batch, times its problems

MAX_LEVELS = 16  # of one source, beyond which ranges of them are alike

ARRAYS = ("mean", "covariance", "offset", "spread", "last_used")  # of a saved state

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LOG_WEIGHTS = np.log(_WEIGHTS) + _NODES**2 / 2  # without the normal, for densities of any shape


class Curriculum:
    """Chooses the problems of each generation batch. Subclass it and override what you need.

    A problem is the number of its row in `train_dataset`, from 0. Without an override TRL takes its
    own next problems.

    Every process holds a curriculum of its own, and all must choose the same problems. So decide
    only by the gathered results that `observe` gets, and by random numbers keyed on `seed`.

    A recipe names a subclass as `curriculum: module:Class`. It is built as
    `Class(problems, num_generations, seed)`.

    Args:
        problems: one entry for each problem; for a recipe the rows of `train_file`, as dicts.
        num_generations: G, rollouts in a group.
        seed: that of the recipe, the same on every process.

    Attributes:
        num_components: number of components of the prompts' hidden states that `see` gets.
        max_rounds: most calls of `next_round` in one batch.
    """

    num_components: int = 0
    max_rounds: int = 0

    def __init__(self, problems: Sequence[Any], num_generations: int, seed: int) -> None:
        self.problems, self.num_generations, self.seed = problems, num_generations, seed

    def candidates(self, count: int) -> Sequence[int] | np.ndarray:
        """Name the problems that the next `choose(count)` needs the components of.

        Called at the start of a run and before each `choose`, where `num_components` is above 0.

        Returns:
            Problems; without an override all. `see` follows if some are new.
        """
        return range(len(self.problems))

    def see(self, components: np.ndarray) -> None:
        """Take `num_components` features of each problem, before the first batch or a resume.

        Args:
            components: principal components of the model's hidden states of the prompts, shape
                (N problems, `num_components`), each of mean 0 and variance 1 over the first
                `candidates`. A problem that was no candidate yet has zeros.
        """

    def choose(self, count: int) -> list[int] | None:
        """Choose the problems of a generation batch, for all processes in rank order.

        Returns:
            `count` problems; None: TRL's own next ones.
        """
        return None

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """Take the results of a round of generation, of all processes.

        Args:
            problems: that were generated for, shape (N groups,).
            num_right: correct rollouts of each group, 0 to `num_generations`, shape (N groups,).
        """

    def next_round(self, groups: "Groups") -> list[int] | None:
        """Choose further problems to generate for, after `observe`; see `max_rounds`.

        Groups with correct and incorrect rollouts replace all-correct and all-wrong ones.

        Args:
            groups: those that would be trained on now, of all processes.

        Returns:
            As many problems for each process, in rank order; None: train on `groups`.
        """
        return None

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as JSON takes it; saved with every checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the values of `state_dict()` back; a resumed run calls it before the next batch."""


def check_choice(name: str, problems: Any, count: int, num_problems: int) -> None:
    """Refuse what a curriculum's method `name` has chosen: it is not `count` rows of the data."""
    if not isinstance(problems, Sequence | np.ndarray):
        fault = f"returned {type(problems).__name__}, not a list of numbers"
    elif len(problems) != count:
        fault = f"chose {len(problems)} problems, {count} are needed"
    else:
        bad = [one for one in problems if not _is_row(one, num_problems)]
        if not bad:
            return
        fault = f"chose {bad[0]!r}; choose whole numbers from 0 to {num_problems - 1}"
    raise UserError(f"curriculum: {name} {fault}")


def _is_row(number: Any, num_problems: int) -> bool:
    is_whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    return is_whole and 0 <= number < num_problems


class Refill(Curriculum):
    """A curriculum that replaces all-correct and all-wrong groups (DAPO's resampling).

    Every rank generates as many groups as the rank with most such groups, so that all make the same
    collective calls. `curriculum` chooses the problems of the new groups too.
    """

    def __init__(self, curriculum: "PredictiveCurriculum", max_rounds: int) -> None:
        super().__init__(curriculum.problems, curriculum.num_generations, curriculum.seed)
        self.curriculum, self.max_rounds = curriculum, max_rounds
        self.num_components = curriculum.num_components

    def candidates(self, count: int) -> Sequence[int] | np.ndarray:
        """See `Curriculum`."""
        return self.curriculum.candidates(count)

    def see(self, components: np.ndarray) -> None:
        """See `Curriculum`."""
        self.curriculum.see(components)

    def choose(self, count: int) -> list[int] | None:
        """Start a batch; see `Curriculum`."""
        self._taken: list[int] = []
        return self.curriculum.choose(count)

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """See `Curriculum`."""
        self.curriculum.observe(problems, num_right, num_generations)

    def next_round(self, groups: "Groups") -> list[int] | None:
        """Problems not yet in this batch, to replace its zero-variance groups."""
        num_new = int(groups.is_uniform().sum(dim=1).max())
        if not num_new:
            return None
        taken = self._taken or groups.problems.tolist()
        problems = self.curriculum.draw(num_new * groups.world_size, taken)
        self._taken = [*taken, *problems]
        return problems

    def state_dict(self) -> dict[str, Any]:
        """See `Curriculum`."""
        return self.curriculum.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Curriculum`."""
        self.curriculum.load_state_dict(state)


class PredictiveCurriculum(Curriculum):
    """The posterior of every problem's pass rate, and the choice of the next problems.

    Args:
        peers: one hashable for each problem, such as (source, level); equal ones are similar.
        num_generations: G, rollouts in a group; seed: the same on every process.
        is_predictive: choose by the chance of a useful group; else with equal chances.
        num_components: of the hidden states of the prompts, which the trainer computes and gives to
            `see`: of some prompts before the first batch, of more before each later one; 0: peers
            alone.
        explore_share: share of all choices, in [0, 1], that goes to the problems not used for
            longest: with n problems a batch, each of N is used once in N / (share n) batches.
        rest: batches for which a problem just used is left alone; fewer in a pool so small that
            more than half of it would rest.
        half_life: batches after which half of a problem's observations are forgotten.
    """

    def __init__(
        self,
        peers: Sequence[Any],
        num_generations: int,
        seed: int,
        *,
        is_predictive: bool = True,
        num_components: int = 0,
        explore_share: float = 0.05,
        rest: int = 3,
        half_life: float = 100.0,
    ) -> None:
        super().__init__(peers, num_generations, seed)
        self._rest = rest
        self._is_predictive, self._explore_share = is_predictive, explore_share
        self._keep = 0.5 ** (1 / half_life)
        self.num_components = num_components
        self._counts: dict[int, tuple[int, int]] = {}  # offline pass rates
        num, names = len(peers), {name: number for number, name in enumerate(dict.fromkeys(peers))}
        one_hot = np.eye(len(names))[[names[peer] for peer in peers]]
        # Peers that are all of one kind say nothing beyond the constant.
        self._known = np.hstack([np.ones((num, 1)), one_hot if len(names) > 1 else one_hot[:, :0]])
        self._features = np.hstack([self._known, np.zeros((num, num_components))])  # (N, D)
        self._mean = np.zeros(self._features.shape[1])  # of the features' weights
        self._covariance = np.eye(len(self._mean)) * PRIOR_WEIGHT**2
        self._order = np.random.default_rng(seed).permutation(num)  # in which prompts are read
        self._num_candidates = num  # the first of that order; the others are not chosen yet
        self._offset = np.array([[0.0] * num, [PRIOR_OFFSET**2] * num])  # mean, variance
        self._spread = np.array([PRIOR_COUNT * PRIOR_OFFSET**2, PRIOR_COUNT])  # sum, count
        self._last_used = np.full(num, -1)  # batch number, -1: never; shape (N,)
        self._batch = 0

    def candidates(self, count: int) -> np.ndarray:
        """A random part of the problems, larger for every batch; with offline pass rates all."""
        num, size = len(self._order), self._num_candidates + NEXT_READ * count
        if self._batch == 0:
            size = num if self._counts else FIRST_READ * max(count, self.num_components)
        self._num_candidates = min(num, size)
        return self._order[: self._num_candidates]

    def see(self, components: np.ndarray) -> None:
        """Take further features, (N, `num_components`); see `Curriculum`."""
        if len(components) != len(self._known):
            raise UserError(
                f"train_file: has {len(self._known)} rows, the run began with {len(components)}; "
                "resume with the same data, or start a new run in another output_dir"
            )
        self._features = np.hstack([self._known, components])
        if self._counts and self._batch == 0:
            self.learn_prior(self._counts)

    def choose(self, count: int) -> list[int] | None:
        """Start a batch: the policy has moved and what is known fades; see `Curriculum`."""
        self._batch += 1
        np.fill_diagonal(self._covariance, self._covariance.diagonal() + DRIFT**2)
        keep = self._keep
        self._offset[0] *= keep
        self._offset[1] = keep**2 * self._offset[1] + (1 - keep**2) * self._prior_variance()
        return self.draw(count) if self._is_predictive else None

    def _prior_variance(self) -> float:
        """Variance of an offset before anything is known of its problem."""
        return float(self._spread[0] / self._spread[1])

    def _logits(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of every problem's logit, shapes (N,)."""
        features = self._features
        variance = np.einsum("nd,nd->n", features @ self._covariance, features)
        return features @ self._mean + self._offset[0], variance + self._offset[1]

    def pass_rates(self, problems: Sequence[int]) -> list[float]:
        """Expected pass rate of the problems (by index) before their next group, in (0, 1)."""
        mean, variance = (values[list(problems)] for values in self._logits())
        return expected_rate(mean, variance).tolist()

    def draw(self, count: int, taken: Iterable[int] = ()) -> list[int]:
        """Draw different problems, the explored first; `taken` ones only where no other is left."""
        num, num_candidates = len(self._last_used), self._num_candidates
        if count > num:
            raise ValueError(f"{count} problems are needed at a time, the pool has {num}")
        taken = set(taken)
        noise = np.random.default_rng([self.seed, self._batch, len(taken)]).random(num)
        # Lower comes first: free problems, those that rest, those not read, those in the batch.
        # In a small pool no longer than half of it, or there would be nothing left to choose.
        rest = min(self._rest, num_candidates // (2 * count))
        is_resting = (self._last_used >= 0) & (self._batch - self._last_used <= rest)
        rank = is_resting.astype(int)
        rank[self._order[num_candidates:]] = 2
        rank[list(taken)] = 3
        weight, explored = np.ones(num), []
        if self._is_predictive:
            weight = useful_chance(*self._logits(), self.num_generations) ** SHARPNESS
            # May be below one problem a batch: what `int` cuts off is due in a later batch.
            share = self._explore_share * count
            due = 0 if taken else int(self._batch * share) - int((self._batch - 1) * share)
            explored = np.lexsort((noise, self._last_used, rank))[:due]
            rank[explored] = 4
        # Sampling without replacement by weight: Efraimidis and Spirakis 2006.
        keys = -np.log(noise) / np.maximum(weight, 1e-12)
        others = np.lexsort((keys, rank))[: count - len(explored)]
        return [int(i) for i in (*explored, *others)]

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """Add what groups have shown; `problems` and `num_right` have shape (N groups,)."""
        for problem, right in zip(problems, num_right, strict=True):
            features, offset = self._features[problem], self._offset[:, problem]  # a view
            shared = self._covariance @ features  # (D,), covariances of the weights with eta
            mean, variance = features @ self._mean + offset[0], features @ shared + offset[1]
            (new_mean,), (new_variance,) = add_binomial(
                *(np.array([x], dtype=float) for x in (mean, variance, right, num_generations))
            )
            rise, fall = new_mean - mean, variance - new_variance
            self._mean += shared / variance * rise
            self._covariance -= np.outer(shared, shared) / variance**2 * fall
            offset += offset[1] / variance * rise, -((offset[1] / variance) ** 2) * fall
            self._spread += offset[0] ** 2 + offset[1], 1.0
            self._last_used[problem] = self._batch

    def learn_prior(self, counts: dict[int, tuple[int, int]]) -> None:
        """Start from offline pass rates: `{problem: (num_right, num_samples)}`.

        Weights, spread and offsets, all unknown yet, are fitted by expectation maximisation.
        """
        self._counts, self._mean = counts, np.zeros_like(self._mean)
        problems = np.array(list(counts), dtype=int)
        right, total = np.array(list(counts.values())).T
        features, num = self._features[problems], len(problems) + PRIOR_COUNT
        spread = PRIOR_OFFSET**2
        for _ in range(50):
            prior = features @ self._mean
            mean, variance = add_binomial(prior, np.full(len(prior), spread), right, total)
            precision = features.T @ features / spread + np.eye(len(self._mean)) / PRIOR_WEIGHT**2
            self._mean = np.linalg.solve(precision, features.T @ mean / spread)
            squares = ((mean - features @ self._mean) ** 2 + variance).sum()
            spread = (squares + PRIOR_COUNT * PRIOR_OFFSET**2) / num
        self._covariance = np.linalg.inv(precision)
        self._spread = np.array([spread * num, num])
        self._offset[1] = spread
        self._offset[:, problems] = mean - features @ self._mean, variance

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as JSON takes it; floats survive the round trip exactly."""
        arrays = {name: getattr(self, f"_{name}").tolist() for name in ARRAYS}
        return {"batch": self._batch, "num_candidates": self._num_candidates} | arrays

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state_dict()` of a curriculum over the same problems."""
        saved = len(state["last_used"]), len(state.get("mean", ()))
        if saved != (len(self._last_used), len(self._mean)):
            raise UserError(
                f"resume_from_checkpoint: its curriculum has {saved[0]} problems and {saved[1]} "
                f"features, this one {len(self._last_used)}, {len(self._mean)}; resume with the "
                "same data, version and keys, or start a new run in another output_dir"
            )
        self._batch = state["batch"]
        self._num_candidates = state.get("num_candidates", len(self._order))
        for name in ARRAYS:
            setattr(self, f"_{name}", np.array(state[name]))


def _nodes(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return mean[:, None] + np.sqrt(variance)[:, None] * _NODES  # (N, 31), quadrature points


def _sigmoid(eta: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -eta))  # without overflow


def expected_rate(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E[p], shape (N,), in [0, 1]."""
    return np.minimum(_sigmoid(_nodes(mean, variance)) @ _WEIGHTS, 1.0)  # sums may round up


def useful_chance(mean: np.ndarray, variance: np.ndarray, num_generations: int) -> np.ndarray:
    """Chance, shape (N,), that a group is neither all-correct nor all-wrong.

    U = E[1 - p^G - (1-p)^G],  logit p ~ N(mean, variance)
    """
    eta = _nodes(mean, variance)  # (N, nodes)
    # log p and log (1-p) without overflow
    log_p, log_q = -np.logaddexp(0, -eta), -np.logaddexp(0, eta)
    useful = 1 - np.exp(num_generations * log_p) - np.exp(num_generations * log_q)
    return np.clip(useful @ _WEIGHTS, 0.0, 1.0)


def add_binomial(
    mean: np.ndarray, variance: np.ndarray, right: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of logits after `right` of `total` successes.

        of  N(eta; mean, variance) * p^right * (1-p)^(total-right),  p = 1 / (1 + exp(-eta))

    Means and variances, all of shape (N,), are taken for a normal again (assumed density filter).
    """
    # Nodes around the prior would step over the peak of many rollouts. Newton's method finds the
    # mode from 0 without overshooting: there the slope of the log density has its inflection.
    mode = np.zeros(len(mean))
    for _ in range(20):
        rate = _sigmoid(mode)
        curvature = total * rate * (1 - rate) + 1 / variance
        step = (right - total * rate - (mode - mean) / variance) / curvature
        mode += step
        if (np.abs(step) < 1e-3).all():  # the integrals do not hang on its last digits
            break
    eta = _nodes(mode, 1 / curvature)  # (N, nodes)
    log_density = -((eta - mean[:, None]) ** 2) / (2 * variance[:, None])
    log_density -= right[:, None] * np.logaddexp(0, -eta)
    log_density -= (total - right)[:, None] * np.logaddexp(0, eta)
    log_weights = _LOG_WEIGHTS + log_density
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    new_mean = (weights * eta).sum(axis=1)
    return new_mean, (weights * (eta - new_mean[:, None]) ** 2).sum(axis=1)


def keep_by_pass_rate(
    rows: list[dict], counts: dict[str, tuple[int, int]], low: float, high: float
) -> list[dict]:
    """The rows whose pass rate lies in [low, high]; rows without a rate are left out."""
    rates = {key: right / samples for key, (right, samples) in counts.items()}
    return [row for row in rows if low <= rates.get(row["id"], -1.0) <= high]


def find_peers(rows: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Which problems are alike: those of one source and level; of many levels eight ranges."""
    by_source: dict[str, set] = {}
    for row in rows:
        by_source.setdefault(row.get("source", ""), set()).add(row.get("level"))
    cuts = {
        name: np.quantile([level for level in levels if level is not None], np.arange(1, 8) / 8)
        for name, levels in by_source.items()
        if len(levels) > MAX_LEVELS
    }
    peers = []
    for row in rows:
        source, level = row.get("source", ""), row.get("level")
        if source in cuts and level is not None:
            level = int(np.searchsorted(cuts[source], level))
        peers.append((source, level))
    return peers


def build_curriculum(
    rows: list[dict[str, Any]], args: "GrpoArguments", num_generations: int, seed: int
) -> Curriculum | None:
    """The curriculum of a recipe over its rows; None where nothing has to be followed."""
    if not args.follows_pass_rates():
        return None
    if is_own(args.curriculum):
        own = load_own(args.curriculum, "curriculum", Curriculum)
        with blamed("curriculum", args.curriculum, own, str):
            return own(rows, num_generations, seed)
    is_predictive = "predictive" in args.curriculum
    curriculum = PredictiveCurriculum(
        find_peers(rows),
        num_generations,
        seed,
        is_predictive=is_predictive,
        num_components=args.prompt_components if is_predictive else 0,
        explore_share=args.explore_share if is_predictive else 0.0,
        rest=args.rest_batches,
        half_life=args.half_life if is_predictive else math.inf,
    )
    index = {row["id"]: number for number, row in enumerate(rows)}
    if len(index) < len(rows):
        raise UserError("train_file: two rows have the same id; run `make data` again")
    if is_predictive and args.pass_rates:
        counts = load_pass_counts(args.pass_rates)
        known = {index[key]: counts[key] for key in counts if key in index}
        if not known:
            raise UserError(
                f"pass_rates: {args.pass_rates} has none of the ids of train_file; run "
                "`make difficulty` again"
            )
        curriculum.learn_prior(known)
    return Refill(curriculum, args.max_refill_rounds) if "refill" in args.curriculum else curriculum
