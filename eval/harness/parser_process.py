"""The harness's own parsers where they can be stopped: in a child process, with limits.

The official MATH-500 tasks hand what a model wrote to sympy. The harness's own time limits are
signals to the process at work, which long stretches of C code do not hear, and its memory has
none: one formula can hang an evaluation or have it killed. `eval.run` and `eval.audit.parsers` call
`protect` on the official tasks; nothing else about a task is changed.
"""

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from data_prep.grading.pool import GradingPool

# Above the sum of the harness's own limits for one completion: what those decide is left to them.
TIMEOUT_SECONDS = 30.0
MEMORY_BYTES = 3 << 30
# The harness's regular expressions take quadratic time on an answer, in its process; no benchmark
# has one as long, and no official task lets a model write as much.
MAX_CHARS = 100_000


def protect(tasks: dict[str, Any]) -> list[dict]:
    """Make the harness's tasks `{name: task}`, in place, safe for any completion.

    Returns:
        A list that the scoring will fill: the rows (`doc`) of the completions on which a parser had
        to be stopped, once for each task. They score 0, as those do that the harness gives up.
    """
    stopped: list[dict] = []
    for task in tasks.values():
        parse = task.config.process_results
        task.process_results = functools.partial(
            _parse_outside if callable(parse) else _parse_here, task, task.process_results, stopped
        )
    return stopped


def _nothing(task: Any) -> dict[str, int]:
    return {metric["metric"]: 0 for metric in task.config.metric_list}


def _parse_here(task: Any, parse: Callable, stopped: list[dict], doc: dict, results: list) -> dict:
    """Regular expressions only, if the completion is not too long for them."""
    if any(isinstance(one, str) and len(one) > MAX_CHARS for one in results):
        stopped.append(doc)
        return _nothing(task)
    return parse(doc, results)


def _parse_outside(
    task: Any, parse: Callable, stopped: list[dict], doc: dict, results: list
) -> dict:
    code = task.config.process_results.__code__
    outcome = _pool().call(results, doc, code.co_filename, code.co_name)
    if outcome.status == "ok":
        return outcome.value
    stopped.append(doc)
    return _nothing(task)


@functools.cache
def _pool() -> GradingPool:
    # One worker, as the harness asks for one completion at a time. It keeps no outcomes: the texts
    # may be long, and hardly two are alike.
    return GradingPool(
        "eval.harness.parser_process:call_harness", 1, TIMEOUT_SECONDS, MEMORY_BYTES, cache_size=0
    )


@functools.cache
def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"harness_{Path(path).parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call_harness(results: list[str], doc: dict, path: str, name: str) -> dict:
    """What a child of the pool runs: the function `name` of the harness's file `path`.

    The harness sets and ends alarms of its own, which puts the pool's off: the pool then notices by
    its own clock.
    """
    return getattr(_load(path), name)(doc, results)
