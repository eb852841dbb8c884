"""A reward function of the user's own as TRL gets it: it works on copies, its result is checked.

The result is one number for each completion, or None ("not applicable", see `stages.rewards`). All
else ends the run at its step with one line: an exception, `sys.exit`, another number of values,
text, nested lists, NaN, infinity. TRL would train on some of them.
"""

import contextlib
import copy
import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trl.trainer.utils import get_callable_name, is_async_callable

from pipeline.console import notice
from pipeline.own_code import is_own, load_own, split_name
from stages.arguments import REWARD_FUNCS
from stages.blame import BadResultError, blamed
from stages.run.folders import last_checkpoint

LARGEST = 1e18  # TRL squares rewards in float32
SLOW_SECONDS = 60.0  # after which a call is told of
# Columns of TRL's table of completions beside the rewards.
COLUMNS = {"step", "prompt", "completion", "advantage", "image", "verdict"}


def logged_names(reward_funcs: Sequence[str]) -> list[str]:
    """The name by which TRL logs each function of a recipe, no two alike.

    The trainer finds the reward that says what is correct by this name, too. An own function keeps
    its `__name__`, unless that is a built-in reward's, a column's or another listed function's.
    Then it is the full name, such as `mine.score`.
    """
    short = [
        get_callable_name(load_own(name, "reward_funcs")) if is_own(name) else name
        for name in reward_funcs
    ]
    taken, found = {*REWARD_FUNCS, *COLUMNS}, []
    for name, own in zip(reward_funcs, short, strict=True):
        is_taken = own in taken or short.count(own) > 1
        found.append(".".join(split_name(name)) if is_own(name) and is_taken else own)
    return found


def own_reward(name: str, logged_as: str, config: Any) -> Callable[..., Any]:
    """Load `module:function` and return it with its result checked; an async one stays async.

    Args:
        logged_as: its name in TRL's logs.
        config: TRL's `GRPOConfig`, whose `output_dir` has the checkpoint that an error names.
    """
    function = load_own(name, "reward_funcs")

    @contextlib.contextmanager
    def watched(batch: dict[str, Any]) -> Iterator[None]:
        """Blame the function for what is raised inside, and say if it takes long."""

        def where() -> str:
            state = batch.get("trainer_state")  # the audit has none
            if state is None:
                return ""
            return at_step(state.global_step, config.output_dir, "held_out" in batch)

        with (
            blamed("reward_funcs", name, function, where),
            told_if_slow(name, where),
            torch.set_grad_enabled(torch.is_grad_enabled()),  # it may switch gradients off
        ):
            yield

    def reward(**batch: Any) -> list[float | None]:
        with watched(batch):
            return numbers_of(function(**copied(batch)), len(batch["completions"]))

    async def async_reward(**batch: Any) -> list[float | None]:
        with watched(batch):
            return numbers_of(await function(**copied(batch)), len(batch["completions"]))

    chosen = async_reward if is_async_callable(function) else reward
    chosen.__name__ = logged_as
    return chosen


@contextlib.contextmanager
def told_if_slow(name: str, where: Callable[[], str]) -> Iterator[None]:
    """Say which reward has not returned after a minute; it may hang, and nothing ends it."""

    def tell() -> None:
        notice(f"reward_funcs: {name} has not returned for {SLOW_SECONDS:.0f} s{where()}")

    timer = threading.Timer(SLOW_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def copied(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with copies of its lists: the next reward, the loss and the logs use them too.

    TRL's `log_metric` and `log_extra` take anything and fail when they log; these fail at once.
    """
    shared = ("completion_ids", "environments")
    state, log_metric = batch.get("trainer_state"), batch.get("log_metric")
    log_extra = batch.get("log_extra")
    own = {
        key: copy.deepcopy(value) if isinstance(value, list) and key not in shared else value
        for key, value in batch.items()
    }
    if "completion_ids" in batch:  # flat and long
        own["completion_ids"] = [list(ids) for ids in batch["completion_ids"]]
    if state is not None:
        own["trainer_state"] = copy.copy(state)
    if log_metric is not None:
        own["log_metric"] = lambda name, value: log_metric(str(name), float(value))
    if log_extra is not None:
        own["log_extra"] = functools.partial(log_column, log_extra, len(batch["completions"]))
    return own


def log_column(
    log_extra: Callable[[str, list], None], count: int, column: str, values: Iterable[Any]
) -> None:
    """TRL's `log_extra` for a column of `count` values that is none of the table's own."""
    if isinstance(values, torch.Tensor | np.ndarray):
        values = values.tolist()
    cells = list(itertools.islice(values, count + 1))  # a generator may have no end
    if len(cells) != count or column in COLUMNS:
        fault = f"called log_extra({column!r:.60}, ...)"
        raise BadResultError(f"{fault}; give {count} values, and a name that is no column yet")
    log_extra(str(column), cells)


def numbers_of(found: Any, count: int) -> list[float | None]:
    """The `count` numbers, or None, that a reward function has returned: of any iterable of them.

    Raises:
        BadResultError: it has returned something else.
    """
    is_unordered = isinstance(found, str | bytes | Mapping | Set)
    if is_unordered or not isinstance(found, Iterable):
        raise BadResultError(f"returned {type(found).__name__}, not a list of numbers")
    values = list(itertools.islice(found, count + 1))  # a generator may have no end
    if len(values) != count:
        number = len(values) if len(values) < count else f"more than {count}"
        raise BadResultError(f"returned {number} values for {count} completions")
    return [number_of(value, place) for place, value in enumerate(values)]


def number_of(value: Any, place: int) -> float | None:
    """One value of a result, such as one of numpy or torch, as a number; None stays."""
    if value is None:
        return None
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        shown = f"{type(value).__name__} {str(value)[:40]!r}"
        raise BadResultError(f"returned {shown} for completion {place}, not a number") from None
    if not math.isfinite(number):
        raise BadResultError(f"returned {number} for completion {place}; return a finite number")
    if abs(number) > LARGEST:
        raise BadResultError(f"returned {number:g} for completion {place}, above {LARGEST:g}")
    return number


def at_step(num_done: int, output_dir: str, is_evaluation: bool = False) -> str:
    """The end of an error's line: the step, of which `num_done` are whole, and the checkpoint."""
    when = f"in the evaluation at step {num_done}" if is_evaluation else f"at step {num_done + 1}"
    return f" {when}; the last checkpoint is {last_checkpoint(Path(output_dir)) or 'none'}"
