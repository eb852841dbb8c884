"""The data sets by name, each with the function that turns its rows into problems."""

import functools
import inspect
from collections.abc import Callable

from data_prep.schema import Problem
from data_prep.sources import (
    contests,
    evaluation_sets,
    generic,
    gsm8k,
    math,
    numinamath,
    rl_sets,
    word_problems,
)
from pipeline.rows import Row

BUILDERS: dict[str, Callable[..., Problem]] = {
    "gsm8k": gsm8k.build_problem,
    "numinamath": numinamath.build_problem,
    "math": math.build_problem,
    "orz": rl_sets.build_orz,
    "deepscaler": rl_sets.build_deepscaler,
    "dapo": rl_sets.build_dapo,
    "deepmath": rl_sets.build_deepmath,
    "areal_boba": rl_sets.build_areal_boba,
    "svamp": word_problems.build_svamp,
    "mawps": word_problems.build_mawps,
    "aime": evaluation_sets.build_aime,
    "olympiadbench": contests.build_olympiadbench,
    "minerva": contests.build_minerva,
    "gpqa": evaluation_sets.build_gpqa,
    "arc": evaluation_sets.build_arc,
    "generic": generic.build_problem,
    "traces": generic.build_trace,
}
# Of sets that come in one file too: the split that a row says it belongs to, or None.
SPLITS: dict[str, Callable[[Row], str | None]] = {"svamp": word_problems.split_of_svamp}

# Where the gold was read from the solution, or a stage has graded it.
SOLUTIONS_OF_THEIR_GOLD = ("gsm8k", "traces")


@functools.cache
def known_options(name: str) -> dict[str, bool]:
    """`{option: whether it must be set}` of a source's builder, its keyword-only arguments."""
    parameters = inspect.signature(BUILDERS[name]).parameters.values()
    return {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}
