"""Published ways to choose problems, as curricula of `MathGRPOTrainer`.

    make grpo curriculum=benchmarks.rivals:Mopps

Each is written from its paper and the settings of its authors' scripts; its docstring says which,
and what differs. `benchmarks.curriculum` runs each as a mode. DAPO's refill and the offline band
are modes of the trainer's own (`curriculum: refill`, `curriculum: offline`). PCL (arXiv:2510.01135)
trains a value model of the policy's size, which picks prompts near 0.5, and is not here. SPEED-RL
(arXiv:2506.09016) screens with a small first part of the group, such as 4 of 16: only problems
whose pass rate there is neither 0 nor 1 get the rest. It was measured and is gone: it needs parts
of groups, which the trainer no longer generates. Its code is at commit f23966c.
"""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.trainer.curriculum import Curriculum

if TYPE_CHECKING:
    from stages.trainer.rollouts import Groups


GRESO_TARGETS = {"easy": 0.25 / 3, "hard": 0.25 * 2 / 3}  # shares of the groups
GRESO_MOST, GRESO_LEAST = 1.5, 0.25  # a round, of a batch: 384 and 64 of 256 problems


class Uniform(Curriculum):
    """All problems alike: pass after pass over the pool, each in another order, as loaders do."""

    def __init__(self, problems: Sequence[Any], num_generations: int, seed: int) -> None:
        super().__init__(problems, num_generations, seed)
        self._num_problems = len(problems)
        self._rng = np.random.default_rng(seed)
        self._order: list[int] = []  # what is left of this pass
        self._num_passes = 0  # begun so far
        self._taken: set[int] = set()  # in this batch

    def choose(self, count: int) -> list[int] | None:
        """Start a batch; see `Curriculum`."""
        self._taken.clear()
        return self._next(count)

    def _is_skipped(self, problem: int) -> bool:
        """Whether this pass leaves the problem out."""
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

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as JSON takes it."""
        return {
            "rng": self._rng.bit_generator.state,
            "order": list(self._order),
            "num_passes": self._num_passes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state_dict()`."""
        self._rng.bit_generator.state = state["rng"]
        self._order, self._num_passes = list(state["order"]), state["num_passes"]


class Mopps(Uniform):
    """MoPPS (arXiv:2507.04632): a Beta posterior of each pass rate, sampled; nearest to 0.5 wins.

        a = d a + (1 - d) + s        b = d b + (1 - d) + G - s        r ~ Beta(a, b)

    after a group with s of G correct, from a = b = 1. Of 16 times as many candidates as are needed,
    the next ones of the pass, those with the least |r - 0.5| are taken (top-k). The other published
    choice, all those with r inside an interval, is not here.

    Attributes:
        decay: d; the authors' scripts have 0.5 for Countdown and geometry and 1 (nothing is
            forgotten) for MATH, in whose runs few problems came up twice.
        ratio: candidates for each problem needed; theirs is 16 for MATH and 8 for the others.
    """

    decay, ratio = 0.5, 16

    def __init__(self, problems: Sequence[Any], num_generations: int, seed: int) -> None:
        super().__init__(problems, num_generations, seed)
        self._counts = np.ones((2, self._num_problems))  # a and b

    def choose(self, count: int) -> list[int] | None:
        """Start a batch; see `Curriculum`."""
        candidates = np.array(super().choose(min(self.ratio * count, self._num_problems)))
        sampled = self._rng.beta(*self._counts[:, candidates])
        nearest = np.argsort(np.abs(sampled - 0.5), kind="stable")
        return candidates[nearest[:count]].tolist()

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """Forget a part of what is known, and add the groups."""
        for problem, right in zip(problems, num_right, strict=True):
            known = self._counts[:, problem]
            known *= self.decay
            known += 1 - self.decay
            known += right, num_generations - right

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as JSON takes it."""
        return super().state_dict() | {"counts": self._counts.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state_dict()`."""
        super().load_state_dict(state)
        self._counts = np.array(state["counts"])


class MoppsNoDecay(Mopps):
    """MoPPS with the decay of its authors' runs on MATH."""

    decay = 1.0


class Greso(Uniform):
    """GRESO (arXiv:2506.02177): skip, by chance, problems whose last groups had zero variance.

        P(skip) = 1 - max(p^n, 0.01)

    where the last n visits were all-correct (p easy) or all-wrong (p hard); both p start at 0.5.
    From the second pass on each moves by 0.01 a batch, within [0.05, 0.95]: down where its kind was
    at least its target share of the batch's groups, up where it was less. The targets are one third
    and two thirds of 0.25. Zero-variance groups are replaced as in DAPO, by 1.25 times as many as
    the last round's yield says are needed. A round has at least a quarter of a batch and at most
    one and a half. The first round that should do is the last. A batch that is still short keeps
    zero-variance groups in the places that are left; the authors' `ray_trainer.py` trains on a
    short batch as it is. The method as published would then resample, which neither does.

    All numbers are those of Infini-AI-Lab/GRESO at caf63f4: `train-scripts/*_greso.sh`, all three,
    and `verl/trainer/ppo/ray_trainer.py`. Its code also has a p easy of 0.75, the default of an
    argument, which these scripts overrule.

    Here a batch first generates as many groups as it trains on. The authors' script generates one
    and a half times as many and throws the rest away.
    """

    max_rounds = sys.maxsize  # `next_round` says when it is enough

    def __init__(self, problems: Sequence[Any], num_generations: int, seed: int) -> None:
        super().__init__(problems, num_generations, seed)
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
        """Count the visits with zero variance."""
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
        """Problems to replace the zero-variance groups; see `Curriculum`."""
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
        """Resume from `state_dict()`."""
        super().load_state_dict(state)
        self._keep, self._visits = dict(state["keep"]), np.array(state["visits"])
        self._seen = dict(state["seen"])


RIVALS: dict[str, type[Uniform]] = {
    "uniform": Uniform,
    "mopps": Mopps,
    "mopps-no-decay": MoppsNoDecay,
    "greso": Greso,
}
