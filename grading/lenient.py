"""Where a completion says an answer at all, in whatever form: a diagnosis, never a score or reward.

math-verify finds the text of the answer, in a killable process, as it also hands it to sympy.
Whether it is the gold says our own grader.
"""

import functools
import os
import re
from collections.abc import Iterable

from grading.compare import is_same_value
from grading.grade import Golds, as_list
from grading.worker import Workers, share_of_cpus

SECONDS = 2.0  # of reading one completion
MEMORY_BYTES = 2 << 30
_OPTION = re.compile(r"\s*\$?(?:\\text\s*\{)?\(?[A-K]\)?\}?\$?\s*")


def grade_leniently(completions: Iterable[str], golds: Iterable[Golds]) -> list[str | None]:
    """The verdict on what each completion seems to answer, in order.

    Returns:
        "right", "wrong" (also after a time-out), or None where no answer was found.
    """
    accepted = [as_list(gold) for gold in golds]
    calls = [
        (completion, any(map(_OPTION.fullmatch, some)))
        for completion, some in zip(completions, accepted, strict=True)
    ]
    verdicts: list[str | None] = []
    for outcome, some in zip(_workers().map(calls) if calls else [], accepted, strict=True):
        if outcome.status == "ok" and outcome.value is None:
            verdicts.append(None)
        elif outcome.status == "ok" and any(is_same_value(outcome.value, gold) for gold in some):
            verdicts.append("right")
        else:
            verdicts.append("wrong")
    return verdicts


@functools.cache
def _workers() -> Workers:
    os.register_at_fork(after_in_child=_workers.cache_clear)  # the workers are the parent's
    return Workers("grading.lenient_reader:read", share_of_cpus(), SECONDS, MEMORY_BYTES)
