"""Difficulty: filters by level and pass rate, and mixes of easy, medium and hard problems.

A source says how hard its problems are: `difficulty: easy` (all of them), or by a number of each
problem, `difficulty: {by: level, medium: 3, hard: 5}` (level 3 and 4 are medium, 5 and up hard) or
`difficulty: {by: pass_rate, medium: 0.75, hard: 0.25}` (a pass rate of 0.75 or less is medium, of
0.25 or less hard). `mix: {grpo: {easy: 0.2, medium: 0.5, hard: 0.3, size: 10000}}` then draws a set
with these shares.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from data_prep.config import UserError
from data_prep.schema import Problem

BANDS = ("easy", "medium", "hard")
FORM = "write easy, medium or hard, or {by: level, medium: 3, hard: 5}"


@dataclass(frozen=True, slots=True)
class Bands:
    """Where problems become medium and hard.

    Args:
        by: "level" (higher is harder), "pass_rate" (lower is harder), or a band's own name.
        medium, hard: the first value that counts as such.
    """

    by: str
    medium: float = 0.0
    hard: float = 0.0

    def find(self, level: float | None, pass_rate: float | None) -> str | None:
        """The band of a problem; None where the number that decides is unknown."""
        if self.by in BANDS:
            return self.by
        value = level if self.by == "level" else pass_rate
        if value is None:
            return None
        sign = 1 if self.by == "level" else -1
        if sign * value >= sign * self.hard:
            return "hard"
        return "medium" if sign * value >= sign * self.medium else "easy"


def check_bands(value: Any, where: str) -> Bands:
    """Read a source's `difficulty`; raises `UserError`."""
    if value in BANDS:
        return Bands(value)
    if not isinstance(value, dict) or value.keys() != {"by", "medium", "hard"}:
        raise UserError(f"{where}: difficulty: {value!r}: {FORM}")
    numbers = (value["medium"], value["hard"])
    if value["by"] not in ("level", "pass_rate") or any(
        type(number) not in (int, float) or not isfinite(number) for number in numbers
    ):
        raise UserError(f"{where}: difficulty: {value!r}: {FORM}")
    if (value["medium"] > value["hard"]) == (value["by"] == "level"):
        order = "above hard" if value["by"] == "level" else "below hard: a low pass rate is hard"
        raise UserError(f"{where}: difficulty: medium: {value['medium']} is {order}; swap them")
    return Bands(value["by"], *numbers)


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of the bands in a set, adding up to 1, and its size; None is as many as possible."""

    shares: Mapping[str, float]
    size: int | None = None


def check_mix(value: Any, key: str) -> Mix:
    """Read one set's `mix`; raises `UserError`."""
    where = f"mix: {key}"
    if not isinstance(value, dict):
        raise UserError(f"{where}: {value!r}: write {{easy: 0.2, medium: 0.5, hard: 0.3}}")
    for name, number in value.items():
        if name not in (*BANDS, "size"):
            raise UserError(f"{where}: unknown key {name!r}; known are {', '.join(BANDS)}, size")
        if name == "size" and (type(number) is not int or number < 1):
            raise UserError(f"{where}: size: {number!r} is not a number of problems above 0")
        if name in BANDS and (type(number) not in (int, float) or not 0 <= number <= 1):
            raise UserError(f"{where}: {name}: {number!r} is not a share within 0..1")
    shares = {name: float(value.get(name, 0)) for name in BANDS}
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise UserError(f"{where}: the shares add up to {sum(shares.values()):g}; make it 1")
    return Mix(shares, value.get("size"))


def plan_counts(available: Mapping[str, int], mix: Mix) -> dict[str, int]:
    """How many problems of each band a set with these shares can have at most.

        N = min over bands b with share_b > 0 of floor(available_b / share_b), and at most `size`

    Counts are share x N, rounded by largest remainders so that they add up to N.

    Args:
        available: problems of each band.
    """
    wanted = {band: share for band, share in mix.shares.items() if share > 0}
    # The small addend: 3 / 0.3 is 10, and not 9.99….
    total = min(int(available.get(band, 0) / share + 1e-9) for band, share in wanted.items())
    total = total if mix.size is None else min(total, mix.size)
    exact = {band: share * total for band, share in wanted.items()}
    counts = {band: int(number + 1e-9) for band, number in exact.items()}
    by_remainder = sorted(wanted, key=lambda band: (counts[band] - exact[band], band))
    for band in by_remainder[: total - sum(counts.values())]:
        counts[band] += 1
    # Rounding up may ask a band for one more than it has.
    return {band: min(number, available.get(band, 0)) for band, number in counts.items()}


def choose_mix(bands: Sequence[str], mix: Mix, seed: str) -> set[int]:
    """Indices of the problems of a mix, drawn at random within each band.

    Args:
        bands: the band of each problem.
        seed: same seed and bands, same choice.
    """
    members: dict[str, list[int]] = {band: [] for band in BANDS}
    for index, band in enumerate(bands):
        members[band].append(index)
    counts = plan_counts({band: len(found) for band, found in members.items()}, mix)
    rng = random.Random(seed)
    return {index for band, n in counts.items() for index in rng.sample(members[band], n)}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a source's levels and pass rates, both ends included; None is no bound."""

    min_level: float | None = None
    max_level: float | None = None
    min_pass_rate: float | None = None
    max_pass_rate: float | None = None

    def refuse(self, problem: Problem) -> str | None:
        """Why a problem is out of bounds (`level`, `pass_rate`), or None; unknown numbers are."""
        if not _is_within(problem.level, self.min_level, self.max_level):
            return "level"
        if not _is_within(problem.pass_rate, self.min_pass_rate, self.max_pass_rate):
            return "pass_rate"
        return None


def _is_within(value: float | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    return value is not None and (low is None or value >= low) and (high is None or value <= high)
