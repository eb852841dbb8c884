"""A grader of the user's own in the place of ours: `grader: module:function` in data.yaml.

    def is_correct(text: str, answers: list[str]) -> bool

`text` is the completion behind its thought, `answers` are the row's accepted answers as the data
have them. Anything else than a bool (numpy's counts) is no verdict, and ends the stage with one
line. So do an exception and a call that takes too long: it runs in child processes (`worker`),
which can be killed wherever they hang. They have no GPU, and what they print is lost.
"""

import functools
import os
from collections.abc import Sequence
from typing import Any

from grading.worker import Outcome, Workers, share_of_cpus
from pipeline.errors import UserError
from pipeline.own_code import is_own, load_own, place_of
from pipeline.prompts import THINK_CLOSE, THINK_OPEN, write_answer

KEY = "grader"
COLUMN = "own_grader"  # of a row, the name of the grader that judges its completions
SECONDS = 30.0  # for one completion
MEMORY_BYTES = 8 << 30  # of address space; the user's module imports what it likes
Case = tuple[str, str, list[str]]  # grader, text, answers
_taken: dict[str, Any] = {}  # by name: graders that this process may call


def take(name: str) -> None:
    """Load a grader that the user has allowed; only such ones are ever called.

    Raises:
        UserError: it is not written as `module:function`, or cannot be loaded.
    """
    if name not in _taken:
        if not is_own(name):
            raise UserError(f"{KEY}: must be module:function (got {name!r:.80})")
        _taken[name] = load_own(name, KEY)


def judge(cases: Sequence[Case]) -> list[tuple[bool, float]]:
    """(whether it is correct, seconds of work) for each case, in order.

    Raises:
        UserError: a grader that nobody has taken up, or one that gave no verdict.
    """
    for name in {name for name, *_ in cases} - _taken.keys():
        raise UserError(f"{COLUMN}: {name} was not loaded; read the rows with read_problems")
    found: list[tuple[bool, float]] = []
    num_workers = share_of_cpus()
    # A few at a time: the first fault ends the stage, and a hang takes its whole limit.
    for start in range(0, len(cases), num_workers):
        some = cases[start : start + num_workers]
        for (name, *_), outcome in zip(some, _workers().map(some), strict=True):
            found.append((_verdict_of(name, outcome), outcome.seconds))
    return found


def _verdict_of(name: str, outcome: Outcome) -> bool:
    """The verdict of one call; raises `UserError` with function, file and line without one."""
    fault, place = outcome.error, None
    if outcome.status == "ok":
        value, fault, place = outcome.value
        if fault is None:
            return value
    elif outcome.status == "timeout":
        fault = f"was stopped: {outcome.error}, its import included; let it end by itself"
    else:
        fault = f"ended its process: {outcome.error}"
    place = place or place_of(TypeError(), _taken[name])[0]  # where the function begins
    raise UserError(f"{KEY}: {name} ({place}) {fault}")


def accepts(name: str, answer: str, answers: Sequence[str], answer_form: str) -> bool:
    """Whether a grader accepts an answer, written in one of `ANSWER_FORMS`, for some golds."""
    ((is_correct, _),) = judge([(name, write_answer(answer, answer_form), list(answers))])
    return is_correct


def text_behind_thought(completion: str, think_prefilled: bool | None = False) -> str | None:
    """What follows the last `</think>`, the whole without a thought; None if one is left open."""
    _, close, rest = completion.rpartition(THINK_CLOSE)
    is_open = THINK_OPEN in rest or (think_prefilled and not close)
    return None if is_open else rest


def judge_in_worker(name: str, text: str, answers: list[str]) -> tuple[Any, str | None, str | None]:
    """What a worker runs: (verdict, fault, place); the fault is None with a verdict."""
    import numpy as np

    function = load_own(name, KEY)
    try:
        value = function(text, answers)
    except MemoryError:  # the worker's to tell
        raise
    except BaseException as error:  # SystemExit too
        said = " ".join(str(error).split())
        place, _ = place_of(error, function)
        return None, f"raised {type(error).__name__}: {said:.200}", place
    if isinstance(value, bool | np.bool_):
        return bool(value), None, None
    shown = " ".join(repr(value).split())
    return None, f"returned {shown:.80} ({type(value).__name__}), not True or False", None


@functools.cache
def _workers() -> Workers:
    os.register_at_fork(after_in_child=_workers.cache_clear)  # the workers are the parent's
    return Workers(f"{__name__}:judge_in_worker", share_of_cpus(), SECONDS, MEMORY_BYTES)
