"""Published ways to choose problems, as curricula of `MathGRPOTrainer`, with their own settings.

Each is written from its paper and the settings of its authors' scripts; what differs is said in its
docstring. `build(name, ...)` makes one; `benchmarks.curriculum` runs each as a mode. DAPO's refill
and the offline band are modes of the trainer's own (`curriculum: refill`, `curriculum: offline`).
PCL (arXiv:2510.01135) trains a value model of the policy's size and is not here.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stages.trainer.rollouts import Groups


GRESO_TARGETS = {"easy": 0.25 / 3, "hard": 0.25 * 2 / 3}  # shares of the groups
GRESO_MOST, GRESO_LEAST = 1.5, 0.25  # a round, of a batch: 384 and 64 of 256 problems


class Uniform:
    """All problems alike: pass after pass over the pool, each in another order, as loaders do.

    Args:
        num_problems: of the pool.
        num_generations: G, rollouts in a group.
        seed: the same on every process.
    """

    def __init__(self, num_problems: int, num_generations: int, seed: int) -> None:
        self._num_problems, self._num_generations = num_problems, num_generations
        self._rng = np.random.default_rng(seed)
        self._order: list[int] = []  # what is left of this pass
        self._num_passes = 0  # begun so far
        self._taken: set[int] = set()  # in this batch

    def choose(self, count: int) -> list[int] | None:
        """Start a batch; see `Curriculum`."""
        self._taken.clear()
        return self._next(count)

    def _is_skipped(self, problem: int) -> bool:
        """Whether this pass goes on without the problem."""
        return False

    def _next(self, count: int) -> list[int]:
        """The next problems; those of this batch wait, and come where no other is left."""
        found, waiting = [], []
        while len(found) < count:
            if not self._order:
                self._order = self._rng.permutation(self._num_problems).tolist()
                self._num_passes += 1
            problem = self._order.pop()
            if problem in self._taken and len(self._taken) < self._num_problems:
                waiting.append(problem)
            elif not self._is_skipped(problem):
                found.append(problem)
                self._taken.add(problem)
        self._order += reversed(waiting)
        return found

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """Nothing is learned."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as JSON takes it."""
        return {
            "rng": self._rng.bit_generator.state,
            "order": list(self._order),
            "num_passes": self._num_passes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        self._rng.bit_generator.state = state["rng"]
        self._order, self._num_passes = list(state["order"]), state["num_passes"]


class Mopps(Uniform):
    """MoPPS (arXiv:2507.04632): a Beta posterior of each pass rate, sampled; nearest to 0.5 wins.

        a = d a + (1 - d) + s        b = d b + (1 - d) + G - s        r ~ Beta(a, b)

    after a group with s of G right, from a = b = 1. Of 16 times as many candidates as are needed,
    the next ones of the pass, those with the least |r - 0.5| are taken.

    Args:
        decay: d; the authors' scripts have 0.5 for Countdown and geometry and 1 (nothing is
            forgotten) for MATH, in whose runs few problems came up twice.
        ratio: candidates for each problem needed; theirs is 16 for MATH and 8 for the others.
    """

    def __init__(self, *args: int, decay: float = 0.5, ratio: int = 16) -> None:
        super().__init__(*args)
        self._decay, self._ratio = decay, ratio
        self._counts = np.ones((2, self._num_problems))  # a and b

    def choose(self, count: int) -> list[int] | None:
        """Start a batch; see `Curriculum`."""
        candidates = np.array(super().choose(min(self._ratio * count, self._num_problems)))
        sampled = self._rng.beta(*self._counts[:, candidates])
        nearest = np.argsort(np.abs(sampled - 0.5), kind="stable")
        return candidates[nearest[:count]].tolist()

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """Forget a part of what is known, and add the groups."""
        for problem, right in zip(problems, num_right, strict=True):
            known = self._counts[:, problem]
            known *= self._decay
            known += 1 - self._decay
            known += right, num_generations - right

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as JSON takes it."""
        return super().state_dict() | {"counts": self._counts.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        super().load_state_dict(state)
        self._counts = np.array(state["counts"])


class Greso(Uniform):
    """GRESO (arXiv:2506.02177): problems without signal of late are skipped, by chance.

        P(skip) = 1 - max(p^n, 0.01)

    where the last n visits were all right (p easy) or all wrong (p hard); both p start at 0.5.
    From the second pass on each moves by 0.01 a batch, down where its kind was at least its target
    share of the batch's groups and up where it was less, within [0.05, 0.95]. The targets are one
    third and two thirds of 0.25. Groups without signal are replaced as in DAPO: by 1.25 times as
    many as the last round's yield says are needed, at least a quarter of a batch; more than one
    and a half batches are not generated at once, and the first round that should do is the last.

    Here a batch first generates as many groups as it trains on; the authors' script generates one
    and a half times as many and throws away what is too much.
    """

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        self._keep = {"easy": 0.5, "hard": 0.5}  # p
        self._visits = np.zeros(self._num_problems, dtype=int)  # n; less than 0 for all wrong
        self._seen = {"easy": 0, "hard": 0, "all": 0}  # groups of this batch

    def choose(self, count: int) -> list[int] | None:
        """Start a batch; see `Curriculum`."""
        if self._num_passes > 1:
            for kind, target in GRESO_TARGETS.items():
                is_much = self._seen[kind] >= target * self._seen["all"]
                moved = self._keep[kind] + (-0.01 if is_much else 0.01)
                self._keep[kind] = min(max(moved, 0.05), 0.95)
        self._seen = dict.fromkeys(self._seen, 0)
        self._is_last = False
        return super().choose(count)

    def skip_chance(self, problem: int) -> float:
        """P(skip) of the problem the next time it comes up."""
        num = int(self._visits[problem])
        keep = self._keep["easy" if num > 0 else "hard"]
        return 1 - max(keep ** abs(num), 0.01)

    def _is_skipped(self, problem: int) -> bool:
        return bool(self._rng.random() < self.skip_chance(problem))

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """Count the visits without signal."""
        num_before = self._seen["easy"] + self._seen["hard"]
        for problem, right in zip(problems, num_right, strict=True):
            visits = int(self._visits[problem])
            self._visits[problem] = 0
            if right == num_generations:
                self._visits[problem] = max(visits, 0) + 1
                self._seen["easy"] += 1
            elif right == 0:
                self._visits[problem] = min(visits, 0) - 1
                self._seen["hard"] += 1
        self._seen["all"] += len(problems)
        num_uniform = self._seen["easy"] + self._seen["hard"] - num_before
        self._yield = 1 - num_uniform / len(problems)  # of the last round

    def next_round(self, groups: "Groups") -> list[int] | None:
        """Problems to replace the groups without signal; see `Curriculum`."""
        is_uniform = groups.is_uniform()  # (ranks, N / ranks)
        missing, size = int(is_uniform.sum(dim=1).max()), is_uniform.size(1)
        if not missing or self._is_last:
            return None
        needed = 1.25 * missing / self._yield if self._yield else math.inf
        most = GRESO_MOST * size
        self._is_last = needed <= most
        num = math.ceil(max(min(needed, most), GRESO_LEAST * size))
        return self._next(num * groups.world_size)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes from batch to batch, as JSON takes it."""
        known = {"keep": dict(self._keep), "visits": self._visits.tolist()}
        return super().state_dict() | known | {"seen": dict(self._seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        super().load_state_dict(state)
        self._keep, self._visits = dict(state["keep"]), np.array(state["visits"])
        self._seen = dict(state["seen"])


class Speed(Uniform):
    """SPEED-RL (arXiv:2506.09016): a first part of the group screens more problems than are needed.

    Only problems with some right and some wrong in the first part get the rest of their group. The
    authors' scripts screen with 4 rollouts, add 12 or 20, and screen 4 times as many problems as a
    batch trains on, until there are enough.

    Their trainer keeps what is too much, rollouts included, for a later batch, when it is no longer
    the policy's own. Here it is thrown away, so a batch screens as many at first as the last
    batch's yield promises not to be too much, and goes on with as many as are still needed; a yield
    below one quarter counts as that.

    Args:
        num_first: rollouts that screen; at most half of the group, but two.
    """

    MAX_ROUNDS = 50  # as theirs, which then end with an error

    def __init__(self, *args: int, num_first: int = 4) -> None:
        super().__init__(*args)
        self.num_first = max(2, min(num_first, self._num_generations // 2))
        self._seen = [0, 0]  # problems screened in this batch, and let through
        self._yield = 0.25

    def choose(self, count: int) -> list[int] | None:
        """Start a batch; see `Curriculum`."""
        if self._seen[0]:
            self._yield = max(self._seen[1] / self._seen[0], 0.25)
        self._seen, self._num_rounds, self._is_screening = [0, 0], 1, True
        return super().choose(int(1 / self._yield) * count)

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """Count what screening lets through; the rests of the groups come after it."""
        if self._is_screening:
            self._seen[0] += len(problems)
            self._seen[1] += sum(0 < right < num_generations for right in num_right)

    def next_round(self, groups: "Groups") -> list[int] | None:
        """Further problems to screen; see `Curriculum`."""
        missing = int(groups.is_uniform().sum(dim=1).max())
        self._is_screening = missing > 0 and self._num_rounds < self.MAX_ROUNDS
        if not self._is_screening:
            return None
        self._num_rounds += 1
        return self._next(math.ceil(missing / self._yield) * groups.world_size)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes from batch to batch, as JSON takes it."""
        return super().state_dict() | {"seen": list(self._seen), "yield": self._yield}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        super().load_state_dict(state)
        self._seen, self._yield = list(state["seen"]), state["yield"]


RIVALS: dict[str, Callable[[int, int, int], Uniform]] = {
    "uniform": Uniform,
    "mopps": Mopps,
    "mopps-no-decay": partial(Mopps, decay=1.0),
    "greso": Greso,
    "speed": Speed,
    "speed-2": partial(Speed, num_first=2),
}


def build(name: str, rows: Sequence[Any], num_generations: int, seed: int) -> Uniform:
    """The rival over the rows of `train_dataset`, in place of `stages.grpo.build_curriculum`."""
    return RIVALS[name](len(rows), num_generations, seed)
