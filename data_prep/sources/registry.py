"""The data sets by name, each with the function that turns its rows into problems."""

import functools
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from data_prep.reading.rows import Row
from data_prep.schema import Problem
from data_prep.sources import (
    aime,
    arc,
    areal_boba,
    dapo,
    deepmath,
    deepscaler,
    generic,
    gpqa,
    gsm8k,
    math,
    numinamath,
    orz,
    traces,
)
from data_prep.sources.base import Drop

BUILDERS = {
    "gsm8k": gsm8k.build_problem,
    "numinamath": numinamath.build_problem,
    "math": math.build_problem,
    "orz": orz.build_problem,
    "deepscaler": deepscaler.build_problem,
    "dapo": dapo.build_problem,
    "deepmath": deepmath.build_problem,
    "areal_boba": areal_boba.build_problem,
    "aime": aime.build_problem,
    "gpqa": gpqa.build_problem,
    "arc": arc.build_problem,
    "generic": generic.build_problem,
    "traces": traces.build_problem,
}


@functools.cache
def known_options(name: str) -> dict[str, bool]:
    """`{option: whether it must be set}` of a source's builder."""
    parameters = inspect.signature(BUILDERS[name]).parameters.values()
    return {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}


def build_problems(
    name: str, split: str, rows: Iterable[tuple[int, str, Row]], **options: Any
) -> Iterator[tuple[str, Problem | Drop]]:
    """Turn rows of one data set into `(where, problem or drop)`, in order.

    Args:
        name: a key of `BUILDERS`.
        split: part of the ids, which tells the problems of two splits apart.
        rows: (position in the set from 0, where, row).
        options: keyword arguments of the builder.

    Raises:
        UserError: a row that its source refuses; names file and line.
    """
    for position, where, row in rows:
        yield where, BUILDERS[name](row, f"{name}-{split}-{position}", where, **options)
