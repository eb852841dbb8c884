"""What a reward function of the user's own may log: TRL's `log_metric` and `log_extra`, checked.

TRL takes anything. What it cannot log fails minutes later, in a line that names no reward, and a
name of its own metrics or columns replaces them.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch

from pipeline.manifest import encodable
from stages.blame import BadResultError

# Metrics of TRL, transformers and our trainer; those of an evaluation are logged behind `eval_`.
_METRICS = """
    reward reward_std frac_reward_zero_std loss policy_loss aux_loss kl entropy entropy_coef
    cispo_clip_ratio num_tokens step_time learning_rate grad_norm epoch step num_input_tokens_seen
    total_flos train_loss train_runtime train_samples_per_second train_steps_per_second
    train_tokens_per_second
    runtime samples_per_second steps_per_second model_preparation_time response_length cut_off_rate
    rollout/rewards rollout/response_length rollout/cut_off_rate rollout/correctness
    rollout/uniform_groups"""
METRICS = {*_METRICS.split()}
# Beginnings of further names; TensorBoard and W&B put `train/` before those of TRL.
GROUPS = (
    *("rewards/", "completions/", "sampling/", "clip_ratio/", "tools/", "vespo/"),
    *("train/", "guard/", "rollout/verdict/", "eval_", "avg@"),
)
# Columns of the table of completions beside the rewards.
COLUMNS = {"step", "prompt", "completion", "advantage", "image", "verdict"}


def check_metric(log_metric: Callable[[str, float], None], name: str, value: float) -> None:
    """TRL's `log_metric`, which takes anything and fails when it logs.

    Raises:
        BadResultError: the name is no text, or a metric of the trainer's, or the value no number.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = None
    if not isinstance(name, str) or number is None or isinstance(value, str | bytes):
        shown = f"{name!r:.40}, {value!r:.40}"
        raise BadResultError(f"called log_metric({shown}); give it a text and a number") from None
    if name in METRICS or name.startswith(GROUPS):
        raise BadResultError(
            f"called log_metric({name!r:.60}), a metric of the trainer's; use another name, such "
            f"as {'own/' + name!r:.60}"
        )
    log_metric(name, number)


class ExtraColumns:
    """The columns that the own rewards of a run add to the table of completions by `log_extra`.

    Args:
        rewards: the names of all reward functions, which are columns too.
    """

    def __init__(self, rewards: Sequence[str]) -> None:
        self._taken = COLUMNS | {*rewards}
        self._batch: Any = None
        self._logged: set[str] = set()  # of this batch

    def log(
        self, log_extra: Callable[[str, list], None], completions: list, column: str, values: Any
    ) -> None:
        """TRL's `log_extra` for a batch, which it hands to every reward as the same list.

        Raises:
            BadResultError: TRL could not write the column, or would replace another one.
        """
        if completions is not self._batch:
            self._batch, self._logged = completions, set()
        if not isinstance(column, str):
            raise BadResultError(f"called log_extra({column!r:.40}, ...); give it a text as name")
        called = f"called log_extra({column!r:.60}, ...)"
        if column in self._taken:
            raise BadResultError(f"{called}, a column of the trainer's; use another name")
        if column in self._logged:
            raise BadResultError(
                f"{called} again for one batch; call it once, and give each reward other names"
            )
        log_extra(column, cells_of(values, len(completions), called))
        self._logged.add(column)


def cells_of(values: Any, count: int, called: str) -> list[Any]:
    """The `count` values of a column, of one kind: texts, numbers, or true and false; and None.

    Raises:
        BadResultError: they are something else; the line begins with `called`.
    """
    if is_no_list(values):
        raise BadResultError(f"{called} with {type(values).__name__}, not a list of values")
    found = list(itertools.islice(values, count + 1))  # a generator may have no end
    if len(found) != count:
        number = len(found) if len(found) < count else f"more than {count}"
        raise BadResultError(
            f"{called} with {number} values for {count} completions; give one for each"
        )
    cells = [scalar_of(value) for value in found]
    kinds = {kind_of(cell) for cell in cells} - {"None"}
    if None in kinds or len(kinds) > 1:
        shown = ", ".join(sorted({type(value).__name__ for value in found}))
        raise BadResultError(
            f"{called} with values of {shown}; give texts alone, numbers alone, or true and false"
        )
    return cells


def is_no_list(values: Any) -> bool:
    """Whether something has no values in an order, one for each completion: also a set."""
    is_unordered = isinstance(values, str | bytes | Mapping | Set)
    return is_unordered or not isinstance(values, Iterable)


def scalar_of(value: Any) -> Any:
    """A value of numpy or torch as Python's, where it is one value; any other as it is."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, np.generic | np.ndarray) and value.size == 1:
        return value.item()
    return encodable(value) if isinstance(value, str) else value


def kind_of(cell: Any) -> str | None:
    """Which values can share a column with this one; None where none can hold it."""
    if cell is None:
        return "None"
    if isinstance(cell, bool):
        return "true or false"
    if isinstance(cell, str):
        return "text"
    is_number = isinstance(cell, float) or (isinstance(cell, int) and abs(cell) < 2**63)
    return "number" if is_number else None
